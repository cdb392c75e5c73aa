//! SLOWLOG, LATENCY, MONITOR, MEMORY, CLIENT LIST and CONFIG SET: what a person asks who looks for
//! a problem. The replies have the shapes that Redis 7 gives.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use busload_io::Clock;
use busload_pipeline::settings::{Settings, SyncMode};

use crate::{
    common::{Server, check},
    world::{World, request, settings},
};

/// Clock that a read advances by a millisecond, so that a timed command takes one.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn wall_ms(&self) -> i64 {
        0
    }
}

fn timed(settings: Settings) -> Server {
    let mut server = Server::with(settings);
    server.tx.set_clock(Box::new(Ticking::default()));
    server
}

#[test]
fn the_shapes_of_slowlog_and_latency_are_those_of_redis() {
    check(
        "
        CONFIG SET slowlog-log-slower-than -1 -> OK
        SLOWLOG RESET                         -> OK
        SLOWLOG      -> -ERR wrong number of arguments for 'slowlog' command
        SLOWLOG FOO                           -> -ERR unknown subcommand 'FOO'. Try SLOWLOG HELP.
        SLOWLOG GET                           -> []
        SLOWLOG GET -1                        -> []
        SLOWLOG GET x -> -ERR count should be greater than or equal to -1
        SLOWLOG GET -2 -> -ERR count should be greater than or equal to -1
        SLOWLOG get 1 2 -> -ERR unknown subcommand or wrong number of arguments for 'get'. Try \
        SLOWLOG HELP.
        SLOWLOG GET 1 2 -> -ERR unknown subcommand or wrong number of arguments for 'GET'. Try \
        SLOWLOG HELP.
        SLOWLOG LEN                           -> 0
        SLOWLOG LEN x -> -ERR wrong number of arguments for 'slowlog|len' command
        CONFIG SET latency-monitor-threshold 100000 -> OK
        LATENCY LATEST                        -> []
        LATENCY HISTORY -> -ERR wrong number of arguments for 'latency|history' command
        LATENCY HISTORY foo                   -> []
        LATENCY GRAPH -> -ERR wrong number of arguments for 'latency|graph' command
        LATENCY GRAPH command -> -ERR No samples available for event 'command'
        LATENCY GRAPH foo -> -ERR No samples available for event 'foo'
        LATENCY RESET                         -> 0
        LATENCY RESET foo command             -> 0
        MEMORY PURGE                          -> OK
        CONFIG SET slowlog-log-slower-than 10000 -> OK
        CONFIG SET latency-monitor-threshold 0 -> OK
    ",
    );
}

#[test]
fn the_slow_log_keeps_who_sent_what_and_how_long_it_took() {
    let mut server = timed(Settings::default());
    server.run("CLIENT SETNAME Anna");
    assert_eq!(server.run("CONFIG SET slowlog-log-slower-than 0"), "OK");
    assert_eq!(server.run("SLOWLOG RESET"), "OK");
    server.run("Get k");
    assert_eq!(
        server.run("SLOWLOG GET 1"),
        "[[2, 1700000000, 1000, ['Get', 'k'], '/sim:0', 'Anna']]",
        "id, time, microseconds, arguments, client, name"
    );
    assert_eq!(server.run("SLOWLOG LEN"), "3", "RESET, Get and GET; LEN is not there yet");
    let long = format!("SET {} {}", "k".repeat(200), "v ".repeat(60));
    server.run(&long);
    let newest = server.run("SLOWLOG GET 1");
    assert!(newest.contains(&format!("'{}... (72 more bytes)'", "k".repeat(128))), "{newest}");
    assert!(newest.contains("'... (31 more arguments)'"), "{newest}");
    assert_eq!(server.run("CONFIG SET slowlog-max-len 2"), "OK");
    assert_eq!(server.run("SLOWLOG LEN"), "2");
    assert_eq!(server.run("CONFIG SET slowlog-log-slower-than -1"), "OK");
    server.run("SLOWLOG RESET");
    server.run("KEYS *");
    assert_eq!(server.run("SLOWLOG LEN"), "0");
}

