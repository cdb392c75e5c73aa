//! `busload user`: changes the file of users. A running server takes the changes over with
//! `ACL LOAD`.
//!
//! A password comes from the environment, from a prompt without echo, or from the first line of
//! standard input; never from the command line, where everybody on the machine could read it.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, IsTerminal, Read, Write},
    path::PathBuf,
    sync::Arc,
};

use busload_acl::{
    CommandList, DEFAULT, Lines, PasswordHash, Rule, User, UserFile, check_name,
    limits::PASSWORD_BYTES_MAX, parse,
};
use busload_pipeline::command::command_list;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::arguments::{AddUserArgs, UserArgs, UserCommand, UserFileArgs};
use crate::{config, failure::Failure, users_file::AclFile};

/// Environment variable with the password of `busload user add` and `busload user passwd`.
const VARIABLE: &str = "BUSLOAD_USER_PASSWORD";
/// Rules of a new user, unless others are given: everything but what is for operators.
const RULES_DEFAULT: &str = "allkeys +@all -@admin -@dangerous";

/// Runs a subcommand of `busload user`.
pub fn run(command: &UserCommand) -> Result<(), Failure> {
    match command {
        UserCommand::Add(arguments) => add(arguments),
        UserCommand::List(arguments) => list(arguments),
        UserCommand::Remove(arguments) => remove(arguments),
        UserCommand::Passwd(arguments) => passwd(arguments),
    }
}

/// The file of users and what is in it.
struct Kept {
    path: PathBuf,
    file: AclFile,
    lines: Lines,
    users: BTreeMap<Box<str>, Arc<User>>,
    commands: &'static CommandList,
}

impl Kept {
    /// Reads the file, which may not exist yet.
    fn open(arguments: &UserFileArgs) -> Result<Self, Failure> {
        let path = config::acl_file(arguments.acl_file.clone(), arguments.config.as_deref())?;
        let file = AclFile::new(&path);
        let text = if file.exists() { file.read().map_err(Failure::run)? } else { String::new() };
        let commands = command_list();
        let users = parse(&text, commands)
            .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
        Ok(Self { path, file, lines: Lines::new(&text), users, commands })
    }

    fn write(self, name: &str, done: &str) -> Result<(), Failure> {
        self.file.write(&self.lines.to_string()).map_err(Failure::run)?;
        say(&format!(
            "user {name} {done} {}; a running server takes it over with ACL LOAD",
            self.path.display()
        ));
        Ok(())
    }
}

fn say(line: &str) {
    // A closed standard output is no failure.
    let _ = writeln!(io::stdout(), "{line}");
}

fn add(arguments: &AddUserArgs) -> Result<(), Failure> {
    let name = &*arguments.user.name;
    check_name(name).map_err(|text| Failure::usage(format!("{name}: {text}")))?;
    let mut kept = Kept::open(&arguments.user.file)?;
    if kept.users.contains_key(name) {
        return Err(Failure::usage(format!(
            "user {name} is in {} already; `busload user passwd {name}` changes the password, and \
             its line in the file holds its rules",
            kept.path.display()
        )));
    }
    let mut rules = vec![Rule::On];
    for word in arguments.rules.as_deref().unwrap_or(RULES_DEFAULT).split_ascii_whitespace() {
        rules.push(rule(word, kept.commands)?);
    }
    if !rules.iter().any(|rule| matches!(rule, Rule::NoPass | Rule::Off | Rule::AddHash(_))) {
        rules.push(Rule::AddHash(PasswordHash::new(&new_password(name)?)));
    }
    let user = changed(&User::new(name), &rules, kept.commands)?;
    kept.lines.set(name, user.line(kept.commands));
    kept.write(name, "is now in")
}

fn rule(word: &str, commands: &CommandList) -> Result<Rule, Failure> {
    let rule = Rule::parse(word, commands)
        .map_err(|error| Failure::usage(format!("--rules: '{}': {error}", Rule::shown(word))))?;
    if rule.is_slow() {
        return Err(Failure::usage(format!(
            "--rules: a password on the command line is seen by everybody on this machine; \
             expected it at the prompt, on standard input or in {VARIABLE}"
        )));
    }
    Ok(rule)
}

fn changed(user: &User, rules: &[Rule], commands: &CommandList) -> Result<User, Failure> {
    let changed = user.changed(rules, commands);
    changed.map_err(|(_, error)| Failure::usage(format!("user {user}: {error}")))
}

