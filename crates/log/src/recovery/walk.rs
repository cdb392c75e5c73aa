//! Follows the frames from the first segment on, and judges their end.

use std::collections::VecDeque;

use busload_io::{Disk, DiskError};

use super::{Base, OpenError, Peeked, RecordRef, Replay, Segment, SegmentFrames, TornTail};
use crate::{
    Lsn,
    batch::FIRST_LSN,
    format::{
        FRAME_KIND_CLEAN_SHUTDOWN, FRAME_KIND_RECORDS, FrameHeader, FrameSeed, LogId, Records,
        SEGMENT_HEADER_BYTES, SegmentHeader,
    },
};

/// Result of the walk.
#[derive(Clone, Debug)]
pub(crate) struct Walked {
    /// Id of the log; `None` when no segment was ever in use.
    pub log_id: Option<LogId>,
    /// Number of the first kept segment, or of the one to begin with if none is kept.
    pub first_number: u64,
    /// LSN of the next record to be written.
    pub next_lsn: Lsn,
    /// Checksum that the next frame or segment header names as its predecessor.
    pub chain: u32,
    /// The value of `chain` before the last kept segment.
    pub chain_before_last: u32,
    /// Number of segments, from the first on, that are kept; the others are unused or behind the
    /// cut.
    pub kept_count: usize,
    /// Offset where the frames of the last kept segment end.
    pub end: u64,
    pub last_segment_records: u64,
    pub records: u64,
    pub frames: u64,
    /// Bytes in use of all kept segments.
    pub bytes: u64,
    pub wall_ms: Option<i64>,
    pub clean_shutdown: bool,
    pub torn_tail: Option<TornTail>,
    /// Frames that nothing says were synced.
    pub unsynced: Unsynced,
}

/// Frames at the end of the log that no later frame calls durable. They were read, but perhaps from
/// memory only: after a failed sync the system calls their pages clean.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsynced {
    durable: Lsn,
    frames: VecDeque<FramePosition>,
}

/// Position of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramePosition {
    /// Index of the segment among all that were found.
    pub index: usize,
    /// Offset of the frame; that of the segment's header if it is the segment's first.
    pub offset: u64,
    last_lsn: Lsn,
}

impl Unsynced {
    fn note(&mut self, header: &FrameHeader, index: usize, offset: u64) {
        // The mark of a clean shutdown names everything durable but itself. The next segment names
        // its checksum, so it stays until a later record is durable.
        let last_lsn = match header.record_count {
            0 => header.next_lsn(),
            _ => Lsn(header.next_lsn().0 - 1),
        };
        self.frames.push_back(FramePosition { index, offset, last_lsn });
        self.see(header.durable);
    }

    fn see(&mut self, durable: Lsn) {
        self.durable = self.durable.max(durable);
        while self.frames.pop_front_if(|frame| frame.last_lsn <= self.durable).is_some() {}
    }

    /// Returns the first of the frames, as far as they are not known to be durable from elsewhere.
    pub fn first(&self, durable: Lsn) -> Option<FramePosition> {
        self.frames.iter().find(|frame| durable < frame.last_lsn).copied()
    }
}

/// Gives every record that survived to `replay`, except those that `base` covers. Only reads.
pub(crate) fn walk<D: Disk>(
    disk: &D,
    segments: &[Segment<D::File>],
    base: Option<&Base>,
    replay: &mut Replay<'_>,
) -> Result<Walked, OpenError> {
    let mut walk = Walk::new(disk, segments, base, None);
    walk.run(replay)?;
    walk.judge()?;
    Ok(walk.found)
}

