//! Patterns of table names: one source serves every table whose name matches.
//!
//! A pattern has parts with `/` between them, and in each part at most one `*`, which stands for
//! any characters of that part: `*/*`, `team-*/db`. What matches is a valid name whatever a client
//! sent: parts of letters, digits, `-`, `_`, `.` and `~`, none of them empty, `.` or `..`, so that
//! a path made of it stays below the directory or prefix that it is put behind.

use crate::limits::{PATTERN_PARTS_MAX, TABLE_PATH_BYTES_MAX};

/// Keys of a table, or of all tables whose names match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableKeys {
    /// Keys that begin so.
    Prefix(Vec<u8>),
    /// Keys whose part before the colon matches.
    Pattern(NamePattern),
}

impl TableKeys {
    /// Keys of the table with this name, which may be a pattern.
    pub fn of(name: &str) -> Self {
        match NamePattern::parse(name) {
            Ok(pattern) => Self::Pattern(pattern),
            Err(_) => Self::Prefix(format!("{name}:").into_bytes()),
        }
    }

    /// Returns whether a key is one of them.
    pub fn contain(&self, key: &[u8]) -> bool {
        match self {
            Self::Prefix(prefix) => key.starts_with(prefix),
            Self::Pattern(pattern) => pattern.owns(key),
        }
    }
}

/// A pattern of table names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    text: String,
    parts: Vec<Part>,
}

/// Pattern of one part of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    /// Text before and after the `*`.
    Star(String, String),
}

impl NamePattern {
    /// Returns whether a configured name is a pattern.
    pub fn is_pattern(name: &str) -> bool {
        name.contains('*')
    }

    /// Parses a pattern.
    ///
    /// # Errors
    /// The text has no `*`, two in one part, an empty part, or a character that names do not have.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "`{text}` is no pattern of names; expected 1 to {PATTERN_PARTS_MAX} parts with `/` \
                 between them, of letters, digits, `-`, `_`, `.` or `~`, at most one `*` in each \
                 and one in all, like `*/*`"
            )
        };
        let parts: Option<Vec<Part>> = text.split('/').map(Part::parse).collect();
        let parts = parts.ok_or_else(refuse)?;
        let has_star = parts.iter().any(|part| matches!(part, Part::Star(..)));
        if !has_star || PATTERN_PARTS_MAX < parts.len() || TABLE_PATH_BYTES_MAX < text.len() {
            return Err(refuse());
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// Returns the pattern as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number of parts that a matching name has.
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Returns whether a name is valid and matches.
    pub fn matches(&self, name: &[u8]) -> bool {
        if TABLE_PATH_BYTES_MAX < name.len() {
            return false;
        }
        let mut parts = name.split(|&byte| byte == b'/');
        let all = self.parts.iter().all(|part| parts.next().is_some_and(|given| part.fits(given)));
        all && parts.next().is_none()
    }

    /// Returns whether a name could match both patterns.
    pub fn overlaps(&self, other: &Self) -> bool {
        let parts = self.parts.iter().zip(&other.parts);
        self.parts.len() == other.parts.len()
            && parts.into_iter().all(|(one, other)| one.overlaps(other))
    }

    /// Returns whether a key belongs to a table whose name matches.
    pub fn owns(&self, key: &[u8]) -> bool {
        memchr::memchr(b':', key).is_some_and(|colon| self.matches(&key[..colon]))
    }

    /// Order in which patterns are tried: the one with most characters of its own first.
    pub fn rank(&self) -> (std::cmp::Reverse<usize>, &str) {
        let own = self.text.bytes().filter(|&byte| byte != b'*').count();
        (std::cmp::Reverse(own), &self.text)
    }
}

