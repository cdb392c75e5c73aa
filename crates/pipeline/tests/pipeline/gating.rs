//! A reply that shows data is sent only when that data is as safe as its table promises.

use std::time::Duration;

use crate::world::{World, settings, table};
use busload_pipeline::settings::SyncMode;

/// Commands that show the state of keys, each after commands of another client that are not durable
/// yet.
const SHOWING: &[(&str, &str, &str)] = &[
    ("SET k v", "GET k", "v"),
    ("SET k v", "MGET other k", "[nil v]"),
    ("SET k v", "EXISTS k", ":1"),
    ("SET k v", "STRLEN k", ":1"),
    ("SET k v", "TYPE k", "string"),
    ("SET k v", "TTL k", ":-1"),
    ("SET k v", "HGET k f", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("SET k v", "SET k w NX", "nil"),
    ("SET k v", "SETNX k w", ":0"),
    ("SET k v", "DBSIZE", ":1"),
    ("SET k v", "KEYS *", "[k]"),
    ("SET k v", "SCAN 0", "[0 [k]]"),
    ("SET k v", "RANDOMKEY", "k"),
    ("HSET k f v", "HGETALL k", "[f v]"),
    ("INCR k", "GET k", "1"),
    ("SET k v\nDEL k", "GET k", "nil"),
    ("SET k v\nDEL k", "DEL k", ":0"),
    ("SET k v\nFLUSHALL", "GET k", "nil"),
    ("SET k v\nFLUSHALL", "DBSIZE", ":0"),
    ("MULTI\nSET k v\nEXEC", "GET k", "v"),
    ("SET k v", "RENAMENX k k", ":0"),
    ("SET other v\nSET k v", "COPY other k", ":0"),
    ("SET k v", "PERSIST k", ":0"),
    ("SET k v", "EXPIRE k 10 XX", ":0"),
    ("SET k v", "OBJECT ENCODING k", "embstr"),
    ("SET k v\nDEL k", "RENAME k other", "-ERR no such key"),
    ("SET k v\nDEL k", "EXPIRE k 10", ":0"),
    ("SET k v\nFLUSHALL", "FLUSHALL", "OK"),
];

#[test]
fn whatever_shows_data_waits_until_it_is_durable() {
    for (before, command, expected) in SHOWING {
        let mut world = World::new(SyncMode::Always);
        let (mut writer, mut reader) = (world.connect(), world.connect());
        world.send(&writer, before);
        world.turns();
        world.send(&reader, command);
        world.turns();
        assert!(world.replies(&mut reader).is_empty(), "{command} after {before} leaked");
        let writes =
            before.lines().filter(|line| !line.starts_with("MULTI") && *line != "SET k v").count();
        let early = world.replies(&mut writer);
        assert!(
            early.iter().all(|reply| reply == "OK" || reply == "QUEUED"),
            "{early:?} of {writes}"
        );
        world.run_log_until_written();
        world.turns();
        assert!(
            world.replies(&mut reader).is_empty(),
            "{command} after {before} left before the sync"
        );
        world.settle();
        assert_eq!(world.replies(&mut reader), [*expected], "{command} after {before}");
    }
}

#[test]
fn what_is_clean_does_not_wait_for_the_log() {
    let mut world = World::new(SyncMode::Always);
    let (mut writer, mut reader) = (world.connect(), world.connect());
    assert_eq!(world.run(&mut writer, "SET clean v"), ["OK"]);
    world.send(&writer, "SET dirty v");
    world.turns();
    world.send(&reader, "GET clean\nPING\nGET dirty\nGET clean");
    world.turns();
    assert_eq!(world.replies(&mut reader), ["v", "PONG"]);
    world.settle();
    assert_eq!(world.replies(&mut reader), ["v", "v"]);
    assert_eq!(world.replies(&mut writer), ["OK"]);
}

#[test]
fn exec_that_fails_because_of_an_unsynced_change_waits_for_it() {
    let mut world = World::new(SyncMode::Always);
    let (mut writer, mut watcher) = (world.connect(), world.connect());
    assert_eq!(world.run(&mut watcher, "WATCH k"), ["OK"]);
    world.send(&writer, "SET k v");
    world.turns();
    world.send(&watcher, "MULTI\nGET k\nEXEC");
    world.turns();
    assert_eq!(world.replies(&mut watcher), ["OK", "QUEUED"]);
    world.settle();
    assert_eq!(world.replies(&mut watcher), ["nil"]);
    assert_eq!(world.replies(&mut writer), ["OK"]);
}

#[test]
fn os_and_interval_tables_answer_after_the_write_call() {
    for sync in [SyncMode::Os, SyncMode::Interval(Duration::from_millis(100))] {
        let mut world = World::new(sync);
        let mut client = world.connect();
        world.send(&client, "SET k v");
        world.turns();
        assert!(world.replies(&mut client).is_empty(), "{sync}: left before the write");
        world.run_log_until_written();
        world.turns();
        assert_eq!(world.replies(&mut client), ["OK"], "{sync}");
    }
}

#[test]
fn an_interval_table_is_synced_within_the_interval() {
    let mut world = World::new(SyncMode::Interval(Duration::from_millis(100)));
    let mut client = world.connect();
    assert_eq!(world.run(&mut client, "SET k v"), ["OK"]);
    let written = world.progress.written();
    assert!(world.progress.durable() < written);
    world.clock.advance(Duration::from_millis(101));
    world.run_log();
    assert_eq!(world.progress.durable(), written);
}

#[test]
fn an_off_table_answers_at_once_and_writes_nothing() {
    let mut world = World::new(SyncMode::Off);
    let mut client = world.connect();
    let before = world.disk.operation_count();
    world.send(&client, "SET k v\nGET k\nINCR n\nDBSIZE");
    world.turns();
    assert_eq!(world.replies(&mut client), ["OK", "v", ":1", ":2"]);
    assert_eq!(world.disk.operation_count(), before);
}

#[test]
fn a_transaction_over_several_tables_waits_for_the_strictest() {
    let mut settings = settings(SyncMode::Off);
    settings.tables.push(table("soft", SyncMode::Os));
    settings.tables.push(table("hard", SyncMode::Always));
    let mut world = World::with(settings);
    let (mut writer, mut reader) = (world.connect(), world.connect());
    world.send(&writer, "MULTI\nSET k 1\nSET soft:k 2\nSET hard:k 3\nEXEC");
    world.turns();
    for command in ["GET k", "GET soft:k", "GET hard:k"] {
        world.send(&reader, command);
    }
    world.run_log_until_written();
    world.turns();
    assert!(
        world.replies(&mut reader).is_empty(),
        "the level is that of the transaction, not of the table read"
    );
    world.settle();
    assert_eq!(world.replies(&mut reader), ["1", "2", "3"]);
    assert_eq!(world.replies(&mut writer).last().unwrap(), "[OK OK OK]");
}

#[test]
fn a_copy_is_gated_like_what_it_shows() {
    for target in ["off:k", "os:k"] {
        for command in ["COPY k", "RENAME k"] {
            let mut settings = settings(SyncMode::Always);
            settings.tables.push(table("off", SyncMode::Off));
            settings.tables.push(table("os", SyncMode::Os));
            let mut world = World::with(settings);
            let (mut writer, mut reader) = (world.connect(), world.connect());
            world.send(&writer, &format!("SET k secret\n{command} {target}"));
            world.turns();
            world.run_log_until_written();
            world.send(&reader, &format!("GET {target}"));
            world.turns();
            assert!(
                world.replies(&mut reader).is_empty(),
                "{command} {target} shows what is not durable"
            );
            assert!(world.replies(&mut writer).is_empty());
            world.settle();
            assert_eq!(world.replies(&mut reader), ["secret"], "{command} {target}");
            assert_eq!(world.replies(&mut writer).len(), 2);
        }
    }
}

#[test]
fn a_failed_sync_lets_nothing_out() {
    use busload_io::{DiskErrorKind, DiskOperation, sim::Fault};
    let mut world = World::new(SyncMode::Always);
    let mut client = world.connect();
    assert_eq!(world.run(&mut client, "SET a 1"), ["OK"]);
    world.disk.inject(Fault::once(DiskOperation::Sync, 0, DiskErrorKind::Failed));
    world.send(&client, "SET a 2\nGET a");
    world.settle();
    assert!(world.replies(&mut client).is_empty());
    assert!(world.progress.failure().is_some());
}
