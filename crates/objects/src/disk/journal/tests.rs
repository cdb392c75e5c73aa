use proptest::prelude::*;

use super::*;

fn file(id: u32) -> FileRecord<'static> {
    FileRecord {
        id,
        generation: u64::MAX - 3,
        size: 5 << 20,
        store: "s3://b/p",
        name: "\u{fffe}J\u{1}",
        etag: "\"x\"",
    }
}

/// Makes a small journal. Returns it with the end of each record.
fn journal() -> (Vec<u8>, Vec<usize>) {
    let mut out = Vec::new();
    let mut ends = Vec::new();
    write_file(&mut out, &file(1));
    ends.push(out.len());
    write_extents(&mut out, 1, Presence::Present, [0, 1, 2, 4]);
    ends.push(out.len());
    write_extents(&mut out, 1, Presence::Absent, [1]);
    ends.push(out.len());
    write_file(&mut out, &file(2));
    ends.push(out.len());
    write_gone(&mut out, 2);
    ends.push(out.len());
    (out, ends)
}

fn read(journal: &[u8]) -> Vec<String> {
    Records::new(journal)
        .map(|record| match record {
            Record::File(file) => format!("file {} {} {}", file.id, file.size, file.name.len()),
            Record::Extents { id, presence, runs } => {
                format!("{presence:?} {id} {:?}", runs.collect::<Vec<_>>())
            }
            Record::Gone(id) => format!("gone {id}"),
        })
        .collect()
}

#[test]
fn what_was_written_is_read() {
    let (bytes, _) = journal();
    let expected = [
        "file 1 5242880 5",
        "Present 1 [0..=2, 4..=4]",
        "Absent 1 [1..=1]",
        "file 2 5242880 5",
        "gone 2",
    ];
    assert_eq!(read(&bytes), expected);
    let first = Records::new(&bytes).next();
    assert_eq!(first, Some(Record::File(file(1))));
}

#[test]
fn a_torn_journal_loses_its_end_only() {
    let (bytes, ends) = journal();
    let whole = read(&bytes);
    for length in 0..bytes.len() {
        let expected = ends.iter().filter(|&&end| end <= length).count();
        assert_eq!(read(&bytes[..length]), whole[..expected], "{length}");
    }
}

#[test]
fn a_torn_record_does_not_hide_those_written_behind_it() {
    let (bytes, ends) = journal();
    let whole = read(&bytes);
    for torn in ends[3] + 1..bytes.len() {
        let again = [&bytes[..torn], &bytes[..]].concat();
        assert_eq!(read(&again), [&whole[..4], &whole[..]].concat(), "{torn}");
    }
}

#[test]
fn a_flipped_byte_loses_one_record() {
    let (bytes, ends) = journal();
    let whole = read(&bytes);
    for position in 0..bytes.len() {
        for mask in [1, 0x80, 0xff] {
            let mut flipped = bytes.clone();
            flipped[position] ^= mask;
            let record = ends.iter().filter(|&&end| end <= position).count();
            let mut expected = whole.clone();
            expected.remove(record);
            assert_eq!(read(&flipped), expected, "{position} {mask:x}");
        }
    }
}

#[test]
fn long_lists_are_cut_into_records_that_stand_alone() {
    let extents: Vec<u32> = (0..10_000).map(|i| i * 3).collect();
    let mut out = Vec::new();
    write_extents(&mut out, 9, Presence::Present, extents.iter().copied());
    let records: Vec<Record<'_>> = Records::new(&out).collect();
    assert_eq!(records.len(), 10_000_usize.div_ceil(RUNS_PER_RECORD_MAX));
    let read = records.into_iter().flat_map(|record| match record {
        Record::Extents { id: 9, presence: Presence::Present, runs } => {
            runs.flatten().collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(read.collect::<Vec<_>>(), extents);
}

#[test]
fn numbers_too_large_end_a_list() {
    let mut out = Vec::new();
    write_record(&mut out, PRESENT, |out| {
        out.extend_from_slice(&[1, 0, 0, 0, 5, 0]);
        out.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x7f, 0]);
    });
    assert_eq!(read(&out), ["Present 1 [5..=5]"]);
    let mut out = Vec::new();
    write_extents(&mut out, 1, Presence::Present, [u32::MAX - 1]);
    assert_eq!(read(&out), ["Present 1 [4294967294..=4294967294]"]);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        at in 0_usize..300,
    ) {
        let (mut journal, _) = journal();
        let at = at.min(journal.len());
        journal.splice(at..at, bytes);
        // The record into which the bytes fall is lost, and at most one that they happen to form is
        // added.
        let count = read(&journal).len();
        prop_assert!(4 <= count, "{count}");
    }

    #[test]
    fn any_set_of_extents_is_read_back(
        set in proptest::collection::btree_set(0_u32..100_000, 0..2000),
    ) {
        let mut out = Vec::new();
        write_extents(&mut out, 3, Presence::Absent, set.iter().copied());
        let read: Vec<u32> = Records::new(&out).flat_map(|record| match record {
            Record::Extents { runs, .. } => runs.flatten().collect::<Vec<_>>(),
            _ => Vec::new(),
        }).collect();
        prop_assert_eq!(read, set.into_iter().collect::<Vec<_>>());
    }
}
