//! A minimal HTTP client with which `busload cache` and `busload top` ask a server. It speaks
//! HTTP/1.0, so that an answer ends with its connection.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use busload_tls::Files;

use super::tls_stream::{Stream, encrypt};
use crate::{
    access::basic,
    config::{PASSWORD_VARIABLE, USER_VARIABLE, user_of_environment},
};

/// Longest time to connect; a server on this machine accepts sooner.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest line of an answer's head.
const HEAD_LINE_BYTES_MAX: u64 = 16 * 1024;
/// Most lines of an answer's head.
const HEAD_LINES_MAX: usize = 100;

/// Status of a request without the password.
const UNAUTHORIZED: u16 = 401;

/// An answer whose head has been read.
pub struct Answer {
    /// Status code of the answer.
    pub code: u16,
    /// Body of the answer, up to the end of the connection.
    pub body: BufReader<Box<dyn Stream>>,
}

impl Target<'_> {
    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }
}

impl Answer {
    /// Reads the body of an answer that is as it should be, up to so many bytes; else says what the
    /// server answers.
    pub fn into_text(self, bytes_max: u64) -> Result<String, String> {
        if self.code == UNAUTHORIZED {
            return Err(format!(
                "it asks for a password; expected that of the user `{}` ({USER_VARIABLE} names \
                 another), by --password-file or {PASSWORD_VARIABLE}",
                user_of_environment()
            ));
        }
        if self.code != 200 {
            return Err(format!("it answers with status {}", self.code));
        }
        let mut text = String::new();
        let read = self.body.take(bytes_max).read_to_string(&mut text);
        read.map(|_| text).map_err(|error| error.to_string())
    }
}

/// Address, files of TLS and password of a server.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub address: SocketAddr,
    /// Password to send, if there is one.
    pub password: Option<&'a [u8]>,
    /// Files of the server's certificate, if it uses TLS.
    pub tls: Option<&'a Files>,
}

/// Sends a request and reads the head of the answer, which may take any time.
pub fn send(server: Target<'_>, method: &str, path: &str) -> io::Result<Answer> {
    send_within(server, method, path, None)
}

/// Does what [`send`] does, and fails when the answer stalls for `stall_max`.
pub fn send_within(
    server: Target<'_>,
    method: &str,
    path: &str,
    stall_max: Option<Duration>,
) -> io::Result<Answer> {
    let address = server.address;
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    stream.set_read_timeout(stall_max)?;
    let mut stream = encrypt(stream, server.tls)?;
    let authorization = match server.password {
        Some(password) => format!("Authorization: {}\r\n", basic(&user_of_environment(), password)),
        None => String::new(),
    };
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\n{authorization}Content-Length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    let mut body = BufReader::new(stream);
    let status = head_line(&mut body)?;
    let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
    let code = code.ok_or_else(|| io::Error::other("what answers there does not speak HTTP"))?;
    for _ in 0..HEAD_LINES_MAX {
        if head_line(&mut body)?.is_empty() {
            return Ok(Answer { code, body });
        }
    }
    Err(io::Error::other("the answer's head has no end"))
}

fn head_line(body: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    io::Read::take(&mut *body, HEAD_LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\n") {
        Some(line) => {
            Ok(String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned())
        }
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    fn answered(response: &'static str) -> io::Result<(u16, String)> {
        exchanged(response, None).0
    }

    /// Returns the answer, and the request that the server got.
    fn exchanged(
        response: &'static str,
        password: Option<&[u8]>,
    ) -> (io::Result<(u16, String)>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                asked.push(byte[0]);
            }
            stream.write_all(response.as_bytes()).unwrap();
            String::from_utf8(asked).unwrap()
        });
        let answer =
            send(Target { address, password, tls: None }, "POST", "/x").and_then(|mut answer| {
                let mut body = String::new();
                answer.body.read_to_string(&mut body)?;
                Ok((answer.code, body))
            });
        (answer, server.join().unwrap())
    }

    #[test]
    fn the_password_is_sent_when_there_is_one() {
        let response = "HTTP/1.0 200 OK\r\n\r\n";
        let (answer, asked) = exchanged(response, None);
        assert_eq!(answer.unwrap().0, 200);
        assert!(asked.starts_with("POST /x HTTP/1.0\r\nHost: 127.0.0.1:"), "{asked}");
        assert!(!asked.contains("Authorization"), "{asked}");
        let (_, asked) = exchanged(response, Some(b"sesame"));
        assert!(asked.contains("\r\nAuthorization: Basic ZGVmYXVsdDpzZXNhbWU=\r\n"), "{asked}");
    }

    #[test]
    fn the_status_and_the_body_are_read() {
        let answer = answered("HTTP/1.0 404 Not Found\r\nA: b\r\n\r\nline\nline\n").unwrap();
        assert_eq!(answer, (404, "line\nline\n".to_owned()));
    }

    #[test]
    fn what_is_no_http_is_refused() {
        for response in
            ["", "HTTP/1.0 200 OK\r\nA: b", "-ERR unknown command\r\n\r\n", "HTTP/1.1\r\n\r\n"]
        {
            assert!(answered(response).is_err(), "{response}");
        }
    }
}