#[test]
fn what_can_take_long_is_timed_by_itself_and_what_is_fast_is_not() {
    let mut server = timed(Settings::default());
    assert_eq!(server.run("CONFIG SET slowlog-log-slower-than 1000"), "OK");
    server.run("SLOWLOG RESET");
    server.run("SET k v");
    server.run("GET k");
    server.run("INCR n");
    assert_eq!(server.run("SLOWLOG LEN"), "1", "RESET only: fast commands are not timed");
    server.run("SLOWLOG RESET");
    server.run("KEYS *");
    server.run(format!("SET k {}", "x".repeat(5_000)));
    server.run("MULTI");
    server.run("GETRANGE k 0 -1");
    server.run("GET k");
    server.run("EXEC");
    let log = server.run("SLOWLOG GET -1");
    let commands: Vec<&str> = log.match_indices("['").map(|(at, _)| &log[at..at + 7]).collect();
    assert_eq!(commands, ["['EXEC'", "['GETRA", "['SET',", "['KEYS'", "['SLOWL"], "{log}");
}

#[test]
fn a_sliced_command_counts_the_time_of_all_its_slices() {
    let mut server = timed(Settings::default());
    for number in 0..10_000 {
        server.run(format!("SET key:{number} v"));
    }
    server.run("CONFIG SET slowlog-log-slower-than 2000");
    server.run("SLOWLOG RESET");
    server.run("KEYS *");
    let log = server.run("SLOWLOG GET");
    let microseconds: u64 = log.split(", ").nth(2).unwrap().parse().unwrap();
    assert!(log.contains("['KEYS', '*']") && 2_000 <= microseconds, "{log}");
}

#[test]
fn no_password_is_in_the_slow_log_or_shown_to_monitors() {
    let password = Some(b"hunter2".to_vec());
    let mut world = World::with(Settings { password, ..settings(SyncMode::Os) });
    world.tx.set_clock(Box::new(Ticking::default()));
    let (mut monitor, mut client) = (world.connect(), world.connect());
    world.run(&mut monitor, "AUTH hunter2\nCONFIG SET slowlog-log-slower-than 0\nMONITOR");
    world.run(
        &mut client,
        "AUTH default hunter2\nHELLO 3 AUTH default hunter2 SETNAME me\nAUTH wrong-hunter2\n\
         CONFIG SET requirepass hunter2\nMULTI\nAUTH hunter2\nEXEC\nGET k",
    );
    let shown = world.replies(&mut monitor).join("\n");
    assert!(shown.contains("\"AUTH\" \"(redacted)\" \"(redacted)\""), "{shown}");
    assert!(shown.contains("\"AUTH\" \"(redacted)\" \"(redacted)\" \"SETNAME\" \"me\""), "{shown}");
    assert!(shown.contains("\"GET\" \"k\""), "{shown}");
    let log = world.run(&mut client, "SLOWLOG GET -1").join("\n");
    assert!(log.contains("(redacted)") && log.contains("HELLO"), "{log}");
    assert!(!format!("{shown}{log}").contains("hunter2"), "{shown}\n{log}");
}

