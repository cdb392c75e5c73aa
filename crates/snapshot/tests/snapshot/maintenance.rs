//! The thread that makes snapshots, on a real clock and a simulated disk.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use busload_io::{
    Disk, DiskErrorKind, DiskOperation, RealClock,
    sim::{Fault, SimDisk},
};
use busload_snapshot::{
    Control, Maintenance, Recovered, Settings, Status, format::SPILL_NAME,
    limits::CATCH_UP_PERCENT, newest_first,
};

use crate::world::World;

/// Asks for a snapshot of everything and waits for it.
fn made(world: &World, control: &Control) -> Status {
    control.wait_for(control.request(world.progress.durable()))
}

/// Runs the thread while `body` runs.
fn with_thread(world: &mut World, settings: Settings, body: impl FnOnce(&mut World, &Control)) {
    let control = Arc::new(Control::default());
    let maintenance = Maintenance::new(
        world.disk.clone(),
        RealClock::new(),
        world.progress.clone(),
        Arc::clone(&control),
        settings,
        Box::new(|| 100_000_000),
        Recovered { newest: world.loaded, log_bytes: world.report.bytes, seed: 7 },
    )
    .expect("nothing fails here");
    thread::scope(|scope| {
        let thread = scope.spawn(|| maintenance.run(|| {}));
        body(world, &control);
        control.stop();
        thread.join().expect("nothing fails here");
    });
}

const ON_REQUEST: Settings = Settings {
    automatic: false,
    log_bytes_min: 0,
    cpu_percent: 100,
    catch_up_percent: CATCH_UP_PERCENT,
};

#[test]
fn requested_snapshots_are_made_two_are_kept_and_the_log_stays_short() {
    let mut world = World::start(SimDisk::new(), 1);
    with_thread(&mut world, ON_REQUEST, |world, control| {
        for round in 1..=6 {
            world.work(700);
            let status = made(world, control);
            assert_eq!((status.made, status.error), (round, None));
            assert_eq!(status.lsn, world.progress.durable());
        }
        assert_eq!(newest_first(&world.disk).unwrap().len(), 2);
        assert!(!busload_log::is_whole(&world.disk).unwrap());
    });
    let contents = world.contents();
    let mut world = world.restart(2);
    assert_eq!(world.contents(), contents);
    // The thread of the next process goes on from what it finds.
    with_thread(&mut world, ON_REQUEST, |world, control| {
        world.work(300);
        assert_eq!(made(world, control).made, 1);
        assert_eq!(newest_first(&world.disk).unwrap().len(), 2);
    });
    let contents = world.contents();
    assert_eq!(world.restart(3).contents(), contents);
}

#[test]
fn a_log_that_has_grown_is_followed_by_a_snapshot_without_being_asked() {
    let mut world = World::start(SimDisk::new(), 1);
    let settings = Settings { automatic: true, log_bytes_min: 1, ..ON_REQUEST };
    with_thread(&mut world, settings, |world, control| {
        world.work(10);
        while control.status().made == 0 {
            thread::yield_now();
        }
    });
}

#[test]
fn a_failure_is_told_and_the_next_request_succeeds() {
    let mut world = World::start(SimDisk::new(), 4);
    world.work(300);
    world
        .disk
        .inject(Fault::once(DiskOperation::Write, 0, DiskErrorKind::NoSpace).on("snapshot.new"));
    with_thread(&mut world, ON_REQUEST, |world, control| {
        let failed = made(world, control);
        assert!(failed.error.unwrap().contains("snapshot.new"));
        assert_eq!((failed.made, failed.failed), (0, 1));
        let status = made(world, control);
        assert_eq!((status.made, status.failed, status.error), (1, 1, None));
    });
}

#[test]
fn a_base_that_does_not_verify_any_more_is_passed_over() {
    let mut world = World::start(SimDisk::new(), 5);
    with_thread(&mut world, ON_REQUEST, |world, control| {
        for _ in 0..3 {
            world.work(500);
            made(world, control);
        }
        let newest = newest_first(&world.disk).unwrap()[0];
        world.disk.flip_bit(&busload_snapshot::format::snapshot_name(newest), 200, 1);
        world.work(500);
        let status = made(world, control);
        assert_eq!((status.made, status.error), (4, None));
    });
    let contents = world.contents();
    assert_eq!(world.restart(6).contents(), contents);
}

#[test]
fn a_thread_that_is_behind_sorts_the_log_and_one_that_is_not_writes_nothing_more() {
    let mut world = World::start(SimDisk::new(), 8);
    for (catch_up_percent, spilled) in [(CATCH_UP_PERCENT, false), (0, true)] {
        // Whoever sorts the log needs the file, and shows by this fault that it does.
        let fault = Fault::once(DiskOperation::Create, 0, DiskErrorKind::Failed).on(SPILL_NAME);
        world.disk.clear_faults();
        world.disk.inject(fault);
        let settings = Settings { catch_up_percent, ..ON_REQUEST };
        with_thread(&mut world, settings, |world, control| {
            world.work(300);
            assert_eq!(made(world, control).error.is_some(), spilled);
            assert_eq!(made(world, control).error, None);
        });
    }
    world.disk.clear_faults();
    assert!(!world.disk.list().unwrap().iter().any(|name| name == SPILL_NAME));
    let contents = world.contents();
    assert_eq!(world.restart(9).contents(), contents);
}

#[test]
fn a_sorted_log_of_an_earlier_process_is_removed_at_the_start() {
    let mut world = World::start(SimDisk::new(), 1);
    world.disk.put_file(SPILL_NAME, b"of an earlier process");
    with_thread(&mut world, ON_REQUEST, |world, _| {
        assert!(!world.disk.list().unwrap().iter().any(|name| name == SPILL_NAME));
    });
}

#[test]
fn a_snapshot_of_low_priority_gives_way_when_the_log_becomes_long() {
    static LOWERED: AtomicU32 = AtomicU32::new(0);
    let mut world = World::start(SimDisk::new(), 6);
    world.work(300);
    let control = Arc::new(Control::default());
    let looks = AtomicU32::new(0);
    let maintenance = Maintenance::new(
        world.disk.clone(),
        RealClock::new(),
        world.progress.clone(),
        Arc::clone(&control),
        ON_REQUEST,
        // The log is short beside the contents at the first look only.
        Box::new(move || if looks.fetch_add(1, Ordering::Relaxed) == 0 { 1 << 30 } else { 0 }),
        Recovered { newest: None, log_bytes: 0, seed: 7 },
    )
    .unwrap();
    thread::scope(|scope| {
        scope.spawn(|| maintenance.run(|| _ = LOWERED.fetch_add(1, Ordering::Relaxed)));
        let status = made(&world, &control);
        assert_eq!((status.made, status.failed, status.error), (1, 0, None));
        control.stop();
    });
    assert_eq!(LOWERED.load(Ordering::Relaxed), 1, "the second attempt has another thread");
}
