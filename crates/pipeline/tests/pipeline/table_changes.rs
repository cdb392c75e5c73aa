//! Tables that appear, change and go while the server runs.

use std::{sync::mpsc, time::Duration};

use busload_io::sim::{CrashKind, SimClock, SimDisk, SimRng};
use busload_pipeline::{
    limits::SLICE_STEPS,
    settings::{Settings, SourceTable, SyncMode},
    tx::{Search, TableRefusal},
};

use crate::{
    sources::SimSource,
    world::{Client, World, settings, table},
};

fn start(disk: &SimDisk, settings: Settings) -> World {
    World::start(disk.clone(), settings, SimClock::new(1_000_000), 1).expect("starts")
}

/// Searches to its end for keys that a table would hide.
fn search(world: &mut World, name: &str) -> Search {
    world.tx.begin_table(name).expect("nothing runs in slices");
    loop {
        match world.tx.search_hidden() {
            Search::More => world.turn(),
            end => return end,
        }
    }
}

#[track_caller]
fn add_memory(world: &mut World, name: &str, sync: SyncMode) {
    assert_eq!(search(world, name), Search::None);
    assert_eq!(world.tx.add_memory_table(table(name, sync)), Ok(()));
}

#[track_caller]
fn add_source(world: &mut World, name: &str, source: &SimSource) {
    assert_eq!(search(world, name), Search::None);
    let added = world.tx.add_source_table(name, Box::new(source.clone()));
    assert!(added.is_ok());
}

