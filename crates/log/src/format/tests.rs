use super::{varint::varint, *};
use crate::Lsn;

#[test]
fn varints_come_back_as_they_went() {
    let edges = (0..64).flat_map(|bit| [1_u64 << bit, (1 << bit) - 1]).chain([u64::MAX]);
    for value in edges {
        let mut bytes = [0xff; VARINT_BYTES_MAX];
        let count = put_varint(value, &mut bytes);
        assert_eq!(count, varint_bytes(value));
        assert_eq!(varint(&bytes[..count]), Some((value, count)));
        assert_eq!(varint(&bytes[..count - 1]), None, "{value} cut off");
    }
}

#[test]
fn a_varint_beyond_a_u64_is_refused() {
    assert_eq!(varint(&[0xff; 10]), None);
    assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), None);
    assert_eq!(
        varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        Some((u64::MAX, 10))
    );
}

#[test]
fn names_are_read_strictly() {
    assert_eq!(segment_name(7), "00000000000000000007.log");
    assert_eq!(NameKind::of(&segment_name(u64::MAX)), NameKind::Segment(u64::MAX));
    assert_eq!(NameKind::of(&temporary_name(3)), NameKind::Temporary);
    assert_eq!(NameKind::of(LAST_SEGMENT_TEMPORARY_NAME), NameKind::Temporary);
    for name in [
        "7.log",
        "copy of 00000000000000000007.log",
        "00000000000000000000.log",
        "99999999999999999999.log",
    ] {
        assert_eq!(NameKind::of(name), NameKind::Malformed, "{name}");
    }
    for name in [LOCK_NAME, LAST_SEGMENT_NAME, "notes.txt", "x.log.new"] {
        assert_eq!(NameKind::of(name), NameKind::Other, "{name}");
    }
}

#[test]
fn every_flipped_bit_of_a_segment_header_is_noticed() {
    let header = SegmentHeader {
        log_id: LogId(5),
        number: 2,
        first_lsn: Lsn(9),
        durable: Lsn(8),
        wall_ms: -1,
        previous: 77,
        is_reused: true,
    };
    let (mut block, checksum) = header.encode();
    assert_eq!(SegmentHeader::decode(&block), Ok((header, checksum)));
    for bit in 0..SEGMENT_HEADER_USED_BYTES * 8 {
        block[bit / 8] ^= 1 << (bit % 8);
        SegmentHeader::decode(&block).unwrap_err();
        block[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_file_that_names_the_last_segment_is_whole_or_nothing() {
    for clean_shutdown in [false, true] {
        let last = LastSegment { log_id: LogId(5), number: 3, durable: Lsn(821), clean_shutdown };
        let mut bytes = last.encode();
        assert_eq!(LastSegment::decode(&bytes), Ok(last));
        for bit in 0..LAST_SEGMENT_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            LastSegment::decode(&bytes).unwrap_err();
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..LAST_SEGMENT_BYTES {
            assert_eq!(LastSegment::decode(&bytes[..length]), Err(LastSegmentError::Invalid));
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(LastSegment::decode(&longer), Err(LastSegmentError::Invalid));
        assert_eq!(LastSegment::decode(&[0; LAST_SEGMENT_BYTES]), Err(LastSegmentError::Invalid));
    }
}

#[test]
fn a_header_of_zeros_is_an_unused_segment_however_short() {
    for length in [0, 1, 79, 80, 4096] {
        assert_eq!(SegmentHeader::decode(&vec![0; length]), Err(HeaderError::Unused));
    }
}

#[test]
fn a_frame_verifies_only_at_its_place() {
    let header = FrameHeader {
        body_checksum: 1,
        previous: 2,
        body_bytes: 8,
        record_count: 1,
        kind: FRAME_KIND_RECORDS,
        first_lsn: Lsn(u64::MAX),
        wall_ms: i64::MIN,
        durable: Lsn(3),
    };
    let seed = FrameSeed { log_id: LogId(1), segment: 2, frame: 3 };
    let (mut bytes, checksum) = header.encode(seed);
    assert_eq!(FrameHeader::decode(&bytes, Some(LogId(1)), 2), Some((header, seed, checksum)));
    assert_eq!(FrameHeader::decode(&bytes, Some(LogId(2)), 2), None);
    assert_eq!(FrameHeader::decode(&bytes, Some(LogId(1)), 3), None);
    assert_eq!(FrameHeader::decode(&bytes, None, 2), Some((header, seed, checksum)));
    assert_eq!(FrameHeader::decode(&bytes[..87], Some(LogId(1)), 2), None);
    for bit in 0..FRAME_HEADER_BYTES * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(FrameHeader::decode(&bytes, Some(LogId(1)), 2), None);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn records_of_a_body_end_at_its_end() {
    let good: Vec<_> = Records::new(b"\x01a\x00\x02bc\x00\x00").collect();
    assert_eq!(good, [Ok(b"a".as_slice()), Ok(b"bc")]);
    let cut: Vec<_> = Records::new(b"\x01a\x03bc").collect();
    assert_eq!(cut, [Ok(b"a".as_slice()), Err(frame::Misshapen)]);
}
