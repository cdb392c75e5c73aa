//! A caller over RESP with one `GET` under way. Pipelines are the business of [`crate::load`].

use std::net::SocketAddr;

use anyhow::{Context, Result};
use busload_chunks::ChunkAddress;
use busload_resp::reply::Reply;
use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{Form, verify};
use crate::{
    experiment::chunks::store::{Entry, Store},
    failures::Failure,
};

pub fn get_request(out: &mut Vec<u8>, table: &str, address: &ChunkAddress) {
    let key = format!("{table}:{address}");
    out.extend_from_slice(format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).as_bytes());
}

#[derive(Debug)]
pub struct Resp {
    socket: TcpStream,
    table: String,
    form: Form,
    buffer: Vec<u8>,
}

impl Resp {
    /// Connects. What the table's `contents` are is its own business; `form` says what to expect.
    pub async fn connect(address: SocketAddr, table: &str, form: Form) -> Result<Self> {
        let socket =
            TcpStream::connect(address).await.with_context(|| format!("no RESP at {address}"))?;
        socket.set_nodelay(true).context("a socket's option")?;
        Ok(Self { socket, table: table.to_owned(), form, buffer: Vec::new() })
    }

    /// Asks for one chunk; its contents.
    pub async fn ask(&mut self, store: &Store, number: u32) -> Result<Bytes, Failure> {
        let entry = store.entry(number);
        self.buffer.clear();
        get_request(&mut self.buffer, &self.table, &entry.address);
        self.socket.write_all(&self.buffer).await.map_err(|error| broken(&error))?;
        self.buffer.clear();
        // Parsing begins anew with every piece: what is missing is known from the length line, so
        // there are few.
        while !is_whole(&self.buffer)? {
            let count =
                self.socket.read_buf(&mut self.buffer).await.map_err(|error| broken(&error))?;
            if count == 0 {
                return Err(Failure::Refused("the server closed a connection".to_owned()));
            }
        }
        self.contents(number, entry)
    }

    fn contents(&self, number: u32, entry: &Entry) -> Result<Bytes, Failure> {
        match Reply::parse(&self.buffer) {
            Ok(Some((Reply::Bulk(contents), _))) if self.form == Form::Decoded => {
                verify(number, entry, &contents).map(|()| Bytes::from(contents))
            }
            Ok(Some((Reply::Bulk(record), _)))
                if u32::try_from(record.len()) == Ok(entry.location.span.length) =>
            {
                Ok(Bytes::new())
            }
            Ok(Some((Reply::Error(text), _))) => {
                Err(Failure::Refused(String::from_utf8_lossy(&text).into_owned()))
            }
            Ok(Some((reply, _))) => Err(Failure::Wrong(shortened(&format!("{reply:?}")))),
            Ok(None) | Err(_) => Err(Failure::Wrong("what is no reply".to_owned())),
        }
    }
}

/// Whether a bulk string or a line is there to its end.
fn is_whole(buffer: &[u8]) -> Result<bool, Failure> {
    let Some(end) = buffer.iter().position(|byte| *byte == b'\n') else { return Ok(false) };
    let length = match buffer.split_first() {
        Some((b'$', line)) => std::str::from_utf8(&line[..end - 1]).ok().map(str::trim_end),
        _ => return Ok(true),
    };
    match length.and_then(|length| length.parse::<i64>().ok()).map(usize::try_from) {
        Some(Ok(length)) => Ok(end + 1 + length + 2 <= buffer.len()),
        Some(Err(_)) => Ok(true),
        None => Err(Failure::Wrong("what is no reply".to_owned())),
    }
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::Refused(format!("connection: {error}"))
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_whole_with_its_last_byte() {
        for whole in [&b"$5\r\nhello\r\n"[..], b"$-1\r\n", b"-ERR no\r\n", b"$0\r\n\r\n"] {
            assert!(is_whole(whole).unwrap());
            for end in 0..whole.len() {
                assert!(!is_whole(&whole[..end]).unwrap(), "{end} of {whole:?}");
            }
        }
        assert!(is_whole(b"$x\r\n").is_err());
    }

    #[test]
    fn requests_name_table_and_address() {
        let mut out = Vec::new();
        get_request(&mut out, "db", &ChunkAddress::ZERO);
        let key = format!("db:{}", "0".repeat(32));
        assert_eq!(String::from_utf8(out).unwrap(), format!("*2\r\n$3\r\nGET\r\n$35\r\n{key}\r\n"));
    }
}
