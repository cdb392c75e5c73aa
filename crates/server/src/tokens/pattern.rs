//! Patterns of the names of stores. Names are compared part by part, between slashes: `*` stands
//! for any characters of one part, and `**` as the last part for one or more parts.
//!
//! | pattern | names |
//! |---|---|
//! | `org/db` | that one |
//! | `org/*` | `org/a`, not `org/a/b` |
//! | `org/**` | `org/a`, `org/a/b`, not `org` |
//! | `*` | `a`, not `a/b` |
//! | `**` | all |

use super::limits::{PATTERN_BYTES_MAX, PATTERN_COUNT_MAX};

/// Patterns of the stores that a token may read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns(Vec<Box<str>>);

impl Patterns {
    /// Checks and parses the patterns.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let patterns: Vec<Box<str>> = texts.into_iter().map(checked).collect::<Result<_, _>>()?;
        if PATTERN_COUNT_MAX < patterns.len() {
            return Err(format!(
                "{} patterns; expected at most {PATTERN_COUNT_MAX}",
                patterns.len()
            ));
        }
        Ok(Self(patterns))
    }

    /// Returns whether one of them fits the name.
    pub fn fit(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| fits(pattern, name))
    }
}

fn checked(text: &str) -> Result<Box<str>, String> {
    let is_plain = |part: &str| !part.is_empty() && !part.contains("**");
    let parts = text.strip_suffix("/**").unwrap_or(text);
    if PATTERN_BYTES_MAX < text.len() || text != "**" && !parts.split('/').all(is_plain) {
        return Err(format!(
            "`{}` is no pattern of stores; expected one like org/db, org/* or org/**",
            text.chars().take(64).collect::<String>()
        ));
    }
    Ok(text.into())
}

fn fits(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.split('/'), name.split('/'));
    loop {
        match (pattern.next(), name.next()) {
            (None, None) => return true,
            (Some("**"), Some(_)) => return true,
            (Some(expected), Some(part)) if part_fits(expected, part) => {}
            _ => return false,
        }
    }
}

/// Compares a part: what stands between stars has to follow in that order.
fn part_fits(pattern: &str, part: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == part };
    let Some(mut part) = part.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for literal in middle.split('*') {
        let Some(at) = part.find(literal) else { return false };
        part = &part[at + literal.len()..];
    }
    part.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stays_within_a_part_and_two_at_the_end_do_not() {
        for (pattern, fitting, other) in [
            ("org/db", &["org/db"][..], &["org", "org/db/x", "org/d", "Org/db"][..]),
            ("org/*", &["org/a", "org/-"], &["org", "org/a/b", "orga/b", "xorg/a"]),
            ("org/**", &["org/a", "org/a/b"], &["org", "orga/b"]),
            ("*", &["a", "db"], &["a/b"]),
            ("**", &["a", "a/b", "a/b/c"], &[]),
            ("a*b*c", &["abc", "axxbyyc"], &["ab", "acb", "abcd"]),
            ("*/db", &["x/db"], &["db", "x/y/db"]),
            ("a*a", &["aa", "aba"], &["a"]),
        ] {
            let patterns = Patterns::new([pattern]).unwrap();
            fitting.iter().for_each(|name| assert!(patterns.fit(name), "{pattern} {name}"));
            other.iter().for_each(|name| assert!(!patterns.fit(name), "{pattern} {name}"));
        }
        assert!(!Patterns::default().fit("a"));
    }

    #[test]
    fn other_patterns_are_refused() {
        for text in ["", "/", "a//b", "/a", "a/", "**/a", "a**", "a/***", &"a".repeat(513)] {
            assert!(Patterns::new([text]).is_err(), "{text}");
        }
        assert!(Patterns::new(vec!["a"; PATTERN_COUNT_MAX + 1]).is_err());
    }
}
