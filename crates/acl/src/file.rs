//! The file of users: a line `user NAME RULE ...` for each, as in Redis' ACL files, but with
//! argon2id hashes. Empty lines and lines that begin with `#` say nothing.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::{
    commands::CommandList,
    limits::{RULES_MAX, USERS_MAX},
    rule::Rule,
    user::{User, check_name},
};

/// Mistake in a file of users. It repeats no password and no hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Number of the line, from 1 on.
    pub line: usize,
    /// Description of the mistake.
    pub text: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

impl std::error::Error for FileError {}

/// Parses all users of a file.
pub fn parse(
    text: &str,
    commands: &CommandList,
) -> Result<BTreeMap<Box<str>, Arc<User>>, FileError> {
    let mut users = BTreeMap::new();
    for (line, content) in (1..).zip(text.lines()) {
        let refuse = |text: String| FileError { line, text };
        let Some((name, rules)) = split(content).map_err(|text| refuse(text.to_owned()))? else {
            continue;
        };
        check_name(name).map_err(|text| refuse(text.to_owned()))?;
        let user = read_user(name, &rules, commands).map_err(refuse)?;
        if users.insert(name.into(), Arc::new(user)).is_some() {
            let text = format!("user {name} is defined twice; expected one line for each user");
            return Err(refuse(text));
        }
        if USERS_MAX < users.len() {
            return Err(refuse(format!("more than {USERS_MAX} users")));
        }
    }
    Ok(users)
}

/// Splits a line into name and rules; `None` if it says nothing.
fn split(line: &str) -> Result<Option<(&str, Vec<&str>)>, &'static str> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let mut words = line.split_ascii_whitespace();
    if words.next() != Some("user") {
        return Err("expected `user NAME RULE ...`, an empty line, or a comment after `#`");
    }
    let name = words.next().ok_or("expected the name of a user after `user`")?;
    let rules: Vec<&str> = words.collect();
    if RULES_MAX < rules.len() {
        return Err("more than 1024 rules");
    }
    Ok(Some((name, rules)))
}

const _: () = assert!(RULES_MAX == 1024, "the error text says so");

fn read_user(name: &str, words: &[&str], commands: &CommandList) -> Result<User, String> {
    let mut rules = Vec::with_capacity(words.len());
    for word in words {
        let rule = Rule::parse(word, commands)
            .map_err(|error| format!("user {name}, rule '{}': {error}", Rule::shown(word)))?;
        if rule.is_slow() {
            return Err(format!(
                "user {name}: a password in plain text; expected `#` and its argon2id hash, as \
                 `busload user passwd {name}` writes it"
            ));
        }
        rules.push(rule);
    }
    let changed = User::new(name).changed(&rules, commands);
    changed.map_err(|(index, error)| {
        format!("user {name}, rule '{}': {error}", Rule::shown(words[index]))
    })
}

/// The lines of a file, for changes that leave the other lines as they are.
#[derive(Clone, Debug)]
pub struct Lines(Vec<String>);

impl Lines {
    /// Takes the text of a file that [`parse`] accepts.
    pub fn new(text: &str) -> Self {
        Self(text.lines().map(str::to_owned).collect())
    }

    /// Replaces the line of a user, or adds it at the end.
    pub fn set(&mut self, name: &str, line: String) {
        match self.position(name) {
            Some(at) => self.0[at] = line,
            None => self.0.push(line),
        }
    }

    /// Removes the line of a user; returns whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let at = self.position(name);
        at.is_some_and(|at| !self.0.remove(at).is_empty())
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|line| matches!(split(line), Ok(Some((known, _))) if known == name))
    }
}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
