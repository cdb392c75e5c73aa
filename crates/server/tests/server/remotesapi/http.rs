//! An HTTP/1.1 client that shows what came over the wire and tells a body that was cut off from a
//! whole one.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    ops::Range,
};

use crate::support::client::connect;

/// A connection that is kept for further requests.
#[derive(Debug)]
pub struct Http {
    stream: TcpStream,
    received: Vec<u8>,
}

/// Status line and headers of an answer.
#[derive(Clone, Debug)]
pub struct Head {
    pub status: u16,
    headers: Vec<(String, String)>,
}

/// An answer, as far as it arrived.
#[derive(Clone, Debug)]
pub struct Answer {
    pub head: Head,
    pub body: Vec<u8>,
    /// Set if the body has as many bytes as the head announced.
    pub is_whole: bool,
}

impl Head {
    fn parse(text: &str) -> Self {
        let mut lines = text.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers =
            lines.map(|line| line.split_once(':').unwrap_or_else(|| panic!("a header: {line}")));
        let headers =
            headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
        Self { status, headers: headers.collect() }
    }

    /// Returns a header's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut values =
            self.headers.iter().filter(|(of, _)| of == name).map(|(_, value)| &**value);
        let value = values.next();
        assert_eq!(values.next(), None, "{name} stands twice");
        value
    }

    /// Returns Content-Length, which every answer of this server with a body has.
    #[track_caller]
    pub fn length(&self) -> usize {
        let length = self.get("content-length");
        length.unwrap_or_else(|| panic!("no Content-Length: {self:?}")).parse().unwrap()
    }
}

impl Answer {
    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Http {
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self { stream: connect(address), received: Vec::new() }
    }

    /// Sends a request without a body. `headers` is sent as it is, so each needs its line end.
    #[track_caller]
    pub fn send(&mut self, method: &str, target: &str, headers: &str) {
        let host = self.stream.peer_addr().unwrap();
        let request = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    /// Reads the next head.
    #[track_caller]
    pub fn head(&mut self) -> Head {
        self.try_head().unwrap()
    }

    /// Reads the next head, or fails if the connection ends first.
    pub fn try_head(&mut self) -> io::Result<Head> {
        loop {
            if let Some(end) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                let text: Vec<u8> = self.received.drain(..end + 4).take(end).collect();
                return Ok(Head::parse(std::str::from_utf8(&text).map_err(io::Error::other)?));
            }
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads this many bytes of the body, or fewer if the connection ends before.
    pub fn body(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.received.len() < length {
            match self.fill() {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error),
            }
        }
        let length = length.min(self.received.len());
        Ok(self.received.drain(..length).collect())
    }

    /// Reads until the connection ends.
    #[track_caller]
    pub fn rest(&mut self) -> String {
        while self.fill().unwrap() != 0 {}
        String::from_utf8_lossy(&std::mem::take(&mut self.received)).into_owned()
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 64 * 1024];
        let count = self.stream.read(&mut buffer)?;
        self.received.extend_from_slice(&buffer[..count]);
        Ok(count)
    }

    /// Sends a request and reads its answer, or fails if there is none.
    pub fn try_call(&mut self, method: &str, target: &str, headers: &str) -> io::Result<Answer> {
        self.send(method, target, headers);
        let head = self.try_head()?;
        let has_body = method != "HEAD" && ![204, 304].contains(&head.status);
        let length = if has_body { head.length() } else { 0 };
        let body = self.body(length)?;
        Ok(Answer { head, is_whole: body.len() == length, body })
    }

    #[track_caller]
    pub fn call(&mut self, method: &str, target: &str, headers: &str) -> Answer {
        self.try_call(method, target, headers).unwrap()
    }

    /// Sends a request with a body and reads its answer.
    #[track_caller]
    pub fn post(&mut self, target: &str, headers: &str, body: &str) -> Answer {
        let length = format!("{headers}Content-Length: {}\r\n", body.len());
        self.send("POST", target, &length);
        self.stream.write_all(body.as_bytes()).unwrap();
        let head = self.head();
        let length = head.length();
        let body = self.body(length).unwrap();
        Answer { head, is_whole: body.len() == length, body }
    }

    #[track_caller]
    pub fn get(&mut self, target: &str) -> Answer {
        self.call("GET", target, "")
    }

    /// Requests a range as Dolt's client does for chunks.
    #[track_caller]
    pub fn range(&mut self, target: &str, range: Range<u64>) -> Answer {
        self.call("GET", target, &range_header(range))
    }

    /// Requests a range and returns its bytes, all of which must come.
    #[track_caller]
    pub fn bytes(&mut self, target: &str, range: Range<u64>) -> Vec<u8> {
        let answer = self.range(target, range.clone());
        assert_eq!(answer.head.status, 206, "{target} {range:?}: {}", answer.text());
        assert!(answer.is_whole, "{target} {range:?}: cut off after {} bytes", answer.body.len());
        assert_eq!(answer.body.len() as u64, range.end - range.start, "{target} {range:?}");
        answer.body
    }
}

/// Formats a closed range as a header.
pub fn range_header(range: Range<u64>) -> String {
    format!("Range: bytes={}-{}\r\n", range.start, range.end - 1)
}

/// Returns what follows scheme and authority in a URL, after checking these against `base`.
#[track_caller]
pub fn target(url: &str, base: &str) -> String {
    let target =
        url.strip_prefix(base).unwrap_or_else(|| panic!("{url} does not begin with {base}"));
    assert!(target.starts_with('/'), "{url}");
    target.to_owned()
}
