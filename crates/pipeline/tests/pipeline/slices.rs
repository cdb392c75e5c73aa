//! Commands that take long are executed in slices: nobody waits for them, and they take effect as
//! if at one moment.

use std::time::Duration;

use crate::world::{Client, World, request, settings, small_segments};
use busload_io::sim::{CrashKind, SimClock, SimDisk, SimRng};
use busload_pipeline::settings::{Settings, SyncMode};

const MANY: usize = 50_000;

fn keys() -> impl Iterator<Item = String> {
    (0..MANY).map(|number| format!("key:{number}"))
}

fn words<'a>(command: &'a [&'a str], rest: impl Iterator<Item = String>) -> Vec<String> {
    command.iter().map(|word| (*word).to_owned()).chain(rest).collect()
}

/// Returns pairs of many names, all with one value.
fn pairs(value: &str) -> impl Iterator<Item = String> {
    keys().flat_map(move |key| [key, value.to_owned()])
}

/// Sends a command and returns at once.
fn ask(world: &mut World, client: &Client, command: &[&str], rest: impl Iterator<Item = String>) {
    world.send_words(client, &words(command, rest));
}

/// Receives exactly this many replies.
fn answers(world: &mut World, client: &mut Client, count: usize) -> Vec<String> {
    let mut replies = Vec::new();
    for _ in 0..500 {
        if count <= replies.len() {
            break;
        }
        world.settle();
        replies.extend(world.replies(client));
    }
    world.settle();
    replies.extend(world.replies(client));
    assert_eq!(replies.len(), count);
    replies
}

fn answer(world: &mut World, client: &mut Client) -> Vec<String> {
    answers(world, client, 1)
}

/// Runs turns until the request is executed in slices: received whole, and a slice or two executed.
fn turns_until_sliced(world: &mut World) {
    for _ in 0..100_000 {
        world.turn();
        if world.tx.has_jobs() {
            return;
        }
    }
    panic!("the command did not become a job");
}

fn turns_until_done(world: &mut World) -> usize {
    (0..)
        .find(|_| {
            world.turn();
            world.run_log();
            !world.tx.has_jobs()
        })
        .unwrap()
}

fn filled(sync: SyncMode) -> (World, Client, Client) {
    let mut world = World::new(sync);
    let (mut long, other) = (world.connect(), world.connect());
    ask(&mut world, &long, &["MSET"], pairs("old"));
    assert_eq!(answer(&mut world, &mut long), ["OK"]);
    ask(&mut world, &long, &["HSET", "hash"], pairs("old"));
    assert_eq!(answer(&mut world, &mut long), [format!(":{MANY}")]);
    (world, long, other)
}

#[test]
fn others_are_answered_between_two_slices_and_the_connection_keeps_its_order() {
    let commands: [(&[&str], bool); 9] = [
        (&["KEYS", "*"], false),
        (&["MGET"], true),
        (&["EXISTS"], true),
        (&["HGETALL", "hash"], false),
        (&["HKEYS", "hash"], false),
        (&["HMGET", "hash"], true),
        (&["COPY", "hash", "copy"], false),
        (&["HDEL", "hash"], true),
        (&["DEL"], true),
    ];
    let (mut world, mut long, mut other) = filled(SyncMode::Off);
    for (command, with_keys) in commands {
        let rest: Vec<String> = if with_keys { keys().collect() } else { Vec::new() };
        ask(&mut world, &long, command, rest.into_iter());
        world.send(&long, "PING behind");
        turns_until_sliced(&mut world);
        world.send(&other, "PING\nGET absent");
        for _ in 0..5 {
            world.turn();
            assert!(world.tx.has_jobs(), "{command:?} was over within a few turns");
        }
        assert_eq!(answers(&mut world, &mut other, 2), ["PONG", "nil"], "{command:?}");
        assert_eq!(answers(&mut world, &mut long, 2)[1], "behind");
    }
}

