//! A user: what rules make of it, and the line that describes it.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use crate::{
    commands::{CommandList, CommandSet},
    keys::KeyRights,
    limits::{NAME_BYTES_MAX, PASSWORDS_MAX, RULES_MAX},
    password::PasswordHash,
    rule::{Rule, RuleError, Target},
};

/// Name of the user that clients are which have not said who they are.
pub const DEFAULT: &str = "default";

/// Keyed hash of a name and a password, which only this process can compute.
pub(crate) type Digest = [u8; 32];

/// Number of verified passwords that are remembered.
const VERIFIED_MAX: usize = PASSWORDS_MAX;

/// A user. It never changes: a change makes another one.
#[derive(Debug)]
pub struct User {
    name: Box<str>,
    is_on: bool,
    no_pass: bool,
    passwords: Vec<PasswordHash>,
    /// The password of the configuration, which only `default` can have.
    configured: Option<Digest>,
    keys: KeyRights,
    all_channels: bool,
    /// Says whether commands are allowed unless rules say otherwise.
    all_commands: bool,
    command_rules: Vec<CommandRule>,
    commands: CommandSet,
    is_unrestricted: bool,
    /// Passwords that were verified: they need not be again.
    verified: Mutex<Vec<Digest>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandRule {
    allows: bool,
    target: Target,
}

/// Checks the name of a user.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || NAME_BYTES_MAX < name.len() {
        return Err("Usernames have 1 to 64 characters");
    }
    if name.contains([' ', '\0']) {
        return Err("Usernames can't contain spaces or null characters");
    }
    // A colon ends the name in credentials of HTTP.
    if !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':') {
        return Err("Usernames consist of ASCII characters that can be seen, other than the colon");
    }
    Ok(())
}

const _: () = assert!(NAME_BYTES_MAX == 64, "the error text says so");
const _: () = assert!(PASSWORDS_MAX == 8, "an error text says so");