#[test]
fn monitors_see_what_is_executed_in_its_order_and_nothing_else() {
    let mut world = World::new(SyncMode::Os);
    let (mut monitor, mut client) = (world.connect(), world.connect());
    assert_eq!(world.run(&mut monitor, "MONITOR"), ["OK"]);
    world.run(
        &mut client,
        "SET k v\nSELECT 3\nGET k\nMULTI\nINCR n\nINCR m\nEXEC\nGET\nNOSUCH x\nCONFIG GET port\n\
         CLIENT LIST\nCLIENT ID\nEXEC",
    );
    world.send_words(&client, &[&b"ECHO"[..], b"a \"b\"\\\r\n\x01\xff"]);
    world.settle();
    let lines = world.replies(&mut monitor);
    let shown: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| {
            let (_, line) = line.split_once(" [").unwrap();
            let (client, command) = line.split_once("] ").unwrap();
            (client.split(' ').next().unwrap(), command)
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("0", "\"SET\" \"k\" \"v\""),
            ("3", "\"SELECT\" \"3\""),
            ("3", "\"GET\" \"k\""),
            ("3", "\"MULTI\""),
            ("3", "\"INCR\" \"n\""),
            ("3", "\"INCR\" \"m\""),
            ("3", "\"EXEC\""),
            ("3", "\"CLIENT\" \"ID\""),
            ("3", "\"EXEC\""),
            ("3", "\"ECHO\" \"a \\\"b\\\"\\\\\\r\\n\\x01\\xff\""),
        ],
        "no command that was refused or is for operators"
    );
    let (seconds, us) = lines[0].split(' ').next().unwrap().split_once('.').unwrap();
    assert!(seconds.parse::<u64>().is_ok() && us.len() == 6, "{}", lines[0]);
    assert!(world.run(&mut client, "CLIENT LIST").last().unwrap().contains(" flags=O "));

    assert_eq!(world.run(&mut monitor, "RESET").last().unwrap(), "RESET");
    world.run(&mut client, "GET k");
    assert!(world.replies(&mut monitor).is_empty(), "RESET ends it");
    let mut others: Vec<_> = (0..17).map(|_| world.connect()).collect();
    let replies: Vec<String> =
        others.iter_mut().map(|other| world.run(other, "MONITOR").remove(0)).collect();
    assert!(replies[..16].iter().all(|reply| reply == "OK"), "{replies:?}");
    assert_eq!(replies[16], "-ERR max number of clients in MONITOR mode reached, 16");
}

#[test]
fn a_monitor_that_does_not_read_is_closed_and_nobody_else() {
    let limit = 64 * 1024;
    let mut world = World::with(Settings { client_reply_bytes: limit, ..settings(SyncMode::Off) });
    let (monitor, mut client) = (world.connect(), world.connect());
    world.send(&monitor, "MONITOR");
    world.settle();
    world.clients.stop_reading(monitor.id);
    let large = "x".repeat(1_000);
    for _ in 0..300 {
        world.send(&client, &format!("SET k {large}"));
        world.turns();
        assert_eq!(world.replies(&mut client), ["OK"]);
    }
    // It once counted as one that was closed because all replies took too much memory.
    assert_eq!(world.stats.monitors_closed_total.get(), 1);
    assert_eq!(world.stats.connections_evicted_total.get(), 0);
    assert_eq!(world.net.connection_count(), 1);
    assert_eq!(world.run(&mut client, "GET k"), [large]);
}

#[test]
fn one_turn_shows_monitors_a_bounded_number_of_bytes() {
    let mut world = World::wide(settings(SyncMode::Off));
    let (mut monitor, client) = (world.connect(), world.connect());
    world.run(&mut monitor, "MONITOR");
    // More than a MiB of lines in one turn.
    let line = format!("SET k {}\n", "\u{1}".repeat(1_000));
    world.send(&client, &line.repeat(400));
    world.settle();
    let lines = world.replies(&mut monitor);
    let shown = lines.iter().filter(|line| line.contains("\"SET\"")).count();
    let left_out: usize = lines
        .iter()
        .filter_map(|line| line.split_once("\"... (")?.1.split(' ').next()?.parse::<usize>().ok())
        .sum();
    assert_eq!(shown + left_out, 400, "{shown} shown, {left_out} counted");
    assert!(0 < shown, "some are shown");
}

