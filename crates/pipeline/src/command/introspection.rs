//! COMMAND: describes the commands from the table, in the formats of Redis 7.
//!
//! It reports only what is true here: flags about scripts, replicas and loading, and hints for
//! cluster clients are left out.

use super::{COMMANDS, Call, Command, Flags, Group, Keys, lookup, refuse_many_names, syntax};
use crate::{
    args::Args,
    error::{CommandError, CommandResult},
    glob::Pattern,
    reply::Reply,
    tx::Tx,
};

/// Executes COMMAND without a subcommand.
pub(super) fn all(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    call.reply.array(COMMANDS.len());
    COMMANDS.iter().for_each(|command| write_info(&mut call.reply, command));
    Ok(())
}

pub(super) fn count(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    call.reply.count(COMMANDS.len());
    Ok(())
}

pub(super) fn info(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    refuse_many_names(&call.args, 2)?;
    let names = call.args.iter_from(2);
    if names.len() == 0 {
        return all(tx, call);
    }
    call.reply.array(names.len());
    for name in names {
        match find(name) {
            Some(command) => write_info(&mut call.reply, command),
            None => call.reply.null(),
        }
    }
    Ok(())
}

/// Returns a command by its name; that of a subcommand is like `client|kill`.
fn find(name: &[u8]) -> Option<&'static Command> {
    match name.iter().position(|byte| *byte == b'|') {
        None => lookup(name).command(),
        Some(end) => {
            let container = lookup(&name[..end]).command()?;
            container
                .subcommands
                .iter()
                .find(|subcommand| subcommand.name.as_bytes().eq_ignore_ascii_case(name))
        }
    }
}

fn write_info(reply: &mut Reply<'_>, command: &Command) {
    let Keys { first, last, step } = command.keys;
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    write_words(reply, &flag_names(command));
    for position in [i64::from(first), i64::from(last), i64::from(step)] {
        reply.integer(position);
    }
    write_words(reply, &categories(command));
    reply.set(0);
    write_key_specs(reply, command);
    reply.set(command.subcommands.len());
    command.subcommands.iter().for_each(|subcommand| write_info(reply, subcommand));
}

fn write_words(reply: &mut Reply<'_>, words: &[&str]) {
    reply.set(words.len());
    words.iter().for_each(|word| reply.simple(word));
}

fn flag_names(command: &Command) -> Vec<&'static str> {
    const NAMES: &[(Flags, &str)] = &[
        (Flags::WRITE, "write"),
        (Flags::READONLY, "readonly"),
        (Flags::DENYOOM, "denyoom"),
        (Flags::ADMIN, "admin"),
        (Flags::FAST, "fast"),
        (Flags::NO_AUTH, "no_auth"),
        (Flags::NO_MULTI, "no_multi"),
    ];
    NAMES.iter().filter(|(flag, _)| command.flags.has(*flag)).map(|(_, name)| *name).collect()
}

/// Commands that can take long or change everything although every client may use them.
const DANGEROUS: &[&str] = &["keys", "flushdb", "flushall", "info"];

/// Commands on the bits of a string.
const BITMAP: &[&str] = &["setbit", "getbit", "bitcount"];

/// Returns the categories of a command, each with its `@`.
pub(super) fn categories(command: &Command) -> Vec<&'static str> {
    let flags = command.flags;
    let is_container = !command.subcommands.is_empty() && command.arity < -1;
    let dangerous = flags.has(Flags::ADMIN) || DANGEROUS.contains(&command.name);
    let group = |group| command.group == group && !is_container;
    let keyspace = group(Group::Generic) || (group(Group::Server) && flags.has(Flags::KEYSPACE));
    let connection = group(Group::Connection)
        || command.name == "command"
        || command.name.starts_with("command|");
    let all = [
        (keyspace, "@keyspace"),
        (flags.has(Flags::READONLY), "@read"),
        (flags.has(Flags::WRITE), "@write"),
        (group(Group::Hash), "@hash"),
        (group(Group::String) && !BITMAP.contains(&command.name), "@string"),
        (BITMAP.contains(&command.name), "@bitmap"),
        (flags.has(Flags::ADMIN), "@admin"),
        (flags.has(Flags::FAST), "@fast"),
        (!flags.has(Flags::FAST), "@slow"),
        (dangerous, "@dangerous"),
        (connection, "@connection"),
        (group(Group::Transactions), "@transaction"),
        (command.name.starts_with("function|"), "@scripting"),
    ];
    all.iter().filter(|(holds, _)| *holds).map(|(_, name)| *name).collect()
}

fn write_key_specs(reply: &mut Reply<'_>, command: &Command) {
    let Keys { first, last, step } = command.keys;
    if first == 0 {
        return reply.set(0);
    }
    // Redis gives a positive last key relative to the first.
    let last = if last < 0 { i64::from(last) } else { i64::from(last) - i64::from(first) };
    reply.set(1);
    reply.map(3);
    reply.bulk(b"flags");
    write_words(reply, key_flags(command));
    reply.bulk(b"begin_search");
    write_search(reply, "index", &[("index", i64::from(first))]);
    reply.bulk(b"find_keys");
    write_search(reply, "range", &[("lastkey", last), ("keystep", i64::from(step)), ("limit", 0)]);
}

fn key_flags(command: &Command) -> &'static [&'static str] {
    match command.name {
        "del" | "unlink" => &["RM", "delete"],
        "mset" | "setex" | "psetex" => &["OW", "update"],
        _ if command.flags.has(Flags::WRITE) => &["RW", "access", "update"],
        _ => &["RO", "access"],
    }
}

