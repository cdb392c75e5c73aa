//! Tables that are caches: what gives way at a limit of memory, and that it stays away.

use std::{collections::BTreeSet, time::Duration};

use busload_io::sim::{SimClock, SimDisk};
use busload_pipeline::settings::{Eviction, Settings, SyncMode, TableSettings};

use crate::{
    common::{Client, START_MS, Server, show_bytes},
    world::World,
};

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

/// Memory that a table may take for a moment beyond its limit: an index segment that grows, and a
/// page of ghosts.
const SLACK_BYTES: u64 = 16 * 1024;

fn table(name: &str, memory_max: Option<u64>, evict: Eviction) -> TableSettings {
    TableSettings { name: name.into(), memory_max, evict, ..TableSettings::default_table() }
}

/// Settings with a table `c` that is a cache.
fn with_cache(memory_max: Option<u64>) -> Settings {
    let mut settings = Settings::default();
    settings.tables.push(table("c", memory_max, Eviction::S3Fifo));
    settings
}

/// Returns a field of the table's line in INFO.
fn of_table(server: &mut Server, table: &str, field: &str) -> u64 {
    let tables = server.run("INFO tables").replace("\\r\\n", "\n");
    let line = tables.lines().find(|line| line.starts_with(&format!("table_{table}:")));
    let fields = line.unwrap().split([':', ',']);
    let value = fields.filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == field);
    value.unwrap().1.parse().unwrap()
}

fn info(server: &mut Server, section: &str, field: &str) -> String {
    let text = server.run(format!("INFO {section}")).replace("\\r\\n", "\n");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap().to_owned()
}

fn evicted_keys(server: &mut Server) -> u64 {
    info(server, "stats", "evicted_keys").parse().unwrap()
}

fn keys(server: &mut Server, pattern: &str) -> BTreeSet<String> {
    let reply = server.run(format!("KEYS {pattern}"));
    let keys = reply.trim_matches(['[', ']']).split(", ").filter(|key| !key.is_empty());
    keys.map(|key| key.trim_matches('\'').to_owned()).collect()
}

fn fill(server: &mut Server, from: usize, to: usize) {
    for number in from..to {
        let reply = server.run(format!("SET c:{number} {}", "v".repeat(100)));
        assert_eq!(reply, "OK", "c:{number}");
    }
}

#[test]
fn writes_to_a_cache_keep_it_within_its_limit_and_are_never_refused() {
    const MAX: u64 = 128 * 1024;
    let mut server = Server::with(with_cache(Some(MAX)));
    for number in 0..4_000 {
        let value = "v".repeat(1 + number * 7 % 500);
        let line = match number % 7 {
            0 => format!("HSET c:hash:{} f{number} {value} g{number} w", number % 100),
            1 => format!("APPEND c:text:{} {value}", number % 50),
            2 => format!("MSET c:{number} {value} c:{number}b {value} c:{number}c {value}"),
            3 => format!("SET c:{number} {value} PX 100000"),
            _ => format!("SET c:{number} {value}"),
        };
        let reply = server.run(line);
        assert!(!reply.starts_with('-'), "{number}: {reply}");
        if number % 50 == 0 {
            assert!(of_table(&mut server, "c", "bytes") <= MAX + SLACK_BYTES);
            server.run(format!("DEL c:{number}"));
            server.housekeep();
            assert!(of_table(&mut server, "c", "bytes") <= MAX);
        }
    }
    assert!(1_000 < evicted_keys(&mut server));
    assert!(MAX / 2 < of_table(&mut server, "c", "bytes"), "it evicts no more than it must");
}

#[test]
fn evicted_keys_stay_away_after_a_restart_and_the_others_are_there() {
    let mut server = Server::with(with_cache(Some(64 * 1024)));
    fill(&mut server, 0, 2_000);
    server.run("SET durable 1");
    let before = keys(&mut server, "*");
    assert!(before.len() < 700 && before.contains("durable"), "{}", before.len());
    let mut server = server.reopen();
    assert_eq!(keys(&mut server, "*"), before);
    assert!(of_table(&mut server, "c", "bytes") <= 64 * 1024 + SLACK_BYTES);
    // The queues are there again.
    fill(&mut server, 2_000, 3_000);
    assert!(of_table(&mut server, "c", "bytes") <= 64 * 1024 + SLACK_BYTES);
    assert_eq!(server.run("GET durable"), "'1'");
}

