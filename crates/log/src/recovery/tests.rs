//! Segments that no correct program writes, although every checksum in them holds.

use busload_io::{
    Disk,
    sim::{SimDisk, SimRng},
};

use super::{OpenError, open};
use crate::{
    Lsn, Options,
    format::{FrameHeader, FrameSeed, LogId, SegmentHeader, segment_name},
};

const LOG_ID: LogId = LogId(7);

/// Opens a log whose first segment has these frames, each with its body. A frame's `previous` is
/// the error to add to its predecessor's checksum.
fn open_frames(frames: &[(FrameHeader, &[u8])], header: SegmentHeader) -> Result<u64, OpenError> {
    let (mut contents, mut chain) = header.encode();
    for (number, (frame, body)) in (0..).zip(frames) {
        let seed = FrameSeed { log_id: LOG_ID, segment: 1, frame: number };
        let frame = FrameHeader {
            previous: chain ^ frame.previous,
            body_bytes: body.len() as u64,
            body_checksum: seed.body_checksum(std::iter::once(*body)),
            ..*frame
        };
        let (bytes, checksum) = frame.encode(seed);
        contents.extend_from_slice(&bytes);
        contents.extend_from_slice(body);
        chain = checksum;
    }
    let disk = SimDisk::new();
    disk.put_file(&segment_name(1), &contents);
    let opened = open(disk.clone(), Options::default(), &mut SimRng::new(1), &mut |_| Ok(()))?;
    assert!(disk.open(&segment_name(2)).is_ok() || opened.report.records == 0);
    Ok(opened.report.records)
}

fn segment() -> SegmentHeader {
    SegmentHeader {
        log_id: LOG_ID,
        number: 1,
        first_lsn: Lsn(1),
        durable: Lsn(0),
        wall_ms: 0,
        previous: 0,
        is_reused: false,
    }
}

fn frame(first_lsn: u64, record_count: u32, durable: u64) -> FrameHeader {
    FrameHeader {
        body_checksum: 0,
        previous: 0,
        body_bytes: 0,
        record_count,
        kind: 0,
        first_lsn: Lsn(first_lsn),
        wall_ms: 0,
        durable: Lsn(durable),
    }
}

const TWO: &[u8] = b"\x01a\x01b\0\0\0\0";

fn refused(frames: &[(FrameHeader, &[u8])], header: SegmentHeader) -> String {
    open_frames(frames, header).unwrap_err().to_string()
}

#[test]
fn a_sound_one_opens() {
    assert_eq!(open_frames(&[(frame(1, 2, 0), TWO), (frame(3, 2, 2), TWO)], segment()).unwrap(), 4);
}

#[test]
fn counts_that_do_not_add_up_are_corruption() {
    for count in [0, 1, 3, u32::MAX] {
        let message = refused(&[(frame(1, count, 0), TWO)], segment());
        assert!(message.contains("offset 4096, LSN 1") && message.contains("records"), "{message}");
    }
    let message = refused(&[(frame(1, 1, 0), b"\xff\xff\xff\xff\xff\xff\xff\xff")], segment());
    assert!(message.contains("do not add up"), "{message}");
}

#[test]
fn a_durable_lsn_of_the_future_is_corruption() {
    let message = refused(&[(frame(1, 2, 1), TWO)], segment());
    assert!(message.contains("not written yet"), "{message}");
    let message = refused(&[], SegmentHeader { durable: Lsn(u64::MAX), ..segment() });
    assert!(message.contains("not written yet"), "{message}");
    let lying_mark = FrameHeader { kind: 1, ..frame(3, 0, 9) };
    let message = refused(&[(frame(1, 2, 0), TWO), (lying_mark, b"")], segment());
    assert!(message.contains("not written yet") && message.contains("LSN 3"), "{message}");
}

#[test]
fn kinds_nobody_knows_are_not_skipped() {
    let message = refused(&[(FrameHeader { kind: 2, ..frame(1, 2, 0) }, TWO)], segment());
    assert!(message.contains("kind"), "{message}");
    let message = refused(&[(FrameHeader { kind: 1, ..frame(1, 2, 0) }, TWO)], segment());
    assert!(message.contains("clean end has records"), "{message}");
}

#[test]
fn a_frame_out_of_order_ends_the_walk_and_proves_corruption_if_it_names_what_is_missing() {
    assert_eq!(open_frames(&[(frame(1, 2, 0), TWO), (frame(9, 2, 2), TWO)], segment()).unwrap(), 2);
    let message = refused(&[(frame(1, 2, 0), TWO), (frame(9, 2, 3), TWO)], segment());
    assert!(message.contains("LSN 3") && message.contains("up to LSN 3 was durable"), "{message}");
}

#[test]
fn a_mark_of_a_clean_end_with_frames_behind_it_is_only_a_frame() {
    let mark = FrameHeader { kind: 1, ..frame(3, 0, 2) };
    assert_eq!(
        open_frames(&[(frame(1, 2, 0), TWO), (mark, b""), (frame(3, 2, 2), TWO)], segment())
            .unwrap(),
        4
    );
}

#[test]
fn a_log_that_does_not_begin_at_its_beginning_is_refused() {
    for header in [
        SegmentHeader { first_lsn: Lsn(2), ..segment() },
        SegmentHeader { first_lsn: Lsn(u64::MAX), durable: Lsn(u64::MAX - 1), ..segment() },
        SegmentHeader { previous: 1, ..segment() },
    ] {
        let message = refused(&[], header);
        assert!(message.contains("not the beginning"), "{message}");
    }
}

/// Such a frame could be left from an earlier life of the same file: right offset, right LSN,
/// another predecessor.
#[test]
fn a_frame_with_another_predecessor_is_not_taken() {
    let stale = FrameHeader { previous: 1, ..frame(3, 2, 2) };
    assert_eq!(open_frames(&[(frame(1, 2, 0), TWO), (stale, TWO)], segment()).unwrap(), 2);
}
