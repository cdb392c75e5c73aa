//! Commands of the model that read and change entries.

use std::collections::BTreeMap;

use busload_resp::reply::{NullKind, Reply};

use super::{Expected, Model, Request, Transaction, ok, place};
use crate::history::{Entry, Key, Table, Value};

/// Reason why a command changes nothing.
type Refused = Expected;

impl Model {
    /// Executes a command of the current space.
    pub(super) fn command(
        &mut self,
        space: &mut u8,
        request: &Request,
        transaction: &mut Transaction,
    ) -> Expected {
        let [name, arguments @ ..] = &request[..] else { return Expected::Error("ERR") };
        let key = arguments.first().map(|key| place(*space, key));
        let done = match (name.as_slice(), key) {
            (b"SELECT", _) => {
                *space = arguments[0][0] - b'0';
                Ok(ok())
            }
            (b"BGSAVE" | b"SAVE" | b"LASTSAVE" | b"PING", _) => Ok(Expected::Any),
            (b"DBSIZE", _) => Ok(Expected::Integer),
            (b"FLUSHDB", _) => Ok(self.flush(Some(*space), transaction)),
            (b"FLUSHALL", _) => Ok(self.flush(None, transaction)),
            (b"MGET", _) => Ok(array(arguments.iter().map(|key| {
                let entry = self.read(&place(*space, key), transaction);
                bulk_or_null(entry.and_then(|entry| match entry.value {
                    Value::String(value) => Some(value),
                    Value::Hash(_) => None,
                }))
            }))),
            (b"MSET", _) => {
                for pair in arguments.as_chunks::<2>().0 {
                    let entry = string(pair[1].clone(), None);
                    self.write(&place(*space, &pair[0]), Some(entry), transaction);
                }
                Ok(ok())
            }
            (b"DEL", _) => Ok(integer(self.count(arguments, *space, transaction, true))),
            (b"EXISTS", _) => Ok(integer(self.count(arguments, *space, transaction, false))),
            (b"RENAME", Some(key)) => {
                let to = place(*space, &arguments[1]);
                Ok(match self.read(&key, transaction) {
                    None => Expected::Error("ERR no such key"),
                    Some(_) if key == to => ok(),
                    Some(entry) => {
                        self.write(&to, Some(entry), transaction);
                        self.write(&key, None, transaction);
                        ok()
                    }
                })
            }
            (name, Some(key)) => self.on_key(name, &key, &arguments[1..], transaction),
            (_, None) => Ok(Expected::Error("ERR")),
        };
        done.unwrap_or_else(|refused| refused)
    }

    fn flush(&mut self, space: Option<u8>, transaction: &mut Transaction) -> Expected {
        let covered = |table: Table| match space {
            None | Some(0) => table != Table::Space(1) || space.is_none(),
            Some(space) => table == Table::Space(space),
        };
        let keys: Vec<Key> = self.cells.keys().filter(|key| covered(key.0)).cloned().collect();
        for key in keys {
            self.write(&key, None, transaction);
        }
        ok()
    }

    fn count(
        &mut self,
        keys: &[Vec<u8>],
        space: u8,
        transaction: &mut Transaction,
        deletes: bool,
    ) -> i64 {
        let mut count = 0;
        for key in keys {
            let key = place(space, key);
            if self.read(&key, transaction).is_some() {
                count += 1;
                if deletes {
                    self.write(&key, None, transaction);
                }
            }
        }
        count
    }