fn list(arguments: &UserFileArgs) -> Result<(), Failure> {
    let kept = Kept::open(arguments)?;
    for user in kept.users.values() {
        let count = match user.passwords().len() {
            0 => String::new(),
            1 => " (1 password)".to_owned(),
            count => format!(" ({count} passwords)"),
        };
        say(&format!("{}{count}", user.line_without_hashes(kept.commands)));
    }
    Ok(())
}

fn remove(arguments: &UserArgs) -> Result<(), Failure> {
    let name = &*arguments.name;
    let mut kept = Kept::open(&arguments.file)?;
    if name == DEFAULT {
        return Err(Failure::usage(
            "without a line in the file the user default may do everything; expected another user \
             (`user default off` in the file switches it off)",
        ));
    }
    if !kept.lines.remove(name) {
        return Err(not_there(name, &kept));
    }
    kept.write(name, "is no longer in")
}

fn passwd(arguments: &UserArgs) -> Result<(), Failure> {
    let name = &*arguments.name;
    let mut kept = Kept::open(&arguments.file)?;
    let user = match kept.users.get(name) {
        Some(user) => Arc::clone(user),
        None if name == DEFAULT => Arc::new(User::default_user(kept.commands)),
        None => return Err(not_there(name, &kept)),
    };
    let hash = PasswordHash::new(&new_password(name)?);
    let user = changed(&user, &[Rule::ResetPass, Rule::AddHash(hash)], kept.commands)?;
    kept.lines.set(name, user.line(kept.commands));
    kept.write(name, "has a new password in")
}

fn not_there(name: &str, kept: &Kept) -> Failure {
    Failure::usage(format!(
        "there is no user {name} in {}; `busload user list` shows who is there",
        kept.path.display()
    ))
}

/// Asks for a new password: in the environment, at the terminal, or on standard input.
fn new_password(name: &str) -> Result<Vec<u8>, Failure> {
    use std::os::unix::ffi::OsStringExt;
    let password = match std::env::var_os(VARIABLE) {
        Some(value) => value.into_vec(),
        None if io::stdin().is_terminal() => prompted(name)?,
        None => {
            let mut line = Vec::new();
            let mut stdin = io::stdin().lock().take(PASSWORD_BYTES_MAX as u64 + 2);
            stdin.read_until(b'\n', &mut line).map_err(|error| cannot_ask(&error))?;
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            line.strip_suffix(b"\r").unwrap_or(line).to_vec()
        }
    };
    match password.len() {
        0 => Err(Failure::usage(format!(
            "an empty password; expected one at the prompt, on standard input or in {VARIABLE}"
        ))),
        length if PASSWORD_BYTES_MAX < length => {
            Err(Failure::usage("a password has at most 1024 bytes"))
        }
        _ => Ok(password),
    }
}

const _: () = assert!(PASSWORD_BYTES_MAX == 1024, "the error text says so");

fn cannot_ask(error: &dyn std::fmt::Display) -> Failure {
    Failure::run(format!("cannot read a password: {error}"))
}

fn prompted(name: &str) -> Result<Vec<u8>, Failure> {
    let first =
        without_echo(&format!("password of {name}: ")).map_err(|error| cannot_ask(&error))?;
    let again = without_echo("again: ").map_err(|error| cannot_ask(&error))?;
    if first == again { Ok(first) } else { Err(Failure::usage("the two passwords differ")) }
}

/// Reads a line from the terminal that it does not show. Keys are read one by one, so that Ctrl-C
/// leaves the terminal as it was.
fn without_echo(prompt: &str) -> io::Result<Vec<u8>> {
    const CTRL_C: u8 = 3;
    const CTRL_D: u8 = 4;
    const BACKSPACE: u8 = 8;
    const DELETE: u8 = 127;
    eprint!("{prompt}");
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
    tcsetattr(&stdin, OptionalActions::Flush, &silent)?;
    let mut line = Vec::new();
    let result = loop {
        let mut key = [0];
        match stdin.lock().read(&mut key) {
            Ok(0) => break Ok(()),
            Ok(_) => match key[0] {
                b'\r' | b'\n' | CTRL_D => break Ok(()),
                CTRL_C => break Err(io::ErrorKind::Interrupted.into()),
                BACKSPACE | DELETE => _ = line.pop(),
                key if line.len() <= PASSWORD_BYTES_MAX => line.push(key),
                _ => {}
            },
            Err(error) => break Err(error),
        }
    };
    tcsetattr(&stdin, OptionalActions::Flush, &before)?;
    eprintln!();
    result.map(|()| line)
}
