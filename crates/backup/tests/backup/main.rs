//! Backups of a log that is written, snapshotted and trimmed on a simulated disk, and restores of
//! them. A model that replays every record says what each restore must hold.

mod crashes;
mod states;
#[allow(dead_code, reason = "the tests of the snapshots use more of it")]
#[path = "../../../snapshot/tests/snapshot/world.rs"]
mod world;

use busload_backup::{Event, Manifest, Settings, Taken, restore, take};
use busload_io::sim::SimDisk;
use busload_log::{Lsn, format::LogId, remove_covered};

use crate::world::{Contents, World};

const KEEP_ALL: Settings = Settings { keep_ms: None };

/// Takes a backup at this time of day.
fn take_at(world: &World, to: &SimDisk, now_ms: i64) -> Taken {
    take(&world.disk, to, KEEP_ALL, &|| now_ms, &mut no_warning).expect("nothing fails here")
}

fn no_warning(event: Event) {
    assert!(!matches!(event, Event::Warning(_)), "{event:?}");
}

/// Restores the state behind this record, and returns what a start finds there.
fn restored(backup: &SimDisk, manifest: &Manifest, lsn: Lsn) -> Contents {
    let to = SimDisk::new();
    let restored = restore(backup, manifest, lsn, &to, LogId(99), &mut no_warning);
    assert_eq!(restored.expect("nothing fails here").lsn, lsn);
    let started = World::start(to, 5);
    assert_eq!(started.report.last_lsn.max(started.loaded.unwrap_or_default()), lsn);
    assert!(started.report.end_is_named && started.report.torn_tail.is_none());
    started.contents()
}

/// Makes a snapshot and removes the log that the one before covers, as the maintenance thread does.
fn make_and_trim(world: &mut World) {
    let older = world.newest().map(|snapshot| snapshot.header().lsn);
    world.make().expect("nothing fails here");
    if let Some(older) = older {
        remove_covered(&world.disk, &world.progress, older, 64 << 10).expect("nothing fails here");
    }
}
