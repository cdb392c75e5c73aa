//! The commands: one table, from which dispatch, `COMMAND`, the documentation page and tests
//! derive.
//!
//! A handler reads and changes data only through [`Tx`], whose accessors collect the gate of the
//! reply and write the log record. It computes first and changes last: once it has changed
//! something it cannot fail.

mod acl;
mod bits;
mod client;
mod config;
mod connection;
mod docs;
mod expiry;
mod hashes;
mod info;
mod introspection;
mod keys;
mod latency;
mod latency_graph;
mod memory;
mod rights;
mod scan;
mod server;
mod slowlog;
mod strings;
mod syntax;
mod table;
mod transactions;

use std::sync::OnceLock;

use busload_tables::KeyHash;

use crate::{
    args::Args,
    error::{CommandError, CommandResult},
    limits::NAMES_MAX,
    reply::Reply,
    session::Session,
    source::Operation,
    tx::Tx,
};

pub use docs::markdown;
pub use rights::command_list;
pub(crate) use rights::denial;
pub use table::COMMANDS;

/// Index of a command in [`COMMANDS`], or one of two ids that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandId(pub u16);

impl CommandId {
    /// Id of a command that does not exist.
    pub const UNKNOWN: CommandId = CommandId(u16::MAX);
    /// Id of a protocol error: the end of a connection, not a request.
    pub const PROTOCOL_ERROR: CommandId = CommandId(u16::MAX - 1);

    /// Returns the command, if it exists.
    #[inline]
    pub fn command(self) -> Option<&'static Command> {
        COMMANDS.get(usize::from(self.0))
    }
}

/// Properties of a command, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// No property at all.
    pub const NONE: Flags = Flags(0);
    /// The command may change data.
    pub const WRITE: Flags = Flags(1);
    /// The command reads data.
    pub const READONLY: Flags = Flags(1 << 1);
    /// The command may need more memory: it is refused above `memory_max`.
    pub const DENYOOM: Flags = Flags(1 << 2);
    /// The command takes constant or logarithmic time.
    pub const FAST: Flags = Flags(1 << 3);
    /// The command is allowed before AUTH.
    pub const NO_AUTH: Flags = Flags(1 << 4);
    /// The command is refused inside MULTI.
    pub const NO_MULTI: Flags = Flags(1 << 5);
    /// The command is executed at once inside MULTI instead of queued (EXEC, DISCARD, ...).
    pub const NOT_QUEUED: Flags = Flags(1 << 6);
    /// The command is for operators.
    pub const ADMIN: Flags = Flags(1 << 7);
    /// The command is about connections.
    pub const CONNECTION: Flags = Flags(1 << 8);
    /// The command reads or flushes a table as a whole (SCAN, FLUSHALL): it has no keys to route
    /// by.
    pub const KEYSPACE: Flags = Flags(1 << 9);
    /// The command takes little time, although Redis does not call it fast.
    pub const BRIEF: Flags = Flags(1 << 10);

    /// Returns the union of both sets of flags.
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Returns whether any flag of `other` is set.
    #[inline]
    pub const fn has_any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether all flags of `other` are set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Describes which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Index of the first key, 0 for none.
    pub first: u8,
    /// Index of the last key; negative counts from the end (-1 is the last argument).
    pub last: i8,
    /// Distance between two keys.
    pub step: u8,
}

impl Keys {
    /// No argument is a key.
    pub const NONE: Keys = Keys { first: 0, last: 0, step: 0 };
    /// The first argument is a key.
    pub const ONE: Keys = Keys { first: 1, last: 1, step: 1 };
    /// The first two arguments are keys.
    pub const TWO: Keys = Keys { first: 1, last: 2, step: 1 };
    /// All arguments are keys.
    pub const ALL: Keys = Keys { first: 1, last: -1, step: 1 };
    /// Every other argument is a key, beginning with the first.
    pub const PAIRS: Keys = Keys { first: 1, last: -1, step: 2 };

    /// Returns the indexes of the keys among `arg_count` arguments (the name included).
    #[inline]
    pub fn indexes(self, arg_count: usize) -> impl Iterator<Item = usize> {
        let first = usize::from(self.first);
        let end = match usize::try_from(self.last) {
            Ok(last) => (last + 1).min(arg_count),
            Err(_) => (arg_count + 1).saturating_sub(usize::from(self.last.unsigned_abs())),
        };
        let end = if first == 0 { 0 } else { end };
        (first..end.max(first)).step_by(usize::from(self.step.max(1)))
    }
}

