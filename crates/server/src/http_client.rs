//! Just enough of an HTTP client for `busload cache` to ask the server on this machine: HTTP/1.0, so that an answer ends with its
//! connection.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// A server on this machine that does not accept for so long is none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest line of a head.
const HEAD_LINE_BYTES_MAX: u64 = 16 * 1024;
/// Most lines of a head.
const HEAD_LINES_MAX: usize = 100;

/// An answer whose body is still to be read.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub code: u16,
    /// What follows the head, up to the end of the connection.
    pub body: BufReader<TcpStream>,
}

/// Asks and reads the head of the answer.
pub fn ask(server: SocketAddr, method: &str, path: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&server, CONNECT_TIMEOUT)?;
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {server}\r\nContent-Length: 0\r\n\r\n")?;
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
        Some(line) => Ok(String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener, thread};

    use super::*;

    fn answered(response: &'static str) -> io::Result<(u16, String)> {
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
        let answer = ask(address, "POST", "/x").and_then(|mut answer| {
            let mut body = String::new();
            answer.body.read_to_string(&mut body)?;
            Ok((answer.code, body))
        });
        assert!(server.join().unwrap().starts_with("POST /x HTTP/1.0\r\nHost: 127.0.0.1:"));
        answer
    }

    #[test]
    fn the_status_and_the_body_are_read() {
        let answer = answered("HTTP/1.0 404 Not Found\r\nA: b\r\n\r\nline\nline\n").unwrap();
        assert_eq!(answer, (404, "line\nline\n".to_owned()));
    }

    #[test]
    fn what_is_no_http_is_refused() {
        for response in ["", "HTTP/1.0 200 OK\r\nA: b", "-ERR unknown command\r\n\r\n", "HTTP/1.1\r\n\r\n"] {
            assert!(answered(response).is_err(), "{response}");
        }
    }
}
