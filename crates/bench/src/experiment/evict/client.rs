//! A client that reads through a cache: what is not there, it sets.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
};

use anyhow::{Context, Result, bail};

use crate::{
    limits::{METRICS_BYTES_MAX, SILENCE},
    random::Random,
    requests::letters,
    stats::float,
};

/// Table of busload that is the cache; a part of the keys on every server.
pub const TABLE: &str = "cache";

/// Connection of one client.
pub struct CacheAside {
    socket: TcpStream,
    replies: BufReader<TcpStream>,
    requests: Vec<u8>,
    value: Vec<u8>,
    /// Bytes of the last value that was read.
    found: Vec<u8>,
}

impl CacheAside {
    pub fn connect(address: SocketAddr, value_bytes: usize) -> Result<Self> {
        let socket = TcpStream::connect(address).context("no connection to the server")?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(SILENCE))?;
        let replies = BufReader::with_capacity(256 * 1024, socket.try_clone()?);
        let value = letters(&mut Random::new(1), value_bytes);
        Ok(Self { socket, replies, requests: Vec::new(), value, found: Vec::new() })
    }

    /// Reads keys, so many at once, and sets those that are not there. Returns how many were there.
    pub fn play(&mut self, keys: &[u64], pipeline: usize) -> Result<u64> {
        let mut hits = 0;
        let mut missed = Vec::with_capacity(pipeline);
        for keys in keys.chunks(pipeline) {
            keys.iter().for_each(|key| write_get(&mut self.requests, *key));
            self.send()?;
            missed.clear();
            for key in keys {
                match self.read_value()? {
                    true if self.found == self.value => hits += 1,
                    true => bail!("key {key} has another value than it was set to"),
                    false => missed.push(*key),
                }
            }
            for key in &missed {
                write_set(&mut self.requests, *key, &self.value);
            }
            self.send()?;
            for _ in &missed {
                let line = self.read_line()?;
                if line != "+OK" {
                    bail!("the server refused a SET: {line}");
                }
            }
        }
        Ok(hits)
    }

    /// Changes a setting of the server.
    pub fn set(&mut self, setting: &str, value: &str) -> Result<()> {
        write!(self.requests, "CONFIG SET {setting} {value}\r\n")?;
        self.send()?;
        match self.read_line()?.as_str() {
            "+OK" => Ok(()),
            line => bail!("CONFIG SET {setting} {value}: {line}"),
        }
    }

    /// Returns a number that INFO shows.
    pub fn info(&mut self, section: &str, field: &str) -> Result<u64> {
        write!(self.requests, "INFO {section}\r\n")?;
        self.send()?;
        if !self.read_value()? {
            bail!("INFO {section} has no reply");
        }
        let text = String::from_utf8_lossy(&self.found);
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let value = value.with_context(|| format!("INFO {section} shows no {field}"))?;
        value.trim().parse().with_context(|| format!("{field} is no number: {value}"))
    }

    /// Returns the number of keys.
    pub fn entries(&mut self) -> Result<u64> {
        self.requests.extend_from_slice(b"DBSIZE\r\n");
        self.send()?;
        let line = self.read_line()?;
        let count = line.strip_prefix(':').with_context(|| format!("DBSIZE: {line}"))?;
        count.parse().with_context(|| format!("DBSIZE: {line}"))
    }

    fn send(&mut self) -> Result<()> {
        self.socket.write_all(&self.requests).context("sending requests")?;
        self.requests.clear();
        Ok(())
    }

    /// Reads a string into `found`; returns false for null.
    fn read_value(&mut self) -> Result<bool> {
        let line = self.read_line()?;
        let Some(length) = line.strip_prefix('$') else { bail!("expected a string, got {line}") };
        if length == "-1" {
            return Ok(false);
        }
        let length: usize = length.parse().with_context(|| format!("a length, got {line}"))?;
        if METRICS_BYTES_MAX < u64::try_from(length)? {
            bail!("a reply of {} MiB", float(u64::try_from(length)?) / 1_048_576.0);
        }
        self.found.resize(length + 2, 0);
        self.replies.read_exact(&mut self.found).context("reading a reply")?;
        self.found.truncate(length);
        Ok(true)
    }

    fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        (&mut self.replies).take(4_096).read_line(&mut line).context("reading a reply")?;
        if !line.ends_with('\n') {
            bail!("the server closed the connection");
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

fn write_get(out: &mut Vec<u8>, key: u64) {
    let length = TABLE.len() + 13;
    write!(out, "*2\r\n$3\r\nGET\r\n${length}\r\n{TABLE}:{key:012}\r\n").expect("into memory");
}

fn write_set(out: &mut Vec<u8>, key: u64, value: &[u8]) {
    let length = TABLE.len() + 13;
    write!(out, "*3\r\n$3\r\nSET\r\n${length}\r\n{TABLE}:{key:012}\r\n${}\r\n", value.len())
        .expect("into memory");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_lengths_that_they_announce() {
        let mut out = Vec::new();
        write_get(&mut out, 7);
        write_set(&mut out, 7, b"abc");
        let text = String::from_utf8(out).unwrap();
        let key = "$18\r\ncache:000000000007\r\n";
        assert_eq!(text, format!("*2\r\n$3\r\nGET\r\n{key}*3\r\n$3\r\nSET\r\n{key}$3\r\nabc\r\n"));
    }
}
