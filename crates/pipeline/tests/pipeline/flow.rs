//! Order, backpressure and limits between sockets, transactions and the log.

use std::time::Duration;

use crate::world::{Client, World, request, settings};
use busload_io::{Disk, sim::SimClock, sim::SimDisk};
use busload_pipeline::settings::{Settings, SyncMode};

/// Writes values of 1 KiB until the log grants no more space.
fn fill_log(world: &mut World, client: &Client, count: usize) {
    let value = "v".repeat(1024);
    for number in 0..count {
        world.send_words(client, &["SET", &format!("key{number}"), &value]);
    }
    world.turns();
}

#[test]
fn when_the_log_is_behind_writes_wait_in_order_and_clean_reads_go_on() {
    let mut world = World::new(SyncMode::Os);
    let (mut writer, mut reader) = (world.connect(), world.connect());
    assert_eq!(world.run(&mut writer, "SET clean 1"), ["OK"]);
    // This is more than the 128 KiB of prepared segments: without steps of the log it gets stuck.
    fill_log(&mut world, &writer, 500);
    world.send(&writer, "GET key499\nINCR n\nGET n");
    world.turns();
    assert!(0 < world.stats.deferred_total.get(), "nothing was given back");
    assert!(world.replies(&mut writer).is_empty());
    world.send(&reader, "GET clean\nGET clean\nPING");
    world.turns();
    assert_eq!(world.replies(&mut reader), ["1", "1", "PONG"]);
    world.settle();
    let replies = world.replies(&mut writer);
    assert_eq!(replies.len(), 503);
    assert!(replies[..500].iter().all(|reply| reply == "OK"));
    assert_eq!(replies[500..], ["v".repeat(1024), ":1".into(), "1".into()]);
}

