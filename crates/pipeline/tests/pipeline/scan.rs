//! KEYS and SCAN: they return every key that stays at least once, whatever happens to the others.

use std::collections::BTreeMap;

use crate::common::{Client, Server, check};
use busload_pipeline::settings::{Settings, SyncMode, TableSettings};
use busload_resp::reply::Reply;

/// Sends one SCAN. Returns the next cursor and the keys.
fn scan_once(server: &mut Server, cursor: u64, options: &str) -> (u64, Vec<String>) {
    let line = format!("SCAN {cursor} {options}");
    let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
    let bytes = server.send(Client::FIRST, &words);
    let text = |reply: &Reply| match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes.to_vec()).expect("keys here are text"),
        other => panic!("not a string: {other:?}"),
    };
    match Reply::parse(&bytes) {
        Ok(Some((Reply::Array(parts), _))) => match parts.as_slice() {
            [cursor, Reply::Array(keys)] => {
                (text(cursor).parse().expect("a number"), keys.iter().map(text).collect())
            }
            other => panic!("not a cursor and keys: {other:?}"),
        },
        other => panic!("not an array: {other:?}"),
    }
}

/// Runs a whole scan, with something happening after each step. Returns how often it returned each
/// key.
fn scan_all(
    server: &mut Server,
    options: &str,
    mut meanwhile: impl FnMut(&mut Server, usize),
) -> BTreeMap<String, usize> {
    const STEPS_MAX: usize = 100_000;
    let mut seen = BTreeMap::new();
    let mut cursor = 0;
    for step in 0..STEPS_MAX {
        let (next, keys) = scan_once(server, cursor, options);
        assert!(next < 1 << 53, "a double holds the cursor {next}");
        keys.into_iter().for_each(|key| *seen.entry(key).or_default() += 1);
        if next == 0 {
            return seen;
        }
        meanwhile(server, step);
        cursor = next;
    }
    panic!("the scan never ends");
}

fn with_named_table() -> Server {
    let mut settings = Settings::default();
    let named = TableSettings {
        name: "cache".into(),
        sync: SyncMode::Off,
        ..TableSettings::default_table()
    };
    settings.tables.push(named);
    Server::with(settings)
}

fn fill(server: &mut Server, prefix: &str, count: usize) {
    (0..count).for_each(|index| _ = server.run(format!("SET {prefix}{index} v")));
}

#[test]
fn bad_cursors_and_options_are_refused_as_redis_refuses_them() {
    check(
        r#"
        SCAN                        -> -ERR wrong number of arguments for 'scan' command
        SCAN a                      -> -ERR invalid cursor
        SCAN " 0"                   -> -ERR invalid cursor
        SCAN "0 "                   -> -ERR invalid cursor
        SCAN 18446744073709551616   -> -ERR invalid cursor
        SCAN 0 COUNT 0              -> -ERR syntax error
        SCAN 0 COUNT -1             -> -ERR syntax error
        SCAN 0 COUNT a              -> -ERR value is not an integer or out of range
        SCAN 0 COUNT                -> -ERR syntax error
        SCAN 0 MATCH                -> -ERR syntax error
        SCAN 0 TYPE                 -> -ERR syntax error
        SCAN 0 FOO x                -> -ERR syntax error
        SCAN 0                      -> ['0', []]
        SCAN -1                     -> ['0', []]
        SCAN 18446744073709551615   -> ['0', []]
        SCAN ""                     -> ['0', []]
        KEYS                        -> -ERR wrong number of arguments for 'keys' command
        KEYS *                      -> []
    "#,
    );
}