fn write_search(reply: &mut Reply<'_>, kind: &str, spec: &[(&str, i64)]) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(spec.len());
    for (name, value) in spec {
        reply.bulk(name.as_bytes());
        reply.integer(*value);
    }
}

pub(super) fn list(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let filter = list_filter(&call.args)?;
    let with_subcommands =
        COMMANDS.iter().flat_map(|command| std::iter::once(command).chain(command.subcommands));
    let names: Vec<&str> = with_subcommands
        .filter(|command| filter.takes(command))
        .map(|command| command.name)
        .collect();
    call.reply.bulks(names.iter().map(|name| name.as_bytes()));
    Ok(())
}

enum ListFilter<'a> {
    All,
    /// Filter by module, of which there are none.
    Module,
    Category(&'a [u8]),
    Name(Pattern),
}

impl ListFilter<'_> {
    fn takes(&self, command: &Command) -> bool {
        match self {
            ListFilter::All => true,
            ListFilter::Module => false,
            ListFilter::Category(name) => categories(command)
                .iter()
                .any(|category| category.as_bytes()[1..].eq_ignore_ascii_case(name)),
            ListFilter::Name(pattern) => pattern.matches(command.name.as_bytes()),
        }
    }
}

fn list_filter<'a>(args: &Args<'a>) -> Result<ListFilter<'a>, CommandError> {
    let mut cursor = args.cursor(2);
    match cursor.left() {
        0 => Ok(ListFilter::All),
        3 if cursor.take_word("filterby") => {
            let (kind, value) = (cursor.expect()?, cursor.expect()?);
            match kind.to_ascii_lowercase().as_slice() {
                b"module" => Ok(ListFilter::Module),
                b"aclcat" => Ok(ListFilter::Category(value)),
                b"pattern" => Ok(ListFilter::Name(Pattern::compile_caseless(value)?)),
                _ => Err(CommandError::Syntax),
            }
        }
        _ => Err(CommandError::Syntax),
    }
}

pub(super) fn getkeys(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let words: Vec<&[u8]> = call.args.iter_from(2).collect();
    let command =
        described_command(&words).ok_or(CommandError::text("ERR Invalid command specified"))?;
    if command.keys.first == 0 {
        return Err(CommandError::text("ERR The command has no key arguments"));
    }
    if !command.accepts(words.len()) {
        return Err(CommandError::text("ERR Invalid number of arguments specified for command"));
    }
    let keys: Vec<&[u8]> = command.keys.indexes(words.len()).map(|index| words[index]).collect();
    call.reply.bulks(keys.into_iter());
    Ok(())
}

/// Returns the command that a request of these words would run.
fn described_command(words: &[&[u8]]) -> Option<&'static Command> {
    let command = lookup(words.first()?).command()?;
    match words.get(1) {
        Some(word) if !command.subcommands.is_empty() => {
            find(&[command.name.as_bytes(), word].join(&b'|'))
        }
        _ => Some(command),
    }
}

pub(super) fn docs(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    refuse_many_names(&call.args, 2)?;
    let names = call.args.iter_from(2);
    let commands: Vec<&Command> =
        if names.len() == 0 { COMMANDS.iter().collect() } else { names.filter_map(find).collect() };
    write_all_docs(&mut call.reply, &commands);
    Ok(())
}

fn write_all_docs(reply: &mut Reply<'_>, commands: &[&Command]) {
    reply.map(commands.len());
    for command in commands {
        reply.bulk(command.name.as_bytes());
        write_docs(reply, command);
    }
}

fn write_docs(reply: &mut Reply<'_>, command: &Command) {
    let texts =
        [("summary", command.summary), ("since", command.since), ("group", command.group.name())];
    let arguments = syntax::parse(command.syntax);
    let subcommands: Vec<&Command> = command.subcommands.iter().collect();
    let count =
        texts.len() + usize::from(!arguments.is_empty()) + usize::from(!subcommands.is_empty());
    reply.map(count);
    for (name, text) in texts {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if !arguments.is_empty() {
        reply.bulk(b"arguments");
        write_arguments(reply, &arguments);
    }
    if !subcommands.is_empty() {
        reply.bulk(b"subcommands");
        write_all_docs(reply, &subcommands);
    }
}

fn write_arguments(reply: &mut Reply<'_>, arguments: &[syntax::Argument]) {
    reply.array(arguments.len());
    for argument in arguments {
        let flags: Vec<&str> = [(argument.optional, "optional"), (argument.multiple, "multiple")]
            .iter()
            .filter(|(holds, _)| *holds)
            .map(|(_, name)| *name)
            .collect();
        let token = argument.token.as_deref().map(|token| ("token", token));
        let texts = [("name", argument.name.as_str()), ("type", argument.kind.name())]
            .into_iter()
            .chain(token);
        let is_key = argument.kind == syntax::ArgumentKind::Key;
        let count = texts.clone().count()
            + usize::from(is_key)
            + usize::from(!flags.is_empty())
            + usize::from(!argument.parts.is_empty());
        reply.map(count);
        for (name, text) in texts {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
        if is_key {
            reply.bulk(b"key_spec_index");
            reply.integer(0);
        }
        if !flags.is_empty() {
            reply.bulk(b"flags");
            write_words(reply, &flags);
        }
        if !argument.parts.is_empty() {
            reply.bulk(b"arguments");
            write_arguments(reply, &argument.parts);
        }
    }
}
