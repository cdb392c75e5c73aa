//! Texts of clients that an answer or a log line repeats: cut, so that a long one costs no more
//! than a line.

use std::fmt::{self, Write};

/// Longest part of a client's text that is repeated.
pub const SHOWN_BYTES_MAX: usize = 128;

/// Displays a text of any length from outside: cut, with control characters escaped.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a str);

impl<'a> Shown<'a> {
    /// Returns the part that is shown.
    pub fn part(self) -> &'a str {
        &self.0[..self.0.floor_char_boundary(SHOWN_BYTES_MAX)]
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escaped, or a client could forge log lines.
        self.part().chars().try_for_each(|char| match char.is_control() {
            true => write!(f, "{}", char.escape_default()),
            false => f.write_char(char),
        })?;
        if self.part().len() < self.0.len() {
            write!(f, "... ({} bytes)", self.0.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_how_long_it_was() {
        for text in ["", "db", &"x".repeat(SHOWN_BYTES_MAX)] {
            assert_eq!(Shown(text).to_string(), text);
        }
        let long = "\u{e9}".repeat(100_000);
        let shown = Shown(&long).to_string();
        assert_eq!(shown, format!("{}... (200000 bytes)", "\u{e9}".repeat(SHOWN_BYTES_MAX / 2)));
        let odd = format!("x{long}");
        assert_eq!(Shown(&odd).part().len(), SHOWN_BYTES_MAX - 1);
        assert_eq!(Shown("a\nb\u{1b}").to_string(), "a\\nb\\u{1b}");
    }
}
