//! One probe of a peer: does it answer?

use std::io;

use axum::http::Uri;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::limits::{PROBE_ANSWER_BYTES_MAX, PROBE_TIMEOUT};

/// Path that answers while the process lives, without credentials.
const PATH: &str = "/healthz";

/// Asks a peer whether it lives. A peer behind TLS is alive if it accepts a connection: its
/// certificate concerns its clients.
pub async fn is_alive(url: &str) -> bool {
    match timeout(PROBE_TIMEOUT, ask(url)).await {
        Ok(Ok(alive)) => alive,
        Ok(Err(error)) => {
            log::debug!("peer {url}: {error}");
            false
        }
        Err(_) => {
            log::debug!("peer {url}: no answer within {PROBE_TIMEOUT:?}");
            false
        }
    }
}

async fn ask(url: &str) -> io::Result<bool> {
    let uri: Uri = url.parse().map_err(io::Error::other)?;
    let host = uri.host().ok_or_else(|| io::Error::other("expected a host"))?;
    let is_tls = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let mut stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    if is_tls {
        return Ok(true);
    }
    let path = uri.path().trim_end_matches('/');
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    let head =
        format!("GET {path}{PATH} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(PROBE_ANSWER_BYTES_MAX as u64).read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200 ") || answer.starts_with(b"HTTP/1.0 200 "))
}
