//! One probe of a peer: does it answer? The connection stays open a while, because its end tells at
//! once that the process has ended.

use std::{fmt, io};

use axum::http::Uri;
use busload_tls::ClientConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    connector::PeerConnector,
    limits::{PROBE_ANSWER_BYTES_MAX, PROBE_TIMEOUT},
};

/// Path that answers while the process lives, without credentials.
const PATH: &str = "/healthz";
/// Protocol of the probe, as TLS names it.
const PROTOCOL: &[u8] = b"http/1.1";
/// Port of a URL without one.
const PORT_DEFAULT: u16 = 80;
/// Beginnings of the answer of a peer that lives, of equal lengths.
const ALIVE: [&[u8]; 2] = [b"HTTP/1.1 200 ", b"HTTP/1.0 200 "];

/// Outcome of a probe.
#[derive(Debug)]
pub enum Probe {
    /// The peer answered as one that lives.
    Alive(Connection),
    /// Nobody listens at its address.
    Refused,
    /// It ended the connection instead of an answer.
    CutOff,
    /// It did not answer, or not as one that lives.
    Failed,
}

/// Connection on which a peer answered.
#[derive(Debug)]
pub struct Connection(Box<dyn PeerStream>);

/// Connection to a peer, by TLS or without it.
trait PeerStream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> PeerStream for S {}

/// Asks a peer whether it lives. One behind TLS needs a certificate that is trusted.
pub async fn probe(url: &str, tls: Option<&ClientConfig>) -> Probe {
    match timeout(PROBE_TIMEOUT, ask(url, tls)).await {
        Ok(Ok(Some(connection))) => Probe::Alive(connection),
        Ok(Ok(None)) => Probe::Failed,
        Ok(Err(error)) => {
            log::debug!("peer {url}: {error}");
            match error.kind() {
                io::ErrorKind::ConnectionRefused => Probe::Refused,
                io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof => Probe::CutOff,
                _ => Probe::Failed,
            }
        }
        Err(_) => {
            log::debug!("peer {url}: no answer within {PROBE_TIMEOUT:?}");
            Probe::Failed
        }
    }
}

impl Connection {
    /// Waits until the peer ends the connection. What it still sends is left out.
    pub async fn ended(mut self) {
        let mut rest = [0; PROBE_ANSWER_BYTES_MAX];
        while matches!(self.0.read(&mut rest).await, Ok(1..)) {}
    }
}

async fn ask(url: &str, tls: Option<&ClientConfig>) -> io::Result<Option<Connection>> {
    let uri: Uri = url.parse().map_err(io::Error::other)?;
    let host = uri.host().ok_or_else(|| io::Error::other("expected a host"))?;
    let mut stream: Box<dyn PeerStream> = match (uri.scheme_str(), tls) {
        (Some("https"), Some(config)) => {
            let connector = PeerConnector::new(&uri, config, PROTOCOL).map_err(io::Error::other)?;
            Box::new(connector.connect().await?)
        }
        _ => {
            let port = uri.port_u16().unwrap_or(PORT_DEFAULT);
            Box::new(TcpStream::connect((host.trim_matches(['[', ']']), port)).await?)
        }
    };
    let path = uri.path().trim_end_matches('/');
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    let head = format!("GET {path}{PATH} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = [0; ALIVE[0].len()];
    stream.read_exact(&mut answer).await?;
    Ok(ALIVE.contains(&&answer[..]).then_some(Connection(stream)))
}
