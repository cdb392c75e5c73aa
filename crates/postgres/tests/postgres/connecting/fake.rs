//! A server that lets everybody in and then misbehaves. It speaks only as much of the protocol as
//! that needs.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Behaviour after the login.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PeerKind {
    /// Answers every statement with an error.
    RefusesSettings,
    /// Ends the connection in answer to the first statement, as a server does whose administrator
    /// says so.
    EndsInSetUp,
    /// Answers `SET` and nothing else, not even a Terminate message.
    Silent,
}

pub struct Server {
    port: u16,
    closed: watch::Receiver<bool>,
}

impl Server {
    pub async fn start(kind: PeerKind) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, closed) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let tell = tell.clone();
                tokio::spawn(async move {
                    let _ = serve(stream, kind).await;
                    tell.send_replace(true);
                });
            }
        });
        Self { port, closed }
    }

    pub fn url(&self) -> String {
        format!("postgres://u@127.0.0.1:{}/d?sslmode=disable", self.port)
    }

    /// Resolves when a client has closed its connection.
    pub async fn closed(mut self) {
        self.closed.wait_for(|closed| *closed).await.unwrap();
    }
}

const READY: &[u8] = b"Z\0\0\0\x05I";

async fn serve(mut stream: TcpStream, kind: PeerKind) -> std::io::Result<()> {
    let length = stream.read_u32().await?;
    read(&mut stream, length).await?;
    stream.write_all(b"R\0\0\0\x08\0\0\0\0").await?;
    stream.write_all(READY).await?;
    loop {
        let tag = stream.read_u8().await?;
        let length = stream.read_u32().await?;
        let body = read(&mut stream, length).await?;
        let answer: &[u8] = match (tag, kind) {
            (b'Q', PeerKind::RefusesSettings) => {
                b"E\0\0\0\x25SERROR\0VERROR\0C42704\0Mnot by me\0\0"
            }
            (b'Q', PeerKind::EndsInSetUp) => {
                const END: &[u8] = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0";
                stream.write_u8(b'E').await?;
                stream.write_u32(u32::try_from(END.len() + 4).unwrap()).await?;
                stream.write_all(END).await?;
                stream.shutdown().await?;
                // Unread bytes would reset the connection, and the client would lose the reason.
                tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
                return Ok(());
            }
            (b'Q', PeerKind::Silent) if body.starts_with(b"SET") => b"C\0\0\0\x08SET\0",
            _ => continue,
        };
        stream.write_all(&[answer, READY].concat()).await?;
    }
}

/// Reads the rest of a message whose length includes itself.
async fn read(stream: &mut TcpStream, length: u32) -> std::io::Result<Vec<u8>> {
    let mut body = vec![0; usize::try_from(length).unwrap() - 4];
    stream.read_exact(&mut body).await?;
    Ok(body)
}
