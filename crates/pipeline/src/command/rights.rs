//! Rights that a command takes: to the command itself, and to its keys.
//!
//! Sets of commands are indexed by the position of a command in the table; the subcommands of all
//! commands follow. A command that shows or changes keys which it does not name needs the right to
//! all keys, except KEYS and SCAN, which show a user the keys that it may read.

use std::sync::OnceLock;

use busload_acl::{CATEGORIES, CommandList, CommandRow, Need, User};

use super::{COMMANDS, Command, CommandId, Flags, introspection::categories};
use crate::{args::Args, error::CommandError};

/// Returns all commands and subcommands with their categories.
pub fn command_list() -> &'static CommandList {
    static LIST: OnceLock<CommandList> = OnceLock::new();
    LIST.get_or_init(|| {
        let mut next = COMMANDS.len();
        let containers = COMMANDS.iter().map(|command| {
            let first = next;
            next += command.subcommands.len();
            row(command, if first == next { (0, 0) } else { (first, next) })
        });
        let containers: Vec<CommandRow> = containers.collect();
        let subcommands = COMMANDS.iter().flat_map(|command| command.subcommands);
        let subcommands = subcommands.map(|subcommand| row(subcommand, (0, 0)));
        CommandList::new(containers.into_iter().chain(subcommands).collect())
    })
}

fn row(command: &'static Command, subcommands: (usize, usize)) -> CommandRow {
    let bit = |name: &str| {
        let known = CATEGORIES.iter().position(|category| *category == &name[1..]);
        1 << known.expect("categories are Redis's")
    };
    let categories = categories(command).into_iter().map(bit).fold(0, |all: u32, bit| all | bit);
    CommandRow { name: command.name, categories, subcommands }
}

/// Returns the index of a command, which may be a subcommand of the one with this id.
pub(crate) fn index_of(id: CommandId, command: &Command) -> usize {
    let rows = command_list().rows();
    let index = usize::from(id.0);
    let (first, end) = rows[index].subcommands;
    let subcommand = (first..end).find(|index| rows[*index].name == command.name);
    subcommand.unwrap_or(index)
}

/// Reason for which a user may not run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The command is not among those that the user may run.
    Command,
    /// The key at this position is not among those that the user may access so.
    Key(usize),
    /// The command takes the right to all keys.
    AllKeys,
}

impl Denial {
    /// Returns the error that the client gets.
    pub fn error(self, user: &User, command: &Command) -> CommandError {
        match self {
            Denial::Command => format!(
                "NOPERM User {} has no permissions to run the '{}' command",
                user.name(),
                command.name
            )
            .into(),
            Denial::Key(_) | Denial::AllKeys => {
                CommandError::text("NOPERM No permissions to access a key")
            }
        }
    }

    /// Returns the error of a command of a transaction that was allowed when it was queued.
    pub fn error_in_exec(self) -> CommandError {
        let reason = match self {
            Denial::Command => "no permission to execute the command or subcommand",
            Denial::Key(_) | Denial::AllKeys => "no permission to touch the specified keys",
        };
        format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
             EXEC call. This command is no longer allowed for the following reason: {reason}"
        )
        .into()
    }
}

/// Returns why the user may not run the command, if so. The arguments must be as many as the
/// command accepts.
pub(crate) fn denial(
    user: &User,
    id: CommandId,
    command: &Command,
    args: &Args<'_>,
) -> Option<Denial> {
    // As in Redis: what is allowed before AUTH is always allowed.
    if command.flags.has(Flags::NO_AUTH) {
        return None;
    }
    if !user.may_run(index_of(id, command)) {
        return Some(Denial::Command);
    }
    let keys = user.keys();
    if keys.is_all() {
        return None;
    }
    if needs_all_keys(command) {
        return Some(Denial::AllKeys);
    }
    let mut positions = command.keys.indexes(args.len()).enumerate();
    positions.find_map(|(ordinal, at)| {
        let allowed = keys.allow(args.at(at), need(command, args, ordinal));
        (!allowed).then_some(Denial::Key(at))
    })
}

/// Returns whether the command shows or changes keys that it does not name.
fn needs_all_keys(command: &Command) -> bool {
    match command.name {
        "keys" | "scan" => false,
        "monitor" | "slowlog|get" => true,
        _ => command.flags.has(Flags::KEYSPACE),
    }
}

/// Returns the access that a command needs to one of its keys, as Redis 7 has it in its key
/// specifications.
fn need(command: &Command, args: &Args<'_>, ordinal: usize) -> Need {
    match command.name {
        "exists" | "touch" | "type" | "strlen" | "hlen" | "hexists" | "hstrlen" | "watch"
        | "memory|usage" | "object|encoding" | "object|freq" | "object|idletime"
        | "object|refcount" => Need::ANY,
        "set" if args.iter_from(3).any(|option| option.eq_ignore_ascii_case(b"get")) => Need::BOTH,
        "getset" | "getdel" | "getex" | "setbit" | "incr" | "incrby" | "incrbyfloat" | "decr"
        | "decrby" | "hincrby" | "hincrbyfloat" => Need::BOTH,
        "rename" | "renamenx" if ordinal == 0 => Need::BOTH,
        "copy" if ordinal == 0 => Need::READ,
        _ if command.flags.has(Flags::WRITE) => Need::WRITE,
        _ => Need::READ,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_an_index_of_its_own_and_no_category_is_unknown() {
        let list = command_list();
        let subcommands: usize = COMMANDS.iter().map(|command| command.subcommands.len()).sum();
        assert_eq!(list.rows().len(), COMMANDS.len() + subcommands);
        for (index, row) in list.rows().iter().enumerate() {
            assert_eq!(list.find(row.name), Some(index), "{}", row.name);
            assert_ne!(row.categories, 0, "{}", row.name);
        }
        for (id, command) in (0..).map(CommandId).zip(COMMANDS) {
            assert_eq!(index_of(id, command), usize::from(id.0));
            for subcommand in command.subcommands {
                assert_eq!(list.rows()[index_of(id, subcommand)].name, subcommand.name);
            }
        }
    }

    #[test]
    fn every_command_without_keys_that_shows_or_changes_keys_takes_all_of_them() {
        let all =
            COMMANDS.iter().flat_map(|command| std::iter::once(command).chain(command.subcommands));
        let named: Vec<&str> =
            all.filter(|command| needs_all_keys(command)).map(|command| command.name).collect();
        let expected = ["randomkey", "dbsize", "flushdb", "flushall", "slowlog|get", "monitor"];
        assert_eq!(named, expected);
        // What reads or writes data names its keys, or is one of these.
        for command in
            COMMANDS.iter().filter(|c| c.flags.has_any(Flags::READONLY.and(Flags::WRITE)))
        {
            let is_listed =
                expected.contains(&command.name) || ["keys", "scan"].contains(&command.name);
            assert!(command.keys.first != 0 || is_listed, "{}", command.name);
        }
    }
}