impl Part {
    fn parse(text: &str) -> Option<Self> {
        let fits = |text: &str| text.bytes().all(is_name_byte);
        match text.split_once('*') {
            None if is_part(text.as_bytes()) => Some(Self::Literal(text.to_owned())),
            Some((before, after)) if fits(before) && fits(after) => {
                Some(Self::Star(before.to_owned(), after.to_owned()))
            }
            _ => None,
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Literal(text), part) | (part, Self::Literal(text)) => part.fits(text.as_bytes()),
            (Self::Star(before, after), Self::Star(other_before, other_after)) => {
                let begin_alike =
                    before.starts_with(other_before) || other_before.starts_with(before);
                let end_alike = after.ends_with(other_after) || other_after.ends_with(after);
                begin_alike && end_alike
            }
        }
    }

    fn fits(&self, given: &[u8]) -> bool {
        match self {
            Self::Literal(text) => text.as_bytes() == given,
            Self::Star(before, after) => {
                before.len() + after.len() <= given.len()
                    && given.starts_with(before.as_bytes())
                    && given.ends_with(after.as_bytes())
                    && is_part(given)
            }
        }
    }
}

/// Returns whether bytes may be one part of a name.
fn is_part(part: &[u8]) -> bool {
    !part.is_empty() && part != b"." && part != b".." && part.iter().copied().all(is_name_byte)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        NamePattern::parse(pattern).unwrap().matches(name.as_bytes())
    }

    #[test]
    fn a_star_stands_for_characters_of_one_part() {
        assert!(matches("*/*", "org/db") && matches("*/*", "o/d.b-1_~"));
        assert!(matches("team-*/db", "team-a/db") && matches("team-*/db", "team-/db"));
        assert!(matches("*.test/x", "a.test/x") && matches("*", "anything"));
        for (pattern, name) in [
            ("*/*", "org"),
            ("*/*", "org/db/more"),
            ("*/*", "org/"),
            ("*/*", "/db"),
            ("*", "org/db"),
            ("team-*/db", "team/db"),
            ("team-*/db", "team-a/db2"),
            ("a*a/x", "a/x"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn no_name_leads_out_of_the_prefix() {
        let long = "a".repeat(TABLE_PATH_BYTES_MAX);
        for name in
            ["../x", "x/..", "./x", "x/.", "a b/x", "a%2f/x", "a\\b/x", "a\0/x", "a?b/x", "a#/x"]
        {
            assert!(!matches("*/*", name), "{name}");
        }
        assert!(!matches("*/*", &format!("{long}/x")));
    }

    #[test]
    fn patterns_without_a_star_or_with_odd_parts_are_refused() {
        for text in ["", "db", "org/db", "**", "a*b*", "/*", "*/", "*//x", "*/..", "a b*", "*/x:y"]
        {
            let error = NamePattern::parse(text).unwrap_err();
            assert!(error.contains("expected 1 to"), "{error}");
        }
        assert!(NamePattern::parse(&"*/".repeat(PATTERN_PARTS_MAX + 1)).is_err());
    }

    #[test]
    fn patterns_overlap_where_a_name_could_match_both() {
        let overlap = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| NamePattern::parse(text).unwrap());
            assert_eq!(one.overlaps(&other), other.overlaps(&one));
            one.overlaps(&other)
        };
        for (one, other) in
            [("*/*", "org/*"), ("team-*/db", "*/d*"), ("a*/x", "*b/x"), ("a*/x", "ab*/x")]
        {
            assert!(overlap(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("*/*", "*"),
            ("org/*", "other/*"),
            ("a*/x", "b*/x"),
            ("*a/x", "*b/x"),
            ("*/x", "a/y*"),
        ] {
            assert!(!overlap(one, other), "{one} {other}");
        }
    }

    #[test]
    fn keys_belong_by_what_is_before_their_first_colon() {
        let pattern = NamePattern::parse("*/*").unwrap();
        assert!(pattern.owns(b"org/db:0123") && pattern.owns(b"org/db:a:b"));
        assert!(!pattern.owns(b"org/db") && !pattern.owns(b"org:db/x") && !pattern.owns(b":a/b"));
        assert!(TableKeys::of("*/*").contain(b"org/db:x") && !TableKeys::of("*/*").contain(b"a:x"));
        assert!(TableKeys::of("a").contain(b"a:x") && !TableKeys::of("a").contain(b"a/b:x"));
    }
}
