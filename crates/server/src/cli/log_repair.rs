//! `busload log repair`: writes what can be read of a corrupt log into a new directory.
//!
//! The newest snapshot that verifies is taken, and every record behind it of every frame that
//! verifies, also behind corrupt ones. Each is applied to tables in memory first, as a start would:
//! what a start would refuse (a record of a table whose creation is lost, a transaction whose
//! beginning is) is left out. The rest is written as a new log, with positions of its own, so the
//! original stays as it is.

use std::{
    fs,
    path::Path,
    sync::Arc,
    task::Wake,
    thread::{self, JoinHandle, Thread},
};

use busload_io::{Disk, OsRng, RealDisk, Rng};
use busload_log::{
    LogWriter, Lsn, OpenError, Options, Progress, RecordRef, ReplayError, Reservation, SyncPolicy,
    copy::number_of_name,
    tools::{self, Lost, Salvaged},
};
use busload_snapshot::Snapshot;
use busload_tables::{
    Tables,
    effect::{self, Replayer},
};

use super::{
    log_tools::{Out, Text, failure, open},
    read_meter::file_bytes,
    snapshot_tools::{newest_bytes, newest_valid},
};
use crate::{config::log_directory, failure::Failure};

/// Writes every record that can still be read and applied into a new log in `to`.
pub fn repair(data: Option<&Path>, to: &Path) -> Result<(), Failure> {
    let (disk, directory) = open(data)?;
    let mut out = Out::new();
    let mut target = Target::create(to)?;
    let mut tables = Tables::new(OsRng::new().next_u64());
    let mut replayer = Replayer::new(&mut tables);
    let mut counts = Counts::default();
    let incomplete =
        |error: ReplayError| Failure::run(format!("{} is incomplete: {error}", to.display()));
    let log_bytes = file_bytes(&disk, |name| number_of_name(name).is_some());
    // The snapshot is checked before it is copied.
    let meter = disk.meter().show("repairing the log", log_bytes + 2 * newest_bytes(&disk));
    let snapshot = newest_valid(&disk, &mut |problem| {
        meter.above(|| out.line(format_args!("problem  {problem}")));
    })?;
    if let Some(snapshot) = &snapshot {
        copy_snapshot(&disk, snapshot, &mut replayer, &mut target).map_err(incomplete)?;
        let (entries, lsn) = (snapshot.entries(), snapshot.header().lsn);
        meter.above(|| out.line(format_args!("snapshot {entries} entries up to LSN {lsn}")));
    }
    let base = snapshot.as_ref().map(Snapshot::base);
    let salvaged = tools::salvage(&disk, base.as_ref(), &mut |found| {
        match found {
            Salvaged::Lost(lost) => {
                counts.add_lost(lost);
                meter.above(|| out.line(format_args!("lost     {}", Range(lost))));
            }
            Salvaged::Record(record) => match replayer.push(record.bytes) {
                Ok(()) => {
                    counts.written += 1;
                    target.append(record)?;
                }
                Err(error) => {
                    counts.left_out += 1;
                    meter.above(|| {
                        out.line(format_args!("left out LSN {}: {error}", record.lsn));
                        show_keys(&mut out, record);
                    });
                }
            },
        }
        Ok(())
    });
    drop(meter);
    salvaged.map_err(|error| match error {
        OpenError::Replay { source, .. } => incomplete(source),
        error => failure(error, &directory),
    })?;
    target.close()?;
    out.line(format_args!("{counts}; the new log is in {}", log_directory(Some(to)).display()));
    out.finish();
    Ok(())
}

