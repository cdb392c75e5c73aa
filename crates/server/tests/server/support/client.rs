//! A client of the Redis protocol.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
};

use busload_resp::reply::{NullKind, Reply};
use rustix::net::{self, AddressFamily, SocketType};

use super::TIMEOUT;

/// Connection of a RESP client.
#[derive(Debug)]
pub struct Client<S> {
    pub stream: S,
    received: Vec<u8>,
}

impl Client<TcpStream> {
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self { stream: connect(address), received: Vec::new() }
    }

    /// Connects to a server that may have ended.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { stream: try_connect(address)?, received: Vec::new() })
    }

    /// Connects from this address of this machine.
    #[track_caller]
    pub fn connect_from(source: Ipv4Addr, address: SocketAddr) -> Self {
        Self { stream: connect_from(source, address), received: Vec::new() }
    }
}

/// Connects a socket that sends at once and whose reads and writes time out.
#[track_caller]
pub fn connect(address: SocketAddr) -> TcpStream {
    try_connect(address).unwrap()
}

fn try_connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Connects such a socket from this address of this machine, to pose as another client.
#[track_caller]
pub fn connect_from(source: Ipv4Addr, address: SocketAddr) -> TcpStream {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&socket, &SocketAddr::from((source, 0))).unwrap();
    net::connect(&socket, &address).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

impl Client<UnixStream> {
    #[track_caller]
    pub fn connect_unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { stream, received: Vec::new() }
    }
}

impl<S: Read + Write> Client<S> {
    /// Speaks to a server over this stream.
    pub fn over(stream: S) -> Self {
        Self { stream, received: Vec::new() }
    }

    /// Sends a command and waits for its reply.
    #[track_caller]
    pub fn call(&mut self, words: &[&str]) -> Reply {
        self.send(&command(words));
        self.receive().unwrap()
    }

    /// Does the same as [`Client::call`] with the reply as text: errors with their `-`, nil as
    /// `nil`.
    #[track_caller]
    pub fn text(&mut self, words: &[&str]) -> String {
        text(&self.call(words))
    }

    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Receives the next reply; fails if the connection ends first.
    pub fn receive(&mut self) -> io::Result<Reply> {
        loop {
            if let Some((reply, end)) = Reply::parse(&self.received).map_err(io::Error::other)? {
                self.received.drain(..end);
                return Ok(reply);
            }
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Receives replies until the connection ends, which may be by a reset.
    pub fn receive_all(&mut self) -> Vec<Reply> {
        let mut replies = Vec::new();
        loop {
            let mut at = 0;
            while let Some((reply, end)) = Reply::parse(&self.received[at..]).unwrap() {
                replies.push(reply);
                at += end;
            }
            self.received.drain(..at);
            match self.fill() {
                Ok(0) => return replies,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return replies,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 64 * 1024];
        let count = self.stream.read(&mut buffer)?;
        self.received.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

/// Encodes a request as an array.
pub fn command(words: &[&str]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    binary_command(&words)
}

/// Encodes a request of arbitrary bytes.
pub fn binary_command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Returns a reply as people write it down.
pub fn text(reply: &Reply) -> String {
    let utf8 = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match reply {
        Reply::Simple(bytes) | Reply::Bulk(bytes) => utf8(bytes),
        Reply::Error(bytes) => format!("-{}", utf8(bytes)),
        Reply::Integer(number) => number.to_string(),
        Reply::Null(NullKind::Bulk | NullKind::Array | NullKind::Resp3) => "nil".to_owned(),
        Reply::Array(replies) => replies.iter().map(text).collect::<Vec<_>>().join(" "),
        other => format!("{other:?}"),
    }
}
