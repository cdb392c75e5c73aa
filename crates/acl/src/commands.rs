//! Names and categories of commands, and sets of commands.

use crate::limits::COMMANDS_MAX;

/// Categories of Redis, in its order. The bit of a category is its index.
pub const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

const WORD_BITS: usize = 64;

/// A command or subcommand (`config|get`) that rules can name.
#[derive(Clone, Debug)]
pub struct CommandRow {
    /// Name in lower case.
    pub name: &'static str,
    /// Categories that it belongs to, a bit each.
    pub categories: u32,
    /// Index of the first of its subcommands, and the index behind the last one.
    pub subcommands: (usize, usize),
}

/// All commands that there are. Their indexes are those of [`CommandSet`].
#[derive(Clone, Debug)]
pub struct CommandList {
    rows: Vec<CommandRow>,
}

impl CommandList {
    /// Takes a list of commands with all their subcommands.
    pub fn new(rows: Vec<CommandRow>) -> Self {
        assert!(rows.len() <= COMMANDS_MAX, "sets of commands have a fixed size");
        Self { rows }
    }

    /// Returns the commands in the order of their indexes.
    pub fn rows(&self) -> &[CommandRow] {
        &self.rows
    }

    /// Returns the index of the command with this name, in any case.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.rows.iter().position(|row| row.name.eq_ignore_ascii_case(name))
    }

    /// Returns the set of all commands of the list.
    pub fn all(&self) -> CommandSet {
        let mut set = CommandSet::NONE;
        (0..self.rows.len()).for_each(|index| set.insert(index));
        set
    }
}

/// Returns the bit of a category, by its name without `@`.
pub fn category_bit(name: &str) -> Option<u32> {
    let index = CATEGORIES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
    Some(1 << index)
}

/// A set of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandSet([u64; COMMANDS_MAX / WORD_BITS]);

impl CommandSet {
    /// The empty set of commands.
    pub const NONE: Self = Self([0; COMMANDS_MAX / WORD_BITS]);

    /// Returns whether the command with this index is in the set; one beyond the list is not.
    #[inline]
    pub fn has(&self, index: usize) -> bool {
        self.0.get(index / WORD_BITS).is_some_and(|word| word >> (index % WORD_BITS) & 1 != 0)
    }

    /// Adds a command to the set.
    pub fn insert(&mut self, index: usize) {
        self.0[index / WORD_BITS] |= 1 << (index % WORD_BITS);
    }

    /// Removes a command from the set.
    pub fn remove(&mut self, index: usize) {
        self.0[index / WORD_BITS] &= !(1 << (index % WORD_BITS));
    }
}