/// Gives every record that `base` does not cover up to `until`, all of which are durable, to
/// `replay`, while the log is being written. Only reads.
pub(crate) fn walk_durable<D: Disk>(
    disk: &D,
    segments: &[Segment<D::File>],
    base: Option<&Base>,
    until: Lsn,
    replay: &mut Replay<'_>,
) -> Result<Walked, OpenError> {
    let mut walk = Walk::new(disk, segments, base, Some(until));
    walk.run(replay)?;
    if walk.found.next_lsn <= until {
        return Err(walk.corrupt(
            walk.found.end,
            &format!("no frame verifies here, and yet everything up to LSN {until} is durable"),
        ));
    }
    Ok(walk.found)
}

impl Walked {
    /// Returns the number of the last kept segment; that before the first if none is kept.
    pub fn last_number(&self) -> u64 {
        self.first_number - 1 + self.kept_count as u64
    }

    /// Returns the state at the beginning of a walk over these segments. With a base the first
    /// segment says itself where it goes on.
    fn at_start<F>(segments: &[Segment<F>], base: Option<&Base>) -> Self {
        let first = segments.first();
        let Some(base) = base else { return Self::default() };
        let header = first.and_then(|first| first.header).map(|(header, _)| header);
        Self {
            log_id: Some(base.log_id),
            first_number: first.map_or(base.segment + 1, |first| first.number),
            next_lsn: header.map_or(Lsn(base.lsn.0 + 1), |header| header.first_lsn),
            chain: header.map_or(0, |header| header.previous),
            wall_ms: Some(base.wall_ms),
            ..Self::default()
        }
    }
}

impl Default for Walked {
    fn default() -> Self {
        Self {
            log_id: None,
            first_number: 1,
            next_lsn: FIRST_LSN,
            chain: 0,
            chain_before_last: 0,
            kept_count: 0,
            end: 0,
            last_segment_records: 0,
            records: 0,
            frames: 0,
            bytes: 0,
            wall_ms: None,
            clean_shutdown: false,
            torn_tail: None,
            unsynced: Unsynced::default(),
        }
    }
}

struct Walk<'a, D: Disk> {
    disk: &'a D,
    segments: &'a [Segment<D::File>],
    /// Index of the segment that the walk is in.
    index: usize,
    /// Number that the next frame in the segment must have.
    frame_number: u64,
    /// Last record that is covered and not replayed.
    covered: Lsn,
    /// Last record to replay, if not all are.
    until: Lsn,
    window: Vec<u8>,
    found: Walked,
}

impl<'a, D: Disk> Walk<'a, D> {
    fn new(
        disk: &'a D,
        segments: &'a [Segment<D::File>],
        base: Option<&Base>,
        until: Option<Lsn>,
    ) -> Self {
        Self {
            disk,
            segments,
            index: 0,
            frame_number: 0,
            covered: base.map_or(Lsn(0), |base| base.lsn),
            until: until.unwrap_or(Lsn(u64::MAX)),
            window: Vec::new(),
            found: Walked::at_start(segments, base),
        }
    }

    fn run(&mut self, replay: &mut Replay<'_>) -> Result<(), OpenError> {
        while let Some(header) = self.next_header()
            && self.found.next_lsn <= self.until
        {
            if !self.continues(&header) {
                if self.found.kept_count == 0 {
                    return Err(
                        self.corrupt(0, "this is not the beginning of a log, going by its header")
                    );
                }
                break;
            }
            self.index = self.found.kept_count;
            self.enter(header)?;
            self.follow(replay)?;
            self.found.bytes += self.found.end;
        }
        Ok(())
    }

    /// Returns the header of the segment after those kept so far.
    fn next_header(&self) -> Option<SegmentHeader> {
        Some(self.segments.get(self.found.kept_count)?.header?.0)
    }

    /// Returns whether that segment was begun exactly at the walk's current end.
    fn continues(&self, next: &SegmentHeader) -> bool {
        next.first_lsn == self.found.next_lsn && next.previous == self.found.chain
    }

