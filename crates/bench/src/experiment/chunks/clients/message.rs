//! Messages of `busload.v1.Chunks`, written and read by hand: the load must cost less than what is
//! measured, and what is read is only looked at, never copied.

use bytes::Bytes;

use super::Form;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// The bytes are no message of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while 0x7f < value {
        out.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("seven bits"));
}

fn write_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    write_varint(out, field << 3 | LENGTH);
    write_varint(out, u64::try_from(bytes.len()).expect("a length fits in 64 bits"));
    out.extend_from_slice(bytes);
}

/// `GetChunkRequest` and `GetChunksRequest`, which have the same fields: addresses one behind the
/// other.
pub fn request(store: &str, addresses: &[u8], form: Form) -> Bytes {
    let mut out = Vec::with_capacity(store.len() + addresses.len() + 16);
    write_bytes(&mut out, 1, store.as_bytes());
    write_bytes(&mut out, 2, addresses);
    if form == Form::Stored {
        write_varint(&mut out, 4 << 3 | VARINT);
        write_varint(&mut out, 1);
    }
    Bytes::from(out)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Value of a kind that none of these messages has.
    Other,
}

/// Walks through the fields of a message.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(Malformed)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], Malformed> {
        let count = usize::try_from(count).map_err(|_| Malformed)?;
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next field's number and value; `None` at the end.
    fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            VARINT => Value::Number(self.varint()?),
            LENGTH => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            FIXED64 => self.take(8).map(|_| Value::Other)?,
            FIXED32 => self.take(4).map(|_| Value::Other)?,
            _ => return Err(Malformed),
        };
        Ok(Some((key >> 3, value)))
    }
}

/// The chunk of a `GetChunkResponse`; `None`: not found.
pub fn chunk(message: &Bytes) -> Result<Option<Bytes>, Malformed> {
    let mut fields = Fields { rest: message };
    let (mut found, mut contents) = (false, &message[..0]);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Number(flag)) => found = flag != 0,
            (2, Value::Bytes(bytes)) => contents = bytes,
            _ => {}
        }
    }
    Ok(found.then(|| message.slice_ref(contents)))
}

/// Result in a `GetChunksResponse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// Index of the address, and the chunk.
    Found(u64, &'a [u8]),
    /// Number of chunks that are not in the store, or not on local disk.
    Absent(u64),
    /// The text of an error.
    Failed(&'a [u8]),
}

/// The results of a `GetChunksResponse`, one after the other.
pub fn for_each(message: &[u8], mut each: impl FnMut(Outcome<'_>)) -> Result<(), Malformed> {
    let mut fields = Fields { rest: message };
    while let Some((field, value)) = fields.next()? {
        match (field, value) {
            (1, Value::Bytes(bytes)) => each(found(bytes)?),
            (2 | 3, Value::Bytes(packed)) => {
                let ends = packed.iter().filter(|byte| **byte & 0x80 == 0).count();
                each(Outcome::Absent(u64::try_from(ends).map_err(|_| Malformed)?));
            }
            (2 | 3, Value::Number(_)) => each(Outcome::Absent(1)),
            (4, Value::Bytes(bytes)) => each(Outcome::Failed(text_of(bytes)?)),
            _ => {}
        }
    }
    Ok(())
}

fn found(message: &[u8]) -> Result<Outcome<'_>, Malformed> {
    let mut fields = Fields { rest: message };
    let (mut index, mut contents) = (0, &message[..0]);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Number(number)) => index = number,
            (2, Value::Bytes(bytes)) => contents = bytes,
            _ => {}
        }
    }
    Ok(Outcome::Found(index, contents))
}

/// The message of a `FailedChunk`.
fn text_of(message: &[u8]) -> Result<&[u8], Malformed> {
    let mut fields = Fields { rest: message };
    let mut text = &message[..0];
    while let Some(field) = fields.next()? {
        if let (3, Value::Bytes(bytes)) = field {
            text = bytes;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use busload_proto::v1;
    use prost::Message;

    use super::*;

    #[test]
    fn requests_are_those_of_the_generated_code() {
        let one = v1::GetChunkRequest::decode(request("db", &[7; 20], Form::Stored)).unwrap();
        let wanted = v1::GetChunkRequest {
            store: "db".to_owned(),
            address: vec![7; 20].into(),
            only_if_local: false,
            form: v1::Form::Stored.into(),
        };
        assert_eq!(one, wanted);
        let many =
            v1::GetChunksRequest::decode(request("db", &[9; 20 * 300], Form::Decoded)).unwrap();
        let wanted = v1::GetChunksRequest {
            store: "db".to_owned(),
            addresses: vec![9; 20 * 300].into(),
            only_if_local: false,
            form: v1::Form::Contents.into(),
        };
        assert_eq!(many, wanted);
    }

    #[test]
    fn a_chunk_is_found_or_not() {
        let response = |found| v1::GetChunkResponse {
            found,
            contents: if found { Bytes::from(vec![5; 300]) } else { Bytes::new() },
            encoding: v1::Encoding::Snappy.into(),
            dictionary_id: Bytes::from_static(b"dictionary"),
            not_local: false,
        };
        let read = |found| chunk(&response(found).encode_to_vec().into());
        assert_eq!(read(true), Ok(Some(Bytes::from(vec![5; 300]))));
        assert_eq!(read(false), Ok(None));
    }

    #[test]
    fn every_result_of_many_is_seen_once() {
        let message = v1::GetChunksResponse {
            chunks: vec![
                v1::FoundChunk {
                    index: 3,
                    contents: vec![1; 5_000].into(),
                    ..v1::FoundChunk::default()
                },
                v1::FoundChunk {
                    index: 0,
                    contents: vec![2; 1].into(),
                    ..v1::FoundChunk::default()
                },
            ],
            missing: vec![1, 200, 70_000],
            not_local: vec![4],
            failed: vec![v1::FailedChunk { index: 5, code: 14, message: "gone".to_owned() }],
        };
        let mut seen = Vec::new();
        let encoded = message.encode_to_vec();
        for_each(&encoded, |outcome| seen.push(format!("{outcome:?}"))).unwrap();
        assert!(seen[0].starts_with("Found(3, [1, 1") && seen[1] == "Found(0, [2])", "{seen:?}");
        assert_eq!(seen[2..], ["Absent(3)", "Absent(1)", "Failed([103, 111, 110, 101])"]);
    }

    #[test]
    fn cut_messages_are_malformed_and_never_read_past_their_end() {
        let message = v1::GetChunksResponse {
            chunks: vec![v1::FoundChunk {
                index: 3,
                contents: vec![1; 50].into(),
                ..v1::FoundChunk::default()
            }],
            ..v1::GetChunksResponse::default()
        };
        let encoded = message.encode_to_vec();
        for end in 1..encoded.len() {
            assert_eq!(for_each(&encoded[..end], |_| {}), Err(Malformed), "{end}");
        }
        assert_eq!(for_each(&[0x0a; 40], |_| {}), Err(Malformed));
        assert_eq!(for_each(&[0xff; 40], |_| {}), Err(Malformed));
    }
}