#[test]
fn patterns_and_types_choose_keys() {
    check(
        r#"
        SET ka 1                         -> OK
        HSET kh f v                      -> 1
        SET "" 1                         -> OK
        SET x?y 1                        -> OK
        KEYS ka                          -> ['ka']
        KEYS k[^a]                       -> ['kh']
        KEYS x\?y                        -> ['x?y']
        KEYS nothing*                    -> []
        SCAN 0 MATCH ka* COUNT 1000      -> ['0', ['ka']]
        SCAN 0 match KA COUNT 1000       -> ['0', []]
        SCAN 0 TYPE hash COUNT 1000      -> ['0', ['kh']]
        SCAN 0 TYPE HASH COUNT 1000      -> ['0', ['kh']]
        SCAN 0 TYPE list COUNT 1000      -> ['0', []]
        SCAN 0 TYPE nonsense COUNT 1000  -> ['0', []]
        SCAN 0 TYPE string MATCH k* COUNT 1000 -> ['0', ['ka']]
        SCAN 0 MATCH k* MATCH x* COUNT 1000 -> ['0', ['x?y']]
        PEXPIRE ka 10                    -> 1
        DBSIZE                           -> 4
    "#,
    );
}

#[test]
fn expired_keys_are_not_shown() {
    let mut server = Server::new();
    server.run("SET old v PX 10");
    server.run("SET new v");
    server.advance(10);
    assert_eq!(server.run("KEYS *"), "['new']");
    assert_eq!(server.run("SCAN 0 COUNT 1000"), "['0', ['new']]");
}

#[test]
fn a_scan_at_rest_returns_every_key_in_every_step_size() {
    for count in [1, 2, 10, 1_000, 1_000_000] {
        let mut server = with_named_table();
        fill(&mut server, "k", 3_000);
        fill(&mut server, "cache:k", 500);
        let seen = scan_all(&mut server, &format!("COUNT {count}"), |_, _| {});
        assert_eq!(seen.len(), 3_500, "in steps of {count}");
        assert!(seen.values().all(|times| *times == 1), "a table at rest has no duplicates");
    }
}

#[test]
fn a_step_looks_at_about_as_many_keys_as_asked() {
    let mut server = Server::new();
    fill(&mut server, "k", 5_000);
    let (_, keys) = scan_once(&mut server, 0, "COUNT 100");
    assert!((50..=1_000).contains(&keys.len()), "{}", keys.len());
    let (next, keys) = scan_once(&mut server, 0, "COUNT 100 MATCH nothing");
    assert_eq!(keys, [] as [String; 0]);
    assert_ne!(next, 0, "entries that do not match count as visited");
}

#[test]
fn every_key_that_stays_is_returned_while_the_table_grows() {
    let mut server = Server::new();
    fill(&mut server, "stays", 1_000);
    let mut added = 0;
    let seen = scan_all(&mut server, "COUNT 20", |server, _| {
        // A scan would never end in a table that grows faster than it is scanned.
        let end = (added + 400).min(10_000);
        (added..end).for_each(|index| _ = server.run(format!("SET added{index} v")));
        added = end;
    });
    assert_eq!(added, 10_000, "the table has grown to a multiple");
    let stayed = (0..1_000).filter(|index| seen.contains_key(&format!("stays{index}"))).count();
    assert_eq!(stayed, 1_000);
}

#[test]
fn every_key_that_stays_is_returned_while_the_table_shrinks_and_churns() {
    let mut server = with_named_table();
    fill(&mut server, "stays", 500);
    fill(&mut server, "cache:stays", 500);
    fill(&mut server, "goes", 8_000);
    let mut next = 0;
    let seen = scan_all(&mut server, "COUNT 30", |server, step| {
        for _ in 0..100 {
            server.run(format!("DEL goes{next}"));
            server.run(format!("SET churn{} v", next % 300));
            next += 1;
        }
        if step % 3 == 0 {
            server.run(format!("DEL churn{}", next % 300));
        }
        server.housekeep();
    });
    let stayed = (0..500)
        .filter(|index| {
            seen.contains_key(&format!("stays{index}"))
                && seen.contains_key(&format!("cache:stays{index}"))
        })
        .count();
    assert_eq!(stayed, 500);
}

