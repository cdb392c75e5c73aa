//! Names under which small bytes are kept.

use crate::limits::KEPT_NAME_BYTES_MAX;

/// Letters, digits, `-` and `.`, so that a name is a file's name everywhere and never a path.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= KEPT_NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_never_paths() {
        for name in ["a", "index-0.v1", "..", "ABC123"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a/b", "../x", "a b", "\u{e4}", "a\0"] {
            assert!(!is_name(name), "{name:?}");
        }
        assert!(
            is_name(&"n".repeat(KEPT_NAME_BYTES_MAX))
                && !is_name(&"n".repeat(KEPT_NAME_BYTES_MAX + 1))
        );
    }
}
