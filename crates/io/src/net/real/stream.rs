//! Connected socket of either family.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::fd::AsRawFd,
};

use mio::{
    Interest, Registry, Token,
    event::Source,
    net::{TcpStream, UnixStream},
};

use super::NetCounters;
use crate::limits::{SEND_BYTES_PER_CALL, SEND_CALLS_PER_TURN};

#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Progress of a send.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    All,
    /// The socket's buffer is full; an edge will tell when it has space again.
    UntilFull,
    /// Other connections had to get their turn; no edge will come.
    Part,
    Failed(io::ErrorKind),
}

impl Stream {
    pub(super) fn register(
        &mut self,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.register(registry, token, interest),
            Stream::Unix(stream) => stream.register(registry, token, interest),
        }
    }

    /// Returns the number of the socket's file descriptor.
    pub(super) fn descriptor(&self) -> i32 {
        match self {
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// Ends the sending direction. A broken connection will report that by itself.
    pub(super) fn finish(&self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    #[inline]
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }

    /// Sends from `sent_bytes` on and advances it.
    #[inline]
    pub(super) fn send(
        &mut self,
        bytes: &[u8],
        sent_bytes: &mut usize,
        counters: &mut NetCounters,
    ) -> Written {
        for _ in 0..SEND_CALLS_PER_TURN {
            if *sent_bytes == bytes.len() {
                break;
            }
            counters.sends += 1;
            let end = bytes.len().min(*sent_bytes + SEND_BYTES_PER_CALL);
            match self.write(&bytes[*sent_bytes..end]) {
                Ok(0) => return Written::Failed(io::ErrorKind::WriteZero),
                Ok(count) => {
                    *sent_bytes += count;
                    counters.sent_bytes += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Written::UntilFull;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Written::Failed(error.kind()),
            }
        }
        if *sent_bytes == bytes.len() { Written::All } else { Written::Part }
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    /// Sends `message` and closes the connection. The buffer of a new socket has space for one
    /// sentence; whether it arrives does not matter.
    pub(super) fn refuse(mut self, message: &[u8]) {
        let _ = self.write(message);
        let _ = match &self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}
