//! Hostile indexes and footers.

use busload_chunks::{FileKind, FormatError, Span, TableIndex};
use busload_hostile::{Random, mutate, within};
use bytes::Bytes;

use crate::support::{self, File, archive::Archive};

/// Number of changes per file.
const MUTATIONS: u64 = 300;

/// Returns the most memory that parsing may take: it keeps or rearranges the bytes, and needs a few
/// words besides. An error has its text.
fn memory_for(bytes: &[u8]) -> usize {
    4 * bytes.len() + 10_000
}

struct Tail {
    name: String,
    kind: FileKind,
    chunk_count: u32,
    file_bytes: u64,
    bytes: Vec<u8>,
}

/// Returns the parts of each file of each fixture that a caller reads.
fn tails() -> Vec<Tail> {
    support::all().iter().flat_map(support::Fixture::files).map(tail).collect()
}

fn tail(file: File) -> Tail {
    let chunk_count = file.index.chunk_count();
    let file_bytes = file.bytes.len() as u64;
    let kind = file.index.kind();
    let length = match kind {
        FileKind::Classic => TableIndex::classic_tail_bytes(chunk_count),
        FileKind::Archive => TableIndex::archive_tail_bytes(&file.bytes, file_bytes).unwrap(),
    };
    let bytes = file.bytes[file.bytes.len() - usize::try_from(length).unwrap()..].to_vec();
    Tail { name: file.name, kind, chunk_count, file_bytes, bytes }
}

/// Parses the tail and reads everything that the index then says. Returns whether it was parsed.
fn exercise(what: &str, kind: FileKind, tail: &[u8], chunk_count: u32, file_bytes: u64) -> bool {
    let bytes = Bytes::copy_from_slice(tail);
    let parsed = within(memory_for(tail), what, || match kind {
        FileKind::Classic => TableIndex::parse_classic(bytes, chunk_count, file_bytes),
        FileKind::Archive => {
            let _ = TableIndex::archive_tail_bytes(&bytes, file_bytes);
            TableIndex::parse_archive(bytes, file_bytes)
        }
    });
    let Ok(index) = parsed else { return false };
    let data_bytes = file_bytes - tail.len() as u64;
    let is_inside = |span: Span| {
        span.offset <= data_bytes && u64::from(span.length) <= data_bytes - span.offset
    };
    for position in 0..index.chunk_count() {
        let location = index.location(position);
        assert!(
            is_inside(location.span) && location.dictionary.is_none_or(is_inside),
            "{what}: {location:?}"
        );
        // Prefixes ascend and have been checked, so every address is found, at one of its
        // positions.
        let address = index.address(position);
        assert_eq!(index.address(index.find(&address).unwrap()), address, "{what}");
    }
    true
}

#[test]
fn changed_indexes_are_errors_or_harmless() {
    let mut parsed = 0;
    for (number, tail) in (0..).zip(tails()) {
        for seed in 0..MUTATIONS {
            let mut random = Random(number << 32 | seed);
            let mut bytes = tail.bytes.clone();
            mutate(&mut bytes, &mut random);
            let what = format!("{} seed {seed}", tail.name);
            parsed +=
                u64::from(exercise(&what, tail.kind, &bytes, tail.chunk_count, tail.file_bytes));
            // The change may have changed the length of the file, too.
            let file_bytes = tail.file_bytes + bytes.len() as u64 - tail.bytes.len() as u64;
            parsed += u64::from(exercise(&what, tail.kind, &bytes, tail.chunk_count, file_bytes));
        }
    }
    // Changes of suffixes, checksums and metadata do no harm to the rest; if none of them were
    // accepted, nothing would be tested.
    assert!(parsed > 1_000, "{parsed}");
}

#[test]
fn indexes_cut_off_anywhere_are_errors() {
    for tail in tails() {
        for cut in 1..=tail.bytes.len() {
            let (front, back) = (&tail.bytes[..tail.bytes.len() - cut], &tail.bytes[cut..]);
            for part in [front, back] {
                let what = format!("{} without {cut} bytes", tail.name);
                for file_bytes in [tail.file_bytes, tail.file_bytes - cut as u64] {
                    let is_parsed = exercise(&what, tail.kind, part, tail.chunk_count, file_bytes);
                    assert!(!is_parsed, "{what} is an index");
                }
            }
        }
    }
}

