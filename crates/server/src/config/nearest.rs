//! What somebody may have meant.

/// The candidate with the fewest edits, if there is one that a slip of the fingers explains.
pub fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let edits_max = (written.len() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .map(|candidate| (edits(written, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= edits_max || begins(written, candidate))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// `password` for `password_file`.
fn begins(written: &str, candidate: &str) -> bool {
    3 <= written.len() && candidate.starts_with(written)
}

/// Levenshtein distance, over bytes.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 5] = ["data", "resp", "maxclients", "memory_max", "password_file"];

    #[test]
    fn slips_find_their_name() {
        for (written, meant) in [
            ("dat", "data"),
            ("max_clients", "maxclients"),
            ("memorymax", "memory_max"),
            ("password", "password_file"),
            ("rsep", "resp"),
        ] {
            let found = nearest(written, NAMES);
            // Two letters that changed places are two edits, more than a short name allows.
            assert_eq!(found, if written == "rsep" { None } else { Some(meant) }, "{written}");
        }
    }

    #[test]
    fn something_else_finds_nothing() {
        assert_eq!(nearest("colour", NAMES), None);
        assert_eq!(nearest("", NAMES), None);
    }

    #[test]
    fn distances() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", "abc"), 0);
    }
}
