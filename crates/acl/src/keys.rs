//! Key patterns: a literal key, or the literal beginning of keys, for reading, writing or both.
//!
//! `~sessions:*` is all keys of the table `sessions`. Redis' patterns with wildcards elsewhere are
//! refused: what a pattern covers must be cheap to find out for a key, and for a table as a whole.

use std::fmt;

use crate::{
    limits::{KEY_PATTERN_BYTES_MAX, KEY_PATTERNS_MAX},
    rule::RuleError,
};

/// Access that a command needs to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// It shows something of the value.
    pub read: bool,
    /// It changes the value.
    pub write: bool,
}

impl Need {
    /// Access to a key without its value: any right to it suffices, as in Redis.
    pub const ANY: Need = Need { read: false, write: false };
    /// Access that shows something of the value.
    pub const READ: Need = Need { read: true, write: false };
    /// Access that changes the value and shows nothing of it.
    pub const WRITE: Need = Need { read: false, write: true };
    /// Access that shows something of the value and changes it.
    pub const BOTH: Need = Need { read: true, write: true };
}

/// A key, or the beginning of keys, with the access that is allowed to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPattern {
    literal: Box<str>,
    /// Says whether the pattern ends with `*`.
    is_prefix: bool,
    access: Need,
}

/// Text of the error for a pattern of another form.
const FORM: RuleError = RuleError::Text(
    "Key patterns here are ~*, ~TABLE:*, another beginning of keys followed by one *, or a whole \
     key; %R~ and %W~ limit them to reads and writes",
);

impl KeyPattern {
    /// Parses a rule that begins with `~` or `%`.
    pub fn parse(rule: &str) -> Result<Self, RuleError> {
        let (access, pattern) = match rule.strip_prefix('%') {
            None => (Need::BOTH, rule.strip_prefix('~').ok_or(RuleError::Syntax)?),
            Some(rest) => {
                let (letters, pattern) = rest.split_once('~').ok_or(RuleError::Syntax)?;
                (access(letters)?, pattern)
            }
        };
        let (literal, is_prefix) = match pattern.strip_suffix('*') {
            Some(literal) => (literal, true),
            None => (pattern, false),
        };
        if literal.contains(['*', '?', '[', ']', '\\']) || KEY_PATTERN_BYTES_MAX < literal.len() {
            return Err(FORM);
        }
        if !literal.bytes().all(|byte| byte.is_ascii_graphic() || !byte.is_ascii()) {
            return Err(RuleError::Syntax);
        }
        Ok(Self { literal: literal.into(), is_prefix, access })
    }

    /// Returns whether the pattern is `~*`, which is another way to write `allkeys`.
    pub fn is_all(&self) -> bool {
        self.is_prefix && self.literal.is_empty() && self.access == Need::BOTH
    }

    fn grants(&self, need: Need) -> bool {
        (!need.read || self.access.read) && (!need.write || self.access.write)
    }

    #[inline]
    fn matches(&self, key: &[u8]) -> bool {
        let literal = self.literal.as_bytes();
        if self.is_prefix { key.starts_with(literal) } else { key == literal }
    }
}

fn access(letters: &str) -> Result<Need, RuleError> {
    let mut access = Need::ANY;
    for letter in letters.chars() {
        match letter.to_ascii_uppercase() {
            'R' if !access.read => access.read = true,
            'W' if !access.write => access.write = true,
            _ => return Err(RuleError::Syntax),
        }
    }
    if access == Need::ANY { Err(RuleError::Syntax) } else { Ok(access) }
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.access.read, self.access.write) {
            (true, false) => "%R~",
            (false, true) => "%W~",
            _ => "~",
        })?;
        f.write_str(&self.literal)?;
        f.write_str(if self.is_prefix { "*" } else { "" })
    }
}

/// Keys that a user may access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRights {
    all: bool,
    patterns: Vec<KeyPattern>,
}

impl KeyRights {
    /// Returns rights to all keys.
    pub fn all() -> Self {
        Self { all: true, patterns: Vec::new() }
    }

    /// Returns whether every access to every key is allowed.
    #[inline]
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// Adds a pattern, or access to the one that is there.
    pub fn add(&mut self, pattern: KeyPattern) -> Result<(), RuleError> {
        if pattern.is_all() {
            *self = Self::all();
            return Ok(());
        }
        if self.all {
            return Err(RuleError::PatternAfterAll);
        }
        let same = |known: &&mut KeyPattern| {
            (&known.literal, known.is_prefix) == (&pattern.literal, pattern.is_prefix)
        };
        if let Some(known) = self.patterns.iter_mut().find(same) {
            known.access.read |= pattern.access.read;
            known.access.write |= pattern.access.write;
            // `%R~*` and `%W~*` are `~*` together.
            if known.is_all() {
                *self = Self::all();
            }
            return Ok(());
        }
        if KEY_PATTERNS_MAX <= self.patterns.len() {
            return Err(RuleError::Text("A user can have at most 256 key patterns"));
        }
        self.patterns.push(pattern);
        Ok(())
    }

    /// Returns whether this access to the key is allowed.
    #[inline]
    pub fn allow(&self, key: &[u8], need: Need) -> bool {
        self.all || self.patterns.iter().any(|known| known.grants(need) && known.matches(key))
    }

    /// Returns whether this access to all keys that begin so is allowed.
    pub fn allow_all_below(&self, beginning: &[u8], need: Need) -> bool {
        let covers = |known: &KeyPattern| known.is_prefix && known.matches(beginning);
        self.all || self.patterns.iter().any(|known| known.grants(need) && covers(known))
    }

    /// Returns the patterns in the order in which they were added.
    pub fn patterns(&self) -> &[KeyPattern] {
        &self.patterns
    }
}

const _: () = assert!(KEY_PATTERNS_MAX == 256, "the error text says so");

impl fmt::Display for KeyRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.all {
            return f.write_str("~*");
        }
        for (index, pattern) in self.patterns.iter().enumerate() {
            write!(f, "{}{pattern}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}
