//! Reads of blocks: the hot path of the cache.

use std::{cell::RefCell, io, ops::Range, sync::atomic::Ordering::Acquire};

use bytes::Bytes;

use super::{
    BLOCK_BYTES, BLOCK_DATA_BYTES, EXTENT_BLOCKS,
    cache_file::CacheFile,
    file_system::{OpenFile, read_full},
};
use crate::disk::limits::{READ_BLOCKS_MAX, SCRATCH_BLOCKS};

/// Choice between reads that may wait for the device and reads that may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadMode {
    /// Reads the page cache only.
    Now,
    /// Waits for the device.
    Wait,
}

/// Outcome of a read.
#[derive(Debug)]
pub(crate) enum ReadOutcome {
    /// All blocks were right.
    Read(Bytes),
    /// The read would have to wait for the device.
    WouldWait,
    /// An extent was evicted meanwhile.
    Evicted,
    /// The checksum of a block was wrong.
    Wrong {
        /// Number of the block in the file.
        block: u64,
        /// True if the block was a hole: never written, or evicted before a crash.
        is_hole: bool,
    },
    /// The system call failed.
    Failed(io::Error),
}

thread_local! {
    /// Buffer in which blocks are read and checked, so that a small read makes one allocation, of
    /// the size asked for.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads and checks a range of the object.
pub(crate) fn read(
    cache_file: &CacheFile,
    file: &dyn OpenFile,
    range: &Range<u64>,
    how: ReadMode,
) -> ReadOutcome {
    let Ok(length) = usize::try_from(range.end - range.start) else {
        return ReadOutcome::Failed(io::ErrorKind::InvalidInput.into());
    };
    let mut out = Vec::with_capacity(length);
    // A wrong block is corrupt only if nothing was evicted since.
    let evictions = cache_file.evictions.load(Acquire);
    match fill(cache_file, file, range, how, &mut out) {
        Ok(()) => ReadOutcome::Read(Bytes::from(out)),
        Err(ReadOutcome::Wrong { .. }) if cache_file.evictions.load(Acquire) != evictions => {
            ReadOutcome::Evicted
        }
        Err(outcome) => outcome,
    }
}

fn fill(
    cache_file: &CacheFile,
    file: &dyn OpenFile,
    range: &Range<u64>,
    how: ReadMode,
    out: &mut Vec<u8>,
) -> Result<(), ReadOutcome> {
    let blocks = blocks(range);
    if blocks.end - blocks.start <= SCRATCH_BLOCKS as u64 {
        return SCRATCH.with_borrow_mut(|scratch| {
            // Zeroed once in the life of a thread; reads overwrite it.
            scratch.resize(SCRATCH_BLOCKS * BLOCK_BYTES, 0);
            step(cache_file, file, range, &blocks, how, scratch, out)
        });
    }
    let step_blocks = READ_BLOCKS_MAX as u64;
    let mut buffer =
        vec![0; byte_count(blocks.end - blocks.start).min(READ_BLOCKS_MAX * BLOCK_BYTES)];
    let mut first = blocks.start;
    while first < blocks.end {
        let end = blocks.end.min(first + step_blocks);
        step(cache_file, file, range, &(first..end), how, &mut buffer, out)?;
        first = end;
    }
    Ok(())
}

/// Makes one read call and appends the bytes of the range that are in its blocks.
fn step(
    cache_file: &CacheFile,
    file: &dyn OpenFile,
    range: &Range<u64>,
    blocks: &Range<u64>,
    how: ReadMode,
    buffer: &mut [u8],
    out: &mut Vec<u8>,
) -> Result<(), ReadOutcome> {
    let buffer = &mut buffer[..byte_count(blocks.end - blocks.start)];
    let count = read_blocks(file, buffer, blocks.start * BLOCK_BYTES as u64, how)?;
    for (number, block) in blocks.clone().zip(buffer.chunks(BLOCK_BYTES)) {
        let is_whole = (number - blocks.start + 1) * BLOCK_BYTES as u64 <= count as u64;
        let data = cache_file
            .seal
            .open(number, block)
            .filter(|_| is_whole)
            .ok_or_else(|| wrong(number, block))?;
        let start = number * BLOCK_DATA_BYTES as u64;
        let from = range.start.saturating_sub(start).min(BLOCK_DATA_BYTES as u64);
        let to = (range.end - start).min(BLOCK_DATA_BYTES as u64);
        out.extend_from_slice(&data[offset(from)..offset(to)]);
    }
    Ok(())
}

fn read_blocks(
    file: &dyn OpenFile,
    buffer: &mut [u8],
    at: u64,
    how: ReadMode,
) -> Result<usize, ReadOutcome> {
    match how {
        ReadMode::Wait => read_full(file, buffer, at).map_err(ReadOutcome::Failed),
        // Less than asked for: the rest is not in the page cache.
        ReadMode::Now => match file.read_now(buffer, at) {
            Ok(count) if count == buffer.len() => Ok(count),
            Ok(_) => Err(ReadOutcome::WouldWait),
            Err(_) => Err(ReadOutcome::WouldWait),
        },
    }
}

fn wrong(block: u64, bytes: &[u8]) -> ReadOutcome {
    ReadOutcome::Wrong { block, is_hole: bytes.iter().all(|&byte| byte == 0) }
}

/// Checks every block of an extent. Returns the number of wrong blocks that are not holes, and the
/// number of holes.
pub(crate) fn check_extent(
    cache_file: &CacheFile,
    file: &dyn OpenFile,
    extent: u32,
) -> io::Result<(u64, u64)> {
    let first = u64::from(extent) * EXTENT_BLOCKS as u64;
    let bytes = usize::try_from(cache_file.key.extent_disk_bytes(extent)).expect("at most 1 MiB");
    let mut buffer = vec![0; bytes];
    read_full(file, &mut buffer, first * BLOCK_BYTES as u64)?;
    let (mut corrupt, mut holes) = (0, 0);
    for (number, block) in (first..).zip(buffer.chunks(BLOCK_BYTES)) {
        match cache_file
            .seal
            .open(number, block)
            .map_or_else(|| Some(wrong(number, block)), |_| None)
        {
            Some(ReadOutcome::Wrong { is_hole: true, .. }) => holes += 1,
            Some(_) => corrupt += 1,
            None => {}
        }
    }
    Ok((corrupt, holes))
}

/// Blocks that a range of the object touches.
fn blocks(range: &Range<u64>) -> Range<u64> {
    let first = range.start / BLOCK_DATA_BYTES as u64;
    first..range.end.div_ceil(BLOCK_DATA_BYTES as u64).max(first)
}

fn byte_count(blocks: u64) -> usize {
    usize::try_from(blocks).map_or(usize::MAX, |blocks| blocks.saturating_mul(BLOCK_BYTES))
}

fn offset(bytes: u64) -> usize {
    usize::try_from(bytes).expect("less than a block")
}
