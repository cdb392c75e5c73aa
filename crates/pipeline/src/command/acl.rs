//! ACL: shows users and changes them, in memory; SAVE and LOAD write and read their file.
//!
//! Hashing a password and access to the file take long, so a worker does it while the requests
//! behind on the connection wait; everybody else is served meanwhile.

use busload_acl::{
    Busy, CATEGORIES, DEFAULT, Promise, Rule, RuleError, Secret, User, check_name, limits,
};

use super::{
    Call, Flags, lookup, printable, refuse_many_names,
    rights::{Denial, command_list, denial},
};
use crate::{
    args::Args,
    error::{CommandError, CommandResult},
    tx::{Locks, Slice, Step, Tx, Work},
};

const NO_FILE: CommandError = CommandError::text(
    "ERR This server is not configured to use an ACL file: acl_file in its configuration or \
     --acl-file names one",
);

pub(super) fn whoami(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    call.reply.bulk(call.session.user.name().as_bytes());
    Ok(())
}

pub(super) fn users(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let users = tx.users.all();
    call.reply.bulks(users.iter().map(|user| user.name().as_bytes()));
    Ok(())
}

pub(super) fn list(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let lines: Vec<String> =
        tx.users.all().iter().map(|user| user.line(tx.users.commands())).collect();
    call.reply.bulks(lines.iter().map(String::as_bytes));
    Ok(())
}

