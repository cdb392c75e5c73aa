//! The manifest of a backup: a text that says which files belong to it. `docs/backup-format.md`
//! describes it.

use std::{fmt::Write as _, io::IoSlice, str::SplitWhitespace};

use busload_io::{Disk, DiskErrorKind};
use busload_log::{
    Lsn,
    copy::{ChainPoint, Written, is_temporary, number_of_name},
    format::{LOCK_NAME, LogId, segment_name},
};
use busload_snapshot::format::{TEMPORARY_NAME, lsn_of_name, snapshot_name};

use crate::{BackupError, limits::MANIFEST_BYTES_MAX};

/// Name of the manifest.
pub const MANIFEST_NAME: &str = "manifest";
/// Name of a manifest that is being written.
const MANIFEST_TEMPORARY_NAME: &str = "manifest.new";
/// First line of the manifest; its last word is the format version.
pub const FIRST_LINE: &str = "busload backup 1";
/// First line of every version, up to the version.
const FIRST_LINE_BEGINNING: &str = "busload backup ";

/// Files of a backup, and what they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Id of the log.
    pub log_id: LogId,
    /// Time of day of the backup, in milliseconds since 1970.
    pub taken_ms: i64,
    /// Last record that the backup holds.
    pub lsn: Lsn,
    /// Snapshots, the oldest first.
    pub snapshots: Vec<SnapshotEntry>,
    /// Segments in order of their numbers.
    pub segments: Vec<SegmentEntry>,
}

/// Snapshot in a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// Last record that it covers.
    pub lsn: Lsn,
    /// Length and checksum of the file.
    pub written: Written,
    /// Latest time of day of its records, in milliseconds since 1970.
    pub wall_ms: i64,
}

/// Segment in a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// Number of the segment.
    pub number: u64,
    /// Length and checksum of the part of the file that belongs to the backup. An interrupted
    /// backup may have left a longer file, which begins with this part.
    pub written: Written,
    /// Point at which the segment begins.
    pub begin: ChainPoint,
    /// Point behind its last frame in the backup.
    pub end: ChainPoint,
    /// Time of day of its first frame with records, in milliseconds since 1970.
    pub first_ms: i64,
    /// Latest time of day of its frames with records, in milliseconds since 1970.
    pub last_ms: i64,
}

impl SnapshotEntry {
    /// Returns the name of the file.
    pub fn name(&self) -> String {
        snapshot_name(self.lsn)
    }
}

impl SegmentEntry {
    /// Returns the name of the file.
    pub fn name(&self) -> String {
        segment_name(self.number)
    }
}

impl Manifest {
    /// Returns the names of all files, with length and checksum.
    pub fn files(&self) -> impl Iterator<Item = (String, Written)> {
        let snapshots = self.snapshots.iter().map(|snapshot| (snapshot.name(), snapshot.written));
        snapshots.chain(self.segments.iter().map(|segment| (segment.name(), segment.written)))
    }

    /// Returns the length of all files.
    pub fn bytes(&self) -> u64 {
        self.files().map(|(_, written)| written.bytes).sum()
    }

    /// Returns the time of day of the last record, in milliseconds since 1970.
    pub fn wall_ms(&self) -> i64 {
        let segment = self.segments.last().map(|segment| segment.last_ms);
        segment.max(self.snapshots.last().map(|snapshot| snapshot.wall_ms)).unwrap_or_default()
    }

    /// Encodes the manifest with its checksum.
    pub fn encode(&self) -> String {
        let mut text = format!(
            "{FIRST_LINE}\nlog {}\ntaken {}\nlsn {}\n",
            self.log_id, self.taken_ms, self.lsn
        );
        let mut add = |line: std::fmt::Arguments<'_>| {
            text.write_fmt(line).expect("a text takes everything");
        };
        for SnapshotEntry { lsn, written, wall_ms } in &self.snapshots {
            let Written { bytes, checksum } = written;
            let name = snapshot_name(*lsn);
            add(format_args!("snapshot {name} {bytes} {checksum:08x} {wall_ms}\n"));
        }
        for SegmentEntry { number, written, begin, end, first_ms, last_ms } in &self.segments {
            let Written { bytes, checksum } = written;
            let name = segment_name(*number);
            add(format_args!("segment {name} {bytes} {checksum:08x}"));
            for ChainPoint { next_lsn, checksum } in [begin, end] {
                add(format_args!(" {next_lsn} {checksum:08x}"));
            }
            add(format_args!(" {first_ms} {last_ms}\n"));
        }
        let checksum = crc32c::crc32c(text.as_bytes());
        text + &format!("checksum {checksum:08x}\n")
    }

    /// Decodes a manifest and verifies its checksum; the error says what is wrong.
    pub fn decode(text: &str) -> Result<Self, String> {
        let (contents, last) = text
            .strip_suffix('\n')
            .and_then(|text| text.rsplit_once('\n'))
            .ok_or("it has fewer than two lines")?;
        // With the end of the line before.
        let contents = &text[..=contents.len()];
        let checksum = last.strip_prefix("checksum ").and_then(hexadecimal);
        if checksum != Some(crc32c::crc32c(contents.as_bytes())) {
            return Err("its checksum does not agree".to_owned());
        }
        let lines = &mut contents.lines();
        let mut head = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name));
            line.ok_or_else(|| format!("there is no line that begins with `{name}`"))
        };
        head(FIRST_LINE)?;
        let log_id = u128::from_str_radix(head("log ")?, 16).map_err(|_| "the log id is none")?;
        let taken_ms = head("taken ")?.parse().map_err(|_| "the time is none")?;
        let lsn = head("lsn ")?.parse().map(Lsn).map_err(|_| "the LSN is none")?;
        let (mut snapshots, mut segments) = (Vec::new(), Vec::new());
        for line in lines {
            let mut fields = Fields(line.split_whitespace());
            let read = match fields.0.next() {
                Some("snapshot") => fields.snapshot().map(|entry| snapshots.push(entry)),
                Some("segment") => fields.segment().map(|entry| segments.push(entry)),
                _ => None,
            };
            read.ok_or_else(|| format!("the line `{line}` names no file"))?;
        }
        snapshots.sort_unstable_by_key(|snapshot| snapshot.lsn);
        segments.sort_unstable_by_key(|segment| segment.number);
        Ok(Self { log_id: LogId(log_id), taken_ms, lsn, snapshots, segments })
    }
}

