//! Classic table files of shapes that no fixture has.

use busload_chunks::{ChunkAddress, FileKind, FormatError, Span, TableIndex};
use bytes::Bytes;

/// Index and footer of a file, in parts.
#[derive(Clone)]
struct Tail {
    /// Prefix and ordinal of each entry.
    tuples: Vec<(u64, u32)>,
    lengths: Vec<u32>,
    suffixes: Vec<[u8; 12]>,
}

impl Tail {
    /// Creates the tail of a file whose records are in the order of their addresses.
    fn of(records: &[(ChunkAddress, u32)]) -> Self {
        Self {
            tuples: records.iter().map(|(address, _)| address.prefix()).zip(0..).collect(),
            lengths: records.iter().map(|(_, length)| *length).collect(),
            suffixes: records.iter().map(|(address, _)| *address.suffix()).collect(),
        }
    }

    fn bytes(&self) -> Bytes {
        let mut bytes = Vec::new();
        for (prefix, ordinal) in &self.tuples {
            bytes.extend(prefix.to_be_bytes());
            bytes.extend(ordinal.to_be_bytes());
        }
        bytes.extend(self.lengths.iter().flat_map(|length| length.to_be_bytes()));
        bytes.extend(self.suffixes.iter().flatten());
        bytes.extend(u32::try_from(self.tuples.len()).unwrap().to_be_bytes());
        bytes.extend(0u64.to_be_bytes());
        bytes.extend([0xff, 0xb5, 0xd8, 0xc2, 0x24, 0x63, 0xee, 0x50]);
        bytes.into()
    }

    fn parse(&self) -> Result<TableIndex, FormatError> {
        let records_bytes: u64 = self.lengths.iter().map(|length| u64::from(*length)).sum();
        let bytes = self.bytes();
        let file_bytes = records_bytes + bytes.len() as u64;
        TableIndex::parse_classic(bytes, u32::try_from(self.tuples.len()).unwrap(), file_bytes)
    }

    fn malformed(&self) -> String {
        match self.parse() {
            Err(FormatError::Malformed(text)) => text,
            other => panic!("expected a malformed index, got {other:?}"),
        }
    }
}

/// Returns an address that begins with the prefix and ends with a byte.
fn address(prefix: u64, last: u8) -> ChunkAddress {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&prefix.to_be_bytes());
    bytes[19] = last;
    ChunkAddress(bytes)
}

#[test]
fn offsets_beyond_four_gigabytes_are_right_at_every_record() {
    let records: Vec<_> =
        (0..200).map(|number| (address(number, 0), u32::MAX - number as u32)).collect();
    let index = Tail::of(&records).parse().unwrap();
    let mut offset = 0;
    for (address, length) in records {
        let location = index.location(index.find(&address).unwrap());
        assert_eq!((location.span, location.dictionary), (Span { offset, length }, None));
        offset += u64::from(length);
    }
    assert_eq!((index.kind(), index.chunk_count()), (FileKind::Classic, 200));
    assert_eq!(index.file_bytes(), offset + TableIndex::classic_tail_bytes(200));
}

#[test]
fn equal_prefixes_may_come_in_any_order() {
    let mut tail = Tail::of(&[
        (address(7, 3), 10),
        (address(7, 1), 20),
        (address(7, 2), 30),
        (address(9, 0), 40),
    ]);
    tail.tuples[..3].rotate_left(1);
    let index = tail.parse().unwrap();
    for (last, span) in [(3, (0, 10)), (1, (10, 20)), (2, (30, 30))] {
        let position = index.find(&address(7, last)).unwrap();
        assert_eq!(index.address(position), address(7, last));
        let found = index.location(position).span;
        assert_eq!((found.offset, found.length), span);
    }
    assert_eq!(index.find(&address(7, 4)), None);
    assert_eq!(index.find(&address(8, 0)), None);
}

#[test]
fn what_is_wrong_with_an_index_is_said() {
    let tail = Tail::of(&[(address(1, 0), 10), (address(2, 0), 20), (address(3, 0), 30)]);
    assert!(tail.parse().is_ok());
    let changed = |change: fn(&mut Tail)| {
        let mut tail = tail.clone();
        change(&mut tail);
        tail.malformed()
    };
    assert_eq!(
        changed(|tail| tail.tuples.swap(0, 1)),
        "the index is not sorted: entry 1 is less than the one before"
    );
    assert_eq!(
        changed(|tail| tail.tuples[1].1 = 0),
        "expected each of 3 records once in the index, found record 0"
    );
    assert_eq!(
        changed(|tail| tail.tuples[1].1 = 3),
        "expected each of 3 records once in the index, found record 3"
    );
    let bytes = tail.bytes();
    let parse = |count, file_bytes| {
        TableIndex::parse_classic(bytes.clone(), count, file_bytes).unwrap_err().to_string()
    };
    assert_eq!(parse(3, 163), "records of 60 bytes in all, expected 59 before the index");
    assert_eq!(
        parse(4, 164),
        "expected the last 132 bytes of a table file with 4 chunks, got 104 of a file of 164"
    );
    assert_eq!(
        parse(3, 103),
        "expected the last 104 bytes of a table file with 3 chunks, got 104 of a file of 103"
    );
    let other_count = [&bytes[..84], &[0, 0, 0, 2], &bytes[88..]].concat();
    assert_eq!(
        TableIndex::parse_classic(other_count.into(), 3, 164).unwrap_err().to_string(),
        "expected a table file with 3 chunks, its footer says 2"
    );
    let other_magic = [&bytes[..103], b"x"].concat();
    assert_eq!(
        TableIndex::parse_classic(other_magic.into(), 3, 164).unwrap_err().to_string(),
        "expected a table file, which ends with ffb5d8c22463ee50"
    );
}