#[test]
fn replies_in_slices_are_those_of_the_whole() {
    let (mut world, mut long, _) = filled(SyncMode::Off);
    world.run(&mut long, "SET wrong string");
    for (command, count) in [("KEYS *", MANY + 2), ("HGETALL hash", 2 * MANY), ("HKEYS hash", MANY)]
    {
        world.send(&long, command);
        let reply = answer(&mut world, &mut long).remove(0);
        let mut items: Vec<&str> = reply.trim_matches(['[', ']']).split(' ').collect();
        assert_eq!(items.len(), count, "{command}");
        items.sort_unstable();
        if command != "HGETALL hash" {
            items.dedup();
            assert_eq!(items.len(), count, "{command}: none twice");
        }
    }
    ask(&mut world, &long, &["MGET", "absent", "hash"], keys());
    assert_eq!(answer(&mut world, &mut long), [format!("[nil nil{}]", " old".repeat(MANY))]);
    ask(&mut world, &long, &["EXISTS", "absent", "hash", "key:0"], keys());
    assert_eq!(answer(&mut world, &mut long), [format!(":{}", MANY + 2)]);
    ask(&mut world, &long, &["HMGET", "hash", "absent"], keys());
    assert_eq!(answer(&mut world, &mut long), [format!("[nil{}]", " old".repeat(MANY))]);
    ask(&mut world, &long, &["HSET", "wrong"], pairs("x"));
    assert!(answer(&mut world, &mut long)[0].starts_with("-WRONGTYPE"));
    ask(&mut world, &long, &["MSETNX", "fresh", "1"], pairs("new"));
    assert_eq!(answer(&mut world, &mut long), [":0"]);
    assert_eq!(world.run(&mut long, "EXISTS fresh\nGET key:7"), [":0", "old"]);
    ask(&mut world, &long, &["HSET", "hash", "fresh", "1", "fresh", "2"], pairs("new"));
    assert_eq!(answer(&mut world, &mut long), [":1"], "a field named twice is new once");
    ask(&mut world, &long, &["DEL", "absent", "key:0"], keys());
    assert_eq!(answer(&mut world, &mut long), [format!(":{MANY}")], "a key named twice goes once");
    ask(&mut world, &long, &["HDEL", "hash", "absent", "key:1"], keys());
    assert_eq!(answer(&mut world, &mut long), [format!(":{MANY}")]);
    assert_eq!(world.run(&mut long, "HGETALL hash\nDBSIZE"), ["[fresh 2]", ":2"]);
}

#[test]
fn a_transaction_runs_whole() {
    let (mut world, mut long, _) = filled(SyncMode::Off);
    world.send(&long, "MULTI\nKEYS *");
    ask(&mut world, &long, &["MGET"], keys());
    ask(&mut world, &long, &["DEL"], keys());
    world.send(&long, "HGETALL hash\nDBSIZE\nEXEC");
    let replies = answers(&mut world, &mut long, 7);
    assert!(replies[6].ends_with(" :1]"), "all keys but the hash are gone");
    assert_eq!(replies[6].matches("old").count(), 2 * MANY);
}

#[test]
fn what_is_read_in_slices_is_of_one_moment() {
    for command in ["MGET", "HMGET hash", "HVALS hash"] {
        let (mut world, mut reader, mut writer) = filled(SyncMode::Off);
        let command: Vec<&str> = command.split(' ').collect();
        let rest: Vec<String> = if command[0] == "HVALS" { Vec::new() } else { keys().collect() };
        ask(&mut world, &reader, &command, rest.into_iter());
        turns_until_sliced(&mut world);
        // The command read the first key long ago, and has yet to read the last.
        let last = MANY - 1;
        world.send(
            &writer,
            &format!(
                "SET key:0 new\nHSET hash key:0 new\nSET key:{last} new\nHSET hash key:{last} new"
            ),
        );
        let reply = answer(&mut world, &mut reader).remove(0);
        let new = reply.matches("new").count();
        assert!(new == 0 || new == 2, "{command:?} shows {new} of two changes made in one order");
        assert_eq!(reply.matches("new").count() + reply.matches("old").count(), MANY);
        answers(&mut world, &mut writer, 4);
    }
}

#[test]
fn a_hash_whose_time_is_over_while_it_is_read_is_read_whole() {
    let (mut world, mut reader, mut other) = filled(SyncMode::Off);
    world.run(&mut other, "PEXPIRE hash 1000");
    world.send(&reader, "HVALS hash");
    turns_until_sliced(&mut world);
    world.clock.advance(Duration::from_secs(5));
    world.tx.housekeep(crate::world::read(&world.clock));
    let reply = answer(&mut world, &mut reader).remove(0);
    assert_eq!(reply.matches("old").count(), MANY);
    assert_eq!(world.run(&mut other, "EXISTS hash"), [":0"]);
}

