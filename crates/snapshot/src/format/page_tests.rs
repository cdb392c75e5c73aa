//! Compares `docs/snapshot-format.md` with the code.

use super::*;

const PAGE: &str = include_str!("../../../../docs/snapshot-format.md");

/// Returns the rows of the tables of a section: offset, length and text of each field.
fn rows(section: &str) -> Vec<(usize, usize, String)> {
    let text =
        PAGE.split("\n## ").find(|part| part.starts_with(section)).expect("the section exists");
    let is_row = |line: &&str| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit();
    let rows = text.lines().filter(is_row).map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        (cells[0].parse().unwrap(), cells[1].parse().unwrap_or(0), cells[2].to_owned())
    });
    rows.collect()
}

/// Checks that the fields follow one another up to `end`, and returns the offset of each text.
fn offsets(rows: &[(usize, usize, String)], end: usize) -> impl Fn(&str) -> usize + '_ {
    let mut expected = 0;
    for (offset, bytes, field) in rows {
        assert_eq!(*offset, expected, "{field}");
        expected += bytes;
    }
    assert_eq!(expected, end);
    |text| {
        let row = rows.iter().find(|(_, _, field)| field.starts_with(text));
        row.unwrap_or_else(|| panic!("{text}")).0
    }
}

const HEADER: Header = Header {
    log_id: LogId(0x1111),
    lsn: Lsn(0x2222),
    segment: 0x3333,
    wall_ms: 0x4444,
    seed: 0x5555,
    partition_bits: 1,
};

#[test]
fn the_page_says_what_the_constants_say() {
    for text in [
        format!("Format version `{FORMAT_VERSION}`"),
        format!("N{SNAPSHOT_SUFFIX}`"),
        format!("`{TEMPORARY_NAME}`"),
        format!("`{SPILL_NAME}`"),
        format!("{HEADER_BYTES} bytes."),
        format!("For each partition {PARTITION_ENTRY_BYTES} bytes"),
        format!("the last {TAIL_BYTES} bytes"),
        format!("0 to {}", crate::limits::PARTITION_BITS_MAX),
        format!("about {} KiB", crate::limits::BLOCK_BYTES / 1024),
        format!("kind: {KIND_CATALOGUE} catalogue, {KIND_ENTRIES} entries"),
        format!("compression: {COMPRESSION_NONE} none, {COMPRESSION_ZSTD} a zstd frame"),
    ] {
        assert!(PAGE.contains(&text), "{text}");
    }
}

#[test]
fn the_page_has_every_field_of_the_header() {
    let rows = rows("Header");
    let offset = offsets(&rows, HEADER_BYTES);
    let bytes = HEADER.encode();
    assert_eq!(bytes[offset("magic")..][..8], HEADER_MAGIC);
    assert_eq!(u32_at(&bytes, offset("format version")), FORMAT_VERSION);
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[offset("log id")..]);
    assert_eq!(u32_at(&bytes, offset("CRC")), checksum);
    assert_eq!(u64_at(&bytes, offset("log id")), 0x1111);
    assert_eq!(u64_at(&bytes, offset("last LSN")), 0x2222);
    assert_eq!(u64_at(&bytes, offset("number of a segment")), 0x3333);
    assert_eq!(u64_at(&bytes, offset("latest time")), 0x4444);
    assert_eq!(u64_at(&bytes, offset("seed")), 0x5555);
    assert_eq!(u32_at(&bytes, offset("number of partitions")), 1);
    assert_eq!(Header::decode(&bytes), Ok(HEADER));
}

#[test]
fn the_page_has_every_field_of_a_block() {
    let rows = rows("Block");
    let offset = offsets(&rows, BLOCK_HEADER_BYTES);
    let header = BlockHeader {
        checksum: 0,
        stored_bytes: 0x1111,
        raw_bytes: 0x2222,
        number: 0x3333,
        kind: 0x44,
        compression: 0x55,
    };
    let stored: &[u8] = b"stored";
    let bytes = header.encode(HEADER.checksum_seed(), &[stored]);
    let mut covered = HEADER.log_id.0.to_le_bytes().to_vec();
    covered.extend_from_slice(&HEADER.lsn.0.to_le_bytes());
    covered.extend_from_slice(&bytes[offset("length of the stored")..]);
    covered.extend_from_slice(stored);
    assert_eq!(u32_at(&bytes, offset("magic")), BLOCK_MAGIC);
    assert_eq!(u32_at(&bytes, offset("CRC")), crc32c::crc32c(&covered));
    assert_eq!(u32_at(&bytes, offset("length of the stored")), 0x1111);
    assert_eq!(u32_at(&bytes, offset("length of the contents")), 0x2222);
    assert_eq!(u64_at(&bytes, offset("number of the block")), 0x3333);
    assert_eq!(bytes[offset("kind")], 0x44);
    assert_eq!(bytes[offset("compression")], 0x55);
    assert_eq!(offset("stored contents"), BLOCK_HEADER_BYTES);
}

#[test]
fn the_page_has_every_field_of_index_and_tail() {
    let rows = rows("Index and tail");
    let (entry, tail) = rows.split_at(4);
    let (of_entry, of_tail) = (offsets(entry, PARTITION_ENTRY_BYTES), offsets(tail, TAIL_BYTES));
    let partition =
        |number| PartitionEntry { offset: number, blocks: 0x22, entries: 0x33, raw_bytes: 0x44 };
    let footer = Footer {
        partitions: vec![partition(0x11), partition(0x12)],
        catalogue_offset: 0x55,
        catalogue_number: 0x66,
    };
    let seed = HEADER.checksum_seed();
    let bytes = footer.encode(seed, 0x77);
    assert_eq!(Footer::decode(seed, 1, &bytes), Ok(footer));
    assert_eq!(u64_at(&bytes, of_entry("offset of its first block")), 0x11);
    assert_eq!(u64_at(&bytes, of_entry("count of its blocks")), 0x22);
    assert_eq!(u64_at(&bytes, of_entry("count of its entries")), 0x33);
    assert_eq!(u64_at(&bytes, of_entry("length of the contents")), 0x44);
    let (index, tail) = bytes.split_at(2 * PARTITION_ENTRY_BYTES);
    assert_eq!(tail[of_tail("magic")..][..8], TAIL_MAGIC);
    let mut covered = HEADER.log_id.0.to_le_bytes().to_vec();
    covered.extend_from_slice(&HEADER.lsn.0.to_le_bytes());
    covered.extend_from_slice(index);
    covered.extend_from_slice(&tail[..12]);
    covered.extend_from_slice(&tail[16..]);
    assert_eq!(u32_at(tail, of_tail("CRC")), crc32c::crc32c(&covered));
    assert_eq!(Footer::offset_in(tail), Ok(0x77));
    assert_eq!(u64_at(tail, of_tail("offset of the index")), 0x77);
    assert_eq!(u64_at(tail, of_tail("offset of the catalogue")), 0x55);
    assert_eq!(u64_at(tail, of_tail("number of the catalogue")), 0x66);
}
