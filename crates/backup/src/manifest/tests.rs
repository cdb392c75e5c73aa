//! The manifest and the page that describes it.

use super::*;

const PAGE: &str = include_str!("../../../../docs/backup-format.md");

/// Returns the example on the page.
fn example() -> &'static str {
    let example = PAGE.split("```").find(|part| part.starts_with("text\n"));
    example.expect("the page has an example").strip_prefix("text\n").unwrap()
}

#[test]
fn the_example_on_the_page_is_a_manifest() {
    let manifest = Manifest::decode(example()).unwrap();
    assert_eq!(manifest.encode(), example());
    assert_eq!((manifest.snapshots.len(), manifest.segments.len()), (1, 2));
    assert_eq!(manifest.lsn, Lsn(manifest.segments[1].end.next_lsn.0 - 1));
    assert_eq!(manifest.runs().len(), 1, "{manifest:?}");
}

#[test]
fn the_page_names_the_files() {
    for name in [MANIFEST_NAME, MANIFEST_TEMPORARY_NAME, TEMPORARY_NAME, LOCK_NAME] {
        assert!(PAGE.contains(&format!("`{name}`")), "{name}");
        assert!(is_ours(name));
    }
    for name in ["last-segment", "notes.txt", "1.log", ".hidden", "manifest.old"] {
        assert!(!is_ours(name), "{name}");
    }
}

#[test]
fn no_changed_byte_is_overlooked() {
    let text = example().as_bytes();
    for at in 0..text.len() {
        for bit in 0..7 {
            let mut changed = text.to_vec();
            changed[at] ^= 1 << bit;
            let changed = String::from_utf8(changed).unwrap();
            // Checksums are read in either case.
            if Manifest::decode(&changed).is_ok() {
                assert!(changed.eq_ignore_ascii_case(example()), "byte {at}, bit {bit}: {changed}");
            }
        }
    }
    for end in 0..text.len() {
        assert!(Manifest::decode(&example()[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn a_line_that_names_no_file_is_refused() {
    for line in ["segment", "snapshot x.snapshot 1 00000000 1", "directory a", ""] {
        let text = format!("{FIRST_LINE}\nlog 1\ntaken 1\nlsn 1\n{line}\n");
        let checksum = crc32c::crc32c(text.as_bytes());
        let decoded = Manifest::decode(&format!("{text}checksum {checksum:08x}\n"));
        assert!(decoded.is_err(), "{line:?}");
    }
}