#[test]
fn a_write_in_slices_is_seen_whole_or_not_at_all() {
    let (mut world, mut writer, mut reader) = filled(SyncMode::Off);
    ask(&mut world, &writer, &["MSET"], pairs("new"));
    turns_until_sliced(&mut world);
    let last = MANY - 1;
    let mut seen = Vec::new();
    while world.tx.has_jobs() {
        world.send(&reader, &format!("MGET key:0 key:{} key:{last}", MANY / 2));
        world.turn();
        seen.extend(world.replies(&mut reader));
    }
    assert_eq!(answer(&mut world, &mut writer), ["OK"]);
    world.settle();
    seen.extend(world.replies(&mut reader));
    assert!(
        seen.iter().all(|reply| reply == "[old old old]" || reply == "[new new new]"),
        "{seen:?}"
    );
    assert_eq!(seen.last().unwrap(), "[new new new]");
}

#[test]
fn flushes_and_transactions_wait_for_what_is_locked() {
    let (mut world, mut reader, mut other) = filled(SyncMode::Off);
    ask(&mut world, &reader, &["MGET"], keys());
    turns_until_sliced(&mut world);
    world.send(&other, "MULTI\nSET key:0 new\nEXEC\nFLUSHALL\nDBSIZE");
    let reply = answer(&mut world, &mut reader).remove(0);
    assert_eq!(reply.matches("old").count(), MANY);
    assert_eq!(answers(&mut world, &mut other, 5), ["OK", "QUEUED", "[OK]", "OK", ":0"]);
}

#[test]
fn the_slices_of_a_client_that_is_gone_end_and_half_a_write_is_never_left() {
    let (mut world, reader, mut other) = filled(SyncMode::Off);
    ask(&mut world, &reader, &["MGET"], keys());
    turns_until_sliced(&mut world);
    world.clients.reset(reader.id);
    for _ in 0..10 {
        world.turn();
    }
    assert!(!world.tx.has_jobs(), "nobody waits for it");
    let writer = world.connect();
    ask(&mut world, &writer, &["MSET"], pairs("new"));
    turns_until_sliced(&mut world);
    world.clients.reset(writer.id);
    turns_until_done(&mut world);
    let after = world.run(&mut other, "MGET key:0 key:49999");
    assert!(after == ["[new new]"] || after == ["[old old]"], "half of it was written: {after:?}");
}

#[test]
fn without_replies_the_slices_have_none() {
    let (mut world, mut long, _) = filled(SyncMode::Off);
    world.send(&long, "CLIENT REPLY SKIP");
    ask(&mut world, &long, &["MGET"], keys());
    world.send(&long, "PING");
    assert_eq!(answer(&mut world, &mut long), ["PONG"]);
}

#[test]
fn a_write_in_slices_is_in_the_log_whole_or_not_at_all() {
    // Try every place at which the process can end, up to the one behind the reply.
    let mut outcomes = Vec::new();
    for turns in (0_u64..).step_by(3) {
        let disk = SimDisk::new();
        let mut world =
            World::start(disk.clone(), settings(SyncMode::Always), SimClock::new(1_000_000), 1)
                .unwrap();
        let mut client = world.connect();
        world.run(&mut client, "SET key:0 old\nHSET big a 1");
        ask(&mut world, &client, &["MSET", "big", &"v".repeat(200_000)], pairs("new"));
        turns_until_sliced(&mut world);
        for _ in 0..turns {
            world.turn();
            world.log_step();
            world.helper.step(busload_io::Clock::now(&world.clock));
        }
        let acknowledged = !world.replies(&mut client).is_empty();
        drop(world);
        let disk = disk.crash(&mut SimRng::new(turns), CrashKind::DropUnsynced);
        let mut world =
            World::start(disk, settings(SyncMode::Always), SimClock::new(1_000_000), 2).unwrap();
        let mut client = world.connect();
        let after = world.run(&mut client, "GET key:0\nDBSIZE\nTYPE big\nSTRLEN key:49999");
        let whole = ["new".to_owned(), format!(":{}", MANY + 1), "string".into(), ":3".into()];
        let nothing = ["old", ":2", "hash", ":0"].map(str::to_owned);
        assert!(after == whole || after == nothing, "{after:?}");
        assert!(!acknowledged || after == whole, "an acknowledged write is lost");
        assert_eq!(world.run(&mut client, "SET after 1"), ["OK"]);
        outcomes.push(after == whole);
        if acknowledged {
            break;
        }
    }
    assert!(outcomes.contains(&false) && outcomes.contains(&true), "{outcomes:?}");
}