#[test]
fn while_the_log_is_behind_turns_do_not_spin() {
    let mut world = World::new(SyncMode::Os);
    let writer = world.connect();
    fill_log(&mut world, &writer, 500);
    let before = world.stats.deferred_total.get();
    for _ in 0..1000 {
        world.turn();
    }
    assert!(world.stats.deferred_total.get() <= before + 1, "offered again although nothing moved");
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_recovers_by_itself() {
    let disk = SimDisk::new();
    disk.set_space(Some(200 * 1024));
    let mut world =
        World::start(disk.clone(), settings(SyncMode::Always), SimClock::new(1_000_000), 1)
            .unwrap();
    let mut client = world.connect();
    let value = "v".repeat(1024);
    let mut refused = 0;
    let mut accepted = 0;
    for number in 0..400 {
        world.send_words(&client, &["SET", &format!("key{number}"), &value]);
        for _ in 0..20 {
            world.turn();
            world.run_log();
        }
        for reply in world.replies(&mut client) {
            match reply.as_str() {
                "OK" => accepted += 1,
                _ => {
                    assert!(reply.starts_with("-MISCONF"), "{reply}");
                    refused += 1;
                }
            }
        }
    }
    assert!(0 < accepted && 0 < refused && accepted + refused == 400, "{accepted} {refused}");
    assert_eq!(world.run(&mut client, "GET key0"), [&*value]);
    disk.set_space(None);
    world.clock.advance(Duration::from_secs(2));
    world.settle();
    assert_eq!(world.run(&mut client, "SET again 1"), ["OK"]);
    drop(world);
    let mut world =
        World::start(disk, settings(SyncMode::Always), SimClock::new(1_000_000), 2).unwrap();
    let mut client = world.connect();
    assert_eq!(
        world.run(&mut client, "GET again\nDBSIZE"),
        ["1".into(), format!(":{}", accepted + 1)]
    );
}

#[test]
fn a_client_that_does_not_read_is_not_read_until_it_does() {
    let settings = Settings { client_reply_bytes: 256 * 1024, ..settings(SyncMode::Off) };
    let mut world = World::with(settings);
    let (mut greedy, mut other) = (world.connect(), world.connect());
    let value = "v".repeat(1000);
    world.send_words(&greedy, &["SET", "k", &value]);
    world.turns();
    world.clients.stop_reading(greedy.id);
    for _ in 0..10_000 {
        world.send(&greedy, "GET k");
    }
    for _ in 0..5 {
        world.turns();
    }
    let pending = world.stats.connection_bytes.get();
    assert!(pending < 2 * 1024 * 1024, "{pending} bytes are pending");
    assert_eq!(world.run(&mut other, "PING"), ["PONG"]);
    world.clients.start_reading(greedy.id);
    let mut replies = Vec::new();
    for _ in 0..200 {
        world.turns();
        replies.extend(world.replies(&mut greedy));
    }
    assert_eq!(replies.len(), 10_001);
    assert!(replies[1..].iter().all(|reply| *reply == value));
}

#[test]
fn a_long_pipeline_is_answered_whole_when_its_client_reads_late() {
    for overlapped in [false, true] {
        let settings = Settings { client_reply_bytes: 64 * 1024, ..settings(SyncMode::Off) };
        let mut world = World::with(settings);
        let mut client = world.connect();
        let value = "v".repeat(1000);
        world.send_words(&client, &["SET", "k", &value]);
        world.turns();
        world.clients.stop_reading(client.id);
        for _ in 0..3000 {
            world.send(&client, "GET k");
        }
        let turn =
            |world: &mut World| if overlapped { world.overlapped_turn() } else { world.turn() };
        (0..500).for_each(|_| turn(&mut world));
        world.clients.start_reading(client.id);
        let mut replies = Vec::new();
        for _ in 0..5000 {
            turn(&mut world);
            replies.extend(world.replies(&mut client));
        }
        assert_eq!(replies.len(), 3001, "overlapped: {overlapped}");
        assert!(replies[1..].iter().all(|reply| *reply == value));
    }
}

/// Debug builds compare every record with the space that was reserved for it.
#[test]
fn what_a_transaction_copies_is_reserved() {
    let mut settings = settings(SyncMode::Os);
    settings.tables.push(crate::world::table("t", SyncMode::Os));
    let mut world = World::with(settings);
    let mut client = world.connect();
    let big = "b".repeat(20_000);
    world.send_words(&client, &["SET", "b", &big]);
    world.settle();
    let key = "k".repeat(3000);
    for transaction in [
        "SET a 1\nCOPY a b\nCOPY b c REPLACE",
        "COPY nothing b REPLACE\nCOPY b c REPLACE\nRENAMENX c b\nCOPY b d",
        "COPY b x REPLACE DB 1\nSELECT 1\nCOPY x y REPLACE\nRENAME y z\nSELECT 0",
        "SETRANGE t:a 30000 x\nSELECT 1\nCOPY t:a t:b REPLACE\nCOPY t:b t:c REPLACE\nSELECT 0",
        "APPEND b more\nCOPY b e REPLACE\nSETBIT e 300000 1\nCOPY e f REPLACE",
        "HSET h f 1 g 2\nPEXPIRE h 100000\nCOPY h i\nRENAME i j\nHINCRBYFLOAT j f 1e300\nCOPY j l",
        "SET KEY 1 PX 100000\nCOPY KEY m\nRENAME m KEY\nEXPIRE KEY 100\nPERSIST KEY",
    ] {
        let transaction = transaction.replace("KEY", &key);
        let replies = world.run(&mut client, &format!("MULTI\n{transaction}\nEXEC"));
        assert!(replies.last().is_some_and(|reply| reply.starts_with('[')), "{replies:?}");
    }
}

#[test]
fn before_a_password_a_client_may_not_make_the_server_hold_much() {
    let settings = Settings { password: Some(b"secret".to_vec()), ..settings(SyncMode::Off) };
    let mut world = World::with(settings);
    for (bytes, error) in [
        ("*11\r\n", "-ERR Protocol error: unauthenticated multibulk length"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length"),
    ] {
        let mut client = world.connect();
        world.clients.write(client.id, bytes.as_bytes());
        world.settle();
        assert_eq!(world.replies(&mut client), [error]);
        assert!(world.clients.is_closed(client.id));
    }
    // The request that follows AUTH in one piece is already from an authenticated client.
    let mut client = world.connect();
    let mut bytes = request(&["AUTH", "secret"]);
    let words: Vec<String> =
        (0..41).map(|word| if word == 0 { "MSET".into() } else { format!("w{word}") }).collect();
    bytes.extend_from_slice(&request(&words));
    bytes.extend_from_slice(&request(&["SET", "big", &"b".repeat(20_000)]));
    world.clients.write(client.id, &bytes);
    for _ in 0..5 {
        world.settle();
    }
    assert_eq!(world.replies(&mut client), ["OK", "OK", "OK"]);
    let mut client = world.connect();
    world.clients.write(client.id, &[request(&["AUTH", "wrong"]), request(&words)].concat());
    for _ in 0..5 {
        world.settle();
    }
    let replies = world.replies(&mut client);
    assert!(
        replies[0].starts_with("-WRONGPASS") && replies[1].contains("unauthenticated"),
        "{replies:?}"
    );
}

#[test]
fn above_the_total_the_largest_offender_is_closed() {
    let settings = Settings {
        client_reply_bytes: 64 * 1024,
        reply_bytes_total: 300 * 1024,
        ..settings(SyncMode::Off)
    };
    let mut world = World::with(settings);
    let (greedy, mut modest) = (world.connect(), world.connect());
    let value = "v".repeat(30_000);
    world.send_words(&greedy, &["SET", "k", &value]);
    world.turns();
    world.clients.stop_reading(greedy.id);
    world.send(&greedy, "MGET k k k k k k k k k k k k k k k k");
    world.turns();
    assert_eq!(world.stats.connections_evicted_total.get(), 1);
    world.clients.start_reading(greedy.id);
    world.turns();
    assert!(world.clients.is_closed(greedy.id));
    assert_eq!(world.run(&mut modest, "GET nothing"), ["nil"]);
}

#[test]
fn a_reply_that_would_copy_too_much_is_an_error_and_what_was_executed_is_answered() {
    let mut world = World::new(SyncMode::Off);
    let mut client = world.connect();
    world.send_words(&client, &["SET", "k", &"v".repeat(30_000)]);
    world.settle();
    assert_eq!(world.replies(&mut client), ["OK"]);
    let mget = format!("MGET{}", " k".repeat(9_000));
    let error = "-ERR the reply would pass 256 MiB, ask for less at once";
    assert_eq!(world.run(&mut client, &mget), [error]);
    let replies = world.run(&mut client, &format!("MULTI\nINCR n\n{mget}\nINCR n\nEXEC\nPING"));
    assert_eq!(replies[4..], [format!("[:1 {error} :2]"), "PONG".into()]);
}

#[test]
fn watched_keys_count() {
    let settings = Settings { reply_bytes_total: 1024 * 1024, ..settings(SyncMode::Off) };
    let mut world = World::with(settings);
    let (watcher, mut modest) = (world.connect(), world.connect());
    let keys: Vec<String> = (0..10_000).map(|key| format!("watched{key}")).collect();
    world.send(&watcher, &format!("WATCH {}", keys.join(" ")));
    (0..20).for_each(|_| world.turns());
    assert!(world.clients.is_closed(watcher.id));
    assert_eq!(world.run(&mut modest, "PING"), ["PONG"]);
}

#[test]
fn a_half_request_counts_and_a_multi_queue_counts() {
    let settings = Settings { reply_bytes_total: 1024 * 1024, ..settings(SyncMode::Off) };
    let mut world = World::with(settings);
    let (half, queue) = (world.connect(), world.connect());
    world.clients.write(half.id, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000000\r\n");
    world.clients.write(half.id, &vec![b'x'; 1_500_000]);
    for _ in 0..20 {
        world.turns();
    }
    assert!(world.clients.is_closed(half.id), "a half request of 1.5 MB");
    world.send(&queue, "MULTI");
    let value = "v".repeat(10_000);
    for _ in 0..200 {
        world.send_words(&queue, &["SET", "k", &value]);
    }
    for _ in 0..20 {
        world.turns();
    }
    assert!(world.clients.is_closed(queue.id), "a queue of 2 MB");
}

#[test]
fn a_protocol_error_is_answered_in_its_place_and_ends_the_connection() {
    let mut world = World::new(SyncMode::Always);
    let mut client = world.connect();
    let mut bytes = request(&["SET", "k", "1"]);
    bytes.extend_from_slice(&request(&["GET", "k"]));
    bytes.extend_from_slice(b"*1\r\n!bad\r\n");
    bytes.extend_from_slice(&request(&["SET", "k", "2"]));
    world.clients.write(client.id, &bytes);
    world.settle();
    assert_eq!(
        world.replies(&mut client),
        ["OK", "1", "-ERR Protocol error: expected '$', got '!'"]
    );
    assert!(world.clients.is_closed(client.id));
    let mut other = world.connect();
    assert_eq!(world.run(&mut other, "GET k"), ["1"]);
}

#[test]
fn a_half_closed_client_gets_all_its_replies() {
    let mut world = World::new(SyncMode::Always);
    let mut client = world.connect();
    world.send(&client, "SET k 1\nINCR k\nGET k");
    world.clients.half_close(client.id);
    world.settle();
    assert_eq!(world.replies(&mut client), ["OK", ":2", "2"]);
    assert!(world.clients.is_closed(client.id));
}

#[test]
fn a_large_value_arrives_in_pieces_is_kept_once_and_comes_back() {
    let mut world = World::new(SyncMode::Os);
    let mut client = world.connect();
    let value = "0123456789abcdef".repeat(20_000);
    world.send_words(&client, &["SET", "big", &value]);
    world.send_words(&client, &["APPEND", "big", "!"]);
    for _ in 0..20 {
        world.settle();
    }
    assert_eq!(world.replies(&mut client), ["OK".to_owned(), format!(":{}", value.len() + 1)]);
    world.send(&client, "GET big\nSTRLEN big");
    for _ in 0..20 {
        world.settle();
    }
    assert_eq!(world.replies(&mut client), [format!("{value}!"), format!(":{}", value.len() + 1)]);
    let disk = world.disk.clone();
    drop(world);
    let mut world =
        World::start(disk, settings(SyncMode::Os), SimClock::new(1_000_000), 2).unwrap();
    let mut client = world.connect();
    assert_eq!(world.run(&mut client, "STRLEN big"), [format!(":{}", value.len() + 1)]);
}

#[test]
fn shutdown_answers_what_was_received_whole_and_nothing_else() {
    let mut world = World::new(SyncMode::Always);
    let mut client = world.connect();
    world.send(&client, "SET k 1\nINCR k");
    world.clients.write(client.id, b"*2\r\n$3\r\nGET\r\n");
    world.turns();
    world.net.stop();
    assert!(!world.net.is_drained(), "replies wait for the log");
    world.settle();
    assert!(world.net.is_drained());
    assert_eq!(world.replies(&mut client), ["OK", ":2"]);
    world.net.start_grace_period();
    world.turns();
    assert!(world.clients.is_closed(client.id), "the client sees the end");
    world.clients.write(client.id, &request(&["INCR", "k"]));
    world.turns();
    assert!(world.net.take_discarded(), "what comes late is thrown away");
    world.tx.close_log();
    world.run_log();
    let disk = world.disk.clone();
    assert!(disk.list().is_ok());
    drop(world);
    let mut world =
        World::start(disk, settings(SyncMode::Always), SimClock::new(1_000_000), 2).unwrap();
    let mut client = world.connect();
    assert_eq!(world.run(&mut client, "GET k"), ["2"]);
}

#[test]
fn batches_form_by_themselves() {
    let mut world = World::new(SyncMode::Always);
    let clients: Vec<Client> = (0..50).map(|_| world.connect()).collect();
    for client in &clients {
        world.send(client, "INCR n\nINCR n");
    }
    world.settle();
    assert!(10 <= world.stats.commit_batches.read().max, "{:?}", world.stats.commit_batches.read());
    assert!(world.progress.stats().frames < 100, "one frame per record");
}

#[test]
fn a_browser_is_cut_off_before_its_body_is_read_as_commands() {
    let mut world = World::new(SyncMode::Always);
    let mut client = world.connect();
    world.clients.write(client.id, b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET k v\r\n");
    world.settle();
    assert!(world.replies(&mut client).is_empty());
    assert!(world.clients.is_closed(client.id));
    let mut other = world.connect();
    assert_eq!(world.run(&mut other, "EXISTS k"), [":0"]);
}
