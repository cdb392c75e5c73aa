//! Making what recovery found the beginning of what comes: removes what lies behind the cut, begins a new segment.

use std::sync::Arc;

use busload_io::Disk;

use super::{OpenError, Opened, RecoveryReport, Segment, parts, walk::Walked};
use crate::{
    LogStage, Lsn, Options, ZeroHelper,
    format::{LogId, NameKind},
    mailbox::Mailbox,
    progress::Shared,
    stage::Start,
};

/// Every step leaves a log that recovers to the same records.
pub(super) fn seal<D: Disk>(
    disk: D,
    options: Options,
    lock: D::File,
    mut segments: Vec<Segment<D::File>>,
    mut walked: Walked,
    fresh_id: LogId,
) -> Result<Opened<D>, OpenError> {
    let report = report_of(&walked);
    drop_empty_last(&mut walked);
    remove_behind(&disk, &mut segments, walked.kept_count)?;
    remove_temporaries(&disk)?;
    cut_unused_end(&disk, &segments, &walked)?;

    let last_lsn = report.last_lsn;
    let shared = Arc::new(Shared::new(last_lsn));
    let mailbox = Arc::new(Mailbox::new());
    let mut helper = ZeroHelper::new(
        disk.clone(),
        Arc::clone(&shared),
        Arc::clone(&mailbox),
        options.zero_bytes_per_second,
    );
    let number = walked.kept_count as u64 + 1;
    let start = Start {
        lock,
        log_id: walked.log_id.unwrap_or(fresh_id),
        last_lsn,
        chain: walked.chain,
        wall_ms: walked.wall_ms.unwrap_or(0),
        prepared: helper.prepare_now(number, options.first_segment_bytes)?,
        log_bytes: walked.bytes,
        segments: walked.kept_count as u64,
    };
    let mut stage = LogStage::new(disk, Arc::clone(&shared), mailbox, options, start);
    stage.seal()?;
    Ok(parts(shared, stage, helper, &options, report))
}

pub(crate) fn report_of(walked: &Walked) -> RecoveryReport {
    RecoveryReport {
        records: walked.records,
        last_lsn: Lsn(walked.next_lsn.0 - 1),
        frames: walked.frames,
        bytes: walked.bytes,
        segments: walked.kept_count as u64,
        clean_shutdown: walked.clean_shutdown,
        wall_ms: walked.wall_ms,
        torn_tail: walked.torn_tail.clone(),
    }
}

/// A segment without records is made anew under the same number, so that starts without writes leave nothing behind.
fn drop_empty_last(walked: &mut Walked) {
    if 0 < walked.kept_count && walked.last_segment_records == 0 {
        walked.kept_count -= 1;
        walked.chain = walked.chain_before_last;
        walked.bytes -= walked.end;
        walked.end = u64::MAX;
    }
}

/// The last one first, each durably gone before the next, so that no crash leaves a gap in the numbers.
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

fn remove_temporaries<D: Disk>(disk: &D) -> Result<(), OpenError> {
    for name in disk.list()? {
        if NameKind::of(&name) == NameKind::Temporary {
            disk.remove(&name)?;
        }
    }
    Ok(())
}

/// Gives the zeros behind the last frame back to the file system. A torn tail stays for whoever wants to look at it: the next
/// segment's header says where the log goes on.
fn cut_unused_end<D: Disk>(
    disk: &D,
    segments: &[Segment<D::File>],
    walked: &Walked,
) -> Result<(), OpenError> {
    if let Some(last) = segments.last()
        && walked.torn_tail.is_none()
        && walked.end < last.bytes
    {
        disk.truncate(&last.file, walked.end)?;
    }
    Ok(())
}