#[test]
fn a_full_disk_on_the_way_leaves_nothing() {
    let disk = SimDisk::new();
    let mut world =
        World::start(disk.clone(), settings(SyncMode::Always), SimClock::new(1_000_000), 1)
            .unwrap();
    let (mut client, mut other) = (world.connect(), world.connect());
    world.run(&mut client, "SET key:0 old");
    ask(&mut world, &client, &["MSET"], pairs(&"v".repeat(100)));
    let before = world.progress.written();
    while world.progress.written() <= before {
        world.turn();
        world.run_log();
    }
    disk.set_space(Some(600 * 1024));
    let replies = answer(&mut world, &mut client);
    assert!(replies[0].starts_with("-MISCONF"), "{replies:?}");
    assert_eq!(world.run(&mut client, "GET key:0\nDBSIZE"), ["old", ":1"]);
    disk.set_space(None);
    world.clock.advance(Duration::from_secs(2));
    world.settle();
    ask(&mut world, &client, &["MSET"], pairs("new"));
    assert_eq!(answer(&mut world, &mut client), ["OK"]);
    assert_eq!(world.run(&mut other, "GET key:0"), ["new"]);
    drop(world);
    let mut world =
        World::start(disk, settings(SyncMode::Always), SimClock::new(1_000_000), 2).unwrap();
    let mut client = world.connect();
    assert_eq!(world.run(&mut client, "GET key:0\nDBSIZE"), ["new".to_owned(), format!(":{MANY}")]);
}

/// The parts were logged until one found no space: the client's next attempt used up what had been
/// freed, and small writes were refused, too.
#[test]
fn a_large_write_that_does_not_fit_takes_no_room() {
    let disk = SimDisk::new();
    let mut world =
        World::start(disk.clone(), settings(SyncMode::Always), SimClock::new(1_000_000), 1)
            .unwrap();
    let mut client = world.connect();
    world.run(&mut client, "SET key:0 old");
    disk.set_space(Some(8 << 20));
    for _ in 0..2 {
        ask(&mut world, &client, &["MSET"], pairs(&"v".repeat(2_000)));
        let replies = answer(&mut world, &mut client);
        assert!(replies[0].starts_with("-MISCONF"), "{replies:?}");
    }
    let small = "w".repeat(3_000);
    for number in 0..100 {
        let key = format!("small:{number}");
        ask(&mut world, &client, &["SET", &key, &small], std::iter::empty());
        assert_eq!(answer(&mut world, &mut client), ["OK"], "{number}");
    }
    assert_eq!(world.run(&mut client, "GET key:0\nDBSIZE"), ["old", ":101"]);
}

/// Space for all of it was prepared first: the helper wrote zeros, and everybody's syncs waited for
/// them.
#[test]
fn a_large_write_is_logged_in_segments_of_the_usual_length() {
    let (mut world, mut client, _) = filled(SyncMode::Always);
    ask(&mut world, &client, &["MSET"], pairs(&"v".repeat(100)));
    assert_eq!(answer(&mut world, &mut client), ["OK"]);
    let lengths = world.disk.snapshot().into_values().map(|contents| contents.len() as u64);
    assert!(lengths.max() <= Some(small_segments().segment_bytes));
}

