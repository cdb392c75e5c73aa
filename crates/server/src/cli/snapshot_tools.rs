//! `busload snapshot` asks a running server to make a snapshot; `busload snapshot verify` and
//! `busload snapshot dump` read the snapshots without changing anything. Also how the tools of the
//! log find out where a log begins.

use std::{
    fmt::Display,
    path::Path,
    str::FromStr,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use busload_io::{Clock, Disk, DiskOperation, RealClock};
use busload_log::{Base, Lsn};
use busload_objects::Progress;
use busload_resp::reply::Reply;
use busload_snapshot::{
    Snapshot, SnapshotError,
    format::{lsn_of_name, snapshot_name},
    newest_first,
};
use busload_tables::effect;

use super::{
    log_tools::{Out, Shown, open},
    progress::Meter,
    read_meter::file_bytes,
    resp_client::RespClient,
};
use crate::{
    config::{Config, Size},
    failure::Failure,
    logger::{self, Utc},
};

/// Interval at which a server that makes a snapshot is asked how far it is.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Asks the running server for a snapshot and prints what it has made.
pub fn make(config: &Config) -> Result<(), Failure> {
    let mut client = RespClient::connect(config)?;
    let clock = RealClock::new();
    let before = Newest::ask(&mut client)?;
    let error = match save(&mut client, config)? {
        Reply::Error(error) => Some(String::from_utf8_lossy(&error).into_owned()),
        _ => None,
    };
    let after = Newest::ask(&mut client)?;
    match error {
        Some(error) if after.lsn <= before.lsn => return Err(client.failed(&error)),
        // One was made, but it does not cover what is not durable yet.
        Some(error) => logger::say(&format!("warning: {error}")),
        None => {}
    }
    let mut out = Out::new();
    let Newest { lsn, entries, bytes } = after;
    let name = snapshot_name(Lsn(lsn));
    if lsn == before.lsn {
        out.line(format_args!("snapshot {name} covers everything already"));
    } else {
        out.line(format_args!(
            "snapshot {name}  up to LSN {lsn}  {entries} entries  {}  in {:.1} s",
            Size(bytes),
            clock.now().as_secs_f64()
        ));
    }
    out.finish();
    Ok(())
}

/// Has the server make a snapshot, and shows on stderr how far it is.
fn save(client: &mut RespClient, config: &Config) -> Result<Reply, Failure> {
    // Where the server takes no second connection nothing is shown.
    let mut watcher = RespClient::connect(config).ok();
    let mut meter = Meter::of_share("making the snapshot");
    let (sender, receiver) = mpsc::channel();
    let reply = thread::scope(|scope| {
        scope.spawn(move || sender.send(client.call(&[b"SAVE"])));
        loop {
            match receiver.recv_timeout(LOOK_INTERVAL) {
                Ok(reply) => break reply,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(progress) = watcher.as_mut().and_then(progress_of) {
                        meter.show(progress);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    break Err(Failure::run("the thread that waits for the server has ended"));
                }
            }
        }
    });
    meter.clear();
    reply
}

/// Asks how far the snapshot is; `None` if the server does not say.
fn progress_of(watcher: &mut RespClient) -> Option<Progress> {
    let percent: f64 = info_field(&persistence(watcher).ok()?, "snapshot_progress_percent")?;
    // In thousandths, so that a long one is seen to go on.
    let done = (percent.clamp(0.0, 100.0) * 10.0) as u64;
    Some(Progress { done, total: 1_000, ..Progress::default() })
}

/// Returns what the server says about its log and its snapshots.
fn persistence(client: &mut RespClient) -> Result<String, Failure> {
    match client.call(&[b"INFO", b"persistence"])? {
        Reply::Bulk(text) | Reply::Verbatim { text, .. } => {
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        _ => Err(client.failed(&"it does not answer INFO with a text")),
    }
}

fn info_field<T: FromStr>(info: &str, name: &str) -> Option<T> {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value?.trim().parse().ok()
}

/// Newest snapshot of a running server.
struct Newest {
    lsn: u64,
    entries: u64,
    bytes: u64,
}

impl Newest {
    fn ask(client: &mut RespClient) -> Result<Self, Failure> {
        let text = persistence(client)?;
        let field = |name: &str| {
            let value = info_field(&text, name);
            value.ok_or_else(|| client.failed(&format!("its INFO has no `{name}`: no busload?")))
        };
        Ok(Self {
            lsn: field("snapshot_lsn")?,
            entries: field("snapshot_entries")?,
            bytes: field("snapshot_size_bytes")?,
        })
    }
}

/// Checks every block of every snapshot and prints what each holds; fails if one does not verify.
pub fn verify(data: Option<&Path>) -> Result<(), Failure> {
    let (disk, directory) = open(data)?;
    let mut out = Out::new();
    let mut invalid = 0;
    let lsns = newest_first(&disk).map_err(|error| Failure::run(error.to_string()))?;
    let total = file_bytes(&disk, |name| lsn_of_name(name).is_some());
    let meter = disk.meter().show("checking the snapshots", total);
    for &lsn in &lsns {
        let verified = Snapshot::open(&disk, lsn).and_then(|snapshot| {
            snapshot.verify(&disk)?;
            Ok(snapshot)
        });
        meter.above(|| match verified {
            Ok(snapshot) => out.line(format_args!(
                "sound    {}  up to LSN {} of {}  {} entries in {} partitions  {} of {}",
                snapshot.path().display(),
                lsn,
                Utc(snapshot.header().wall_ms),
                snapshot.entries(),
                snapshot.partitions().len(),
                Size(snapshot.file_bytes()),
                Size(snapshot.raw_bytes()),
            )),
            Err(error) => {
                invalid += 1;
                out.line(format_args!("problem  {error}"));
            }
        });
    }
    drop(meter);
    if lsns.is_empty() {
        out.line(format_args!("there is no snapshot in {}", directory.display()));
    }
    out.finish();
    match invalid {
        0 => Ok(()),
        _ => Err(Failure::run(format!("{invalid} of {} snapshots do not verify", lsns.len()))),
    }
}

/// Prints every entry of the newest snapshot that verifies.
pub fn dump(data: Option<&Path>) -> Result<(), Failure> {
    let (disk, directory) = open(data)?;
    let mut out = Out::new();
    // It is checked before the first entry is printed.
    let total = 2 * newest_bytes(&disk);
    let meter = disk.meter().show_beside_output("reading the snapshot", total);
    let mut problem = |problem: &dyn Display| out.line(format_args!("problem  {problem}"));
    let Some(snapshot) = newest_valid(&disk, &mut problem)? else {
        return Err(Failure::run(format!(
            "there is no snapshot that verifies in {}",
            directory.display()
        )));
    };
    let blocks = (0..snapshot.partitions().len()).flat_map(|part| snapshot.blocks(&disk, part));
    for block in std::iter::once(snapshot.catalogue(&disk)).chain(blocks) {
        let block = block.map_err(|error| failure(&error))?;
        for effect in effect::decode(&block) {
            let effect = effect.map_err(|error| Failure::run(error.to_string()))?;
            out.line(format_args!("{}", Shown(&effect)));
            if out.is_closed() {
                return Ok(());
            }
        }
    }
    drop(meter);
    out.finish();
    Ok(())
}

/// Returns the length of the newest snapshot's file, 0 if there is none.
pub(super) fn newest_bytes<D: Disk>(disk: &D) -> u64 {
    let newest = newest_first(disk).ok().and_then(|lsns| lsns.first().copied());
    newest.map_or(0, |lsn| file_bytes(disk, |name| lsn_of_name(name) == Some(lsn)))
}

/// Returns the newest snapshot all of whose blocks verify; `problem` takes why others do not.
pub(super) fn newest_valid<D: Disk>(
    disk: &D,
    problem: &mut dyn FnMut(&dyn Display),
) -> Result<Option<Snapshot<D::File>>, Failure> {
    for lsn in newest_first(disk).map_err(|error| Failure::run(error.to_string()))? {
        match Snapshot::open(disk, lsn).and_then(|found| found.verify(disk).map(|()| found)) {
            Ok(snapshot) => return Ok(Some(snapshot)),
            Err(SnapshotError::Invalid(error)) => problem(&error),
            // As a start does, it takes the one before.
            Err(SnapshotError::Disk(error)) if error.operation == DiskOperation::Read => {
                problem(&error);
            }
            Err(error) => return Err(failure(&error)),
        }
    }
    Ok(None)
}

/// Returns the position before the log that is there: none if it begins with its first segment,
/// else what the oldest snapshot covers that can be opened.
pub(super) fn base_of_log<D: Disk>(disk: &D) -> Result<Option<Base>, Failure> {
    if busload_log::is_whole(disk).map_err(|error| Failure::run(error.to_string()))? {
        return Ok(None);
    }
    let mut lsns = newest_first(disk).map_err(|error| Failure::run(error.to_string()))?;
    lsns.reverse();
    for lsn in lsns {
        match Snapshot::open(disk, lsn) {
            Ok(snapshot) => return Ok(Some(snapshot.base())),
            Err(SnapshotError::Invalid(_)) => {}
            Err(error) => return Err(failure(&error)),
        }
    }
    Ok(None)
}

fn failure(error: &SnapshotError) -> Failure {
    Failure::run(error.to_string())
}
