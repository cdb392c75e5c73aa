//! A minimal client of the Redis protocol with which commands ask a running server.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    time::Duration,
};

use busload_io::Address;
use busload_resp::reply::Reply;
use busload_tls::Files;

use super::tls_stream::{Stream, encrypt};
use crate::{
    config::{Config, PASSWORD_VARIABLE, USER_VARIABLE, user_of_environment},
    failure::Failure,
};

/// Longest time to connect; a server on this machine accepts sooner.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest reply; INFO has some thousand bytes.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// Connection to the server of a configuration.
pub struct RespClient {
    stream: Box<dyn Stream>,
    address: Address,
    received: Vec<u8>,
}

impl RespClient {
    /// Connects to the first address of the configuration, and logs in if there is a password.
    pub fn connect(config: &Config) -> Result<Self, Failure> {
        let address = config.resp_addresses().into_iter().next().ok_or_else(|| {
            Failure::usage("no server could be asked; expected its address by --resp or --unix")
        })?;
        let (address, stream) = open(address, config.tls.as_ref().map(|tls| tls.files()));
        let stream = stream.map_err(|error| {
            Failure::run(format!(
                "no server answers at {address}: {error}; expected a running one there (--resp, \
                 --unix or --config FILE say where it is)"
            ))
        })?;
        let mut client = Self { stream, address, received: Vec::new() };
        if let Some(password) = config.settings.password.as_deref() {
            let user = user_of_environment();
            // Without a password of its own the server refuses AUTH and serves.
            if let Reply::Error(error) = client.call(&[b"AUTH", user.as_bytes(), password])?
                && error.starts_with(b"WRONGPASS")
            {
                return Err(client.refused_password());
            }
        }
        Ok(client)
    }

    /// Sends a command and waits for its reply, however long that takes.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Reply, Failure> {
        match self.exchange(words) {
            Ok(Reply::Error(error)) if error.starts_with(b"NOAUTH") => Err(self.refused_password()),
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Describes why the server did not do what was asked.
    pub fn failed(&self, why: &dyn std::fmt::Display) -> Failure {
        Failure::run(format!("the server at {}: {why}", self.address))
    }

    fn refused_password(&self) -> Failure {
        self.failed(&format!(
            "it asks for another password; expected that of the user `{}` ({USER_VARIABLE} names \
             another), by --password-file or {PASSWORD_VARIABLE}",
            user_of_environment()
        ))
    }

    fn exchange(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&request)?;
        let mut buffer = [0; 16 * 1024];
        loop {
            let parsed = Reply::parse(&self.received);
            let parsed =
                parsed.map_err(|_| io::Error::other("it does not speak the Redis protocol"))?;
            if let Some((reply, end)) = parsed {
                self.received.drain(..end);
                return Ok(reply);
            }
            if REPLY_BYTES_MAX < self.received.len() {
                return Err(io::Error::other("its reply has no end"));
            }
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::Error::other("it has closed the connection")),
                count => self.received.extend_from_slice(&buffer[..count]),
            }
        }
    }
}

fn open(address: Address, tls: Option<&Files>) -> (Address, io::Result<Box<dyn Stream>>) {
    match address {
        Address::Tcp(address) => {
            let address = reachable(address);
            let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
            (Address::Tcp(address), stream.and_then(|stream| encrypt(stream, tls)))
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(&path);
            (Address::Unix(path), stream.map(|stream| Box::new(stream) as Box<dyn Stream>))
        }
    }
}

/// Returns the address at which to reach a server that listens there: one that listens on all
/// addresses also listens on loopback.
pub fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}