#[test]
fn a_large_value_is_set_with_all_the_options_of_a_small_one() {
    let mut world = World::new(SyncMode::Always);
    let (mut client, mut other) = (world.connect(), world.connect());
    let value = "v".repeat(2 * 1024 * 1024);
    let set = |world: &mut World, client: &mut Client, words: &[&str]| {
        world.clients.write(client.id, &request(words));
        for _ in 0..20 {
            world.settle();
        }
        world
            .replies(client)
            .into_iter()
            .map(|reply| reply[..reply.len().min(8)].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(set(&mut world, &mut client, &["SET", "k", &value]), ["OK"]);
    assert_eq!(set(&mut world, &mut client, &["SET", "k", &value, "NX"]), ["nil"]);
    assert_eq!(
        set(&mut world, &mut client, &["SET", "k", &value, "XX", "GET", "EX", "100"]),
        ["vvvvvvvv"]
    );
    assert_eq!(set(&mut world, &mut client, &["SETNX", "k", &value]), [":0"]);
    assert_eq!(set(&mut world, &mut client, &["GETSET", "k2", &value]), ["nil"]);
    assert_eq!(set(&mut world, &mut client, &["SETEX", "k3", "50", &value]), ["OK"]);
    assert_eq!(set(&mut world, &mut client, &["SET", "k2", &value, "PXAT", "1"]), ["OK"]);
    assert_eq!(set(&mut world, &mut client, &["COPY", "k", "k4"]), [":1"]);
    let strlen = format!(":{}", value.len());
    let shown = world.run(&mut other, "TTL k\nTTL k3\nTTL k4\nEXISTS k2\nSTRLEN k\nSTRLEN k4");
    assert_eq!(shown, [":100", ":50", ":100", ":0", &strlen, &strlen]);
    world.settle();
    let disk = world.disk.clone();
    drop(world);
    let mut world =
        World::start(disk, settings(SyncMode::Always), SimClock::new(1_000_000), 2).unwrap();
    let mut client = world.connect();
    let shown = world.run(&mut client, "TTL k\nTTL k3\nTTL k4\nEXISTS k2\nSTRLEN k\nSTRLEN k4");
    assert_eq!(shown, [":100", ":50", ":100", ":0", &strlen, &strlen]);
}

#[test]
fn a_large_hash_moves_with_its_expiry_and_wakes_watchers() {
    let (mut world, mut client, mut watcher) = filled(SyncMode::Always);
    world.run(&mut watcher, "WATCH moved\nMULTI\nPING");
    assert_eq!(world.run(&mut client, "PEXPIRE hash 500000"), [":1"]);
    world.send(&client, "RENAME hash moved");
    assert_eq!(answer(&mut world, &mut client), ["OK"]);
    assert_eq!(world.run(&mut watcher, "EXEC"), ["nil"]);
    let state = "HLEN moved\nEXISTS hash\nTTL moved\nHGET moved key:7";
    let expected = [format!(":{MANY}"), ":0".into(), ":500".into(), "old".into()];
    assert_eq!(world.run(&mut client, state), expected);
    turns_until_done(&mut world);
    let disk = world.disk.clone();
    drop(world);
    let mut world =
        World::start(disk, settings(SyncMode::Always), SimClock::new(1_000_000), 2).unwrap();
    let mut client = world.connect();
    assert_eq!(world.run(&mut client, state), expected);
}

#[test]
fn a_queue_of_a_transaction_is_closed_at_the_limit() {
    let limit = 8 * 1024 * 1024;
    let settings =
        Settings { reply_bytes_total: limit, client_reply_bytes: limit, ..settings(SyncMode::Off) };
    let mut world = World::with(settings);
    let (mut client, mut other) = (world.connect(), world.connect());
    world.run(&mut client, "MULTI");
    let value = "v".repeat(100_000);
    let mut most = 0;
    while world.stats.connections_evicted_total.get() == 0 {
        world.send_words(&client, &["SET", "k", &value]);
        for _ in 0..60 {
            world.turn();
            most = most.max(world.stats.connection_bytes.get());
        }
        assert!(most < 2 * limit as u64, "connections take {most} bytes and none was closed");
    }
    assert!(limit as u64 * 8 / 10 < most && most <= limit as u64 * 105 / 100, "{most} of {limit}");
    world.turns();
    assert_eq!(world.run(&mut other, "PING"), ["PONG"]);
    assert!(world.stats.connection_bytes.get() < 1024 * 1024);
}

#[test]
fn a_large_string_is_patched_as_a_small_one_is() {
    const MIB: usize = 1024 * 1024;
    let mut world = World::new(SyncMode::Always);
    let (mut client, mut other) = (world.connect(), world.connect());
    let mut model = vec![b'v'; 3 * MIB];
    let run = |world: &mut World, client: &mut Client, words: &[&[u8]]| {
        world.clients.write(client.id, &request(words));
        answer(world, client).remove(0)
    };
    assert_eq!(run(&mut world, &mut client, &[b"SET", b"k", &model, b"EX", b"100"]), "OK");
    assert_eq!(run(&mut world, &mut client, &[b"COPY", b"k", b"copy"]), ":1");
    let copied = model.clone();
    // Write at the end, in the middle, over the end, behind it, and change one bit.
    let end = model.len();
    let long = vec![b'l'; 2 * MIB];
    for (offset, bytes) in
        [(end, &b"tail"[..]), (MIB, b"middle"), (end - 5, &long), (8 * MIB, b"gap"), (0, b"x")]
    {
        let length = model.len().max(offset + bytes.len());
        model.resize(length, 0);
        model[offset..offset + bytes.len()].copy_from_slice(bytes);
        let reply = match offset == end {
            true => run(&mut world, &mut client, &[b"APPEND", b"k", bytes]),
            false => run(
                &mut world,
                &mut client,
                &[b"SETRANGE", b"k", offset.to_string().as_bytes(), bytes],
            ),
        };
        assert_eq!(reply, format!(":{length}"));
    }
    let bit = (20 * MIB * 8).to_string();
    assert_eq!(run(&mut world, &mut client, &[b"SETBIT", b"k", bit.as_bytes(), b"1"]), ":0");
    model.resize(20 * MIB + 1, 0);
    model[20 * MIB] = 0x80;
    assert_eq!(
        run(&mut world, &mut client, &[b"APPEND", b"fresh", &long]),
        format!(":{}", long.len())
    );
    let ones: u32 = model.iter().map(|byte| byte.count_ones()).sum();
    let check = |world: &mut World, client: &mut Client| {
        assert_eq!(run(world, client, &[b"BITCOUNT", b"k"]), format!(":{ones}"));
        assert_eq!(
            world.run(client, "TTL k\nSTRLEN k"),
            [":100".to_owned(), format!(":{}", model.len())]
        );
        for at in [0, MIB - 3, 3 * MIB - 8, 5 * MIB - 8, 8 * MIB - 4, 20 * MIB - 4] {
            let range = at..(at + 12).min(model.len());
            let words = [at.to_string(), (at + 11).to_string()];
            let shown =
                run(world, client, &[b"GETRANGE", b"k", words[0].as_bytes(), words[1].as_bytes()]);
            assert_eq!(shown, String::from_utf8_lossy(&model[range]));
        }
        let shown = run(world, client, &[b"GET", b"copy"]);
        assert!(shown.as_bytes() == copied, "a copy stays as it was");
        assert_eq!(world.run(client, "STRLEN fresh"), [format!(":{}", long.len())]);
    };
    check(&mut world, &mut other);
    let disk = world.disk.clone();
    drop(world);
    let mut world =
        World::start(disk, settings(SyncMode::Always), SimClock::new(1_000_000), 2).unwrap();
    let mut client = world.connect();
    check(&mut world, &mut client);
}

#[test]
fn what_came_with_the_end_of_a_long_request_is_answered_without_more_bytes() {
    let mut world = World::new(SyncMode::Off);
    let mut client = world.connect();
    // So many arguments fill a batch, and the request behind them waits for the next.
    let mut bytes = request(&words(&["MSET"], pairs("new")));
    bytes.extend(request(&["ECHO", "behind"]));
    world.clients.write(client.id, &bytes);
    assert_eq!(answers(&mut world, &mut client, 2), ["OK", "behind"]);
}

#[test]
fn two_large_writes_at_once_are_both_in_the_log_and_in_order() {
    let disk = SimDisk::new();
    let mut world =
        World::start(disk.clone(), settings(SyncMode::Always), SimClock::new(1_000_000), 1)
            .unwrap();
    let mut clients: Vec<Client> = (0..3).map(|_| world.connect()).collect();
    let values: Vec<String> = ["a", "b"].map(|letter| letter.repeat(2 * 1024 * 1024)).into();
    ask(&mut world, &clients[0], &["SET", "a", &values[0]], std::iter::empty());
    ask(&mut world, &clients[1], &["SET", "b", &values[1]], std::iter::empty());
    ask(&mut world, &clients[2], &["MSET"], pairs("new"));
    for client in &mut clients {
        assert_eq!(answer(&mut world, client), ["OK"]);
    }
    drop(world);
    let disk = disk.crash(&mut SimRng::new(1), CrashKind::DropUnsynced);
    let mut world =
        World::start(disk, settings(SyncMode::Always), SimClock::new(1_000_000), 2).unwrap();
    let mut client = world.connect();
    for (key, value) in ["a", "b"].into_iter().zip(&values) {
        ask(&mut world, &client, &["GET", key], std::iter::empty());
        assert!(answer(&mut world, &mut client)[0] == *value, "{key} is not what was acknowledged");
    }
    assert_eq!(world.run(&mut client, "DBSIZE"), [format!(":{}", MANY + 2)]);
}

#[test]
fn commands_over_the_same_keys_in_opposite_order_all_end() {
    // A wide network delivers all requests before the first has locked its keys.
    let mut world = World::wide(settings(SyncMode::Off));
    let (mut first, mut second, mut reader) = (world.connect(), world.connect(), world.connect());
    ask(&mut world, &first, &["MSET"], pairs("old"));
    answer(&mut world, &mut first);
    let mut reversed: Vec<String> = keys().collect();
    reversed.reverse();
    let reversed_pairs = reversed.iter().flat_map(|key| [key.clone(), "second".into()]);
    ask(&mut world, &first, &["MSET"], pairs("first"));
    ask(&mut world, &second, &["MSET"], reversed_pairs);
    ask(&mut world, &reader, &["MGET"], reversed.iter().cloned());
    assert_eq!(answer(&mut world, &mut first), ["OK"]);
    assert_eq!(answer(&mut world, &mut second), ["OK"]);
    let read = answer(&mut world, &mut reader).remove(0);
    let shown: Vec<usize> =
        ["old", "first", "second"].map(|value| read.matches(value).count()).into();
    assert!(shown.contains(&MANY), "{shown:?}: a mixture was read");
}

#[test]
fn a_writer_gets_its_turn_among_readers_that_never_end() {
    let (mut world, reader, mut writer) = filled(SyncMode::Off);
    let readers = [reader, world.connect(), world.connect()];
    let again =
        |world: &mut World| readers.iter().for_each(|reader| world.send(reader, "HKEYS hash"));
    again(&mut world);
    turns_until_sliced(&mut world);
    world.send(&writer, "HSET hash fresh 1\nFLUSHALL\nPING");
    let mut replies = Vec::new();
    for _ in 0..2_000 {
        again(&mut world);
        (0..20).for_each(|_| world.turn());
        for reader in &readers {
            world.clients.read(reader.id);
        }
        replies.extend(world.replies(&mut writer));
        if replies.len() == 3 {
            break;
        }
    }
    assert_eq!(replies, [":1", "OK", "PONG"]);
}

#[test]
fn a_copy_into_a_table_without_log_is_shown_when_its_source_is_durable() {
    let tables = [
        crate::world::table("default", SyncMode::Always),
        crate::world::table("cache", SyncMode::Off),
    ];
    let mut world = World::with(Settings { tables: tables.into(), ..Settings::default() });
    let (mut writer, mut reader) = (world.connect(), world.connect());
    ask(&mut world, &writer, &["HSET", "hash"], pairs("old"));
    answer(&mut world, &mut writer);
    // The log does not move from here on.
    world.send(&writer, "HSET hash fresh 1\nCOPY hash cache:hash");
    for _ in 0..2_000 {
        world.turn();
    }
    assert!(!world.tx.has_jobs());
    world.send(&reader, "HGET cache:hash fresh");
    world.turns();
    assert_eq!(
        world.replies(&mut reader),
        Vec::<String>::new(),
        "shown before its source is durable"
    );
    assert_eq!(answers(&mut world, &mut writer, 2), [":1", ":1"]);
    assert_eq!(answer(&mut world, &mut reader), ["1"]);
}
