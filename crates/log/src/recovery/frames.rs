//! Reads a segment frame by frame, in large pieces.

use busload_io::{Disk, DiskError};

use crate::{
    format::{
        FRAME_ALIGNMENT_BYTES, FRAME_HEADER_BYTES, FRAME_MAGIC, FrameHeader, FrameSeed, LogId,
        SEGMENT_HEADER_BYTES,
    },
    limits::READ_BYTES,
    recovery::Segment,
};

/// Cursor over a segment, with a window of the bytes around it.
pub(crate) struct SegmentFrames<'a, D: Disk> {
    disk: &'a D,
    segment: &'a Segment<D::File>,
    log_id: Option<LogId>,
    /// True if bytes that are no frames of this segment mean nothing: they are of the segment that
    /// the file was before.
    has_stale_bytes: bool,
    /// Offset that the next peek reads.
    offset: u64,
    window: Vec<u8>,
    /// Offset of the window in the file, and how much of the window is filled.
    window_offset: u64,
    window_bytes: usize,
}

/// Result of a peek at the cursor.
#[derive(Debug)]
pub(crate) enum Peeked<'a> {
    /// A frame that verifies.
    Frame { header: FrameHeader, seed: FrameSeed, checksum: u32, body: &'a [u8] },
    /// No frame that verifies.
    Nothing,
}

/// Frame header that verifies, found by a search. The body was not read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundHeader {
    pub offset: u64,
    pub header: FrameHeader,
}

const ALIGNMENT: usize = FRAME_ALIGNMENT_BYTES as usize;

impl<'a, D: Disk> SegmentFrames<'a, D> {
    /// Begins after the segment's header. Without a log id, frames of any log are accepted.
    pub fn new(
        disk: &'a D,
        segment: &'a Segment<D::File>,
        log_id: Option<LogId>,
        window: Vec<u8>,
    ) -> Self {
        // A segment that was prepared and not begun does not say whether it was another before.
        let has_stale_bytes = segment.header.is_none_or(|(header, _)| header.is_reused);
        Self {
            disk,
            segment,
            log_id,
            has_stale_bytes,
            offset: SEGMENT_HEADER_BYTES as u64,
            window,
            window_offset: 0,
            window_bytes: 0,
        }
    }

    /// Returns the window for reuse with the next segment.
    pub fn into_window(self) -> Vec<u8> {
        self.window
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn seek(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// Reads the frame at the cursor without moving the cursor.
    pub fn peek(&mut self) -> Result<Peeked<'_>, DiskError> {
        if self.fill(FRAME_HEADER_BYTES)? < FRAME_HEADER_BYTES {
            return Ok(Peeked::Nothing);
        }
        let (log_id, number) = (self.log_id, self.segment.number);
        let Some((header, seed, checksum)) =
            FrameHeader::decode(self.at(FRAME_HEADER_BYTES), log_id, number)
        else {
            return Ok(Peeked::Nothing);
        };
        // The length is limited by the file, so a corrupt one cannot lead to a large allocation.
        let rest = self.segment.bytes - self.offset - FRAME_HEADER_BYTES as u64;
        if rest < header.body_bytes {
            return Ok(Peeked::Nothing);
        }
        let bytes = FRAME_HEADER_BYTES
            + usize::try_from(header.body_bytes).expect("at most a file in memory");
        if self.fill(bytes)? < bytes {
            return Ok(Peeked::Nothing);
        }
        let body = &self.at(bytes)[FRAME_HEADER_BYTES..];
        if seed.body_checksum(std::iter::once(body)) != header.body_checksum {
            return Ok(Peeked::Nothing);
        }
        Ok(Peeked::Frame { header, seed, checksum, body })
    }

    /// Moves the cursor past a frame that [`SegmentFrames::peek`] returned.
    pub fn pass(&mut self, header: &FrameHeader) {
        self.offset += FRAME_HEADER_BYTES as u64 + header.body_bytes;
    }

    /// Searches for the next frame header whose checksum holds, whatever its body, and moves the
    /// cursor there (to the end when there is none). Also raises `last_used` to the end of the last
    /// non-zero byte that it passes, unless such bytes mean nothing here.
    pub fn search(&mut self, last_used: &mut u64) -> Result<Option<FoundHeader>, DiskError> {
        loop {
            let available = self.fill(FRAME_HEADER_BYTES)?;
            if available == 0 {
                return Ok(None);
            }
            let window = self.at(available);
            let passed = position_of_magic(window).unwrap_or(available);
            if !self.has_stale_bytes
                && let Some(used) = window[..passed].iter().rposition(|&byte| byte != 0)
            {
                *last_used = self.offset + used as u64 + 1;
            }
            self.offset += passed as u64;
            if passed == available {
                continue;
            }
            let available = self.fill(FRAME_HEADER_BYTES)?.min(FRAME_HEADER_BYTES);
            if let Some((header, ..)) =
                FrameHeader::decode(self.at(available), self.log_id, self.segment.number)
            {
                return Ok(Some(FoundHeader { offset: self.offset, header }));
            }
            self.skip();
            if !self.has_stale_bytes {
                *last_used = self.offset;
            }
        }
    }

    /// Moves the cursor past what [`SegmentFrames::search`] found: past the frame if it is whole,
    /// otherwise past a part of it.
    pub fn pass_found(&mut self, last_used: &mut u64) -> Result<(), DiskError> {
        if let Peeked::Frame { header, .. } = self.peek()? {
            self.pass(&header);
            *last_used = self.offset;
        } else {
            self.skip();
            *last_used = self.offset;
        }
        Ok(())
    }

    fn skip(&mut self) {
        self.offset = (self.offset + FRAME_ALIGNMENT_BYTES).min(self.segment.bytes);
    }

    /// Makes at least `bytes` from the cursor on available, as far as the file has them, and
    /// returns how many are.
    fn fill(&mut self, bytes: usize) -> Result<usize, DiskError> {
        let window_end = self.window_offset + self.window_bytes as u64;
        let inside = self.window_offset <= self.offset && self.offset <= window_end;
        let have = if inside { usize_of(window_end - self.offset) } else { 0 };
        let rest = usize_of(self.segment.bytes.saturating_sub(self.offset));
        if bytes.min(rest) <= have {
            return Ok(have.min(rest));
        }
        self.window.copy_within(self.window_bytes - have..self.window_bytes, 0);
        let wanted = READ_BYTES.max(bytes).min(rest);
        if self.window.len() < wanted {
            self.window.resize(wanted, 0);
        }
        let into = &mut self.window[have..wanted];
        let read = self.disk.read_at(&self.segment.file, self.offset + have as u64, into)?;
        self.window_offset = self.offset;
        self.window_bytes = have + read;
        Ok(self.window_bytes)
    }

    fn at(&self, bytes: usize) -> &[u8] {
        let start =
            usize::try_from(self.offset - self.window_offset).expect("the place is in the window");
        &self.window[start..start + bytes]
    }
}

fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a file's length fits into a pointer")
}

fn position_of_magic(bytes: &[u8]) -> Option<usize> {
    let magic = FRAME_MAGIC.to_le_bytes();
    let at = bytes.chunks(ALIGNMENT).position(|chunk| chunk.starts_with(&magic))?;
    Some(at * ALIGNMENT)
}
