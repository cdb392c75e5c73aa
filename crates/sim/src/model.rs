//! Reference of what commands answer and change: plain maps, one command after the other.

use std::collections::BTreeMap;

use busload_resp::reply::{NullKind, Reply};

use crate::history::{Changes, Contents, Entry, History, Key, Needs, Table};

mod commands;

/// A request: the command's name and its arguments.
pub type Request = Vec<Vec<u8>>;

/// State of a connection.
#[derive(Debug, Default)]
pub struct Session {
    space: u8,
    /// Commands queued since MULTI.
    queue: Option<Vec<Request>>,
    /// True if a command could not be queued.
    is_dirty: bool,
    watched: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    key: Key,
    changed: u64,
    touched: u64,
    expiry_ms: Option<i64>,
}

/// Entry of the model, absent ones included.
#[derive(Debug, Default)]
struct Cell {
    entry: Option<Entry>,
    /// Transactions that must survive if this entry was seen.
    needs: Needs,
    /// Number of changes so far.
    changed: u64,
    /// Number of writes, of which some may have changed nothing.
    touched: u64,
}

/// Tables as they must be, and the history since the last start.
#[derive(Debug, Default)]
pub struct Model {
    cells: BTreeMap<Key, Cell>,
    /// Transactions since the last start.
    pub history: History,
}

/// Reply that the model expects.
#[derive(Debug)]
enum Expected {
    Is(Reply),
    /// An error that begins with this word.
    Error(&'static str),
    /// Pairs in any order.
    Pairs(BTreeMap<Vec<u8>, Vec<u8>>),
    /// An integer, whatever it is.
    Integer,
    /// A reply of any kind.
    Any,
}

/// Transaction that is being executed.
#[derive(Debug, Default)]
struct Transaction {
    now_ms: i64,
    changes: Changes,
    needs: Needs,
}

impl Model {
    /// Begins with these contents.
    pub fn starting_from(contents: Contents) -> Self {
        let cell = |entry: &Entry| Cell { entry: Some(entry.clone()), ..Cell::default() };
        let cells = contents.iter().map(|(key, entry)| (key.clone(), cell(entry))).collect();
        Self { cells, history: History::starting_from(contents) }
    }

    /// Executes a request as the server did, which gave this reply. Returns what must survive when
    /// a client receives it.
    ///
    /// # Errors
    /// If the reply is not the right one.
    pub fn execute(
        &mut self,
        session: &mut Session,
        request: &Request,
        now_ms: i64,
        reply: &Reply,
    ) -> Result<Needs, String> {
        let mut transaction = Transaction { now_ms, ..Transaction::default() };
        let expected = self.expect(session, request, reply, &mut transaction);
        let needs = self.commit(transaction);
        match expected.admits(reply) {
            true => Ok(needs),
            false => Err(format!("the reply is {}, expected is {expected}", show_reply(reply))),
        }
    }

    fn expect(
        &mut self,
        session: &mut Session,
        request: &Request,
        reply: &Reply,
        transaction: &mut Transaction,
    ) -> Expected {
        let name = request[0].as_slice();
        if is_refusal(reply) {
            if name == b"EXEC" {
                session.end_transaction();
            } else {
                session.is_dirty |= session.queue.is_some();
            }
            return Expected::Any;
        }
        match name {
            b"MULTI" if session.queue.is_some() => Expected::Error("ERR"),
            b"MULTI" => {
                session.queue = Some(Vec::new());
                ok()
            }
            b"DISCARD" if session.queue.is_none() => Expected::Error("ERR"),
            b"DISCARD" => {
                session.end_transaction();
                ok()
            }
            b"EXEC" if session.queue.is_none() => Expected::Error("ERR"),
            b"EXEC" => self.exec(session, reply, transaction),
            b"WATCH" if session.queue.is_none() => {
                for key in &request[1..] {
                    self.watch(session, key, transaction.now_ms);
                }
                ok()
            }
            b"UNWATCH" if session.queue.is_none() => {
                session.watched.clear();
                ok()
            }
            _ if session.queue.is_some() => {
                session.queue.as_mut().expect("just looked").push(request.clone());
                Expected::Is(Reply::Simple(b"QUEUED".to_vec()))
            }
            _ => self.command(&mut session.space, request, transaction),
        }
    }

    fn exec(
        &mut self,
        session: &mut Session,
        reply: &Reply,
        transaction: &mut Transaction,
    ) -> Expected {
        let is_dirty = session.is_dirty;
        let watched = std::mem::take(&mut session.watched);
        let queue = session.end_transaction().unwrap_or_default();
        if is_dirty {
            return Expected::Error("EXECABORT");
        }
        let (mut may_abort, mut must_abort) = (false, false);
        for watch in watched {
            let cell = self.cells.entry(watch.key).or_default();
            must_abort |= cell.changed != watch.changed;
            may_abort |= cell.touched != watch.touched;
            may_abort |= watch.expiry_ms.is_some_and(|expiry_ms| expiry_ms <= transaction.now_ms);
            transaction.needs = transaction.needs.join(cell.needs);
        }
        let is_aborted = matches!(reply, Reply::Null(_));
        if must_abort || (is_aborted && may_abort) {
            return Expected::Is(Reply::Null(NullKind::Array));
        }
        let Reply::Array(replies) = reply else {
            return Expected::Error("an array of replies");
        };
        if replies.len() != queue.len() {
            return Expected::Error("as many replies as commands");
        }
        for (request, reply) in queue.iter().zip(replies) {
            let expected = self.command(&mut session.space, request, transaction);
            if !expected.admits(reply) {
                return expected;
            }
        }
        Expected::Any
    }