/// Log bytes that a command may need beyond its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogReservation {
    /// Only its arguments and a little per key.
    Args,
    /// Also a computed number of many digits.
    Number,
    /// Also the values that its keys have now (it moves or copies them).
    Values,
}

/// Condition under which a command that writes is executed in slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlicedBy {
    /// Never sliced: its cost is bounded, or it is a read, which decides this itself.
    Never,
    /// Sliced with many arguments, or long ones.
    Args,
    /// Sliced with a large value, which is the only thing it sets.
    Value,
    /// Sliced when the first key holds a large value.
    Source,
    /// Sliced when it would have to copy a large value to change it.
    Patch,
}

/// Section of the documentation to which a command belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Group {
    String,
    Hash,
    Generic,
    Transactions,
    Connection,
    Server,
}

impl Group {
    /// Returns the name that COMMAND DOCS shows.
    pub const fn name(self) -> &'static str {
        match self {
            Group::String => "string",
            Group::Hash => "hash",
            Group::Generic => "generic",
            Group::Transactions => "transactions",
            Group::Connection => "connection",
            Group::Server => "server",
        }
    }
}

/// Function that executes a command: it reads `call.args` and writes `call.reply`.
pub type Handler = fn(&mut Tx, &mut Call<'_>) -> CommandResult;

/// Description of a command or subcommand.
#[derive(Debug)]
pub struct Command {
    /// Name in lower case; that of a subcommand is like `client|kill`.
    pub name: &'static str,
    /// Count of arguments with the name; a negative arity is a minimum.
    pub arity: i16,
    /// Properties of the command, see [`Flags`].
    pub flags: Flags,
    /// Positions of its keys, see [`Keys`].
    pub keys: Keys,
    /// Log bytes that it may need, see [`LogReservation`].
    pub reservation: LogReservation,
    /// Condition for slices, see [`SlicedBy`].
    pub sliced: SlicedBy,
    /// Operation on keys of a source; `None` when sources do not support the command.
    pub source: Option<Operation>,
    /// Section of the documentation, see [`Group`].
    pub group: Group,
    /// Syntax of the arguments, for people.
    pub syntax: &'static str,
    /// Summary for the documentation, in one or two sentences.
    pub summary: &'static str,
    /// First version of Redis that had the command.
    pub since: &'static str,
    /// Subcommands of a command such as CLIENT; else empty.
    pub subcommands: &'static [Command],
    /// Function that executes the command.
    pub handler: Handler,
}

impl Command {
    /// Returns whether the command accepts this many arguments.
    #[inline]
    pub fn accepts(&self, arg_count: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exact) => exact == arg_count,
            Err(_) => usize::from(self.arity.unsigned_abs()) <= arg_count,
        }
    }

    /// Returns the subcommand that the second argument names; the command itself when it has none.
    #[inline]
    pub fn resolve(&'static self, args: &Args<'_>) -> Result<&'static Command, CommandError> {
        if self.subcommands.is_empty() { Ok(self) } else { self.subcommand(args) }
    }

    fn subcommand(&'static self, args: &Args<'_>) -> Result<&'static Command, CommandError> {
        let Some(word) = args.get(1) else {
            return if self.accepts(1) { Ok(self) } else { Err(CommandError::Arity(self.name)) };
        };
        let found = self.subcommands.iter().find(|subcommand| {
            subcommand.name.as_bytes()[self.name.len() + 1..].eq_ignore_ascii_case(word)
        });
        found.ok_or_else(|| {
            let word = printable(word, 128);
            format!("ERR unknown subcommand '{word}'. Try {} HELP.", self.name.to_uppercase())
                .into()
        })
    }
}

/// Refuses more than [`NAMES_MAX`] arguments from `first` on.
fn refuse_many_names(args: &Args<'_>, first: usize) -> CommandResult {
    const TOO_MANY: CommandError = CommandError::text("ERR more than 1024 names in one request");
    const _: () = assert!(NAMES_MAX == 1024, "the error text says so");
    if NAMES_MAX < args.iter_from(first).len() { Err(TOO_MANY) } else { Ok(()) }
}

