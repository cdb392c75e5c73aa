//! The rules of a user, in the language of Redis' ACL.

use std::fmt;

use crate::{
    commands::{CommandList, category_bit},
    keys::KeyPattern,
    limits::RULE_BYTES_MAX,
    password::{PasswordHash, Secret},
};

/// One rule: it changes a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `on`: the user may log in.
    On,
    /// `off`: nobody can log in as the user.
    Off,
    /// `nopass`: every password is right.
    NoPass,
    /// `resetpass`: no password is right.
    ResetPass,
    /// `>PASSWORD`: one more password is right.
    AddPassword(Secret),
    /// `<PASSWORD`: this password is not right any more.
    RemovePassword(Secret),
    /// `#PHC`: the password with this hash is right.
    AddHash(PasswordHash),
    /// `!PHC`: the password with this hash is not right any more.
    RemoveHash(PasswordHash),
    /// `~PATTERN`, `%R~PATTERN`: keys that the user may access.
    Keys(KeyPattern),
    /// `allkeys`: the user may access all keys.
    AllKeys,
    /// `resetkeys`: the user may access no keys.
    ResetKeys,
    /// `allchannels`, `&*`: kept for Redis' files; there are no channels.
    AllChannels,
    /// `resetchannels`: kept for Redis' files; there are no channels.
    ResetChannels,
    /// `allcommands`, `+@all`: the user may run all commands.
    AllCommands,
    /// `nocommands`, `-@all`: the user may run no commands.
    NoCommands,
    /// `+NAME`, `+@CATEGORY`: commands that the user may run.
    Allow(Target),
    /// `-NAME`, `-@CATEGORY`: commands that the user may not run.
    Deny(Target),
    /// `reset`: the user is as a new one.
    Reset,
    /// A rule of Redis without meaning here (`sanitize-payload`).
    Nothing,
}

/// Commands that a rule names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Index of a command, with its subcommands if it has any.
    Command(usize),
    /// Bit of a category, and its name.
    Category(u32, &'static str),
}

/// Reason for which a rule cannot be applied. The texts are Redis's where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// No rule has this form.
    Syntax,
    /// There is no such command or category.
    UnknownCommand,
    /// All keys are allowed already.
    PatternAfterAll,
    /// The user does not have the password.
    NoSuchPassword,
    /// Any other reason, as a text.
    Text(&'static str),
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax => "Syntax error",
            Self::UnknownCommand => "Unknown command or category name in ACL",
            Self::PatternAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and \
                 does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Self::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            Self::Text(text) => text,
        })
    }
}

const NO_SELECTORS: RuleError =
    RuleError::Text("Selectors in parentheses are not supported: make one user for each");
const NO_CHANNELS: RuleError =
    RuleError::Text("There are no channels: &* and resetchannels are accepted, other patterns not");
const NO_HASH: RuleError = RuleError::Text(
    "The password hash must be an argon2id PHC string ($argon2id$v=19$...); SHA-256 is too fast \
     for passwords",
);
const FIRST_ARGUMENT: RuleError =
    RuleError::Text("Allowing first-arg of a subcommand is not supported");

impl Rule {
    /// Parses a rule from its text.
    pub fn parse(text: &str, commands: &CommandList) -> Result<Self, RuleError> {
        if RULE_BYTES_MAX < text.len() {
            return Err(RuleError::Syntax);
        }
        let word = text.to_ascii_lowercase();
        Ok(match word.as_str() {
            "on" => Self::On,
            "off" => Self::Off,
            "nopass" => Self::NoPass,
            "resetpass" => Self::ResetPass,
            "allkeys" | "~*" => Self::AllKeys,
            "resetkeys" => Self::ResetKeys,
            "allchannels" | "&*" => Self::AllChannels,
            "resetchannels" => Self::ResetChannels,
            "allcommands" | "+@all" => Self::AllCommands,
            "nocommands" | "-@all" => Self::NoCommands,
            "reset" => Self::Reset,
            "sanitize-payload" | "skip-sanitize-payload" | "clearselectors" => Self::Nothing,
            _ => return Self::with_value(text, commands),
        })
    }

    fn with_value(text: &str, commands: &CommandList) -> Result<Self, RuleError> {
        let rest = || text.get(1..).unwrap_or_default();
        let secret = || Secret(rest().as_bytes().to_vec());
        let hash = || PasswordHash::parse(rest()).ok_or(NO_HASH);
        match text.as_bytes().first() {
            Some(b'>') => Ok(Self::AddPassword(secret())),
            Some(b'<') => Ok(Self::RemovePassword(secret())),
            Some(b'#') => hash().map(Self::AddHash),
            Some(b'!') => hash().map(Self::RemoveHash),
            Some(b'~' | b'%') => KeyPattern::parse(text).map(Self::Keys),
            Some(b'+') => target(rest(), commands).map(Self::Allow),
            Some(b'-') => target(rest(), commands).map(Self::Deny),
            Some(b'&') => Err(NO_CHANNELS),
            Some(b'(') => Err(NO_SELECTORS),
            _ => Err(RuleError::Syntax),
        }
    }

    /// Returns whether a password is to be hashed or verified before the rule can be applied.
    pub fn is_slow(&self) -> bool {
        matches!(self, Self::AddPassword(_) | Self::RemovePassword(_))
    }

    /// Returns how a rule is shown in messages: without passwords and their hashes.
    pub fn shown(text: &str) -> &str {
        match text.as_bytes().first() {
            Some(b'>' | b'<' | b'#' | b'!') => "(redacted)",
            _ => text,
        }
    }
}

fn target(name: &str, commands: &CommandList) -> Result<Target, RuleError> {
    if let Some(category) = name.strip_prefix('@') {
        let bit = category_bit(category).ok_or(RuleError::UnknownCommand)?;
        let index = bit.trailing_zeros() as usize;
        return Ok(Target::Category(bit, crate::commands::CATEGORIES[index]));
    }
    if let Some(index) = commands.find(name) {
        return Ok(Target::Command(index));
    }
    // `+select|0` of Redis 6: the command is there, and has no such subcommand.
    match name.split_once('|').and_then(|(container, _)| commands.find(container)) {
        Some(index) if commands.rows()[index].subcommands == (0, 0) => Err(FIRST_ARGUMENT),
        _ => Err(RuleError::UnknownCommand),
    }
}
