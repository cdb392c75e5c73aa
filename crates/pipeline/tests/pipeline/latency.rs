//! Latencies of requests whose fate is known.

use std::time::Duration;

use busload_histogram::Reading;
use busload_pipeline::{
    command::lookup,
    latency::{CommandLatencies, Family},
    settings::{Settings, SyncMode},
};

use crate::{
    sources::SimSource,
    world::{Client, World, request, settings, table},
};

/// Time that passes while a reply waits.
const WAIT: Duration = Duration::from_millis(7);

/// Latencies of one table and family: of requests, their wait and their service.
fn read(world: &World, table: &str, family: Family) -> [Reading; 3] {
    let tables = world.stats.latencies.tables();
    let found = tables.iter().find(|latencies| latencies.name == table).expect("it is there");
    let of = found.family(family);
    [of.requests.read(), of.queue.read(), of.service.read()]
}

fn counts(world: &World, table: &str, family: Family) -> [u64; 3] {
    read(world, table, family).map(|reading| reading.count())
}

fn command<'a>(world: &'a World, name: &str) -> &'a CommandLatencies {
    world.stats.latencies.command(lookup(name.as_bytes())).expect("there is such a command")
}

#[test]
fn every_request_counts_once_in_its_table_and_family() {
    let named = table("named", SyncMode::Off);
    let mut tables = settings(SyncMode::Off).tables;
    tables.push(named);
    let mut world = World::with(Settings { tables, ..Settings::default() });
    let mut client = world.connect();
    world.run(
        &mut client,
        "SET a 1\nGET a\nGET named:a\nSET named:a 1\nSELECT 3\nGET a\nPING\nDBSIZE\nCONFIG GET \
         maxmemory\nNONSENSE\nINCR named:a x\nGET",
    );
    assert_eq!(counts(&world, "default", Family::Read), [2; 3]);
    assert_eq!(counts(&world, "default", Family::Write), [1; 3]);
    assert_eq!(counts(&world, "named", Family::Read), [1; 3]);
    assert_eq!(counts(&world, "named", Family::Write), [2; 3]);
    // DBSIZE and a GET without a key; PING, SELECT and what is no command.
    assert_eq!(counts(&world, "*", Family::Read), [2; 3]);
    assert_eq!(counts(&world, "*", Family::Admin), [1; 3]);
    assert_eq!(counts(&world, "*", Family::Other), [3; 3]);
    let get = command(&world, "get");
    assert_eq!((get.calls.get(), get.rejected.get(), get.failed.get()), (4, 1, 0));
    assert_eq!(get.requests.read().count(), 4);
    assert_eq!(world.stats.commands_total.get(), 12);

    world.run(&mut client, "CONFIG RESETSTAT");
    assert_eq!(counts(&world, "named", Family::Write), [0; 3]);
    assert_eq!(command(&world, "get").calls.get(), 0);
}

#[test]
fn a_call_that_fails_is_told_from_one_that_is_refused() {
    let mut world = World::new(SyncMode::Off);
    let mut client = world.connect();
    world.run(&mut client, "SET k v\nINCR k\nINCR\nINCR n");
    let incr = command(&world, "incr");
    assert_eq!((incr.calls.get(), incr.failed.get(), incr.rejected.get()), (3, 1, 1));
}

#[test]
fn the_time_of_a_write_includes_the_sync_and_that_of_a_clean_read_does_not() {
    let mut world = World::new(SyncMode::Always);
    let mut client = world.connect();
    world.run(&mut client, "SET a 1");
    world.send(&client, "SET k v");
    world.turns();
    let mut other = world.connect();
    world.send(&other, "GET a");
    world.turns();
    assert_eq!(world.replies(&mut other), ["1"]);
    assert_eq!(counts(&world, "default", Family::Write), [1, 2, 2], "the reply is not released");
    world.clock.advance(WAIT);
    world.settle();
    assert_eq!(world.replies(&mut client), ["OK"]);
    let [requests, queue, _] = read(&world, "default", Family::Write);
    assert_eq!((requests.count(), requests.max()), (2, WAIT));
    assert_eq!(queue.max(), Duration::ZERO, "tx took it at once");
    let [reads, ..] = read(&world, "default", Family::Read);
    assert_eq!((reads.count(), reads.max()), (1, Duration::ZERO));
}