    fn watch(&mut self, session: &mut Session, key: &[u8], now_ms: i64) {
        let key = place(session.space, key);
        let cell = self.cells.entry(key.clone()).or_default();
        // An entry that has expired already may be removed meanwhile.
        let entry = cell.entry.as_ref();
        let expiry_ms = entry.and_then(|entry| entry.expiry_ms).map(|at| at.max(now_ms));
        session.watched.push(Watched {
            key,
            changed: cell.changed,
            touched: cell.touched,
            expiry_ms,
        });
    }

    /// Reads an entry; the reply depends on it.
    fn read(&mut self, key: &Key, transaction: &mut Transaction) -> Option<Entry> {
        transaction.needs =
            transaction.needs.join(self.cells.entry(key.clone()).or_default().needs);
        self.look(key, transaction)
    }

    /// Returns an entry of which the reply shows nothing.
    fn look(&mut self, key: &Key, transaction: &Transaction) -> Option<Entry> {
        let cell = self.cells.entry(key.clone()).or_default();
        cell.entry.clone().filter(|entry| !entry.is_expired(transaction.now_ms))
    }

    /// Writes an entry, or removes it.
    fn write(&mut self, key: &Key, entry: Option<Entry>, transaction: &mut Transaction) {
        let cell = self.cells.entry(key.clone()).or_default();
        cell.touched += 1;
        let live = |entry: &Option<Entry>| {
            entry.clone().filter(|entry| !entry.is_expired(transaction.now_ms))
        };
        if live(&cell.entry) == live(&entry) {
            transaction.needs = transaction.needs.join(cell.needs.at_level(key.0.level()));
            return;
        }
        cell.changed += 1;
        cell.entry.clone_from(&entry);
        transaction.changes.push((key.clone(), entry));
    }

    fn commit(&mut self, transaction: Transaction) -> Needs {
        let Transaction { changes, needs, .. } = transaction;
        let keys: Vec<Key> = changes.iter().map(|(key, _)| key.clone()).collect();
        if keys.is_empty() {
            return needs;
        }
        let own = self.history.push(changes);
        for key in keys {
            self.cells.entry(key).or_default().needs = own;
        }
        needs.join(own)
    }
}

impl Session {
    /// Creates the state of a connection that has selected a space.
    pub fn in_space(space: u8) -> Self {
        Self { space, ..Self::default() }
    }

    /// Returns the space that the connection has selected.
    pub fn space(&self) -> u8 {
        self.space
    }

    fn end_transaction(&mut self) -> Option<Vec<Request>> {
        self.is_dirty = false;
        self.watched.clear();
        self.queue.take()
    }
}

impl Expected {
    fn admits(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (Expected::Any, _) | (Expected::Integer, Reply::Integer(_)) => true,
            (Expected::Is(expected), reply) => expected == reply,
            (Expected::Error(word), Reply::Error(text)) => text.starts_with(word.as_bytes()),
            (Expected::Pairs(expected), Reply::Array(elements)) => {
                pairs(elements).is_some_and(|found| found == *expected)
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Expected::Is(reply) => f.write_str(&show_reply(reply)),
            Expected::Error(word) => write!(f, "an error that begins with {word}"),
            Expected::Pairs(pairs) => write!(f, "{} pairs", pairs.len()),
            Expected::Integer => f.write_str("an integer"),
            Expected::Any => f.write_str("anything"),
        }
    }
}

/// Returns whether the disk was too full for a request.
pub fn is_refusal(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text)
        if String::from_utf8_lossy(text).contains("MISCONF the log has no space"))
}

/// Formats a reply for people.
pub fn show_reply(reply: &Reply) -> String {
    match reply {
        Reply::Simple(text) | Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
        Reply::Bulk(bytes) => {
            let shown = &bytes[..bytes.len().min(40)];
            format!("'{}' ({} bytes)", shown.escape_ascii(), bytes.len())
        }
        Reply::Array(replies) => {
            format!("[{}]", replies.iter().map(show_reply).collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

/// Returns the pairs of a reply to HGETALL; `None` if it is none, or names a field twice.
pub fn pairs(elements: &[Reply]) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
    let (pairs, []) = elements.as_chunks::<2>() else { return None };
    let mut found = BTreeMap::new();
    for pair in pairs {
        let [Reply::Bulk(field), Reply::Bulk(value)] = pair else { return None };
        if found.insert(field.clone(), value.clone()).is_some() {
            return None;
        }
    }
    Some(found)
}

/// Returns the table of a key.
pub fn place(space: u8, key: &[u8]) -> Key {
    let table = match key.split(|byte| *byte == b':').next() {
        Some(b"iv") => Table::Interval,
        Some(b"os") => Table::Os,
        Some(b"off") => Table::Off,
        _ => Table::Space(space),
    };
    (table, key.to_vec())
}

fn ok() -> Expected {
    Expected::Is(Reply::Simple(b"OK".to_vec()))
}
