//! Checks `docs/log-format.md` against the constants.

use super::*;
use crate::{Lsn, limits};

const PAGE: &str = include_str!("../../../../docs/log-format.md");

/// Returns the table rows of a section: offset, length and text of each field.
fn rows(section: &str) -> Vec<(usize, Option<usize>, String)> {
    let text =
        PAGE.split("\n## ").find(|part| part.starts_with(section)).expect("the section exists");
    let lines =
        text.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit());
    lines
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            (cells[0].parse().unwrap(), cells[1].parse().ok(), cells[2].to_owned())
        })
        .collect()
}

/// Checks that the fields follow one another without gaps up to `end`.
fn check_offsets(rows: &[(usize, Option<usize>, String)], end: usize) {
    let mut expected = 0;
    for (offset, bytes, field) in rows {
        assert_eq!(*offset, expected, "{field}");
        expected += bytes.unwrap_or(0);
    }
    assert_eq!(expected, end);
}

fn offset_of(rows: &[(usize, Option<usize>, String)], text: &str) -> usize {
    rows.iter().find(|(_, _, field)| field.starts_with(text)).unwrap_or_else(|| panic!("{text}")).0
}

#[test]
fn the_page_says_what_the_constants_say() {
    for text in [
        format!("Format version `{FORMAT_VERSION}`"),
        format!(
            "first {SEGMENT_HEADER_BYTES} bytes of a segment, \
             of which {SEGMENT_HEADER_USED_BYTES} are used"
        ),
        format!("`{LOCK_NAME}`"),
        format!("`{LAST_SEGMENT_NAME}`"),
        format!("`{LAST_SEGMENT_TEMPORARY_NAME}`"),
        format!("`{INCOMPLETE_NAME}`"),
        format!("{LAST_SEGMENT_BYTES} bytes"),
        format!("magic `{}`", std::str::from_utf8(&LAST_SEGMENT_MAGIC).unwrap()),
        format!(
            "kind: {LAST_SEGMENT_KIND_OPEN} the log goes on, \
             {LAST_SEGMENT_KIND_CLEAN_SHUTDOWN} clean end"
        ),
        format!("N{SEGMENT_SUFFIX}`"),
        format!("N{TEMPORARY_SUFFIX}`"),
        format!("N{SPARE_SUFFIX}`"),
        format!("`{COPY_LOCK_NAME}`"),
        format!("flags: {SEGMENT_FLAG_REUSED} the file was a segment before"),
        format!("magic `{}`", std::str::from_utf8(&SEGMENT_MAGIC).unwrap()),
        format!("magic `{}`", std::str::from_utf8(&FRAME_MAGIC.to_le_bytes()).unwrap()),
        format!("kind: {FRAME_KIND_RECORDS} records, {FRAME_KIND_CLEAN_SHUTDOWN} clean end"),
        format!("Default length {} bytes", limits::SEGMENT_BYTES),
        format!("one after a start {}", limits::FIRST_SEGMENT_BYTES),
        format!("at least {} bytes", limits::SHRUNK_SEGMENT_BYTES_MIN),
        format!("each at a multiple of {FRAME_ALIGNMENT_BYTES}"),
    ] {
        assert!(PAGE.contains(&text), "the page lacks: {text}");
    }
}

#[test]
fn the_page_has_every_field_of_a_segment_header_at_its_place() {
    let rows = rows("Segment header");
    check_offsets(&rows, SEGMENT_HEADER_USED_BYTES);
    let header = SegmentHeader {
        log_id: LogId(0x1111),
        number: 0x2222,
        first_lsn: Lsn(0x3333),
        durable: Lsn(0x4444),
        wall_ms: 0x5555,
        previous: 0x6666,
        is_reused: true,
    };
    let (block, checksum) = header.encode();
    let fields = Fields(&block);
    assert_eq!(fields.u32(offset_of(&rows, "format version")), FORMAT_VERSION);
    assert_eq!(fields.u32(offset_of(&rows, "CRC over")), checksum);
    assert_eq!(fields.u128(offset_of(&rows, "log id")), 0x1111);
    assert_eq!(fields.u64(offset_of(&rows, "segment number")), 0x2222);
    assert_eq!(fields.u64(offset_of(&rows, "LSN of the first")), 0x3333);
    assert_eq!(fields.u64(offset_of(&rows, "highest LSN")), 0x4444);
    assert_eq!(fields.i64(offset_of(&rows, "wall time")), 0x5555);
    assert_eq!(fields.u32(offset_of(&rows, "checksum of what")), 0x6666);
    assert_eq!(fields.u32(offset_of(&rows, "flags")), SEGMENT_FLAG_REUSED);
}