#[test]
fn a_limit_that_was_lowered_is_reached_without_writes() {
    let mut settings = with_cache(None);
    let mut server = Server::with(settings.clone());
    fill(&mut server, 0, 3_000);
    server.run("CONFIG SET maxmemory 100kb");
    for _ in 0..20 {
        server.housekeep();
    }
    let used = of_table(&mut server, "c", "bytes");
    assert!(50_000 < used && used <= 100 * 1024, "{used}");
    // A table that was no cache becomes one at a start.
    settings.memory_max = 60 * 1024;
    let disk = SimDisk::new();
    let clock = SimClock::new(START_MS);
    let mut plain = settings.clone();
    plain.memory_max = 0;
    plain.tables[1].evict = Eviction::None;
    let mut world = World::start(disk.clone(), plain, clock.clone(), 1).unwrap();
    let mut client = world.connect();
    for number in 0..1_000 {
        world.send_words(&client, &["SET", &format!("c:{number}"), &"v".repeat(100)]);
    }
    world.settle();
    assert_eq!(world.replies(&mut client).len(), 1_000);
    drop(world);
    let mut world = World::start(disk, settings, clock, 1).unwrap();
    while world.tx.housekeep(crate::world::read(&world.clock)).is_some_and(|wait| wait.is_zero()) {
        world.tx.end_turn();
        world.run_log();
    }
    let mut client = world.connect();
    let count = world.run(&mut client, "DBSIZE").remove(0);
    let count: u64 = count.trim_start_matches(':').parse().unwrap();
    assert!((200..500).contains(&count), "{count}");
    assert_eq!(world.run(&mut client, "SET c:new v"), ["OK"]);
}

#[test]
fn at_the_limit_of_all_tables_caches_give_way_to_any_write() {
    let mut settings = with_cache(None);
    settings.memory_max = 128 * 1024;
    let mut server = Server::with(settings);
    fill(&mut server, 0, 2_000);
    let cached = of_table(&mut server, "c", "keys");
    assert!(300 < cached && cached < 1_000, "{cached}");
    // Data that nobody may drop takes the place of what is cached.
    let mut written = 0;
    while server.run(format!("SET durable:{written} {}", "v".repeat(100))) == "OK" {
        written += 1;
        assert!(written < 2_000);
    }
    assert!(500 < written, "{written}");
    assert_eq!(of_table(&mut server, "c", "keys"), 0);
    assert_eq!(of_table(&mut server, "default", "keys"), written);
    // Nothing can give way any more.
    assert_eq!(server.run(format!("SET c:x {}", "v".repeat(500))), OOM);
    let durable: String = (0..10).map(|number| format!(" durable:{number}")).collect();
    assert_eq!(server.run(format!("DEL{durable}")), "10");
    assert_eq!(server.run(format!("SET c:x {}", "v".repeat(500))), "OK");
}

#[test]
fn a_write_for_which_caches_cannot_make_room_leaves_them_as_they_are() {
    let mut settings = with_cache(None);
    settings.memory_max = 512 * 1024;
    let mut server = Server::with(settings);
    for number in 0..2_000 {
        assert_eq!(server.run(format!("SET durable:{number} {}", "v".repeat(100))), "OK");
    }
    fill(&mut server, 0, 3_000);
    let before = of_table(&mut server, "c", "keys");
    assert!(300 < before, "{before}");
    let value = "v".repeat(400 * 1024);
    let reply = server.send(Client::FIRST, &[b"SET", b"durable:large", value.as_bytes()]);
    assert_eq!(show_bytes(&reply), OOM);
    server.housekeep();
    assert!(before - 20 < of_table(&mut server, "c", "keys"));
}

#[test]
fn the_keys_of_a_command_and_of_an_exec_are_not_evicted_for_it() {
    let mut server = Server::with(with_cache(Some(64 * 1024)));
    for round in 0..300 {
        fill(&mut server, round * 30, round * 30 + 30);
        // Whatever a key was before, what the command sets is there afterwards.
        server.run(format!("MSET c:m1 {round} c:m2 {round} c:m3 {}", "v".repeat(3_000)));
        assert_eq!(server.run("MGET c:m1 c:m2"), format!("['{round}', '{round}']"));
        server.run("SET c:counter 41");
        server.run("MULTI");
        server.run("INCR c:counter");
        server.run(format!("SET c:large {}", "v".repeat(3_000)));
        server.run("INCR c:counter");
        assert_eq!(server.run("EXEC"), "[42, OK, 43]", "round {round}");
    }
    assert!(of_table(&mut server, "c", "bytes") <= 64 * 1024 + SLACK_BYTES);
}

#[test]
fn a_transaction_is_refused_whole_when_it_cannot_fit() {
    let mut server = Server::with(with_cache(Some(64 * 1024)));
    fill(&mut server, 0, 1_000);
    server.run("MULTI");
    for number in 0..8 {
        assert_eq!(server.run(format!("SET c:big{number} {}", "v".repeat(10_000))), "QUEUED");
    }
    let reply = server.run("EXEC");
    assert!(reply.starts_with("-EXECABORT") && reply.contains("OOM"), "{reply}");
    assert_eq!(server.run("EXISTS c:big0 c:big7"), "0");
}

