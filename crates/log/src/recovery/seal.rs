//! Seals a recovered log so that writing can continue: removes what lies behind the cut and begins
//! a new segment.

use std::sync::Arc;

use busload_io::Disk;

use super::{LogFiles, LogLock, OpenError, Opened, Segment, Walked, parts};
use crate::{
    LogStage, Options, ZeroHelper,
    format::{LastSegment, LogId, NameKind},
    last_segment,
    mailbox::Mailbox,
    progress::SharedProgress,
    stage::Start,
};

/// Seals the log. Every step leaves a log that recovers to the same records.
pub(super) fn seal<D: Disk>(
    disk: D,
    options: Options,
    lock: LogLock<D::File>,
    found: LogFiles<D::File>,
    mut walked: Walked,
    fresh_id: LogId,
) -> Result<Opened<D>, OpenError> {
    let report = found.report(&walked);
    let LogFiles { mut segments, last, earlier } = found;
    drop_empty_last(&mut walked);
    let (last_lsn, last_number) = (report.last_lsn, walked.last_number());
    let log_id = walked.log_id.unwrap_or(fresh_id);
    // First the steps that may free space on a full disk.
    if last.is_some_and(|last| last_number < last.number) {
        let kept =
            LastSegment { log_id, number: last_number, durable: last_lsn, clean_shutdown: false };
        last_segment::lower(&disk, &kept)?;
    }
    remove_behind(&disk, &mut segments, walked.kept_count)?;
    cut_unused_end(&disk, &segments, &walked)?;

    let shared = Arc::new(SharedProgress::new(last_lsn));
    let mailbox = Arc::new(Mailbox::new());
    let mut helper =
        ZeroHelper::new(disk.clone(), Arc::clone(&shared), Arc::clone(&mailbox), &options, log_id);
    let start = Start {
        lock,
        log_id,
        last_lsn,
        chain: walked.chain,
        wall_ms: walked.wall_ms.unwrap_or(0),
        prepared: helper.prepare_now(last_number + 1, options.first_segment_bytes)?,
        log_bytes: walked.bytes + earlier.bytes,
        segments: walked.kept_count as u64 + earlier.count,
    };
    let mut stage = LogStage::new(disk, Arc::clone(&shared), mailbox, options, start);
    stage.seal()?;
    Ok(parts(shared, stage, helper, &options, report))
}

/// Drops a last segment without records, which is then made again under the same number. So starts
/// without writes add no segments.
fn drop_empty_last(walked: &mut Walked) {
    if 0 < walked.kept_count && walked.last_segment_records == 0 {
        walked.kept_count -= 1;
        walked.chain = walked.chain_before_last;
        walked.bytes -= walked.end;
        walked.end = u64::MAX;
    }
}

/// Removes the segments behind the cut, the last one first, each durably before the next, so that
/// no crash leaves a gap in the numbers.
fn remove_behind<D: Disk>(
    disk: &D,
    segments: &mut Vec<Segment<D::File>>,
    kept_count: usize,
) -> Result<(), OpenError> {
    while kept_count < segments.len() {
        let Some(segment) = segments.pop() else { break };
        disk.remove(&segment.name)?;
        disk.sync_directory()?;
    }
    Ok(())
}

/// Removes the files that have no final name, spares included.
pub(super) fn remove_temporaries<D: Disk>(disk: &D) -> Result<(), OpenError> {
    for name in disk.list()? {
        if NameKind::of(&name) == NameKind::Temporary {
            disk.remove(&name)?;
        }
    }
    Ok(())
}

/// Gives the zeros after the last frame back to the file system. A torn tail stays, so that people
/// can inspect it: the next segment's header says where the log continues. So does what is behind
/// the last frame of a segment that was another before: a torn tail may be in it.
fn cut_unused_end<D: Disk>(
    disk: &D,
    segments: &[Segment<D::File>],
    walked: &Walked,
) -> Result<(), OpenError> {
    if let Some(last) = segments.last()
        && walked.torn_tail.is_none()
        && last.header.is_none_or(|(header, _)| !header.is_reused)
        && walked.end < last.bytes
    {
        disk.truncate(&last.file, walked.end)?;
    }
    Ok(())
}