fn why(refusal: Result<(), TableRefusal>) -> String {
    match refusal {
        Err(TableRefusal::Impossible(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn with_users(sync: SyncMode) -> Settings {
    let mut settings = settings(SyncMode::Always);
    settings.tables.push(table("users", sync));
    settings
}

#[test]
fn a_memory_table_appears_and_is_there_after_a_crash() {
    for sync in [SyncMode::Always, SyncMode::Off] {
        let disk = SimDisk::new();
        let mut world = start(&disk, settings(SyncMode::Always));
        let mut client = world.connect();
        assert_eq!(world.run(&mut client, "SET userson:1 a"), ["OK"]);
        add_memory(&mut world, "users", sync);
        assert_eq!(
            world.run(&mut client, "SET users:1 b\nSELECT 3\nGET users:1\nFLUSHDB\nGET users:1"),
            ["OK", "OK", "b", "OK", "b"]
        );
        drop(world);
        let disk = disk.crash(&mut SimRng::new(3), CrashKind::DropUnsynced);
        let mut world = start(&disk, with_users(sync));
        let mut client = world.connect();
        let kept = if sync == SyncMode::Off { "nil" } else { "b" };
        assert_eq!(world.run(&mut client, "GET users:1\nGET userson:1"), [kept, "a"]);
    }
}

#[test]
fn keys_of_every_space_that_a_table_would_hide_are_counted() {
    let disk = SimDisk::new();
    let mut world = start(&disk, settings(SyncMode::Always));
    let mut client = world.connect();
    world.run(&mut client, "SET users:1 a\nSET k b\nSELECT 15\nSET users:2 c\nPEXPIRE users:2 1");
    assert_eq!(search(&mut world, "users"), Search::Found(2));
    assert_eq!(world.run(&mut client, "DEL users:2\nSELECT 0\nDEL users:1").len(), 3);
    add_memory(&mut world, "users", SyncMode::Always);
    assert_eq!(world.run(&mut client, "GET k\nDBSIZE"), ["b", ":1"]);
}

/// Fills `default` with more keys than one slice of a search sees.
fn fill(world: &mut World, client: &mut Client) {
    for first in (0..2 * SLICE_STEPS).step_by(1_000) {
        let keys: Vec<String> = (first..first + 1_000).map(|key| format!("k{key} v")).collect();
        assert_eq!(world.run(client, &format!("MSET {}", keys.join(" "))), ["OK"]);
    }
}

#[test]
fn a_key_that_is_written_during_the_search_counts_wherever_it_lies() {
    let disk = SimDisk::new();
    let mut world = start(&disk, settings(SyncMode::Off));
    let mut client = world.connect();
    fill(&mut world, &mut client);
    for (commands, expected) in [
        ("SET users:1 a", true),
        ("DEL users:1", true),
        ("MSET a 1 users:2 b\nDEL users:2", true),
        ("SELECT 7\nSET users:1 a\nDEL users:1\nSELECT 0", true),
        ("MULTI\nSET users:1 a\nDEL users:1\nEXEC", true),
        ("GET users:1\nSET userson:1 a\nEXISTS users:2", false),
    ] {
        world.tx.begin_table("users").unwrap();
        assert_eq!(world.tx.search_hidden(), Search::More);
        world.run(&mut client, commands);
        let end = loop {
            match world.tx.search_hidden() {
                Search::More => {}
                end => break end,
            }
        };
        assert_eq!(matches!(end, Search::Found(_)), expected, "{commands}: {end:?}");
    }
}

#[test]
fn a_table_without_keys_goes_and_one_with_keys_stays() {
    let disk = SimDisk::new();
    let mut world = start(&disk, with_users(SyncMode::Always));
    let mut client = world.connect();
    world.run(&mut client, "SET users:1 a");
    let refused = why(world.tx.drop_memory_table("users"));
    assert!(refused.contains("holds 1 keys") && refused.contains("--drop-table users"));
    assert_eq!(why(world.tx.drop_memory_table("none")), "there is no such table");
    assert_eq!(world.run(&mut client, "GET users:1\nDEL users:1"), ["a", ":1"]);
    assert_eq!(world.tx.drop_memory_table("users"), Ok(()));
    assert_eq!(
        world.run(&mut client, "GET users:1\nSET users:1 b\nKEYS *\nINFO\nFLUSHALL\nSET users:1 c")
            [..3],
        ["nil", "OK", "[users:1]"]
    );
    world.tx.housekeep(crate::world::read(&world.clock));
    drop(world);
    let disk = disk.crash(&mut SimRng::new(3), CrashKind::DropUnsynced);
    let mut world = start(&disk, settings(SyncMode::Always));
    let mut client = world.connect();
    assert_eq!(world.run(&mut client, "GET users:1"), ["c"]);
    // It comes again as another table, when its keys are gone.
    assert_eq!(search(&mut world, "users"), Search::Found(1));
    world.run(&mut client, "DEL users:1");
    add_memory(&mut world, "users", SyncMode::Always);
    assert_eq!(world.run(&mut client, "SET users:1 d\nGET users:1"), ["OK", "d"]);
    drop(world);
    let mut world = start(&disk, with_users(SyncMode::Always));
    let mut client = world.connect();
    assert_eq!(world.run(&mut client, "GET users:1"), ["d"]);
}

#[test]
fn a_scan_sees_every_key_of_the_tables_that_stay() {
    let disk = SimDisk::new();
    let mut several = settings(SyncMode::Always);
    several.tables.extend(["a", "b", "c"].map(|name| table(name, SyncMode::Always)));
    let mut world = start(&disk, several);
    let mut client = world.connect();
    for key in 0..60 {
        world.run(&mut client, &format!("SET b:{key} x\nSET c:{key} x"));
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = "0".to_owned();
    for step in 0.. {
        let reply = world.run(&mut client, &format!("SCAN {cursor} COUNT 10")).remove(0);
        let (next, keys) = reply.trim_matches(['[', ']']).split_once(" [").unwrap();
        seen.extend(keys.split_whitespace().map(str::to_owned));
        cursor = next.to_owned();
        match step {
            // The cursor stands in `b`.
            2 => assert_eq!(world.tx.drop_memory_table("a"), Ok(())),
            4 => add_memory(&mut world, "d", SyncMode::Always),
            _ if cursor == "0" => break,
            _ => {}
        }
    }
    assert_eq!(seen.len(), 120);
}

#[test]
fn transactions_over_keys_that_belong_to_another_table_now_are_ended() {
    let disk = SimDisk::new();
    let mut world = start(&disk, with_users(SyncMode::Always));
    let mut client = world.connect();
    let mut other = world.connect();
    let mut watcher = world.connect();
    world.run(&mut client, "MULTI\nSET objects:1 a");
    world.run(&mut other, "MULTI\nSET objects 1\nSET other:1 a");
    world.run(&mut watcher, "WATCH users:1 k\nMULTI\nSET k v");
    add_source(&mut world, "objects", &SimSource::new());
    assert_eq!(world.tx.drop_memory_table("users"), Ok(()));
    let aborted = world.run(&mut client, "EXEC").remove(0);
    assert!(aborted.starts_with("-EXECABORT"), "{aborted}");
    assert_eq!(world.run(&mut other, "EXEC"), ["[OK OK]"]);
    assert_eq!(world.run(&mut watcher, "EXEC"), ["nil"]);
    assert_eq!(
        world.run(&mut watcher, "WATCH users:1 k\nMULTI\nSET k v\nEXEC").last().unwrap(),
        "[OK]"
    );
}

#[test]
fn a_source_appears_answers_what_it_has_taken_and_goes() {
    let disk = SimDisk::new();
    let mut world = start(&disk, settings(SyncMode::Always));
    let mut client = world.connect();
    world.run(&mut client, "SET objects:a hidden");
    assert_eq!(search(&mut world, "objects"), Search::Found(1));
    world.run(&mut client, "DEL objects:a");
    let source = SimSource::new();
    add_source(&mut world, "objects", &source);
    world.send(&client, "SET objects:a 1\nGET objects:a");
    world.turns();
    let (leave, left) = mpsc::channel();
    world.tx.drop_source("objects", leave).unwrap();
    world.turns();
    assert!(left.try_recv().is_err(), "requests are at it");
    // They wait behind those.
    world.send(&client, "GET objects:a\nSET objects:a 2\nGET objects:a");
    source.answer_all();
    world.settle();
    assert_eq!(world.replies(&mut client), ["OK", "1", "nil", "OK", "2"]);
    assert_eq!(left.try_recv().unwrap().kind(), "simulated");
    drop(world);
    // The log knows it no more: a start with it looks for hidden keys.
    let mut with_source = settings(SyncMode::Always);
    with_source.sources.push(SourceTable { name: "objects".into(), kind: "simulated" });
    let clock = SimClock::new(1_000_000);
    let refused = World::start(disk.clone(), with_source, clock, 1).err().unwrap().to_string();
    assert!(refused.contains("1 keys that begin with `objects:`"), "{refused}");
}

#[test]
fn requests_wait_in_order_while_a_source_is_replaced() {
    let disk = SimDisk::new();
    let mut world = start(&disk, settings(SyncMode::Always));
    let (old, new) = (SimSource::new(), SimSource::new());
    add_source(&mut world, "objects", &old);
    let mut client = world.connect();
    let gone = world.connect();
    world.send(&client, "SET objects:a 1");
    world.turns();
    let (leave, left) = mpsc::channel();
    world.tx.hold_source("objects", leave).unwrap();
    world.send(&client, "SET objects:a 2\nGET objects:a\nSET m 1\nMGET m objects:b");
    world.send(&gone, "SET objects:a lost\nGET objects:a");
    world.turns();
    assert_eq!((old.waiting(), new.waiting()), (1, 0));
    assert!(left.try_recv().is_err());
    world.clients.reset(gone.id);
    world.turns();
    old.answer_all();
    world.settle();
    assert_eq!(world.replies(&mut client), ["OK"]);
    assert!(left.try_recv().is_ok());
    world.tx.release_source("objects", Box::new(new.clone()));
    world.settle();
    assert_eq!(new.waiting(), 3, "that of the connection which is gone was dropped");
    new.answer_all();
    world.settle();
    assert_eq!(world.replies(&mut client), ["OK", "2", "OK", "[1 nil]"]);
    world.send(&client, "GET objects:a");
    world.turns();
    assert_eq!((old.waiting(), new.waiting()), (0, 1));
}

#[test]
fn a_held_request_that_the_new_source_refuses_is_answered() {
    let disk = SimDisk::new();
    let mut world = start(&disk, settings(SyncMode::Always));
    add_source(&mut world, "objects", &SimSource::new());
    let mut client = world.connect();
    let (leave, left) = mpsc::channel();
    world.tx.hold_source("objects", leave).unwrap();
    world.send(&client, "HSET objects:a f v\nHLEN objects:a\nGET objects:a");
    world.turns();
    world.tx.release_source("objects", left.try_recv().expect("nothing is at it"));
    world.settle();
    let replies = world.replies(&mut client);
    assert_eq!(
        replies,
        [
            "-ERR table objects: the table has no fields",
            "-ERR table objects: not supported any more"
        ]
    );
    // A timeout counts from when the request came.
    let (leave, left) = mpsc::channel();
    world.tx.hold_source("objects", leave).unwrap();
    world.send(&client, "GET objects:b");
    world.turns();
    world.clock.advance(Duration::from_secs(2));
    world.settle();
    let replies = world.replies(&mut client);
    assert!(replies.iter().all(|reply| reply.contains("no answer in time")), "{replies:?}");
    assert_eq!(replies.len(), 2);
    assert!(left.try_recv().is_ok(), "its request has timed out, too");
}
