//! Options of SET and GETEX: condition, lifetime, and whether the old value is the reply.

use busload_resp::parse_i64;
use busload_tables::UnixMs;

use crate::{args::Cursor, error::CommandError};

/// Set of options that a command permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permitted {
    OfSet,
    OfGetex,
}

/// Options given with a command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options<'a> {
    pub condition: Option<Condition>,
    /// Says whether the reply is the old value.
    pub get: bool,
    pub lifetime: Option<Lifetime<'a>>,
}

/// Condition for setting a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Set only if the key is absent (NX).
    Absent,
    /// Set only if the key is present (XX).
    Present,
}

impl Condition {
    pub fn holds(self, found: bool) -> bool {
        found == (self == Condition::Present)
    }
}

/// Lifetime that a command gives to a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lifetime<'a> {
    /// Keep the expiry that the key has (KEEPTTL).
    Keep,
    /// Remove the expiry (PERSIST).
    Endless,
    /// Expire at a time (EX, PX, EXAT, PXAT).
    Until(Until<'a>),
}

/// Time given as a number that is not parsed yet: Redis reports a wrong number after all other
/// errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until<'a> {
    kind: Expiring,
    number: &'a [u8],
}

/// Unit and origin of the number in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiring {
    InSeconds,
    InMilliseconds,
    AtSecond,
    AtMillisecond,
}

const EXPIRING: [(&str, Expiring); 4] = [
    ("ex", Expiring::InSeconds),
    ("px", Expiring::InMilliseconds),
    ("exat", Expiring::AtSecond),
    ("pxat", Expiring::AtMillisecond),
];

impl<'a> Options<'a> {
    /// Parses all options, in any order. One may occur twice, but not with another that contradicts
    /// it.
    pub fn parse(mut cursor: Cursor<'a>, permitted: Permitted) -> Result<Self, CommandError> {
        let mut options = Options::default();
        while cursor.left() != 0 {
            options.take(&mut cursor, permitted)?;
        }
        Ok(options)
    }

    fn take(&mut self, cursor: &mut Cursor<'a>, permitted: Permitted) -> Result<(), CommandError> {
        if permitted == Permitted::OfSet {
            if cursor.take_word("nx") {
                return self.set_condition(Condition::Absent);
            }
            if cursor.take_word("xx") {
                return self.set_condition(Condition::Present);
            }
            if cursor.take_word("get") {
                self.get = true;
                return Ok(());
            }
            if cursor.take_word("keepttl") {
                return self.set_lifetime(Lifetime::Keep);
            }
        } else if cursor.take_word("persist") {
            return self.set_lifetime(Lifetime::Endless);
        }
        for (word, kind) in EXPIRING {
            if cursor.take_word(word) {
                return self.set_lifetime(Lifetime::Until(kind.number(cursor.expect()?)));
            }
        }
        Err(CommandError::Syntax)
    }

    fn set_condition(&mut self, condition: Condition) -> Result<(), CommandError> {
        if self.condition.is_some_and(|earlier| earlier != condition) {
            return Err(CommandError::Syntax);
        }
        self.condition = Some(condition);
        Ok(())
    }

    fn set_lifetime(&mut self, lifetime: Lifetime<'a>) -> Result<(), CommandError> {
        if self.lifetime.is_some_and(|earlier| !earlier.is_of_kind(&lifetime)) {
            return Err(CommandError::Syntax);
        }
        self.lifetime = Some(lifetime);
        Ok(())
    }
}

impl Lifetime<'_> {
    fn is_of_kind(&self, other: &Lifetime<'_>) -> bool {
        match (self, other) {
            (Lifetime::Keep, Lifetime::Keep) | (Lifetime::Endless, Lifetime::Endless) => true,
            (Lifetime::Until(one), Lifetime::Until(other)) => one.kind == other.kind,
            _ => false,
        }
    }
}

impl Expiring {
    pub fn number(self, number: &[u8]) -> Until<'_> {
        Until { kind: self, number }
    }
}

impl Until<'_> {
    /// Returns the time that is meant. It may be in the past; the number itself must be above 0.
    pub fn at(self, now: UnixMs, command: &str) -> Result<UnixMs, CommandError> {
        let number = parse_i64(self.number).ok_or(CommandError::NotInteger)?;
        let milliseconds = match self.kind {
            Expiring::InSeconds | Expiring::AtSecond => number.checked_mul(1000),
            Expiring::InMilliseconds | Expiring::AtMillisecond => Some(number),
        };
        let at = match self.kind {
            Expiring::InSeconds | Expiring::InMilliseconds => {
                milliseconds.and_then(|milliseconds| milliseconds.checked_add(now))
            }
            Expiring::AtSecond | Expiring::AtMillisecond => milliseconds,
        };
        at.filter(|_| 0 < number)
            .ok_or_else(|| format!("ERR invalid expire time in '{command}' command").into())
    }
}