#[test]
fn a_request_that_the_log_puts_off_waits_in_the_queue() {
    let mut world = World::new(SyncMode::Always);
    let mut client = world.connect();
    // This is more than the log takes before its first step.
    let value = "v".repeat(1024);
    (0..500).for_each(|key| world.send(&client, &format!("SET {key} {value}")));
    world.turns();
    assert!(0 < world.stats.deferred_total.get(), "the log takes so much at once");
    world.clock.advance(WAIT);
    world.settle();
    assert_eq!(world.replies(&mut client).len(), 500);
    let [requests, queue, _] = read(&world, "default", Family::Write);
    assert_eq!((requests.count(), queue.count()), (500, 500), "each once, however often offered");
    assert_eq!((requests.max(), queue.max()), (WAIT, WAIT));
    let at_once = queue.cumulative().next().expect("some were taken at once").1;
    assert!(0 < at_once && at_once < 500, "{at_once}");
}

/// Lets a client send more than is executed, turn after turn of 1 ms. Returns the longest time from
/// the receipt of a request to its reply, in turns.
fn longest_wait(client_reply_bytes: usize, request: &[u8], turns: u64) -> u128 {
    let settings = Settings { client_reply_bytes, ..settings(SyncMode::Off) };
    let mut world = World::wide(settings);
    let mut client = world.connect();
    let requests = request.repeat(128 * 1024 / request.len());
    for _ in 0..turns {
        world.clients.write(client.id, &requests);
        world.turn();
        world.replies(&mut client);
        world.clock.advance(Duration::from_millis(1));
    }
    let [requests, queue, _] = read(&world, "*", Family::Other);
    assert!(turns <= requests.count() && 1 < queue.max().as_millis(), "requests wait for others");
    requests.max().as_millis()
}

/// The first bytes that waited dated all that came behind them, as long as some bytes waited.
#[test]
fn on_a_connection_that_stays_over_its_quota_times_do_not_add_up() {
    let longest = longest_wait(Settings::default().client_reply_bytes, b"PING\r\n", 400);
    assert!(longest < 100, "{longest}");
}

#[test]
fn on_a_connection_whose_large_replies_are_put_off_times_do_not_add_up() {
    let value = "v".repeat(1_000);
    let longest = longest_wait(64 * 1024, &request(&["ECHO", value.as_str()]), 800);
    assert!(longest < 300, "{longest}");
}

#[test]
fn a_request_to_a_source_takes_until_its_answer() {
    let mut world = World::new(SyncMode::Off);
    let source = SimSource::new();
    world.add_source("objects", Box::new(source.clone()));
    let mut client: Client = world.connect();
    world.send(&client, "GET objects:a\nSET objects:a 1\nMGET objects:b objects:c");
    world.turns();
    assert_eq!(counts(&world, "objects", Family::Read), [0; 3]);
    world.clock.advance(WAIT);
    source.answer_all();
    world.turns();
    assert_eq!(world.replies(&mut client).len(), 3);
    let [reads, ..] = read(&world, "objects", Family::Read);
    assert_eq!((reads.count(), reads.max(), reads.mean()), (2, WAIT, WAIT));
    let [writes, ..] = read(&world, "objects", Family::Write);
    assert_eq!((writes.count(), writes.max()), (1, WAIT));
    assert_eq!(command(&world, "mget").calls.get(), 1);
}

#[test]
fn a_command_in_slices_takes_until_its_last() {
    let mut world = World::new(SyncMode::Off);
    let mut client = world.connect();
    for first in (0..40_000).step_by(1_000) {
        let pairs: String = (first..first + 1_000).map(|key| format!(" {key} v")).collect();
        world.run(&mut client, &format!("MSET{pairs}"));
    }
    world.send(&client, "KEYS 1*");
    (0..10).any(|_| {
        world.turn();
        world.tx.has_jobs()
    });
    assert!(world.tx.has_jobs(), "it takes more than one slice");
    world.clock.advance(WAIT);
    world.turns();
    assert_eq!(world.replies(&mut client).len(), 1);
    let keys = command(&world, "keys");
    assert_eq!((keys.calls.get(), keys.requests.read().max()), (1, WAIT));
}