impl User {
    /// Returns a new user, who may nothing.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            is_on: false,
            no_pass: false,
            passwords: Vec::new(),
            configured: None,
            keys: KeyRights::default(),
            all_channels: false,
            all_commands: false,
            command_rules: Vec::new(),
            commands: CommandSet::NONE,
            is_unrestricted: false,
            verified: Mutex::default(),
        }
    }

    /// Returns the user `default` as it is unless the file says otherwise: it may everything.
    pub fn default_user(commands: &CommandList) -> Self {
        let rules = [Rule::On, Rule::NoPass, Rule::AllKeys, Rule::AllChannels, Rule::AllCommands];
        let user = Self::new(DEFAULT).changed(&rules, commands);
        user.expect("no rule is refused")
    }

    /// Returns the user with this password beside its own ones.
    pub(crate) fn with_configured(mut self, password: Digest) -> Self {
        self.configured = Some(password);
        self.no_pass = false;
        self
    }

    /// Returns the user as it is after these rules; fails with the index of one that does not fit.
    /// Slow rules must have become hashes before.
    pub fn changed(
        &self,
        rules: &[Rule],
        commands: &CommandList,
    ) -> Result<Self, (usize, RuleError)> {
        let mut user = Self {
            name: self.name.clone(),
            passwords: self.passwords.clone(),
            keys: self.keys.clone(),
            command_rules: self.command_rules.clone(),
            verified: Mutex::default(),
            ..*self
        };
        for (index, rule) in rules.iter().enumerate() {
            user.apply(rule, commands).map_err(|error| (index, error))?;
        }
        user.compile(commands);
        Ok(user)
    }

    fn apply(&mut self, rule: &Rule, commands: &CommandList) -> Result<(), RuleError> {
        match rule {
            Rule::On => self.is_on = true,
            Rule::Off => self.is_on = false,
            Rule::NoPass => {
                self.forget_passwords();
                self.no_pass = true;
            }
            Rule::ResetPass => self.forget_passwords(),
            Rule::AddHash(hash) => self.add_hash(hash)?,
            Rule::RemoveHash(hash) => {
                let at = self.passwords.iter().position(|known| known == hash);
                self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
            }
            Rule::AddPassword(_) | Rule::RemovePassword(_) => {
                return Err(RuleError::Text("A password must be hashed before it is kept"));
            }
            Rule::Keys(pattern) => self.keys.add(pattern.clone())?,
            Rule::AllKeys => self.keys = KeyRights::all(),
            Rule::ResetKeys => self.keys = KeyRights::default(),
            Rule::AllChannels => self.all_channels = true,
            Rule::ResetChannels => self.all_channels = false,
            Rule::AllCommands => (self.all_commands, self.command_rules) = (true, Vec::new()),
            Rule::NoCommands => (self.all_commands, self.command_rules) = (false, Vec::new()),
            Rule::Allow(target) => self.add_command_rule(true, target, commands)?,
            Rule::Deny(target) => self.add_command_rule(false, target, commands)?,
            Rule::Reset => *self = Self::new(&self.name),
            Rule::Nothing => {}
        }
        Ok(())
    }

    fn forget_passwords(&mut self) {
        (self.no_pass, self.configured) = (false, None);
        self.passwords.clear();
    }

    fn add_hash(&mut self, hash: &PasswordHash) -> Result<(), RuleError> {
        self.no_pass = false;
        if self.passwords.contains(hash) {
            return Ok(());
        }
        if PASSWORDS_MAX <= self.passwords.len() {
            return Err(RuleError::Text("A user can have at most 8 passwords"));
        }
        self.passwords.push(hash.clone());
        Ok(())
    }

    /// Adds a rule behind the others. Earlier ones about the same commands have no effect any more
    /// and go, so that the list does not grow with every change.
    fn add_command_rule(
        &mut self,
        allows: bool,
        target: &Target,
        commands: &CommandList,
    ) -> Result<(), RuleError> {
        let is_part = |known: &Target| match (known, target) {
            (Target::Command(known), Target::Command(index)) => {
                let (first, end) = commands.rows()[*index].subcommands;
                known == index || (first..end).contains(known)
            }
            (known, target) => known == target,
        };
        self.command_rules.retain(|known| !is_part(&known.target));
        if RULES_MAX <= self.command_rules.len() {
            return Err(RuleError::Text("A user has too many rules about commands"));
        }
        self.command_rules.push(CommandRule { allows, target: target.clone() });
        Ok(())
    }

    fn compile(&mut self, commands: &CommandList) {
        let all = commands.all();
        let mut set = if self.all_commands { all } else { CommandSet::NONE };
        for CommandRule { allows, target } in &self.command_rules {
            let mut put = |index| if *allows { set.insert(index) } else { set.remove(index) };
            match *target {
                Target::Command(index) => {
                    put(index);
                    let (first, end) = commands.rows()[index].subcommands;
                    (first..end).for_each(put);
                }
                Target::Category(bit, _) => {
                    let rows = commands.rows().iter().enumerate();
                    let of_category = rows.filter(|(_, row)| row.categories & bit != 0);
                    of_category.for_each(|(index, _)| put(index));
                }
            }
        }
        self.is_unrestricted = set == all && self.keys.is_all();
        self.commands = set;
    }

    /// Returns the name of the user.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether clients can log in as the user.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns whether every password is right.
    pub fn needs_no_password(&self) -> bool {
        self.no_pass
    }

    /// Returns whether a client is this user without saying anything.
    pub fn is_open(&self) -> bool {
        self.is_on && self.no_pass
    }

    /// Returns whether every command on every key is allowed.
    #[inline]
    pub fn is_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// Returns whether the user may run the command with this index.
    #[inline]
    pub fn may_run(&self, index: usize) -> bool {
        self.commands.has(index)
    }

    /// Returns the keys that the user may access.
    #[inline]
    pub fn keys(&self) -> &KeyRights {
        &self.keys
    }

    /// Returns the hashes of the passwords.
    pub fn passwords(&self) -> &[PasswordHash] {
        &self.passwords
    }

    /// Returns whether Redis would let the user use all channels.
    pub fn all_channels(&self) -> bool {
        self.all_channels
    }

    /// Returns whether this is the password of the configuration, or one that was verified before.
    pub(crate) fn knows(&self, digest: &Digest) -> bool {
        let is_configured =
            self.configured.as_ref().is_some_and(|configured| is_same(configured, digest));
        let verified = || self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        is_configured || verified().iter().any(|known| is_same(known, digest))
    }

    /// Remembers a password that was verified.
    pub(crate) fn note_verified(&self, digest: Digest) {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if !verified.contains(&digest) {
            if VERIFIED_MAX <= verified.len() {
                verified.remove(0);
            }
            verified.push(digest);
        }
    }

    /// Returns the rules about commands as one text.
    pub fn describe_commands(&self, commands: &CommandList) -> String {
        let mut text = String::from(if self.all_commands { "+@all" } else { "-@all" });
        for CommandRule { allows, target } in &self.command_rules {
            text += if *allows { " +" } else { " -" };
            match target {
                Target::Command(index) => text += commands.rows()[*index].name,
                Target::Category(_, name) => {
                    text += "@";
                    text += name;
                }
            }
        }
        text
    }

    /// Returns the names of what the user is, as `ACL GETUSER` shows them.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let no_pass = self.no_pass.then_some("nopass");
        [Some(if self.is_on { "on" } else { "off" }), no_pass].into_iter().flatten()
    }

    /// Returns the line of the user in the file and in `ACL LIST`.
    pub fn line(&self, commands: &CommandList) -> String {
        self.rules_line(commands, &self.passwords)
    }

    /// Returns the line without hashes of passwords.
    pub fn line_without_hashes(&self, commands: &CommandList) -> String {
        self.rules_line(commands, &[])
    }

    fn rules_line(&self, commands: &CommandList, passwords: &[PasswordHash]) -> String {
        let mut words = vec!["user".to_owned(), self.name.to_string()];
        words.extend(self.flags().map(str::to_owned));
        words.extend(passwords.iter().map(|hash| format!("#{hash}")));
        if self.keys != KeyRights::default() {
            words.push(self.keys.to_string());
        }
        words.push(if self.all_channels { "&*" } else { "resetchannels" }.to_owned());
        words.push(self.describe_commands(commands));
        words.join(" ")
    }
}

/// Compares digests in a time that does not depend on them.
fn is_same(a: &Digest, b: &Digest) -> bool {
    a.iter().zip(b).fold(0, |all, (a, b)| std::hint::black_box(all | (a ^ b))) == 0
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