#[test]
fn client_list_shows_the_buffers_of_a_connection() {
    let mut world = World::new(SyncMode::Os);
    let (mut watcher, client) = (world.connect(), world.connect());
    // Half a request.
    world.clients.write(client.id, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\nabc");
    world.settle();
    let field = |world: &mut World, watcher: &mut _, name: &str| -> u64 {
        let list = world.run(watcher, "CLIENT LIST TYPE normal")[0].clone();
        let line = list.lines().last().unwrap().to_owned();
        let value = line.split(' ').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
        value.unwrap_or_else(|| panic!("no {name} in {line}")).parse().unwrap()
    };
    assert_eq!(field(&mut world, &mut watcher, "qbuf"), 29);
    assert!(0 < field(&mut world, &mut watcher, "tot-mem"));
    assert_eq!(field(&mut world, &mut watcher, "omem"), 0);
    world.clients.write(client.id, &[&b"x".repeat(97)[..], b"\r\n"].concat());
    world.settle();
    assert_eq!(field(&mut world, &mut watcher, "qbuf"), 0);
    // Replies that nobody takes.
    world.clients.stop_reading(client.id);
    let value = "x".repeat(30_000);
    world.run(&mut watcher, &format!("SET big {value}"));
    for _ in 0..20 {
        world.send(&client, "GET big");
    }
    world.settle();
    assert!(100_000 < field(&mut world, &mut watcher, "omem"));
    assert!(0 < field(&mut world, &mut watcher, "oll"));
    assert!(100_000 < field(&mut world, &mut watcher, "tot-mem"));
}

#[test]
fn config_set_changes_limits_of_connections_at_once() {
    let mut world = World::new(SyncMode::Os);
    let (mut operator, mut client) = (world.connect(), world.connect());
    assert_eq!(
        world.run(&mut operator, "CONFIG SET client-query-buffer-limit 64kb timeout 30"),
        ["OK"]
    );
    assert_eq!(
        world.run(&mut operator, "CONFIG GET client-query-buffer-limit timeout"),
        ["[timeout 30 client-query-buffer-limit 65536]"]
    );
    let refused = world.run(&mut client, &format!("SET k {}", "x".repeat(70_000)));
    assert!(refused[0].contains("Protocol error"), "{refused:?}");

    let mut quiet = world.connect();
    assert_eq!(world.run(&mut quiet, "PING"), ["PONG"]);
    assert_eq!(world.net.connection_count(), 2);
    world.clock.advance(Duration::from_secs(29));
    world.run(&mut operator, "PING");
    world.tx.housekeep(crate::world::read(&world.clock));
    world.settle();
    assert_eq!(world.net.connection_count(), 2, "idle for 29 seconds");
    world.clock.advance(Duration::from_secs(3));
    world.tx.housekeep(crate::world::read(&world.clock));
    world.settle();
    assert_eq!(world.net.connection_count(), 1, "idle for 32 seconds");
    assert_eq!(world.run(&mut operator, "PING"), ["PONG"], "not idle");
}

/// Only an executed request counted, so a client was closed in the middle of a long upload.
#[test]
fn a_client_that_sends_a_long_request_is_not_idle() {
    let mut world = World::new(SyncMode::Os);
    let (mut operator, mut client) = (world.connect(), world.connect());
    assert_eq!(world.run(&mut operator, "CONFIG SET timeout 30"), ["OK"]);
    let upload = request(&["SET", "k", "x".repeat(3_000).as_str()]);
    let id = client.id;
    let mut part = |world: &mut World, bytes: &[u8], seconds: u64| {
        world.clients.write(id, bytes);
        world.settle();
        world.clock.advance(Duration::from_secs(seconds));
        world.tx.housekeep(crate::world::read(&world.clock));
        world.settle();
        world.run(&mut operator, "PING");
    };
    for bytes in upload[..2_000].chunks(500) {
        part(&mut world, bytes, 20);
        assert_eq!(world.net.connection_count(), 2, "it sent something 20 seconds ago");
    }
    part(&mut world, &upload[2_000..], 20);
    assert_eq!(world.replies(&mut client), ["OK"]);
    let mut late = world.connect();
    assert_eq!(world.run(&mut late, "PING"), ["PONG"]);
    world.clients.write(late.id, &upload[..500]);
    world.settle();
    world.clock.advance(Duration::from_secs(31));
    world.run(&mut operator, "PING");
    world.tx.housekeep(crate::world::read(&world.clock));
    world.settle();
    assert_eq!(world.net.connection_count(), 1, "both have sent nothing for 31 seconds");
}

#[test]
fn config_set_of_the_thresholds_refuses_what_redis_refuses() {
    let failed = |name: &str, why: &str| {
        format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
    };
    let mut server = Server::new();
    for (line, expected) in [
        (
            "slowlog-log-slower-than -2",
            failed(
                "slowlog-log-slower-than",
                "argument must be between -1 and 9223372036854775807 inclusive",
            ),
        ),
        (
            "slowlog-max-len -1",
            failed(
                "slowlog-max-len",
                "argument must be between 0 and 9223372036854775807 inclusive",
            ),
        ),
        (
            "latency-monitor-threshold x",
            failed("latency-monitor-threshold", "argument couldn't be parsed into an integer"),
        ),
        (
            "client-reply-bytes 1kb",
            failed(
                "client-reply-bytes",
                "argument must be between 65536 and 9223372036854775807 inclusive",
            ),
        ),
        (
            "client-reply-bytes 4gb",
            failed(
                "client-reply-bytes",
                "reply-bytes-total (2147483648) would be less than client-reply-bytes \
                 (4294967296); expected at least as much",
            ),
        ),
        (
            "slowlog-max-len 7 reply-bytes-total 1mb",
            failed(
                "reply-bytes-total",
                "reply-bytes-total (1048576) would be less than client-reply-bytes (67108864); \
                 expected at least as much",
            ),
        ),
        (
            "tcp-keepalive 7",
            failed(
                "tcp-keepalive",
                "it can be changed only in the configuration file, for the next start",
            ),
        ),
        (
            "maxclients 0",
            failed("maxclients", "argument must be between 1 and 2147483647 inclusive"),
        ),
        (
            "maxclients 10001",
            failed(
                "maxclients",
                "at most 10000, the number that the server was started with; more need a start",
            ),
        ),
    ] {
        assert_eq!(server.run(format!("CONFIG SET {line}")), expected);
    }
    assert_eq!(
        server.run("CONFIG GET slowlog* latency*"),
        "['slowlog-log-slower-than', '10000', 'slowlog-max-len', '128', \
         'latency-monitor-threshold', '100']"
    );
    // Both together count as they are afterwards.
    let both = "CONFIG SET reply-bytes-total 1mb client-reply-bytes 1mb";
    assert_eq!(server.run(both), "OK");
    let both = "CONFIG SET client-reply-bytes 512mb reply-bytes-total 512mb";
    assert_eq!(server.run(both), "OK");
}

#[test]
fn latency_shows_what_took_long() {
    let mut server = timed(Settings::default());
    // A turn of so many milliseconds, without what its commands were measured to take.
    let turn = |server: &mut Server, took_ms| {
        server.tx.note_turn(Duration::ZERO, Duration::ZERO);
        server.tx.note_turn(Duration::ZERO, Duration::from_millis(took_ms));
    };
    turn(&mut server, 50);
    assert_eq!(server.run("LATENCY LATEST"), "[]", "50 ms are below 100 ms");
    assert!(server.run("LATENCY DOCTOR").contains("Nothing has taken 100 ms or longer"));
    turn(&mut server, 250);
    turn(&mut server, 150);
    server.advance(2_000);
    server.run("PING");
    turn(&mut server, 120);
    assert_eq!(server.run("LATENCY LATEST"), "[['turn', 1700000002, 120, 250]]");
    assert_eq!(server.run("LATENCY HISTORY turn"), "[[1700000000, 250], [1700000002, 120]]");
    let graph = server.run("LATENCY GRAPH Turn");
    assert!(graph.contains("turn - high 250 ms, low 120 ms (all time high 250 ms)"), "{graph}");
    assert!(graph.contains("# ") && graph.contains("|_") && graph.contains("20"), "{graph}");
    let doctor = server.run("LATENCY DOCTOR");
    assert!(
        doctor.contains("1. turn: in 2 seconds, 185 ms on average, 250 ms at most"),
        "{doctor}"
    );
    assert_eq!(server.run("LATENCY RESET turn command"), "1");
    assert_eq!(server.run("LATENCY LATEST"), "[]");
    assert_eq!(server.run("CONFIG SET latency-monitor-threshold 1"), "OK");
    server.run("KEYS *");
    assert!(server.run("LATENCY LATEST").starts_with("[['command', "));
    assert_eq!(server.run("CONFIG SET latency-monitor-threshold 0"), "OK");
    server.run("LATENCY RESET");
    server.run("KEYS *");
    assert_eq!(server.run("LATENCY LATEST"), "[]");
    assert!(server.run("LATENCY DOCTOR").contains("Latency monitoring is off"));
}

#[test]
fn memory_stats_add_up() {
    let mut server = Server::new();
    let empty = server.run("MEMORY STATS");
    assert!(empty.starts_with("['peak.allocated', "), "{empty}");
    assert!(server.run("MEMORY DOCTOR").contains("nothing to find"));
    server.run(format!("SET k {}", "x".repeat(1_000)));
    server.run("SELECT 3");
    server.run("SET l v");
    server.run("HELLO 3");
    let stats = server.run("MEMORY STATS");
    let number = |name: &str| -> u64 {
        let (_, rest) = stats.split_once(&format!("'{name}': ")).unwrap();
        rest.split([',', '}']).next().unwrap().parse().unwrap()
    };
    assert_eq!(number("keys.count"), 1, "the first is that of db.0: {stats}");
    assert!(stats.contains("'db.0': {") && stats.contains("'db.3': {"), "{stats}");
    assert!(stats.contains("'keys.count': 2, 'keys.bytes-per-key': "), "{stats}");
    assert!(1_000 < number("dataset.bytes"), "{stats}");
    assert_eq!(
        number("total.allocated"),
        number("dataset.bytes") + number("overhead.total"),
        "{stats}"
    );
    server.run("CONFIG SET maxmemory 1000");
    let doctor = server.run("MEMORY DOCTOR");
    assert!(doctor.contains("of maxmemory = 1000B"), "{doctor}");
    assert_eq!(
        server.run("MEMORY MALLOC-STATS"),
        "txt'Stats not supported for the current allocator'"
    );
}

#[test]
fn the_histogram_of_a_command_counts_requests_by_time_in_the_shape_of_redis() {
    let mut world = World::new(SyncMode::Os);
    let mut client = world.connect();
    assert_eq!(world.run(&mut client, "LATENCY HISTOGRAM set nosuch"), ["[]"]);
    world.run(&mut client, "SET k v\nSET k w\nGET k\nCONFIG GET port");
    assert_eq!(
        world.run(&mut client, "LATENCY HISTOGRAM SET get"),
        ["[get [calls :1 histogram_usec [:1 :1]] set [calls :2 histogram_usec [:1 :2]]]"],
        "no time passes in this test, and commands come in the order of the table"
    );
    let all = world.run(&mut client, "LATENCY HISTOGRAM").remove(0);
    assert!(all.contains("config [calls :1 ") && all.contains("latency [calls :"), "{all}");
    // Twice the time of a bucket is in another one.
    let stats = std::sync::Arc::clone(&world.stats);
    let (_, latencies) =
        stats.latencies.commands().find(|(command, _)| command.name == "get").unwrap();
    latencies.requests.record(Duration::from_micros(100), 3);
    latencies.requests.record(Duration::from_secs(100), 1);
    assert_eq!(
        world.run(&mut client, "LATENCY HISTOGRAM get"),
        ["[get [calls :5 histogram_usec [:1 :1 :128 :4 :100000001 :5]]]"]
    );
}