    fn enter(&mut self, header: SegmentHeader) -> Result<(), OpenError> {
        if header.first_lsn <= header.durable {
            return Err(
                self.corrupt(0, "its header names records durable that were not written yet")
            );
        }
        let checksum = self.segments[self.index].header.map_or(0, |(_, checksum)| checksum);
        let found = &mut self.found;
        found.log_id = Some(header.log_id);
        found.chain_before_last = std::mem::replace(&mut found.chain, checksum);
        found.last_segment_records = 0;
        found.clean_shutdown = false;
        found.unsynced.see(header.durable);
        found.kept_count += 1;
        self.frame_number = 0;
        Ok(())
    }

    fn frames(&mut self, index: usize) -> SegmentFrames<'_, D> {
        let mut headers = self.segments.iter().filter_map(|segment| segment.header);
        let log_id = self.found.log_id.or_else(|| headers.next().map(|(header, _)| header.log_id));
        SegmentFrames::new(
            self.disk,
            &self.segments[index],
            log_id,
            std::mem::take(&mut self.window),
        )
    }

    /// Takes frame after frame until one is missing or the next segment continues.
    fn follow(&mut self, replay: &mut Replay<'_>) -> Result<(), OpenError> {
        let (disk, segments) = (self.disk, self.segments);
        let log_id = self.found.log_id;
        let window = std::mem::take(&mut self.window);
        let mut frames = SegmentFrames::new(disk, &segments[self.index], log_id, window);
        let next = self.next_header();
        loop {
            self.found.end = frames.offset();
            let is_over = self.until < self.found.next_lsn;
            if is_over || next.is_some_and(|next| self.continues(&next)) {
                break;
            }
            let Peeked::Frame { header, seed, checksum, body } = frames.peek()? else { break };
            if !self.is_successor(&header, &seed) {
                break;
            }
            self.check(&header)?;
            self.replay(&header, body, replay)?;
            self.note(&header, checksum);
            let offset = if self.frame_number == 1 { 0 } else { self.found.end };
            self.found.unsynced.note(&header, self.index, offset);
            frames.pass(&header);
        }
        self.window = frames.into_window();
        Ok(())
    }

    fn is_successor(&self, header: &FrameHeader, seed: &FrameSeed) -> bool {
        seed.frame == self.frame_number
            && header.previous == self.found.chain
            && header.first_lsn == self.found.next_lsn
    }

    /// Refuses a frame that is in its place but that no correct program could have written.
    fn check(&self, header: &FrameHeader) -> Result<(), OpenError> {
        let what = match header.kind {
            FRAME_KIND_RECORDS | FRAME_KIND_CLEAN_SHUTDOWN
                if header.first_lsn <= header.durable =>
            {
                "the frame names records durable that were not written yet"
            }
            FRAME_KIND_CLEAN_SHUTDOWN if header.record_count != 0 => {
                "the frame of a clean end has records"
            }
            FRAME_KIND_RECORDS | FRAME_KIND_CLEAN_SHUTDOWN => {
                match header.first_lsn.0.checked_add(u64::from(header.record_count)) {
                    Some(_) => return Ok(()),
                    None => "its records are beyond the last position",
                }
            }
            _ => "the frame is of a kind this program does not know",
        };
        Err(self.corrupt(self.found.end, what))
    }

    fn replay(
        &self,
        header: &FrameHeader,
        body: &[u8],
        replay: &mut Replay<'_>,
    ) -> Result<(), OpenError> {
        let mut count = 0;
        for bytes in Records::new(body) {
            let (Ok(bytes), true) = (bytes, count < header.record_count) else {
                return Err(self
                    .corrupt(self.found.end, "the frame verifies, but its records do not add up"));
            };
            let lsn = Lsn(header.first_lsn.0 + u64::from(count));
            count += 1;
            if lsn <= self.covered || self.until < lsn {
                continue;
            }
            replay(RecordRef { lsn, wall_ms: header.wall_ms, bytes }).map_err(|source| {
                OpenError::Replay {
                    path: self.path(self.index),
                    offset: self.found.end,
                    lsn,
                    source,
                }
            })?;
        }
        if count != header.record_count {
            return Err(
                self.corrupt(self.found.end, "the frame verifies, but records are missing in it")
            );
        }
        Ok(())
    }

    fn note(&mut self, header: &FrameHeader, checksum: u32) {
        let found = &mut self.found;
        found.next_lsn = header.next_lsn();
        found.chain = checksum;
        found.clean_shutdown = header.kind == FRAME_KIND_CLEAN_SHUTDOWN;
        found.frames += 1;
        let first = header.first_lsn.max(Lsn(self.covered.0 + 1));
        found.records += found.next_lsn.0.saturating_sub(first.0);
        found.last_segment_records += u64::from(header.record_count);
        if header.kind == FRAME_KIND_RECORDS {
            found.wall_ms = found.wall_ms.max(Some(header.wall_ms));
        }
        self.frame_number += 1;
    }

    fn path(&self, index: usize) -> std::path::PathBuf {
        self.disk.path(&self.segments[index].name)
    }

    fn corrupt(&self, offset: u64, what: &str) -> OpenError {
        let (path, lsn) = (self.path(self.index), self.found.next_lsn);
        OpenError::Corrupt { path, offset, lsn, what: what.to_owned() }
    }

    /// Decides, at the end of the walk, whether what is missing had been durable.
    fn judge(&mut self) -> Result<(), OpenError> {
        let mut evidence = Evidence::default();
        let mut removed_count = 0;
        let kept_count = self.found.kept_count;
        let mut last_used = self.found.end;
        if 0 < kept_count {
            self.search(kept_count - 1, self.found.end, &mut evidence, &mut last_used)?;
        }
        for index in kept_count..self.segments.len() {
            if let Some((header, _)) = self.segments[index].header {
                evidence.see(header.durable, index, 0);
                removed_count += 1;
            }
            let count_before = evidence.count;
            self.search(index, SEGMENT_HEADER_BYTES as u64, &mut evidence, &mut 0)?;
            if self.segments[index].header.is_none() && count_before < evidence.count {
                removed_count += 1;
            }
        }
        self.judge_by(&evidence, last_used, removed_count)
    }

    fn judge_by(
        &mut self,
        evidence: &Evidence,
        last_used: u64,
        removed_count: u64,
    ) -> Result<(), OpenError> {
        let (end, lsn) = (self.found.end, self.found.next_lsn);
        if lsn <= evidence.durable {
            let what = format!(
                "no frame verifies here that goes on, and yet {} at offset {} says that everything \
                 up to LSN {} was durable; \
                 frames found behind this place: {}",
                self.segments.get(evidence.index).map_or("", |segment| &segment.name),
                evidence.offset,
                evidence.durable,
                evidence.count
            );
            return Err(self.corrupt(end, &what));
        }
        if end < last_used || 0 < removed_count {
            let path = self.path(self.index);
            let bytes = last_used - end;
            self.found.torn_tail =
                Some(TornTail { path, offset: end, lsn, bytes, segments_removed: removed_count });
        }
        Ok(())
    }

    fn search(
        &mut self,
        index: usize,
        from: u64,
        evidence: &mut Evidence,
        last_used: &mut u64,
    ) -> Result<(), DiskError> {
        let mut frames = self.frames(index);
        frames.seek(from);
        while let Some(found) = frames.search(last_used)? {
            evidence.see(found.header.durable, index, found.offset);
            evidence.count += 1;
            frames.pass_found(last_used)?;
        }
        self.window = frames.into_window();
        Ok(())
    }
}

/// Highest durable LSN that anything after the end names, and where it is named.
#[derive(Debug, Default)]
struct Evidence {
    durable: Lsn,
    index: usize,
    offset: u64,
    count: u64,
}

impl Evidence {
    fn see(&mut self, durable: Lsn, index: usize, offset: u64) {
        if self.durable < durable {
            (self.durable, self.index, self.offset) = (durable, index, offset);
        }
    }
}