/// Returns the bytes as text, at most `bytes_max` of them, for messages.
pub fn printable(bytes: &[u8], bytes_max: usize) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(bytes_max)]).into_owned()
}

/// Execution of one command.
#[derive(Debug)]
pub struct Call<'a> {
    /// State of the connection that sent it.
    pub session: &'a mut Session,
    /// Arguments of the command.
    pub args: Args<'a>,
    /// Writer of the reply.
    pub reply: Reply<'a>,
    /// Description of the command.
    pub command: &'static Command,
    /// Hash of the first key, if it has keys.
    pub hash: KeyHash,
    /// Says whether EXEC executes it.
    pub in_exec: bool,
}

/// Returns the id of the command with this name (in any case).
pub fn lookup(name: &[u8]) -> CommandId {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(Index::new).find(name)
}

const INDEX_SLOTS: usize = 1024;
const NAME_BYTES_MAX: usize = 16;

/// Hash table of names, each packed into 16 bytes.
struct Index {
    slots: Box<[(u128, CommandId)]>,
}

impl Index {
    fn new() -> Self {
        let mut slots = vec![(0, CommandId::UNKNOWN); INDEX_SLOTS].into_boxed_slice();
        for (ordinal, command) in COMMANDS.iter().enumerate() {
            let packed = pack(command.name.as_bytes()).expect("names of commands are short");
            let mut slot = slot_of(packed);
            while slots[slot].0 != 0 {
                slot = (slot + 1) % INDEX_SLOTS;
            }
            slots[slot] =
                (packed, CommandId(u16::try_from(ordinal).expect("there are few commands")));
        }
        Self { slots }
    }

    #[inline]
    fn find(&self, name: &[u8]) -> CommandId {
        let Some(packed) = pack(name) else { return CommandId::UNKNOWN };
        let mut slot = slot_of(packed);
        loop {
            let (found, id) = self.slots[slot];
            if found == packed {
                return id;
            }
            if found == 0 {
                return CommandId::UNKNOWN;
            }
            slot = (slot + 1) % INDEX_SLOTS;
        }
    }
}

/// Packs a name: its bytes with bit 5 set, which is lower case for letters. Names consist of
/// letters only, so two names have different packings. The value is shifted together because bytes
/// that were just stored one by one cannot be loaded as one word without a stall.
#[inline]
fn pack(name: &[u8]) -> Option<u128> {
    if name.is_empty() || NAME_BYTES_MAX < name.len() {
        return None;
    }
    let (short, rest) = name.split_at(name.len().min(8));
    let packed = short.iter().try_fold(0, |packed: u64, byte| {
        byte.is_ascii_alphabetic().then_some(packed << 8 | u64::from(byte | 0x20))
    })?;
    rest.iter().try_fold(u128::from(packed), |packed, byte| {
        byte.is_ascii_alphabetic().then_some(packed << 8 | u128::from(byte | 0x20))
    })
}

#[inline]
fn slot_of(packed: u128) -> usize {
    let folded = (packed as u64) ^ ((packed >> 64) as u64).rotate_left(29);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else_is() {
        for (ordinal, command) in COMMANDS.iter().enumerate() {
            assert_eq!(lookup(command.name.as_bytes()), CommandId(ordinal as u16));
            assert_eq!(lookup(command.name.to_uppercase().as_bytes()), CommandId(ordinal as u16));
        }
        for name in ["", "g", "gets", "g\u{0}t", "get\u{0}", "averyveryverylongcommandname"] {
            assert_eq!(lookup(name.as_bytes()), CommandId::UNKNOWN, "{name:?}");
        }
    }

    #[test]
    fn key_positions_follow_the_pattern() {
        let of = |keys: Keys, count| keys.indexes(count).collect::<Vec<_>>();
        assert_eq!(of(Keys::NONE, 5), []);
        assert_eq!(of(Keys::ONE, 5), [1]);
        assert_eq!(of(Keys::TWO, 3), [1, 2]);
        assert_eq!(of(Keys::ALL, 4), [1, 2, 3]);
        assert_eq!(of(Keys::PAIRS, 5), [1, 3]);
    }
}