#[test]
fn wrong_counts_and_sizes_are_errors() {
    for tail in tails() {
        for file_bytes in
            [0, 1, tail.bytes.len() as u64 - 1, tail.file_bytes - 1, tail.file_bytes + 1, u64::MAX]
        {
            let what = format!("{} of {file_bytes} bytes", tail.name);
            assert!(
                !exercise(&what, tail.kind, &tail.bytes, tail.chunk_count, file_bytes),
                "{what} is an index"
            );
        }
        if tail.kind == FileKind::Archive {
            continue;
        }
        for chunk_count in [0, tail.chunk_count - 1, tail.chunk_count + 1, u32::MAX] {
            let what = format!("{} with {chunk_count} chunks", tail.name);
            assert!(
                !exercise(&what, tail.kind, &tail.bytes, chunk_count, tail.file_bytes),
                "{what} is an index"
            );
        }
    }
}

/// The tail's length is what a caller reads and holds in memory next.
#[test]
fn announced_tails_are_never_longer_than_the_file() {
    for tail in tails().iter().filter(|tail| tail.kind == FileKind::Archive) {
        let end = &tail.bytes[tail.bytes.len() - 216..];
        for seed in 0..10_000 {
            let mut bytes = end.to_vec();
            mutate(&mut bytes, &mut Random(seed));
            for file_bytes in [216, 220, tail.file_bytes, 1 << 40] {
                if let Ok(length) = TableIndex::archive_tail_bytes(&bytes, file_bytes) {
                    assert!(length <= file_bytes, "{} seed {seed}", tail.name);
                }
            }
        }
    }
}

#[test]
fn counts_whose_sums_overflow_are_errors() {
    let mut end = vec![0; 220];
    end[212..].copy_from_slice(b"\x03DOLTARC");
    for (index_bytes, spans, chunks, metadata) in [
        (u64::MAX, u32::MAX, u32::MAX, u32::MAX),
        (36 * u64::from(u32::MAX), u32::MAX, u32::MAX, u32::MAX),
        (36 * u64::from(u32::MAX), u32::MAX, u32::MAX, 0),
        (8, 1, 0, u32::MAX),
        (0, 0, 0, 64 << 20),
    ] {
        end[..8].copy_from_slice(&index_bytes.to_be_bytes());
        end[8..12].copy_from_slice(&spans.to_be_bytes());
        end[12..16].copy_from_slice(&chunks.to_be_bytes());
        end[16..20].copy_from_slice(&metadata.to_be_bytes());
        for file_bytes in [0, 219, 220, 247, 1_000_000] {
            let result =
                within(1_000, "a footer", || TableIndex::archive_tail_bytes(&end, file_bytes));
            assert!(matches!(result, Err(FormatError::Malformed(_))), "{result:?}");
        }
    }
}

#[test]
fn huge_files_with_huge_indexes_are_not_refused() {
    let mut end = vec![0; 220];
    end[..8].copy_from_slice(&(36 * (1u64 << 31)).to_be_bytes());
    end[8..12].copy_from_slice(&(1u32 << 31).to_be_bytes());
    end[12..16].copy_from_slice(&(1u32 << 31).to_be_bytes());
    end[212..].copy_from_slice(b"\x03DOLTARC");
    assert_eq!(TableIndex::archive_tail_bytes(&end, 1 << 40), Ok(36 * (1 << 31) + 220));
}

#[test]
fn records_named_twice_or_beyond_the_last_are_errors() {
    let file = support::Fixture::open("synth-sizes-classic").files().remove(0);
    let tail = tail(file);
    for ordinal in [1u32, 14, 15, 64, u32::MAX] {
        let mut bytes = tail.bytes.clone();
        // The ordinal of the first entry. Some other entry has the new one already, or it is too
        // large.
        let was = bytes[8..12].to_vec();
        bytes[8..12].copy_from_slice(&ordinal.to_be_bytes());
        let what = format!("record {ordinal}");
        let same = bytes[8..12] == was;
        assert_eq!(
            exercise(&what, tail.kind, &bytes, tail.chunk_count, tail.file_bytes),
            same,
            "{what}"
        );
    }
}

#[test]
fn more_metadata_than_is_read_is_an_error() {
    let mut archive = Archive::new(3);
    archive.metadata = vec![b' '; (64 << 20) + 1];
    let file = archive.file();
    let result = TableIndex::archive_tail_bytes(&file, file.len() as u64);
    assert_eq!(
        result,
        Err(FormatError::Malformed("metadata of 67108865 bytes, expected at most 67108864".into()))
    );
}
