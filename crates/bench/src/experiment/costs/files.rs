//! Writes, syncs and reads of a file.

use std::{
    fs::File,
    os::unix::fs::{FileExt, OpenOptionsExt},
};

use anyhow::{Context, Result};
use rustix::fs::OFlags;

use super::{Operation, Place, ns_per_operation};
use crate::{limits::COSTS_FILE_BYTES, random::Random};

pub const RECORD_BYTES: u64 = 64;
pub const CHUNK_BYTES: u64 = 4_096;

/// State of a log's file, and whether it is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    Unsynced,
    /// Synced, on a file that was filled with zeros before.
    Ahead,
    /// Synced, on a file that every write makes longer.
    Growing,
}

/// An operation writes records one after the other, and syncs them if asked to. The file
/// begins again when it has reached its size.
pub fn log(place: &Place<'_>, log: Log) -> Result<Operation> {
    let file = make(place, if log == Log::Growing { 0 } else { COSTS_FILE_BYTES })?;
    let (mut buffer, mut at) = (Vec::new(), 0);
    Ok(Box::new(move |batch, time_ns| {
        // What a batch before has left is not this one's.
        file.sync_all().context("a sync")?;
        let bytes = RECORD_BYTES * u64::try_from(batch)?;
        buffer.resize(usize::try_from(bytes)?, 1);
        ns_per_operation(time_ns, || {
            if COSTS_FILE_BYTES < at + bytes {
                at = 0;
                if log == Log::Growing {
                    file.set_len(0).context("a shorter file")?;
                }
            }
            file.write_all_at(&buffer, at).context("a write")?;
            at += bytes;
            if log == Log::Unsynced { Ok(()) } else { file.sync_data().context("a sync") }
        })
    }))
}

/// Way that reads take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Read from the page cache.
    Cached,
    /// Read past the page cache.
    Direct,
}

/// An operation reads chunks that follow each other, from a random place.
pub fn reads(place: &Place<'_>, reads: Reads) -> Result<Operation> {
    make(place, COSTS_FILE_BYTES)?;
    let flags = match reads {
        Reads::Cached => OFlags::empty(),
        Reads::Direct => OFlags::DIRECT,
    };
    let flags = i32::try_from(flags.bits()).context("flags of a file")?;
    let file = File::options().read(true).custom_flags(flags).open(place.directory.join("file"));
    let file = file.context("no O_DIRECT in this file system")?;
    let (mut random, mut buffer) = (Random::new(1), Vec::new());
    Ok(Box::new(move |batch, time_ns| {
        let bytes = CHUNK_BYTES * u64::try_from(batch)?;
        let (length, page) = (usize::try_from(bytes)?, usize::try_from(CHUNK_BYTES)?);
        buffer.resize(length + page, 0_u8);
        // O_DIRECT reads to whole pages.
        let from = buffer.as_ptr().align_offset(page);
        let target = &mut buffer[from..from + length];
        ns_per_operation(time_ns, || {
            let at = random.below((COSTS_FILE_BYTES - bytes) / CHUNK_BYTES + 1) * CHUNK_BYTES;
            file.read_exact_at(target, at).context("a read")
        })
    }))
}

/// Makes a file of so many zeros that are on disk.
fn make(place: &Place<'_>, bytes: u64) -> Result<File> {
    let file = File::create(place.directory.join("file")).context("a file")?;
    let zeros = vec![0; 1 << 20];
    for at in (0..bytes).step_by(zeros.len()) {
        file.write_all_at(&zeros, at).context("writing a file")?;
    }
    file.sync_all().context("a sync")?;
    Ok(file)
}