#[test]
fn named_tables_are_listed_in_space_zero_only() {
    let mut server = with_named_table();
    server.run("SET cache:a 1");
    server.run("SET b 1");
    assert_eq!(
        scan_all(&mut server, "COUNT 1", |_, _| {}).into_keys().collect::<Vec<_>>(),
        ["b", "cache:a"]
    );
    server.run("SELECT 1");
    assert_eq!(server.run("KEYS *"), "[]");
    assert_eq!(server.run("SCAN 0"), "['0', []]");
    assert_eq!(server.run("DBSIZE"), "0");
    assert_eq!(server.run("GET cache:a"), "'1'");
}

/// These patterns took minutes when a class was parsed again for each byte of each key, and nobody
/// else was served.
#[test]
fn long_patterns_are_matched_or_refused() {
    let mut server = Server::new();
    for number in 0..10_000 {
        server.run(format!("SET {number:a>47} v"));
    }
    server.run("HSET hash field-b 1 field-c 2");
    let class = |start: &str, unit: &str, count: usize, end: &str| {
        format!("{start}[{}]{end}", unit.repeat(count)).into_bytes()
    };
    let scan = |server: &mut Server, words: &[&[u8]]| {
        let bytes = server.send(Client::FIRST, words);
        match Reply::parse(&bytes).expect("a reply").expect("all of it").0 {
            Reply::Array(parts) => match &parts[..] {
                [Reply::Bulk(cursor), Reply::Array(found)] => (cursor.clone(), found.len()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    let shown = |server: &mut Server, words: &[&[u8]]| {
        let bytes = server.send(Client::FIRST, words);
        match Reply::parse(&bytes).expect("a reply").expect("all of it").0 {
            Reply::Array(parts) => match parts.last() {
                Some(Reply::Array(found)) => Ok(found.len()),
                _ => Ok(parts.len()),
            },
            Reply::Error(text) => Err(String::from_utf8(text).expect("text")),
            other => panic!("{other:?}"),
        }
    };
    for (pattern, keys, fields) in [
        (class("*", "1", 1_000_000, ""), 1_000, 0),
        (class("*", "b", 1_000_000, ""), 0, 1),
        (class("", "a-z", 300_000, "*7"), 1_000, 0),
        (class("*", "a-z", 300_000, "*0*-*"), 0, 0),
        (b"[a-z]".repeat(200_000), 0, 0),
        (b"*a".repeat(500_000), 0, 0),
    ] {
        let context = || format!("{}... of {}", pattern[..6].escape_ascii(), pattern.len());
        assert_eq!(shown(&mut server, &[b"KEYS", &pattern]), Ok(keys), "{}", context());
        // One call does a bounded part of it, whatever its COUNT.
        let (mut cursor, mut scanned) = (b"0".to_vec(), 0);
        loop {
            let words: [&[u8]; 6] = [b"SCAN", &cursor, b"MATCH", &pattern, b"COUNT", b"20000"];
            let (next, found) = scan(&mut server, &words);
            scanned += found;
            cursor = next;
            if cursor == b"0" {
                break;
            }
        }
        assert_eq!(scanned, keys, "{}", context());
        let fields_found = shown(&mut server, &[b"HSCAN", b"hash", b"0", b"MATCH", &pattern]);
        assert_eq!(fields_found, Ok(2 * fields), "{}", context());
    }
    for (pattern, error) in [
        (class("*", "b", 2_000_000, ""), "ERR pattern is longer than 1 MiB"),
        (b"[ab][cd]".repeat(10_000), "ERR pattern has more than 16000 character classes"),
    ] {
        let error = Err(error.to_owned());
        assert_eq!(shown(&mut server, &[b"KEYS", &pattern]), error);
        assert_eq!(shown(&mut server, &[b"SCAN", b"0", b"MATCH", &pattern]), error);
        assert_eq!(shown(&mut server, &[b"HSCAN", b"hash", b"0", b"MATCH", &pattern]), error);
        assert_eq!(
            shown(&mut server, &[b"COMMAND", b"LIST", b"FILTERBY", b"PATTERN", &pattern]),
            error
        );
    }
}