    fn on_key(
        &mut self,
        name: &[u8],
        key: &Key,
        arguments: &[Vec<u8>],
        transaction: &mut Transaction,
    ) -> Result<Expected, Refused> {
        if name == b"SET" {
            return self.set(key, arguments, transaction);
        }
        let entry = self.read(key, transaction);
        let expiry_ms = entry.as_ref().and_then(|entry| entry.expiry_ms);
        let now_ms = transaction.now_ms;
        match name {
            b"GET" => Ok(Expected::Is(bulk_or_null(string_of(entry)?))),
            b"STRLEN" => Ok(integer(string_of(entry)?.map_or(0, |value| length(&value)))),
            b"TYPE" => Ok(Expected::Is(Reply::Simple(match entry.map(|entry| entry.value) {
                None => b"none".to_vec(),
                Some(Value::String(_)) => b"string".to_vec(),
                Some(Value::Hash(_)) => b"hash".to_vec(),
            }))),
            b"GETDEL" => {
                let value = string_of(entry)?;
                if value.is_some() {
                    self.write(key, None, transaction);
                }
                Ok(Expected::Is(bulk_or_null(value)))
            }
            b"APPEND" => {
                let mut value = string_of(entry)?.unwrap_or_default();
                value.extend_from_slice(&arguments[0]);
                let length = length(&value);
                self.write(key, Some(string(value, expiry_ms)), transaction);
                Ok(integer(length))
            }
            b"SETRANGE" => {
                let mut value = string_of(entry)?.unwrap_or_default();
                let offset = usize::try_from(number(&arguments[0])).expect("sent so");
                let end = offset + arguments[1].len();
                value.resize(value.len().max(end), 0);
                value[offset..end].copy_from_slice(&arguments[1]);
                let length = length(&value);
                self.write(key, Some(string(value, expiry_ms)), transaction);
                Ok(integer(length))
            }
            b"INCRBY" => {
                let value = string_of(entry)?.unwrap_or_else(|| b"0".to_vec());
                let sum = sum(&value, &arguments[0])?;
                let entry = string(sum.to_string().into_bytes(), expiry_ms);
                self.write(key, Some(entry), transaction);
                Ok(integer(sum))
            }
            b"PERSIST" => {
                let Some(entry) = entry.filter(|entry| entry.expiry_ms.is_some()) else {
                    return Ok(integer(0));
                };
                self.write(key, Some(Entry { expiry_ms: None, ..entry }), transaction);
                Ok(integer(1))
            }
            b"PEXPIRE" => {
                let Some(entry) = entry else { return Ok(integer(0)) };
                let expiry_ms = now_ms + number(&arguments[0]);
                let entry = Entry { expiry_ms: Some(expiry_ms), ..entry };
                self.write(key, Some(entry).filter(|_| now_ms < expiry_ms), transaction);
                Ok(integer(1))
            }
            b"PTTL" => Ok(integer(match entry {
                None => -2,
                Some(_) => expiry_ms.map_or(-1, |expiry_ms| expiry_ms - now_ms),
            })),
            b"PEXPIRETIME" => Ok(integer(match entry {
                None => -2,
                Some(_) => expiry_ms.unwrap_or(-1),
            })),
            _ => self.on_hash(name, key, entry, arguments, transaction),
        }
    }

    fn set(
        &mut self,
        key: &Key,
        arguments: &[Vec<u8>],
        transaction: &mut Transaction,
    ) -> Result<Expected, Refused> {
        let has = |option: &[u8]| arguments[1..].iter().any(|argument| argument == option);
        // Without these a reply says nothing of what was there before.
        let shows = has(b"GET") || has(b"NX") || has(b"XX");
        let entry = match shows {
            true => self.read(key, transaction),
            false => self.look(key, transaction),
        };
        let is_refused = (has(b"NX") && entry.is_some()) || (has(b"XX") && entry.is_none());
        let mut expiry_ms = None;
        if has(b"KEEPTTL") {
            expiry_ms = entry.as_ref().and_then(|entry| entry.expiry_ms);
        }
        if let Some(at) = arguments[1..].iter().position(|argument| argument == b"PX") {
            expiry_ms = Some(transaction.now_ms + number(&arguments[at + 2]));
        }
        let reply = match (has(b"GET"), is_refused) {
            (true, _) => Expected::Is(bulk_or_null(string_of(entry)?)),
            (false, true) => Expected::Is(bulk_or_null(None)),
            (false, false) => ok(),
        };
        if !is_refused {
            self.write(key, Some(string(arguments[0].clone(), expiry_ms)), transaction);
        }
        Ok(reply)
    }

