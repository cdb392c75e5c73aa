//! Cuts texts from outside before an answer or a log line repeats them, so that a long text takes
//! no more than a line.

use std::borrow::Cow;

pub use busload_calls::Shown;

/// Longest part of an error of another system that is repeated: Postgres, for one, may repeat a
/// value in its errors.
pub const ERROR_BYTES_MAX: usize = 1024;

/// Returns the part of another system's error that clients get.
pub fn shown_error(text: &str) -> Cow<'_, str> {
    match text.floor_char_boundary(ERROR_BYTES_MAX) {
        end if end < text.len() => format!("{}... ({} bytes)", &text[..end], text.len()).into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_is_cut_between_characters_and_says_how_long_it_was() {
        let long = "\u{e9}".repeat(100_000);
        assert_eq!(
            shown_error(&long),
            format!("{}... (200000 bytes)", "\u{e9}".repeat(ERROR_BYTES_MAX / 2))
        );
        assert_eq!(shown_error("short"), "short");
    }
}
