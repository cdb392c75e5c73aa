//! Parses requests of a client.

use std::io;

use bytes::{Bytes, BytesMut};
use hyper::{
    HeaderMap, Method, Request, Uri,
    header::{self, HeaderName, HeaderValue},
    http,
};
use tokio::{io::AsyncReadExt, net::TcpStream};

use crate::limits::{HEAD_BYTES_MAX, HEADERS_MAX, HELD_BODY_BYTES_MAX};

/// Reads the requests of one connection.
#[derive(Debug, Default)]
pub struct Reader {
    buffer: BytesMut,
}

impl Reader {
    /// Reads the next request; `None` when the client is done.
    pub async fn next(&mut self, socket: &mut TcpStream) -> io::Result<Option<Request<Bytes>>> {
        let head_bytes = loop {
            if let Some(end) = memchr_head_end(&self.buffer) {
                break end;
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(invalid("a head of at most 64 KiB"));
            }
            if !self.read_more(socket).await? {
                return Ok(None);
            }
        };
        let head = self.buffer.split_to(head_bytes);
        let mut request = parse(&head)?;
        let body_bytes = body_length(request.headers())?;
        if request.headers_mut().remove(header::EXPECT).is_some() {
            use tokio::io::AsyncWriteExt;
            socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        while self.buffer.len() < body_bytes {
            if !self.read_more(socket).await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        *request.body_mut() = self.buffer.split_to(body_bytes).freeze();
        Ok(Some(request))
    }

    async fn read_more(&mut self, socket: &mut TcpStream) -> io::Result<bool> {
        self.buffer.reserve(8 << 10);
        Ok(socket.read_buf(&mut self.buffer).await? > 0)
    }
}

fn memchr_head_end(buffer: &[u8]) -> Option<usize> {
    buffer.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

fn body_length(headers: &HeaderMap) -> io::Result<usize> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(invalid("a body with Content-Length"));
    }
    let Some(length) = headers.get(header::CONTENT_LENGTH) else { return Ok(0) };
    let length = length.to_str().ok().and_then(|length| length.parse::<usize>().ok());
    length
        .filter(|length| *length <= HELD_BODY_BYTES_MAX)
        .ok_or_else(|| invalid("a body of at most 256 MiB"))
}

fn parse(head: &[u8]) -> io::Result<Request<Bytes>> {
    let text = std::str::from_utf8(head).map_err(|_| invalid("ASCII"))?;
    let mut lines = text.split("\r\n").take_while(|line| !line.is_empty());
    let first = lines.next().ok_or_else(|| invalid("a request"))?;
    let mut words = first.split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(invalid("METHOD TARGET HTTP/1.1"));
    };
    let mut request = Request::new(Bytes::new());
    *request.method_mut() =
        Method::from_bytes(method.as_bytes()).map_err(|_| invalid("a method"))?;
    *request.uri_mut() = target.parse::<Uri>().map_err(|_| invalid("a path"))?;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| invalid("NAME: VALUE"))?;
        let (name, value) = header_of(name, value.trim()).map_err(|_| invalid("a header"))?;
        request.headers_mut().append(name, value);
        if request.headers().len() > HEADERS_MAX {
            return Err(invalid("at most 100 headers"));
        }
    }
    Ok(request)
}

fn header_of(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), http::Error> {
    Ok((HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?))
}

fn invalid(expected: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("bad request: expected {expected}"))
}

/// A range as a request states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedRange {
    /// First and last byte.
    Closed(u64, u64),
    /// All bytes from this one on.
    From(u64),
    /// This many bytes at the end.
    Suffix(u64),
}

impl RequestedRange {
    /// Returns the range of a request, if it has a valid one.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?;
        let (first, last) = text.split_once('-')?;
        Some(match (first, last) {
            ("", last) => Self::Suffix(last.parse().ok()?),
            (first, "") => Self::From(first.parse().ok()?),
            (first, last) => Self::Closed(first.parse().ok()?, last.parse().ok()?),
        })
    }

    /// Returns the range as a header.
    pub fn header(self) -> HeaderValue {
        let text = match self {
            Self::Closed(first, last) => format!("bytes={first}-{last}"),
            Self::From(first) => format!("bytes={first}-"),
            Self::Suffix(bytes) => format!("bytes=-{bytes}"),
        };
        HeaderValue::from_str(&text).expect("digits and a dash are a header")
    }
}
