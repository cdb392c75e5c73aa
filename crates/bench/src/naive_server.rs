//! The server that one writes first, to be measured beside busload: a thread for each connection,
//! one lock, and for each `SET` a write and an fdatasync before the reply.
//!
//! Nothing in it is slow on purpose, and it keeps busload's promise: the lock is held until a
//! change is durable, so that nobody reads what a crash could take back. It is no server to use:
//! it does not read its file again, and knows `GET`, `SET` and `PING` only.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::Context;

use crate::{
    limits::{CLIENTS_MAX, NAIVE_LINE_BYTES, NAIVE_STACK_BYTES, NAIVE_WORDS_MAX, VALUE_BYTES_MAX},
    server::Durability,
};

/// Everything that the threads of connections share.
struct NaiveStore {
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// File that every change is appended to, unless nothing is to survive.
    log: Option<File>,
    durability: Durability,
}

/// Answers on `address` until killed, and appends changes to the file at `log`.
pub fn run(address: SocketAddr, durability: Durability, log: &Path) -> anyhow::Result<()> {
    let made = (durability != Durability::None).then(|| File::create(log)).transpose();
    let log = made.with_context(|| format!("cannot make {}", log.display()))?;
    let shared = Arc::new(Mutex::new(NaiveStore { values: HashMap::new(), log, durability }));
    let listener = TcpListener::bind(address);
    let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
    eprintln!("ready resp={address}");
    loop {
        let (socket, _) = listener.accept()?;
        // Each connection has a count; further ones are closed at once.
        if Arc::strong_count(&shared) <= CLIENTS_MAX {
            let shared = Arc::clone(&shared);
            let serve = move || {
                // A connection that ends is no matter of the others.
                let _ = serve(&socket, &shared);
            };
            thread::Builder::new().stack_size(NAIVE_STACK_BYTES).spawn(serve)?;
        }
    }
}

/// Answers one request after the other, each by a write of its own.
fn serve(socket: &TcpStream, shared: &Mutex<NaiveStore>) -> Result<()> {
    socket.set_nodelay(true)?;
    let mut reader = BufReader::new(socket);
    while let Some(request) = read_request(&mut reader)? {
        let reply = shared.lock().unwrap_or_else(PoisonError::into_inner).execute(&request);
        let mut writer = socket;
        writer.write_all(&reply)?;
    }
    Ok(())
}

impl NaiveStore {
    fn execute(&mut self, request: &[Vec<u8>]) -> Vec<u8> {
        let mut words = request.iter().map(Vec::as_slice);
        let name = words.next().map(<[u8]>::to_ascii_uppercase).unwrap_or_default();
        match (&name[..], words.next(), words.next(), words.next()) {
            (b"PING", None, ..) => b"+PONG\r\n".to_vec(),
            (b"GET", Some(key), None, _) => match self.values.get(key) {
                Some(value) => bulk(value),
                None => b"$-1\r\n".to_vec(),
            },
            (b"SET", Some(key), Some(value), None) => {
                self.values.insert(key.to_vec(), value.to_vec());
                if let Err(error) = self.append(key, value) {
                    eprintln!("the naive server cannot write its log: {error}");
                    std::process::exit(1);
                }
                b"+OK\r\n".to_vec()
            }
            _ => b"-ERR the naive server knows GET, SET and PING only\r\n".to_vec(),
        }
    }

    fn append(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        log.write_all(&[bulk(key), bulk(value)].concat())?;
        if self.durability == Durability::Always { log.sync_data() } else { Ok(()) }
    }
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    let mut text = format!("${}\r\n", bytes.len()).into_bytes();
    text.extend_from_slice(bytes);
    text.extend_from_slice(b"\r\n");
    text
}

/// Reads an array of bulk strings; `None` at the end of the stream.
fn read_request(reader: &mut impl BufRead) -> Result<Option<Vec<Vec<u8>>>> {
    let Some(count) = read_number(reader, b'*', NAIVE_WORDS_MAX)? else { return Ok(None) };
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let length = read_number(reader, b'$', VALUE_BYTES_MAX)?.ok_or(ErrorKind::UnexpectedEof)?;
        let mut word = vec![0; length + 2];
        reader.read_exact(&mut word)?;
        if word.split_off(length) != b"\r\n" {
            return Err(Error::new(ErrorKind::InvalidData, "a bulk string ends with CRLF"));
        }
        words.push(word);
    }
    Ok(Some(words))
}

/// Reads a line of a mark and a number up to `most`; `None` at the end of the stream.
fn read_number(reader: &mut impl BufRead, mark: u8, most: usize) -> Result<Option<usize>> {
    let mut line = Vec::new();
    if reader.by_ref().take(NAIVE_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let digits = line.strip_prefix(&[mark]).and_then(|rest| rest.strip_suffix(b"\r\n"));
    let number = digits.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
    let number = number.filter(|number| *number <= most);
    let wrong = || Error::new(ErrorKind::InvalidData, "a line is a mark and a number");
    number.ok_or_else(wrong).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(shared: &mut NaiveStore, input: &[u8]) -> Vec<u8> {
        let mut reader = input;
        let mut replies = Vec::new();
        while let Some(request) = read_request(&mut reader).unwrap() {
            replies.extend(shared.execute(&request));
        }
        replies
    }

    #[test]
    fn a_change_is_in_the_file_before_its_reply() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("log");
        let log = Some(File::create(&path).unwrap());
        let durability = Durability::Always;
        let mut shared = NaiveStore { values: HashMap::new(), log, durability };
        let mut input = b"*1\r\n$4\r\nping\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".to_vec();
        input.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n");
        input.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$3\r\nDEL\r\n");
        let replies = String::from_utf8(answers(&mut shared, &input)).unwrap();
        assert!(replies.starts_with("+PONG\r\n$-1\r\n+OK\r\n$2\r\n\r\n\r\n-ERR "), "{replies}");
        assert_eq!(std::fs::read(path).unwrap(), b"$1\r\nk\r\n$2\r\n\r\n\r\n");
    }

    #[test]
    fn what_is_no_request_ends_the_connection() {
        let cut =
            ["*2\r\n$3\r\nGET\r\n", "*1\r\n$9999999999\r\n", "*17\r\n", "x\r\n", "*1\r\n$1\r\nab"];
        for input in cut {
            assert!(read_request(&mut input.as_bytes()).is_err(), "{input}");
        }
        assert!(read_request(&mut &b""[..]).unwrap().is_none());
    }
}