#[test]
fn watch_sees_an_eviction_as_a_delete() {
    let mut server = Server::with(with_cache(Some(64 * 1024)));
    let other = server.connect();
    fill(&mut server, 0, 1);
    server.run_on(other, "WATCH c:0");
    fill(&mut server, 1, 3_000);
    assert_eq!(server.run("EXISTS c:0"), "0");
    server.run_on(other, "MULTI");
    server.run_on(other, "SET seen 1");
    assert_eq!(server.run_on(other, "EXEC"), "nil array");
}

#[test]
fn what_can_never_fit_empties_no_cache_and_a_large_value_fits_at_the_second_attempt() {
    let mut server = Server::with(with_cache(Some(512 * 1024)));
    fill(&mut server, 0, 6_000);
    let before = of_table(&mut server, "c", "keys");
    let set = |server: &mut Server, key: &str, length| {
        let value = "v".repeat(length);
        show_bytes(&server.send(Client::FIRST, &[b"SET", key.as_bytes(), value.as_bytes()]))
    };
    assert_eq!(set(&mut server, "c:huge", 600 * 1024), OOM);
    assert_eq!(of_table(&mut server, "c", "keys"), before);
    let refused = set(&mut server, "c:large", 300 * 1024);
    assert_eq!(refused, OOM, "more than one request may evict");
    for _ in 0..20 {
        server.housekeep();
    }
    assert_eq!(set(&mut server, "c:large", 300 * 1024), "OK");
    assert!(of_table(&mut server, "c", "bytes") <= 512 * 1024 + SLACK_BYTES);
}

#[test]
fn large_hashes_are_evicted_and_their_memory_is_free_before_others_take_it() {
    let mut settings = with_cache(None);
    settings.memory_max = 1024 * 1024;
    let mut server = Server::with(settings);
    for number in 0..40_usize {
        for part in 0..20 {
            let fields: String = (0..50).map(|at| format!(" field:{part}:{at} value")).collect();
            let reply = server.run(format!("HSET c:hash:{number}{fields}"));
            assert_eq!(reply, "50", "hash {number} part {part}");
        }
        let used: u64 = info(&mut server, "memory", "used_memory").parse().unwrap();
        assert!(used <= 1024 * 1024 + SLACK_BYTES, "{used}");
    }
    assert!(of_table(&mut server, "c", "keys") < 40);
}

#[test]
fn counters_and_settings_tell_the_truth() {
    let mut server = Server::with(with_cache(Some(64 * 1024)));
    assert_eq!(server.run("CONFIG GET maxmemory-policy"), "['maxmemory-policy', 'noeviction']");
    fill(&mut server, 0, 1_000);
    let evicted = evicted_keys(&mut server);
    assert_eq!(evicted + of_table(&mut server, "c", "keys"), 1_000);
    server.run("CONFIG RESETSTAT");
    assert_eq!(evicted_keys(&mut server), 0);

    let mut settings = Settings::default();
    settings.tables[0].evict = Eviction::S3Fifo;
    settings.memory_max = 64 * 1024;
    let mut server = Server::with(settings);
    assert_eq!(info(&mut server, "memory", "maxmemory_policy"), "allkeys-s3-fifo");
    assert_eq!(server.run("CONFIG SET maxmemory-policy allkeys-s3-fifo"), "OK");
    // All spaces of `default` are one cache; the largest gives way first.
    server.run("SELECT 5");
    fill(&mut server, 0, 1_000);
    server.run("SELECT 0");
    fill(&mut server, 0, 100);
    assert_eq!(server.run("DBSIZE"), "100");
    let used: u64 = info(&mut server, "memory", "used_memory").parse().unwrap();
    assert!(used <= 64 * 1024 + SLACK_BYTES, "{used}");
}

#[test]
fn reads_keep_keys_unless_the_client_said_that_they_shall_not_count() {
    for (mode, kept) in [("off", true), ("on", false)] {
        let mut server = Server::with(with_cache(Some(64 * 1024)));
        server.run(format!("CLIENT NO-TOUCH {mode}"));
        fill(&mut server, 0, 50);
        for number in 50..3_000 {
            fill(&mut server, number, number + 1);
            server.run(format!("GET c:{}", number % 50));
        }
        let left = keys(&mut server, "c:*");
        let hot = (0..50).filter(|number| left.contains(&format!("c:{number}"))).count();
        assert_eq!(45 <= hot, kept, "{mode}: {hot} of 50 are left");
    }
}

#[test]
fn a_cache_without_a_log_logs_nothing_when_it_evicts() {
    let mut settings = with_cache(Some(64 * 1024));
    settings.tables[1].sync = SyncMode::Off;
    let mut server = Server::with(settings);
    let before = server.logged_bytes();
    fill(&mut server, 0, 1_000);
    assert!(300 < evicted_keys(&mut server));
    assert_eq!(server.logged_bytes(), before);
}

