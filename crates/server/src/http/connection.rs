//! The socket of a connection. It fails when the client takes nothing for too long, or sends too
//! many frames that ask for nothing.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use super::{frames::FrameBudget, front_metrics::FrontMetrics, limits::WRITE_STALL_MAX};

/// Stream whose writes time out, and whose frames count against a budget.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    /// Timeout of a stalled write.
    timeout: Pin<Box<Sleep>>,
    /// Set if the last write found the socket's buffer full.
    stalled: bool,
    budget: FrameBudget,
    metrics: Arc<FrontMetrics>,
}

impl<S: AsyncWrite + Unpin> Connection<S> {
    /// Wraps a stream. Needs a tokio runtime, for its timer.
    pub fn new(stream: S, metrics: Arc<FrontMetrics>) -> Self {
        let timeout = Box::pin(sleep(WRITE_STALL_MAX));
        Self { stream, timeout, stalled: false, budget: FrameBudget::new(), metrics }
    }

    /// Ends a connection that floods the server, with a GOAWAY if it can be sent.
    fn send_away(&mut self, context: &mut Context<'_>) -> io::Error {
        self.metrics.flooded.fetch_add(1, Relaxed);
        log::debug!(
            "HTTP: a connection was closed: its client sent too many frames that ask for nothing"
        );
        if let Some(goaway) = self.budget.goaway() {
            // The socket takes these few bytes, unless the client has read nothing for long.
            let _ = Pin::new(&mut self.stream).poll_write(context, &goaway);
        }
        io::Error::new(io::ErrorKind::ConnectionAborted, "too many frames that ask for nothing")
    }

    /// Returns the outcome of a write, or an error if it has stalled for too long.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = false;
            return written;
        }
        if !self.stalled {
            self.stalled = true;
            self.timeout.as_mut().reset(Instant::now() + WRITE_STALL_MAX);
        }
        match self.timeout.as_mut().poll(context) {
            Poll::Ready(()) => {
                self.metrics.stuck.fetch_add(1, Relaxed);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.budget.receive(&buffer.filled()[before..]) {
            return Poll::Ready(Err(self.send_away(context)));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.budget.send(&bytes[..count]);
        }
        self.bounded(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        if let Poll::Ready(Ok(mut count)) = written {
            for slice in slices {
                let part = count.min(slice.len());
                self.budget.send(&slice[..part]);
                count -= part;
            }
        }
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn paused() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    }

    #[test]
    fn who_reads_nothing_is_gone_after_a_while() {
        paused().block_on(async {
            let (near, _far) = duplex(100);
            let started = Instant::now();
            let metrics = Arc::<FrontMetrics>::default();
            let error = Connection::new(near, Arc::clone(&metrics))
                .write_all(&[0; 1000])
                .await
                .unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(started.elapsed(), WRITE_STALL_MAX);
            assert_eq!(metrics.stuck.load(Relaxed), 1);
        });
    }

    #[test]
    fn who_reads_slowly_is_not() {
        paused().block_on(async {
            let (near, mut far) = duplex(100);
            let writing = tokio::spawn(async move {
                Connection::new(near, Arc::default()).write_all(&[7; 1000]).await
            });
            let mut read = Vec::new();
            for _ in 0..10 {
                tokio::time::sleep(WRITE_STALL_MAX / 2).await;
                let mut part = [0; 100];
                far.read_exact(&mut part).await.unwrap();
                read.extend(part);
            }
            writing.await.unwrap().unwrap();
            assert_eq!(read, [7; 1000]);
        });
    }
}