#[test]
fn the_page_has_every_field_of_the_file_that_names_the_last_segment() {
    let rows = rows("The last segment");
    check_offsets(&rows, LAST_SEGMENT_BYTES);
    let last = LastSegment {
        log_id: LogId(0x1111),
        number: 0x2222,
        durable: Lsn(0x3333),
        clean_shutdown: true,
    };
    let bytes = last.encode();
    let fields = Fields(&bytes);
    assert_eq!(fields.u32(offset_of(&rows, "format version")), FORMAT_VERSION);
    let front = crc32c::crc32c(&bytes[..offset_of(&rows, "CRC over")]);
    let checksum = crc32c::crc32c_append(front, &bytes[offset_of(&rows, "log id")..]);
    assert_eq!(fields.u32(offset_of(&rows, "CRC over")), checksum);
    assert_eq!(fields.u128(offset_of(&rows, "log id")), 0x1111);
    assert_eq!(fields.u64(offset_of(&rows, "number of the last segment")), 0x2222);
    assert_eq!(fields.u64(offset_of(&rows, "highest LSN")), 0x3333);
    assert_eq!(fields.u32(offset_of(&rows, "kind")), LAST_SEGMENT_KIND_CLEAN_SHUTDOWN);
}

#[test]
fn the_page_has_every_field_of_a_frame_at_its_place() {
    let rows = rows("Frame");
    check_offsets(&rows, FRAME_HEADER_BYTES);
    let header = FrameHeader {
        body_checksum: 0x1111,
        previous: 0x2222,
        body_bytes: 0x3338,
        record_count: 0x4444,
        kind: FRAME_KIND_CLEAN_SHUTDOWN,
        first_lsn: Lsn(0x5555),
        wall_ms: 0x6666,
        durable: Lsn(0x7777),
    };
    let seed = FrameSeed { log_id: LogId(0x8888), segment: 0x9999, frame: 0xaaaa };
    let (bytes, checksum) = header.encode(seed);
    let fields = Fields(&bytes);
    assert_eq!(fields.u32(offset_of(&rows, "header checksum:")), checksum);
    assert_eq!(fields.u32(offset_of(&rows, "body checksum")), 0x1111);
    assert_eq!(fields.u32(offset_of(&rows, "header checksum of the frame before")), 0x2222);
    assert_eq!(fields.u64(offset_of(&rows, "length of the body")), 0x3338);
    assert_eq!(fields.u32(offset_of(&rows, "count of records")), 0x4444);
    assert_eq!(fields.u32(offset_of(&rows, "kind")), 1);
    assert_eq!(fields.u64(offset_of(&rows, "LSN of the first")), 0x5555);
    assert_eq!(fields.i64(offset_of(&rows, "wall time")), 0x6666);
    assert_eq!(fields.u64(offset_of(&rows, "highest LSN")), 0x7777);
    assert_eq!(fields.u128(offset_of(&rows, "log id")), 0x8888);
    assert_eq!(fields.u64(offset_of(&rows, "segment number")), 0x9999);
    assert_eq!(fields.u64(offset_of(&rows, "frame number")), 0xaaaa);
    assert_eq!(offset_of(&rows, "body"), 8);
    assert_eq!(rows.last().unwrap().0, FRAME_HEADER_BYTES);
}