/// Fields of a line that names a file.
struct Fields<'a>(SplitWhitespace<'a>);

impl Fields<'_> {
    fn snapshot(&mut self) -> Option<SnapshotEntry> {
        let lsn = lsn_of_name(self.0.next()?)?;
        let (written, wall_ms) = (self.written()?, self.number()?);
        self.end(SnapshotEntry { lsn, written, wall_ms })
    }

    fn segment(&mut self) -> Option<SegmentEntry> {
        let number = number_of_name(self.0.next()?)?;
        let (written, begin, end) = (self.written()?, self.point()?, self.point()?);
        let (first_ms, last_ms) = (self.number()?, self.number()?);
        self.end(SegmentEntry { number, written, begin, end, first_ms, last_ms })
    }

    fn written(&mut self) -> Option<Written> {
        Some(Written { bytes: self.number()?, checksum: self.checksum()? })
    }

    fn point(&mut self) -> Option<ChainPoint> {
        Some(ChainPoint { next_lsn: Lsn(self.number()?), checksum: self.checksum()? })
    }

    fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }

    fn checksum(&mut self) -> Option<u32> {
        self.0.next().and_then(hexadecimal)
    }

    /// Returns the entry if nothing follows.
    fn end<T>(&mut self, entry: T) -> Option<T> {
        if self.0.next().is_none() { Some(entry) } else { None }
    }
}

fn hexadecimal(text: &str) -> Option<u32> {
    if text.len() == 8 { u32::from_str_radix(text, 16).ok() } else { None }
}

/// Returns whether a file with this name may be in the directory of a backup.
pub fn is_ours(name: &str) -> bool {
    [MANIFEST_NAME, LOCK_NAME].contains(&name) || is_part(name) || is_unfinished(name)
}

/// Returns whether this is the name of a snapshot or a segment.
pub(crate) fn is_part(name: &str) -> bool {
    lsn_of_name(name).is_some() || number_of_name(name).is_some()
}

/// Returns whether this is the name of a file that was being written.
pub(crate) fn is_unfinished(name: &str) -> bool {
    [MANIFEST_TEMPORARY_NAME, TEMPORARY_NAME].contains(&name) || is_temporary(name)
}

/// Reads the manifest of a backup; `None` if there is none.
pub fn read_manifest<D: Disk>(disk: &D) -> Result<Option<Manifest>, BackupError> {
    let file = match disk.open(MANIFEST_NAME) {
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let path = disk.path(MANIFEST_NAME);
    let bytes = disk.length(&file)?;
    if MANIFEST_BYTES_MAX < bytes {
        return Err(BackupError::Manifest { path, what: "it is too long for one".to_owned() });
    }
    let mut contents = vec![0; usize::try_from(bytes).expect("it is short enough")];
    let count = disk.read_at(&file, 0, &mut contents)?;
    contents.truncate(count);
    let text = String::from_utf8(contents).unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    match (Manifest::decode(&text), first.strip_prefix(FIRST_LINE_BEGINNING)) {
        (Ok(manifest), _) => Ok(Some(manifest)),
        (Err(_), Some(version)) if first != FIRST_LINE => {
            Err(BackupError::Version { path, version: version.to_owned() })
        }
        (Err(what), _) => Err(BackupError::Manifest { path, what }),
    }
}

/// Replaces the manifest, durably.
pub(crate) fn write_manifest<D: Disk>(disk: &D, manifest: &Manifest) -> Result<(), BackupError> {
    remove_if_there(disk, MANIFEST_TEMPORARY_NAME)?;
    let file = disk.create(MANIFEST_TEMPORARY_NAME)?;
    disk.write_at(&file, 0, &[IoSlice::new(manifest.encode().as_bytes())])?;
    disk.sync(&file)?;
    // The names of the files that it names are durable before its own.
    disk.sync_directory()?;
    disk.rename(MANIFEST_TEMPORARY_NAME, MANIFEST_NAME)?;
    Ok(disk.sync_directory()?)
}

/// Removes a file that need not exist.
pub(crate) fn remove_if_there<D: Disk>(disk: &D, name: &str) -> Result<(), BackupError> {
    match disk.remove(name) {
        Err(error) if error.kind != DiskErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
