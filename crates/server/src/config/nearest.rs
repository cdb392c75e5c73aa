//! Finds the known name that a misspelled one probably meant.

/// Returns the candidate with the fewest edits, if a typing error explains them.
pub fn nearest<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let edits_max = (written.len() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .map(|candidate| (edits(written, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= edits_max || begins(written, candidate))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Returns whether a name is the beginning of the candidate, like `password` of `password_file`.
fn begins(written: &str, candidate: &str) -> bool {
    3 <= written.len() && candidate.starts_with(written)
}

/// Counts the bytes to insert, remove, replace or transpose (optimal string alignment distance).
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if 1 < i && 1 < j && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
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
            assert_eq!(nearest(written, NAMES), Some(meant), "{written}");
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
        assert_eq!(edits("snyc", "sync"), 1);
        assert_eq!(edits("abc", "abc"), 0);
    }
}