pub(super) fn getuser(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let Some(user) = tx.users.get(call.args.at(2)) else {
        call.reply.null();
        return Ok(());
    };
    let reply = &mut call.reply;
    reply.map(6);
    reply.bulk(b"flags");
    let flags: Vec<&str> = user.flags().collect();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    let hashes: Vec<String> = user.passwords().iter().map(ToString::to_string).collect();
    reply.bulks(hashes.iter().map(String::as_bytes));
    let channels = if user.all_channels() { "&*" } else { "" };
    for (name, text) in [
        ("commands", user.describe_commands(tx.users.commands())),
        ("keys", user.keys().to_string()),
        ("channels", channels.to_owned()),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    reply.bulk(b"selectors");
    reply.array(0);
    Ok(())
}

/// Makes or changes a user: all rules are applied, or none.
pub(super) fn setuser(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let name = printable(call.args.at(2), limits::NAME_BYTES_MAX + 1);
    check_name(&name).map_err(|text| CommandError::from(format!("ERR {text}")))?;
    if limits::RULES_MAX < call.args.len() {
        return Err(CommandError::text("ERR more than 1024 rules in one request"));
    }
    let mut rules = Vec::new();
    let shown = |word| printable(word, limits::RULE_BYTES_MAX + 1);
    let words: Vec<String> = call.args.iter_from(3).map(shown).collect();
    for word in &words {
        let rule = Rule::parse(word, tx.users.commands());
        rules.push(rule.map_err(|error| refused_rule(word, error))?);
    }
    if rules.iter().any(Rule::is_slow) {
        // The bytes of a password, whatever they are.
        for (rule, word) in rules.iter_mut().zip(call.args.iter_from(3)) {
            if let Rule::AddPassword(secret) | Rule::RemovePassword(secret) = rule {
                *secret = Secret(word[1..].to_vec());
            }
        }
        let hashed = tx.users.hash_rules(&name, rules).map_err(busy)?;
        return background(tx, call, hashed, move |tx, hashed| {
            let changed = hashed.and_then(|rules| tx.users.change(&name, &rules));
            changed.map_err(|(index, error)| refused_rule(&words[index], error))?;
            tx.users_changed(None);
            Ok(())
        });
    }
    let changed = tx.users.change(&name, &rules);
    changed.map_err(|(index, error)| match words.get(index) {
        Some(word) => refused_rule(word, error),
        None => format!("ERR {error}").into(),
    })?;
    tx.users_changed(Some(call.session));
    call.reply.ok();
    Ok(())
}

const _: () = assert!(limits::RULES_MAX == 1024, "the error text says so");

fn refused_rule(word: &str, error: RuleError) -> CommandError {
    let shown = printable(Rule::shown(word).as_bytes(), 128);
    format!("ERR Error in ACL SETUSER modifier '{shown}': {error}").into()
}

fn busy(_: Busy) -> CommandError {
    CommandError::text("ERR too many passwords wait to be verified, try again later")
}

pub(super) fn deluser(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    refuse_many_names(&call.args, 2)?;
    if call.args.iter_from(2).any(|name| name == DEFAULT.as_bytes()) {
        return Err(CommandError::text("ERR The 'default' user cannot be removed"));
    }
    let removed = tx.users.remove(call.args.iter_from(2));
    if removed != 0 {
        tx.users_changed(Some(call.session));
    }
    call.reply.count(removed);
    Ok(())
}

pub(super) fn cat(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let category = match (call.args.get(2), call.args.len()) {
        (None, _) => {
            call.reply.bulks(CATEGORIES.iter().map(|name| name.as_bytes()));
            return Ok(());
        }
        (Some(category), 3) => category,
        _ => {
            let word = printable(call.args.at(1), 128);
            return Err(format!(
                "ERR unknown subcommand or wrong number of arguments for '{word}'. Try ACL HELP."
            )
            .into());
        }
    };
    let known = CATEGORIES.iter().position(|name| name.as_bytes().eq_ignore_ascii_case(category));
    let bit = known.ok_or_else(|| {
        CommandError::from(format!("ERR Unknown category '{}'", printable(category, 128)))
    })?;
    let rows = command_list().rows().iter().filter(|row| row.categories >> bit & 1 != 0);
    let names: Vec<&str> = rows.map(|row| row.name).collect();
    call.reply.bulks(names.iter().map(|name| name.as_bytes()));
    Ok(())
}

/// Replaces all users by those of the file, or none if the file has a mistake.
pub(super) fn load(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    if !tx.users.has_file() {
        return Err(NO_FILE);
    }
    let loading = tx.users.load().map_err(busy)?;
    background(tx, call, loading, |tx, loaded| {
        let loaded = loaded.map_err(|error| {
            CommandError::from(format!("ERR {error}; the users are as they were"))
        })?;
        tx.users.replace(loaded);
        tx.users_changed(None);
        Ok(())
    })
}

/// Replaces the file by the users in memory.
pub(super) fn save(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    if !tx.users.has_file() {
        return Err(NO_FILE);
    }
    let saving = tx.users.save().map_err(busy)?;
    background(tx, call, saving, |_, saved| {
        saved.map_err(|error| format!("ERR the file of users is as it was: {error}").into())
    })
}

/// Says whether a user could run a command, without running it.
pub(super) fn dryrun(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let shown = |at: usize| printable(call.args.at(at), 128);
    let not_found = |what: &str, at: usize| format!("ERR {what} '{}' not found", shown(at));
    let user = tx.users.get(call.args.at(2)).ok_or_else(|| not_found("User", 2))?;
    let args = call.args.behind(3);
    let id = lookup(args.at(0));
    let command = id.command().ok_or_else(|| not_found("Command", 3))?.resolve(&args)?;
    if !command.accepts(args.len()) {
        return Err(CommandError::Arity(command.name));
    }
    match denial(&user, id, command, &args) {
        None => call.reply.ok(),
        Some(denied) => call.reply.bulk(explained(denied, &user, command.name, &args).as_bytes()),
    }
    Ok(())
}

fn explained(denied: Denial, user: &User, command: &str, args: &Args<'_>) -> String {
    let name = user.name();
    match denied {
        Denial::Command => format!("User {name} has no permissions to run the '{command}' command"),
        Denial::Key(at) => {
            let key = printable(args.at(at), 128);
            format!("User {name} has no permissions to access the '{key}' key")
        }
        Denial::AllKeys => format!("User {name} has no permissions to access all keys"),
    }
}

/// Function that the tx thread calls with the result of a worker.
type Then<T> = Box<dyn FnOnce(&mut Tx, T) -> CommandResult + Send>;

/// Work of a command that waits for a worker, and then answers OK.
struct Background<T> {
    promise: Promise<T>,
    then: Option<Then<T>>,
    has_waited: bool,
}

fn background<T: Clone + Send + 'static>(
    tx: &mut Tx,
    call: &mut Call<'_>,
    promise: Promise<T>,
    then: impl FnOnce(&mut Tx, T) -> CommandResult + Send + 'static,
) -> CommandResult {
    debug_assert!(call.command.flags.has(Flags::NO_MULTI), "a transaction cannot wait");
    tx.run_sliced(call, Background { promise, then: Some(Box::new(then)), has_waited: false })
}

impl<T: Clone + Send + 'static> Work for Background<T> {
    fn step(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError> {
        // At first the client's own session is in the hands of the caller.
        let is_first = !std::mem::replace(&mut self.has_waited, true);
        let result = if is_first { None } else { self.promise.get() };
        let Some(result) = result else { return Ok(Step::Wait) };
        if let Some(then) = self.then.take() {
            then(tx, result)?;
        }
        slice.reply.ok();
        Ok(Step::Done)
    }

    fn suspend(&mut self, _: &Tx, _: u16, _: &Args<'_>) {}

    fn locks(&self) -> Option<&Locks> {
        None
    }
}
