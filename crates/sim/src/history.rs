//! Transactions since the last start, and what of them must survive.

use std::collections::BTreeMap;

/// Contents of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Bytes of a string.
    String(Vec<u8>),
    /// Values of a hash, by field.
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// Entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Contents of the entry.
    pub value: Value,
    /// Unix time in milliseconds at which it expires.
    pub expiry_ms: Option<i64>,
}

impl Entry {
    /// Returns whether the entry counts as absent.
    pub fn is_expired(&self, now_ms: i64) -> bool {
        self.expiry_ms.is_some_and(|expiry_ms| expiry_ms <= now_ms)
    }
}

/// Table of a key: the space of the table `default`, or a named table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Table `default` in one of its spaces, `sync=always`.
    Space(u8),
    /// Table `iv` with `sync=interval`.
    Interval,
    /// Table `os` with `sync=os`.
    Os,
    /// Table `off` with `sync=off`.
    Off,
}

/// Ends of a process that a transaction survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing: it is not logged.
    Lost,
    /// A kill of the process.
    Written,
    /// Loss of power: a crash of the machine.
    Durable,
}

impl Table {
    /// Returns the level of its transactions.
    pub fn level(self) -> Level {
        match self {
            Table::Space(_) => Level::Durable,
            Table::Interval | Table::Os => Level::Written,
            Table::Off => Level::Lost,
        }
    }
}

/// Key with its table.
pub type Key = (Table, Vec<u8>);

/// Contents of all tables.
pub type Contents = BTreeMap<Key, Entry>;

/// Number of transactions that must survive a power loss, and a kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Number of the first transactions that must survive a power loss.
    pub durable: usize,
    /// Number of the first transactions that must survive a kill.
    pub written: usize,
}

impl Needs {
    /// Joins the needs of two things that were seen.
    pub fn join(self, other: Needs) -> Needs {
        Needs { durable: self.durable.max(other.durable), written: self.written.max(other.written) }
    }

    /// Returns the needs of a write of this level that changes nothing.
    pub fn at_level(self, level: Level) -> Needs {
        Needs::at(self.written, level)
    }

    fn at(count: usize, level: Level) -> Needs {
        match level {
            Level::Lost => Needs::default(),
            Level::Written => Needs { durable: 0, written: count },
            Level::Durable => Needs { durable: count, written: count },
        }
    }
}

/// End of a process, by what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// A kill: what was written survives.
    Kill,
    /// A power loss: what was synced survives.
    PowerLoss,
}

/// Changed keys of a transaction, with their new entries.
pub type Changes = Vec<(Key, Option<Entry>)>;

/// Logged transactions since the last start.
#[derive(Debug, Default)]
pub struct History {
    base: Contents,
    transactions: Vec<Changes>,
    observed: Needs,
}

impl History {
    /// Begins with these contents.
    pub fn starting_from(base: Contents) -> Self {
        Self { base, ..Self::default() }
    }

    /// Returns the number of transactions.
    pub fn len(&self) -> usize {
        self.transactions.len()
    }

    /// Returns whether nothing has happened yet.
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// Adds a transaction. Returns what survives if it does.
    pub fn push(&mut self, mut changes: Changes) -> Needs {
        let level = changes.iter().map(|((table, _), _)| table.level()).max();
        changes.retain(|((table, _), _)| table.level() != Level::Lost);
        if changes.is_empty() {
            return Needs::default();
        }
        self.transactions.push(changes);
        Needs::at(self.transactions.len(), level.unwrap_or(Level::Lost))
    }

    /// Notes that everything so far was synced, as by a clean shutdown.
    pub fn observe_all(&mut self) {
        let count = self.transactions.len();
        self.observe(Needs { durable: count, written: count });
    }

    /// Notes that a client has seen something that needs these transactions.
    pub fn observe(&mut self, needs: Needs) {
        self.observed = self.observed.join(needs);
    }

    /// Checks the contents after a restart at this time. Returns the number of transactions that
    /// survived.
    ///
    /// # Errors
    /// If no prefix of the transactions that must have survived gives these contents.
    pub fn check(&self, found: &Contents, now_ms: i64, ending: Ending) -> Result<usize, String> {
        let least = match ending {
            Ending::Kill => self.observed.written.max(self.observed.durable),
            Ending::PowerLoss => self.observed.durable,
        };
        let mut state = self.base.clone();
        let mut differences = Vec::new();
        for count in 0..=self.transactions.len() {
            if let Some(last) = count.checked_sub(1) {
                apply(&mut state, &self.transactions[last]);
            }
            let different = difference(&state, found, now_ms);
            match different {
                None if least <= count => return Ok(count),
                None => differences.push(format!("all is as after transaction {count}")),
                Some(text) if count == least || count == self.transactions.len() => {
                    differences.push(format!("after transaction {count}: {text}"));
                }
                Some(_) => {}
            }
        }
        Err(format!(
            "of {} transactions, {least} must have survived ({ending:?}), but the contents are \
             those of no such prefix:\n  {}",
            self.transactions.len(),
            differences.join("\n  ")
        ))
    }
}

fn apply(contents: &mut Contents, changes: &Changes) {
    for (key, entry) in changes {
        match entry {
            Some(entry) => _ = contents.insert(key.clone(), entry.clone()),
            None => _ = contents.remove(key),
        }
    }
}

/// Returns how the contents differ from what is expected, if they do. Expired entries are absent.
fn difference(expected: &Contents, found: &Contents, now_ms: i64) -> Option<String> {
    let live = |contents: &Contents, key: &Key| {
        contents.get(key).filter(|entry| !entry.is_expired(now_ms)).cloned()
    };
    expected.keys().chain(found.keys()).find_map(|key| {
        let (expected, found) = (live(expected, key), live(found, key));
        (expected != found)
            .then(|| format!("{} is {}, not {}", show_key(key), show(&found), show(&expected)))
    })
}

/// Formats a key for people.
fn show_key(key: &Key) -> String {
    format!("{:?} {}", key.0, key.1.escape_ascii())
}

fn show(entry: &Option<Entry>) -> String {
    let Some(entry) = entry else { return "absent".into() };
    let short = |bytes: &[u8]| {
        let shown = &bytes[..bytes.len().min(24)];
        format!("'{}' ({} bytes)", shown.escape_ascii(), bytes.len())
    };
    let value = match &entry.value {
        Value::String(value) => short(value),
        Value::Hash(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(field, value)| format!("{}: {}", field.escape_ascii(), short(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
    };
    format!("{value} until {:?}", entry.expiry_ms)
}