/// Writes the contents of a snapshot as the first records of the new log.
fn copy_snapshot<D: Disk>(
    disk: &D,
    snapshot: &Snapshot<D::File>,
    replayer: &mut Replayer<'_>,
    target: &mut Target,
) -> Result<(), ReplayError> {
    let blocks = (0..snapshot.partitions().len()).flat_map(|part| snapshot.blocks(disk, part));
    let (lsn, wall_ms) = (snapshot.header().lsn, snapshot.header().wall_ms);
    for block in std::iter::once(snapshot.catalogue(disk)).chain(blocks) {
        let bytes = &block?[..];
        if !bytes.is_empty() {
            replayer.push(bytes)?;
            target.append(RecordRef { lsn, wall_ms, bytes })?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Counts {
    written: u64,
    left_out: u64,
    lost: u64,
    /// True if bytes at the end may have held further records.
    has_unknown_end: bool,
}

impl Counts {
    fn add_lost(&mut self, lost: &Lost) {
        match lost.last {
            Some(last) => self.lost += last.0 - lost.first.0 + 1,
            None => self.has_unknown_end = true,
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { written, left_out, lost, has_unknown_end } = self;
        write!(f, "repaired {written} records written, {lost} lost, {left_out} left out")?;
        if *has_unknown_end { f.write_str(", an unknown number lost at the end") } else { Ok(()) }
    }
}

/// Displays a range of lost records.
struct Range<'a>(&'a Lost);

impl std::fmt::Display for Range<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Lost { first, last, path, offset } = self.0;
        let path = path.display();
        match last {
            Some(last) => write!(f, "LSN {first} to {last}, before {path} offset {offset}"),
            None => write!(f, "LSN {first} and up, if there were any: {path} offset {offset}"),
        }
    }
}

fn show_keys(out: &mut Out, record: RecordRef<'_>) {
    for effect in effect::decode(record.bytes).map_while(Result::ok) {
        if let (Some(table), Some(key)) = (effect.table(), effect.key()) {
            out.line(format_args!("         table={} key={}", table.0, Text(key)));
        }
    }
}

/// Wakes the thread that fills the new log.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// New log, with the threads that write it.
struct Target {
    writer: LogWriter,
    progress: Progress,
    threads: Vec<JoinHandle<()>>,
    wall_ms: i64,
}

impl Target {
    fn create(to: &Path) -> Result<Self, Failure> {
        let directory = log_directory(Some(to));
        if fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Failure::usage(format!(
                "{} is not empty; expected a new directory for the repaired log",
                to.display()
            )));
        }
        let disk = RealDisk::open(&directory).map_err(|error| Failure::run(error.to_string()))?;
        let opened =
            busload_log::open(disk, Options::default(), &mut OsRng::new(), &mut |_| Ok(()))
                .map_err(|error| failure(error, &directory))?;
        let (stage, helper) = (opened.stage, opened.helper);
        let threads = vec![thread::spawn(move || stage.run()), thread::spawn(move || helper.run())];
        let (writer, progress) = (opened.writer, opened.progress);
        progress.set_waker(Arc::new(Unpark(thread::current())).into());
        Ok(Self { writer, progress, threads, wall_ms: i64::MIN })
    }

    fn append(&mut self, record: RecordRef<'_>) -> Result<(), ReplayError> {
        if self.wall_ms != record.wall_ms {
            self.flush();
            self.wall_ms = record.wall_ms;
        }
        loop {
            self.progress.wake_when_moved();
            match self.writer.reserve(record.bytes.len() as u64) {
                Reservation::Granted => break,
                Reservation::Behind => thread::park(),
                Reservation::NoSpace { message } | Reservation::Failed { message } => {
                    return Err(message.to_string().into());
                }
            }
        }
        self.writer.begin();
        self.writer.record().extend_from_slice(record.bytes);
        self.writer.commit(SyncPolicy::Os);
        Ok(())
    }

    /// Hands over the records so far, with the time of their frame.
    fn flush(&mut self) {
        self.writer.flush(self.wall_ms);
    }

    /// Writes and syncs everything and marks a clean shutdown.
    fn close(mut self) -> Result<(), Failure> {
        self.flush();
        let last = Lsn(self.writer.next_lsn().0 - 1);
        self.writer.close();
        for thread in self.threads {
            let _ = thread.join();
        }
        match self.progress.failure() {
            Some(message) => Err(Failure::run(message.to_string())),
            None if self.progress.durable() < last => {
                Err(Failure::run("the new log ended before everything was written".to_owned()))
            }
            None => Ok(()),
        }
    }
}