    fn on_hash(
        &mut self,
        name: &[u8],
        key: &Key,
        entry: Option<Entry>,
        arguments: &[Vec<u8>],
        transaction: &mut Transaction,
    ) -> Result<Expected, Refused> {
        let expiry_ms = entry.as_ref().and_then(|entry| entry.expiry_ms);
        let mut fields = match entry.map(|entry| entry.value) {
            None => BTreeMap::new(),
            Some(Value::Hash(fields)) => fields,
            Some(Value::String(_)) => return Err(Expected::Error("WRONGTYPE")),
        };
        let reply = match name {
            b"HGET" => {
                return Ok(Expected::Is(bulk_or_null(fields.get(&arguments[0]).cloned())));
            }
            b"HGETALL" => return Ok(Expected::Pairs(fields)),
            b"HLEN" => return Ok(integer(i64::try_from(fields.len()).expect("few fields"))),
            b"HSET" => {
                let before = fields.len();
                for pair in arguments.as_chunks::<2>().0 {
                    fields.insert(pair[0].clone(), pair[1].clone());
                }
                i64::try_from(fields.len() - before).expect("few fields")
            }
            b"HDEL" => {
                let before = fields.len();
                fields.retain(|field, _| !arguments.contains(field));
                if fields.len() == before {
                    return Ok(integer(0));
                }
                i64::try_from(before - fields.len()).expect("few fields")
            }
            b"HINCRBY" => {
                let value = fields.get(&arguments[0]).map_or(&b"0"[..], Vec::as_slice);
                let sum = sum(value, &arguments[1])?;
                fields.insert(arguments[0].clone(), sum.to_string().into_bytes());
                sum
            }
            other => panic!("the model does not know {}", other.escape_ascii()),
        };
        let entry = Entry { value: Value::Hash(fields), expiry_ms };
        let is_empty = matches!(&entry.value, Value::Hash(fields) if fields.is_empty());
        self.write(key, Some(entry).filter(|_| !is_empty), transaction);
        Ok(integer(reply))
    }
}

fn string(value: Vec<u8>, expiry_ms: Option<i64>) -> Entry {
    Entry { value: Value::String(value), expiry_ms }
}

fn string_of(entry: Option<Entry>) -> Result<Option<Vec<u8>>, Refused> {
    match entry.map(|entry| entry.value) {
        None => Ok(None),
        Some(Value::String(value)) => Ok(Some(value)),
        Some(Value::Hash(_)) => Err(Expected::Error("WRONGTYPE")),
    }
}

/// Returns the sum of two decimal numbers, of which the second is one.
fn sum(value: &[u8], by: &[u8]) -> Result<i64, Refused> {
    let text = std::str::from_utf8(value).unwrap_or("");
    let value: i64 = text.parse().map_err(|_| Expected::Error("ERR"))?;
    match value.to_string() == text {
        true => value.checked_add(number(by)).ok_or(Expected::Error("ERR")),
        false => Err(Expected::Error("ERR")),
    }
}

fn number(text: &[u8]) -> i64 {
    let text = std::str::from_utf8(text).expect("sent so");
    text.parse().expect("sent so")
}

fn length(value: &[u8]) -> i64 {
    i64::try_from(value.len()).expect("short values")
}

fn integer(value: i64) -> Expected {
    Expected::Is(Reply::Integer(value))
}

fn array(replies: impl Iterator<Item = Reply>) -> Expected {
    Expected::Is(Reply::Array(replies.collect()))
}

fn bulk_or_null(value: Option<Vec<u8>>) -> Reply {
    value.map_or(Reply::Null(NullKind::Bulk), Reply::Bulk)
}
