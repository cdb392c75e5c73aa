//! A listener that serves so many connections at once and lets the others wait to be accepted. A connection that sends nothing
//! for a while is closed, so that a place does not stay with somebody who has forgotten it.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};

/// How long to leave the listener alone when it fails, as it does when the process is out of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// How long a connection may send nothing. More than the usual minute between two scrapes.
const IDLE_MAX: Duration = Duration::from_secs(75);

/// The listener.
pub struct Listener {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Listener {
    /// On a socket that does not block, within a runtime.
    pub fn new(listener: std::net::TcpListener, count: usize) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::from_std(listener)?, places: Arc::new(Semaphore::new(count)) })
    }
}

impl axum::serve::Listener for Listener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let place =
                Arc::clone(&self.places).acquire_owned().await.expect("the semaphore is never closed");
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let idle = Box::pin(sleep(IDLE_MAX));
                    return (Connection { stream, idle, _place: place }, address);
                }
                Err(_) => sleep(ACCEPT_BACKOFF).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that gives its place back when it ends.
pub struct Connection {
    stream: TcpStream,
    /// Ends when it has sent nothing for too long.
    idle: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        match polled {
            Poll::Ready(_) => self.idle.as_mut().reset(Instant::now() + IDLE_MAX),
            Poll::Pending if self.idle.as_mut().poll(context).is_ready() => {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            Poll::Pending => {}
        }
        polled
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