#[test]
fn nothing_is_evicted_while_the_log_has_no_space() {
    let disk = SimDisk::new();
    let clock = SimClock::new(START_MS);
    let mut world = World::start(disk, with_cache(Some(32 * 1024)), clock, 1).unwrap();
    let mut client = world.connect();
    for number in 0..400 {
        let reply =
            world.run_words(&mut client, &["SET", &format!("c:{number}"), &"v".repeat(100)]);
        assert_eq!(reply, "OK");
    }
    world.disk.set_space(Some(0));
    let mut refused = 0;
    let mut count = String::new();
    for number in 400..5_000 {
        let reply =
            world.run_words(&mut client, &["SET", &format!("c:{number}"), &"v".repeat(100)]);
        if reply.starts_with("-MISCONF") {
            let now = world.run(&mut client, "DBSIZE").remove(0);
            assert!(refused == 0 || now == count, "{now} after {count}");
            (refused, count) = (refused + 1, now);
            if refused == 3 {
                break;
            }
        }
    }
    assert_eq!(refused, 3, "the log has space without end");
    world.disk.set_space(None);
    for _ in 0..50 {
        world.clock.advance(Duration::from_secs(1));
        world.settle();
        if world.run_words(&mut client, &["SET", "c:x", &"v".repeat(100)]) == "OK" {
            return;
        }
    }
    panic!("writes are refused although the log has space again");
}

#[test]
fn a_read_of_an_evicted_key_waits_until_its_eviction_is_durable() {
    let disk = SimDisk::new();
    let clock = SimClock::new(START_MS);
    let mut world = World::start(disk, with_cache(Some(16 * 1024)), clock, 1).unwrap();
    let (mut writer, mut reader) = (world.connect(), world.connect());
    world.run_words(&mut writer, &["SET", "c:old", &"v".repeat(100)]);
    // Not synced, so not acknowledged.
    for number in 0..300 {
        world.send_words(&writer, &["SET", &format!("c:{number}"), &"v".repeat(100)]);
    }
    world.turns();
    world.send(&reader, "GET c:old");
    world.turns();
    assert!(world.replies(&mut reader).is_empty(), "the eviction may yet be lost");
    world.settle();
    assert_eq!(world.replies(&mut reader), ["nil"]);
    assert!(0 < world.stats.evicted_keys_total.get());
}

/// Executes a command whose words may be longer than a line.
fn send(server: &mut Server, words: &[&[u8]]) -> String {
    show_bytes(&server.send(Client::FIRST, words))
}

/// Nothing else is left that could give way.
#[test]
fn a_key_that_fills_its_cache_can_be_written_again() {
    let mut server = Server::with(with_cache(Some(1 << 20)));
    let value = vec![b'v'; 600_000];
    for _ in 0..5 {
        assert_eq!(send(&mut server, &[b"SET", b"c:large", &value]), "OK");
        assert_eq!(server.run("STRLEN c:large"), "600000");
    }
    assert!(of_table(&mut server, "c", "bytes") < 1 << 20);
}

/// A turn evicts fewer keys than such a command needs room for.
#[test]
fn a_command_over_many_small_keys_is_not_refused_by_a_full_cache() {
    const MAX: u64 = 4 << 20;
    let mut server = Server::with(with_cache(Some(MAX)));
    fill(&mut server, 0, 40_000);
    let value = [b'v'; 100];
    for round in 0..20 {
        let keys: Vec<String> = (0..900).map(|number| format!("c:{round}:{number}")).collect();
        let pairs = keys.iter().flat_map(|key| [key.as_bytes(), &value[..]]);
        let words: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
        assert_eq!(send(&mut server, &words), "OK", "round {round}");
        assert!(of_table(&mut server, "c", "bytes") <= MAX + MAX / 16);
    }
    server.housekeep();
    assert!(of_table(&mut server, "c", "bytes") <= MAX + SLACK_BYTES);
}

/// A key that a transaction writes twice once counted twice.
#[test]
fn a_transaction_in_a_table_that_does_not_evict_is_judged_by_its_commands() {
    let mut settings = with_cache(Some(1 << 20));
    settings.tables.push(table("t", Some(1 << 20), Eviction::None));
    let mut server = Server::with(settings);
    let value = vec![b'v'; 300_000];
    assert_eq!(send(&mut server, &[b"SET", b"t:a", &value]), "OK");
    server.run("MULTI");
    for _ in 0..3 {
        assert_eq!(send(&mut server, &[b"SET", b"t:a", &value]), "QUEUED");
    }
    assert_eq!(server.run("EXEC"), "[OK, OK, OK]");
}
