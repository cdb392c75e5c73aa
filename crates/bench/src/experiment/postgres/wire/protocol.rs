//! Requests and replies as bytes.

use anyhow::{Context, Result};
use busload_resp::reply::Reply;

use super::super::{
    plain::check,
    rows::{KEY_BYTES, Key, PAYLOAD_BYTES, Payload},
    tasks::Operation,
};
use crate::failures::Failure;

/// Beginning of every reply with a payload of 35 bytes.
const BULK: &[u8; 5] = b"$35\r\n";

const _: () = assert!(PAYLOAD_BYTES == 35);

/// Bytes of a whole reply with a payload.
const BULK_BYTES: usize = BULK.len() + PAYLOAD_BYTES + 2;

const OK: &[u8; 5] = b"+OK\r\n";

/// Bytes before the row's key in a request, with the table's name.
#[derive(Clone, Debug)]
pub struct Prefix {
    get: Vec<u8>,
    set: Vec<u8>,
}

impl Prefix {
    pub fn of_table(table: &str) -> Self {
        Self::new(&format!("{table}:"))
    }

    /// Keys are those of the rows.
    pub fn none() -> Self {
        Self::new("")
    }

    fn new(prefix: &str) -> Self {
        let key_bytes = prefix.len() + KEY_BYTES;
        Self {
            get: format!("*2\r\n$3\r\nGET\r\n${key_bytes}\r\n{prefix}").into_bytes(),
            set: format!("*3\r\n$3\r\nSET\r\n${key_bytes}\r\n{prefix}").into_bytes(),
        }
    }

    /// Appends the request for a row.
    #[inline]
    pub fn write_get(&self, out: &mut Vec<u8>, row: u64) {
        out.extend_from_slice(&self.get);
        out.extend_from_slice(Key::of(row).bytes());
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the request that writes a version of a row.
    #[inline]
    pub fn write_set(&self, out: &mut Vec<u8>, row: u64, version: u64) {
        out.extend_from_slice(&self.set);
        out.extend_from_slice(Key::of(row).bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(BULK);
        out.extend_from_slice(Payload::upserted(row, version).bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// Reads the reply to a request for `row` at the beginning of `bytes`: how many bytes it has and
/// what it says, or `None` when it is not whole yet.
#[inline]
pub fn read_reply(
    bytes: &[u8],
    operation: Operation,
    row: u64,
) -> Result<Option<(usize, Result<(), Failure>)>> {
    match operation {
        Operation::Read if bytes.starts_with(BULK) && BULK_BYTES <= bytes.len() => {
            let payload = &bytes[BULK.len()..BULK.len() + PAYLOAD_BYTES];
            Ok(Some((BULK_BYTES, check(row, Some(payload)))))
        }
        Operation::Upsert if bytes.starts_with(OK) => Ok(Some((OK.len(), Ok(())))),
        _ => read_any_reply(bytes, operation, row),
    }
}

fn read_any_reply(
    bytes: &[u8],
    operation: Operation,
    row: u64,
) -> Result<Option<(usize, Result<(), Failure>)>> {
    let Some((reply, length)) = Reply::parse(bytes).context("the server sent what is no RESP")?
    else {
        return Ok(None);
    };
    let outcome = match (reply, operation) {
        (Reply::Error(text), _) => {
            Err(Failure::Refused(String::from_utf8_lossy(&text).into_owned()))
        }
        (Reply::Bulk(payload), Operation::Read) => check(row, Some(&payload)),
        (Reply::Null(_), Operation::Read) => check(row, None),
        (other, _) => Err(Failure::Wrong(format!("{other:?}"))),
    };
    Ok(Some((length, outcome)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn requests_are_exact_resp() {
        let prefix = Prefix::of_table("bench");
        let mut out = Vec::new();
        prefix.write_get(&mut out, 42);
        assert_eq!(text(&out), "*2\r\n$3\r\nGET\r\n$26\r\nbench:00000000000000000042\r\n");
        out.clear();
        prefix.write_set(&mut out, 42, 7);
        assert_eq!(
            text(&out),
            "*3\r\n$3\r\nSET\r\n$26\r\nbench:00000000000000000042\r\n\
             $35\r\nupsert 0000007 00000000000000000042\r\n"
        );
        out.clear();
        Prefix::none().write_get(&mut out, 1);
        assert_eq!(text(&out), "*2\r\n$3\r\nGET\r\n$20\r\n00000000000000000001\r\n");
    }

    #[test]
    fn a_reply_counts_when_it_is_whole_and_right() {
        let reply = format!("$35\r\n{}\r\n", Payload::loaded(42).text());
        for cut in 0..reply.len() {
            assert_eq!(
                read_reply(&reply.as_bytes()[..cut], Operation::Read, 42).unwrap(),
                None,
                "{cut}"
            );
        }
        assert_eq!(read_reply(reply.as_bytes(), Operation::Read, 42).unwrap(), Some((42, Ok(()))));
        let two = reply.repeat(2);
        assert_eq!(read_reply(two.as_bytes(), Operation::Read, 42).unwrap(), Some((42, Ok(()))));
        assert_eq!(read_reply(b"+OK\r\n+", Operation::Upsert, 42).unwrap(), Some((5, Ok(()))));
    }

    #[test]
    fn wrong_answers_are_told_from_refusals() {
        let wrong =
            |reply: &str, operation| match read_reply(reply.as_bytes(), operation, 42).unwrap() {
                Some((length, Err(failure))) => {
                    assert_eq!(length, reply.len());
                    matches!(failure, Failure::Wrong(_))
                }
                other => panic!("{reply}: {other:?}"),
            };
        let of_another = format!("$35\r\n{}\r\n", Payload::loaded(43).text());
        for reply in [&of_another, "$-1\r\n", "$3\r\nabc\r\n", ":1\r\n"] {
            assert!(wrong(reply, Operation::Read), "{reply}");
        }
        assert!(wrong("$-1\r\n", Operation::Upsert));
        assert!(!wrong("-ERR table bench: too late\r\n", Operation::Read));
        assert!(read_reply(b"what\r\n", Operation::Read, 42).is_err());
    }
}
