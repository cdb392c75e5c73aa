//! Commands on keys of any kind: values and errors are those of Redis 7.0.

use crate::common::{Client, START_MS, Server, check, check_on};
use busload_pipeline::settings::{Settings, SyncMode, TableSettings};

/// Starts a server with further memory tables.
fn with_tables(named: &[(&str, SyncMode)]) -> Server {
    let mut settings = Settings::default();
    settings.tables.extend(named.iter().map(|&(name, sync)| TableSettings {
        name: name.into(),
        sync,
        ..TableSettings::default_table()
    }));
    Server::with(settings)
}

#[test]
fn keys_are_deleted_counted_and_named_by_type() {
    check(
        "
        SET a 1              -> OK
        HSET h f v           -> 1
        TYPE a               -> string
        TYPE h               -> hash
        TYPE nokey           -> none
        EXISTS a a h nokey   -> 3
        TOUCH a h nokey      -> 2
        DEL a nokey a        -> 1
        UNLINK h nokey       -> 1
        EXISTS a h           -> 0
        DEL                  -> -ERR wrong number of arguments for 'del' command
        EXISTS               -> -ERR wrong number of arguments for 'exists' command
        TYPE a b             -> -ERR wrong number of arguments for 'type' command
    ",
    );
}

#[test]
fn what_is_deleted_stays_deleted_after_a_restart() {
    check(
        "
        SET a 1       -> OK
        SET b 1       -> OK
        HSET h f v    -> 1
        DEL a         -> 1
        UNLINK h      -> 1
        @ reopen
        EXISTS a b h  -> 1
        FLUSHALL      -> OK
        @ reopen
        DBSIZE        -> 0
    ",
    );
}

#[test]
fn an_expiration_hides_the_key_when_its_time_comes() {
    check(
        "
        SET k v              -> OK
        TTL k                -> -1
        PTTL k               -> -1
        EXPIRE k 10          -> 1
        TTL k                -> 10
        PTTL k               -> 10000
        EXPIRETIME k         -> 1700000010
        PEXPIRETIME k        -> 1700000010000
        @ 9499
        TTL k                -> 1
        @ 2
        TTL k                -> 0
        EXISTS k             -> 1
        @ 498
        PTTL k               -> 1
        @ 1
        EXISTS k             -> 0
        TTL k                -> -2
        PTTL k               -> -2
        EXPIRETIME k         -> -2
        PEXPIRETIME k        -> -2
        EXPIRE k 10          -> 0
        TYPE k               -> none
        PERSIST k            -> 0
        RENAME k b           -> -ERR no such key
        COPY k b             -> 0
        DEL k                -> 0
    ",
    );
}

#[test]
fn an_expiration_survives_a_restart_and_can_be_taken_back() {
    check(
        "
        SET a v              -> OK
        SET b v              -> OK
        HSET h f v           -> 1
        PEXPIRE a 5000       -> 1
        PEXPIREAT b 1700000005000 -> 1
        EXPIREAT h 1700000005 -> 1
        PERSIST b            -> 1
        PERSIST b            -> 0
        PERSIST nokey        -> 0
        @ reopen
        PTTL a               -> 5000
        TTL b                -> -1
        PTTL h               -> 5000
        @ 5000
        EXISTS a b h         -> 1
    ",
    );
}

#[test]
fn expire_conditions_compare_with_the_old_time() {
    check(
        "
        SET k v                -> OK
        EXPIRE k 10 XX         -> 0
        EXPIRE k 10 GT         -> 0
        EXPIRE k 10 NX         -> 1
        EXPIRE k 20 nx         -> 0
        EXPIRE k 5 GT          -> 0
        EXPIRE k 10 GT         -> 0
        EXPIRE k 20 gt         -> 1
        EXPIRE k 30 LT         -> 0
        EXPIRE k 5 LT          -> 1
        EXPIRE k 40 XX GT      -> 1
        EXPIRE k 50 XX LT      -> 0
        EXPIRE k 60 XX XX      -> 1
        PERSIST k              -> 1
        EXPIRE k 10 LT         -> 1
        EXPIRE k 5 NX XX -> -ERR NX and XX, GT or LT options at the same time are not compatible
        EXPIRE k 5 NX GT -> -ERR NX and XX, GT or LT options at the same time are not compatible
        EXPIRE k 5 LT NX -> -ERR NX and XX, GT or LT options at the same time are not compatible
        EXPIRE k 5 GT LT       -> -ERR GT and LT options at the same time are not compatible
        EXPIRE nokey x GT LT   -> -ERR GT and LT options at the same time are not compatible
        EXPIRE k 5 FOO         -> -ERR Unsupported option FOO
        EXPIRE k 5 NX FOO XX   -> -ERR Unsupported option FOO
        EXPIRE k               -> -ERR wrong number of arguments for 'expire' command
        EXPIRE nokey x         -> -ERR value is not an integer or out of range
        TTL k                  -> 10
    ",
    );
}

#[test]
fn a_time_in_the_past_deletes_and_one_too_far_away_is_an_error() {
    check(
        "
        SET k v                              -> OK
        EXPIRE k 0                           -> 1
        EXISTS k                             -> 0
        SET k v                              -> OK
        EXPIREAT k -1                        -> 1
        EXISTS k                             -> 0
        SET k v EX 100                       -> OK
        EXPIRE k -1 NX                       -> 0
        EXPIRE k -1 GT                       -> 0
        EXPIRE k -1 LT                       -> 1
        EXISTS k                             -> 0
        SET k v                              -> OK
        PEXPIRE k -9223372036854775808       -> 1
        EXISTS k                             -> 0
        SET k v                              -> OK
        EXPIRE k 9223372036854775807         -> -ERR invalid expire time in 'expire' command
        EXPIRE k 9223372036854775            -> -ERR invalid expire time in 'expire' command
        EXPIRE k -9223372036854775808        -> -ERR invalid expire time in 'expire' command
        PEXPIRE k 9223372036854775807        -> -ERR invalid expire time in 'pexpire' command
        EXPIREAT k 9223372036854775807       -> -ERR invalid expire time in 'expireat' command
        EXPIRE nokey 9223372036854775807     -> -ERR invalid expire time in 'expire' command
        PEXPIREAT k 9223372036854775807      -> 1
        PEXPIRETIME k                        -> 9223372036854775807
    ",
    );
}

#[test]
fn a_key_can_be_renamed_with_its_value_and_time() {
    check(
        r#"
        SET a 1 PX 5000000           -> OK
        HSET h f v g "\x00"          -> 2
        SET victim x                 -> OK
        RENAME a victim              -> OK
        EXISTS a                     -> 0
        GET victim                   -> '1'
        EXPIRETIME nokey             -> -2
        RENAME h victim              -> OK
        HGETALL victim               -> ['f', 'v', 'g', '\x00']
        TTL victim                   -> -1
        RENAME victim victim         -> OK
        RENAMENX victim victim       -> 0
        SET b 1                      -> OK
        RENAMENX victim b            -> 0
        RENAMENX victim c            -> 1
        RENAMENX nokey b             -> -ERR no such key
        RENAME nokey nokey           -> -ERR no such key
        RENAME nokey b               -> -ERR no such key
        RENAME a                     -> -ERR wrong number of arguments for 'rename' command
        EXISTS victim b c            -> 2
    "#,
    );
}

#[test]
fn what_was_renamed_and_copied_is_there_after_a_restart() {
    check(
        "
        SET a 1 PX 5000      -> OK
        HSET h f v           -> 1
        PEXPIRE h 7000       -> 1
        RENAME a b           -> OK
        COPY h i             -> 1
        COPY h j DB 3        -> 1
        @ reopen
        PTTL b               -> 5000
        GET b                -> '1'
        EXISTS a             -> 0
        HGETALL i            -> ['f', 'v']
        PTTL i               -> 7000
        SELECT 3             -> OK
        PTTL j               -> 7000
    ",
    );
}

#[test]
fn a_name_whose_time_has_come_is_free() {
    check(
        "
        SET a 1             -> OK
        HSET h f v          -> 1
        SET old x PX 10     -> OK
        SET old2 x PX 10    -> OK
        SET old3 x PX 10    -> OK
        @ 10
        RENAMENX a old      -> 1
        COPY old old2       -> 1
        RENAME h old3       -> OK
        TTL old             -> -1
        GET old2            -> '1'
        TTL old3            -> -1
        @ reopen
        GET old2            -> '1'
        HGET old3 f         -> 'v'
        TTL old3            -> -1
    ",
    );
}

#[test]
fn a_copy_is_independent_and_needs_replace_to_overwrite() {
    check(
        "
        SET k v                  -> OK
        SET b 1                  -> OK
        COPY k b                 -> 0
        GET b                    -> '1'
        COPY k b replace         -> 1
        SET k w                  -> OK
        GET b                    -> 'v'
        COPY k c DB 1            -> 1
        COPY k k DB 1            -> 1
        COPY k k DB 1            -> 0
        COPY k k db 1 REPLACE    -> 1
        COPY k k                 -> -ERR source and destination objects are the same
        COPY k k DB 0            -> -ERR source and destination objects are the same
        COPY k k REPLACE         -> -ERR source and destination objects are the same
        COPY nokey nokey         -> -ERR source and destination objects are the same
        COPY nokey x             -> 0
        COPY k c DB 16           -> -ERR DB index is out of range
        COPY k c DB -1           -> -ERR DB index is out of range
        COPY k c DB x            -> -ERR value is not an integer or out of range
        COPY k c DB 4294967296   -> -ERR value is out of range, value must between -2147483648 and \
        2147483647
        COPY k c DB              -> -ERR syntax error
        COPY k c FOO             -> -ERR syntax error
        EXISTS c                 -> 0
        SELECT 1                 -> OK
        MGET c k                 -> ['w', 'w']
    ",
    );
}

#[test]
fn keys_move_between_tables_of_different_promises() {
    let server = with_tables(&[("cache", SyncMode::Off), ("sessions", SyncMode::Os)]);
    check_on(
        server,
        "
        SET cache:a 1              -> OK
        HSET cache:h f v           -> 1
        RENAME cache:a sessions:a  -> OK
        RENAME cache:h h           -> OK
        SET k 2                    -> OK
        RENAME k cache:k           -> OK
        COPY sessions:a sessions:a DB 3 -> -ERR source and destination objects are the same
        EXISTS cache:a cache:h k   -> 0
        GET cache:k                -> '2'
        @ reopen
        GET sessions:a             -> '1'
        HGET h f                   -> 'v'
        EXISTS cache:k k           -> 0
    ",
    );
}

#[test]
fn a_flush_empties_the_selected_space_or_everything() {
    let server = with_tables(&[("cache", SyncMode::Off), ("sessions", SyncMode::Os)]);
    check_on(
        server,
        "
        SET a 1                  -> OK
        SET sessions:a 1         -> OK
        SET cache:a 1            -> OK
        SELECT 5                 -> OK
        SET b 1                  -> OK
        SET sessions:b 1         -> OK
        DBSIZE                   -> 1
        FLUSHDB                  -> OK
        DBSIZE                   -> 0
        EXISTS sessions:a sessions:b -> 2
        SET b 1                  -> OK
        SELECT 0                 -> OK
        DBSIZE                   -> 4
        FLUSHDB ASYNC            -> OK
        DBSIZE                   -> 0
        EXISTS sessions:a cache:a -> 0
        SET sessions:a 1         -> OK
        SELECT 7                 -> OK
        FLUSHALL sync            -> OK
        EXISTS sessions:a        -> 0
        SELECT 5                 -> OK
        DBSIZE                   -> 0
        @ reopen
        SELECT 5                 -> OK
        DBSIZE                   -> 0
        FLUSHALL FOO             -> -ERR syntax error
        FLUSHDB ASYNC SYNC       -> -ERR syntax error
    ",
    );
}

#[test]
fn a_random_key_is_one_of_those_that_live() {
    let mut server = with_tables(&[("cache", SyncMode::Off)]);
    assert_eq!(server.run("RANDOMKEY"), "nil");
    server.run("MSET a 1 b 2 c 3 cache:d 4");
    server.run("PEXPIRE a 100");
    server.advance(100);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        seen.insert(server.run("RANDOMKEY"));
    }
    assert_eq!(seen, ["'b'", "'c'", "'cache:d'"].map(String::from).into());
    server.run("DEL b c cache:d");
    assert_eq!(server.run("RANDOMKEY"), "nil");
}

#[test]
fn a_live_key_is_found_among_tables_full_of_expired_ones() {
    let mut server = with_tables(&[("cache", SyncMode::Off)]);
    for index in 0..500 {
        server.run(format!("SET old{index} x PX 10"));
    }
    server.run("SET cache:live x");
    server.advance(10);
    for _ in 0..50 {
        assert_eq!(server.run("RANDOMKEY"), "'cache:live'");
    }
}

#[test]
fn spaces_hold_different_keys() {
    check(
        "
        SET k 0       -> OK
        SELECT 15     -> OK
        GET k         -> nil
        SET k 15      -> OK
        SELECT 0      -> OK
        GET k         -> '0'
        SELECT 16     -> -ERR DB index is out of range
        SELECT -1     -> -ERR DB index is out of range
        SELECT x      -> -ERR value is not an integer or out of range
        SELECT 4294967296 -> -ERR value is out of range, value must between -2147483648 and \
        2147483647
        SELECT        -> -ERR wrong number of arguments for 'select' command
        GET k         -> '0'
    ",
    );
}

/// Redis 7.0 answers this, line by line. A string whose parts were written is never compact again,
/// nor is a hash that was large once.
#[test]
fn encodings_tell_what_was_done_to_a_value() {
    check(
        r#"
        SET a 12                   -> OK
        OBJECT ENCODING a          -> 'int'
        APPEND a 3                 -> 3
        OBJECT ENCODING a          -> 'raw'
        INCR a                     -> 124
        OBJECT ENCODING a          -> 'int'
        APPEND a ""                -> 3
        OBJECT ENCODING a          -> 'raw'
        EXPIRE a 100000            -> 1
        OBJECT ENCODING a          -> 'raw'
        PERSIST a                  -> 1
        OBJECT ENCODING a          -> 'raw'
        SET a 7 KEEPTTL            -> OK
        OBJECT ENCODING a          -> 'int'
        APPEND new 12              -> 2
        OBJECT ENCODING new        -> 'int'
        SET b hello                -> OK
        SETRANGE b 1 ""            -> 5
        OBJECT ENCODING b          -> 'embstr'
        SETRANGE b 1 a             -> 5
        OBJECT ENCODING b          -> 'raw'
        COPY b c                   -> 1
        OBJECT ENCODING c          -> 'raw'
        RENAME c d                 -> OK
        OBJECT ENCODING d          -> 'raw'
        GETSET b hello             -> 'hallo'
        OBJECT ENCODING b          -> 'embstr'
        SETRANGE e 0 x             -> 1
        OBJECT ENCODING e          -> 'raw'
        SETBIT f 3 0               -> 0
        OBJECT ENCODING f          -> 'raw'
        SET f ab                   -> OK
        SETBIT f 1 1               -> 1
        OBJECT ENCODING f          -> 'raw'
        SET long aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeee -> OK
        OBJECT ENCODING long       -> 'embstr'
        SET long aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeee -> OK
        OBJECT ENCODING long       -> 'raw'
        HSET h f 0123456789012345678901234567890123456789012345678901234567890123 -> 1
        OBJECT ENCODING h          -> 'listpack'
        HSET h f 01234567890123456789012345678901234567890123456789012345678901234 -> 0
        OBJECT ENCODING h          -> 'hashtable'
        HSET h f short g short     -> 1
        HDEL h f                   -> 1
        OBJECT ENCODING h          -> 'hashtable'
        EXPIRE h 100000            -> 1
        COPY h i                   -> 1
        RENAME i j                 -> OK
        OBJECT ENCODING j          -> 'hashtable'
        HDEL h g                   -> 1
        HSET h g short             -> 1
        OBJECT ENCODING h          -> 'listpack'
        HSETNX h 01234567890123456789012345678901234567890123456789012345678901234 x -> 1
        OBJECT ENCODING h          -> 'hashtable'
        SET h x                    -> OK
        OBJECT ENCODING h          -> 'embstr'
    "#,
    );
    let many = |from: usize, to: usize| {
        let pairs: Vec<String> = (from..to).map(|field| format!("f{field} v")).collect();
        format!("HSET many {}", pairs.join(" "))
    };
    let mut server = Server::new();
    assert_eq!(server.run(many(0, 512)), "512");
    assert_eq!(server.run("OBJECT ENCODING many"), "'listpack'");
    assert_eq!(server.run(many(511, 513)), "1");
    assert_eq!(server.run("OBJECT ENCODING many"), "'hashtable'");
    assert_eq!(server.run("HDEL many f0 f1 f2"), "3");
    assert_eq!(server.run("OBJECT ENCODING many"), "'hashtable'");
}

/// The log holds what the commands did, so a new start knows it, too. Only of a copy it knows the
/// contents alone, as Redis does after every start from a snapshot.
#[test]
fn encodings_survive_a_new_start() {
    check_on(
        Server::new(),
        "
        SET a 12                   -> OK
        APPEND a 3                 -> 3
        SETRANGE b 0 x             -> 1
        HSET h f 01234567890123456789012345678901234567890123456789012345678901234 -> 1
        HSET h f short             -> 0
        COPY a c                   -> 1
        OBJECT ENCODING c          -> 'raw'
        @ reopen
        OBJECT ENCODING a          -> 'raw'
        OBJECT ENCODING b          -> 'raw'
        OBJECT ENCODING h          -> 'hashtable'
        OBJECT ENCODING c          -> 'int'
    ",
    );
}

#[test]
fn tools_learn_encodings_and_counts() {
    check(
        "
        SET n 12345                -> OK
        SET s abc                  -> OK
        SET l aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeee -> OK
        HSET h f v                 -> 1
        OBJECT ENCODING n          -> 'int'
        OBJECT ENCODING s          -> 'embstr'
        OBJECT ENCODING l          -> 'raw'
        OBJECT ENCODING h          -> 'listpack'
        OBJECT ENCODING nokey      -> nil
        OBJECT REFCOUNT s          -> 1
        OBJECT REFCOUNT nokey      -> nil
        OBJECT IDLETIME s          -> 0
        OBJECT FREQ nokey          -> nil
        OBJECT FREQ s              -> -ERR An LFU maxmemory policy is not selected, access \
        frequency not tracked. Please note that when switching between policies at runtime LRU and \
        LFU data will take some time to adjust.
        OBJECT FOO s               -> -ERR unknown subcommand 'FOO'. Try OBJECT HELP.
        OBJECT                     -> -ERR wrong number of arguments for 'object' command
        OBJECT ENCODING            -> -ERR wrong number of arguments for 'object|encoding' command
        MEMORY USAGE nokey         -> nil
        MEMORY USAGE s SAMPLES -1  -> -ERR syntax error
        MEMORY USAGE s SAMPLES x   -> -ERR value is not an integer or out of range
        MEMORY USAGE s FOO         -> -ERR syntax error
    ",
    );
    let mut server = Server::new();
    server.run("SET k 0123456789");
    server.run("HSET h field 0123456789 fiel2 0123456789");
    let usage = |reply: String| reply.parse::<usize>().expect("a number");
    assert!((11..=64).contains(&usage(server.run("MEMORY USAGE k"))));
    assert!((31..=128).contains(&usage(server.run("MEMORY USAGE h SAMPLES 0"))));
}

#[test]
fn watch_notices_what_commands_on_keys_change() {
    let changes = [
        "DEL k",
        "UNLINK k",
        "EXPIRE k 100",
        "EXPIRE k -1",
        "RENAME k x",
        "RENAME other k",
        "COPY other k REPLACE",
        "FLUSHDB",
        "FLUSHALL",
    ];
    for change in changes {
        let mut server = Server::new();
        server.run("MSET k 1 other 2");
        let reader = server.connect();
        server.run_on(reader, "WATCH k");
        server.run(change);
        server.run_on(reader, "MULTI");
        server.run_on(reader, "PING");
        assert_eq!(server.run_on(reader, "EXEC"), "nil array", "after {change}");
    }
    for no_change in
        ["DEL other", "EXPIRE k 100 XX", "PERSIST k", "RENAMENX other k", "COPY other k", "TOUCH k"]
    {
        let mut server = Server::new();
        server.run("MSET k 1 other 2");
        let reader = server.connect();
        server.run_on(reader, "WATCH k");
        server.run(no_change);
        server.run_on(reader, "MULTI");
        server.run_on(reader, "PING");
        assert_eq!(server.run_on(reader, "EXEC"), "[PONG]", "after {no_change}");
    }
}

#[test]
fn reads_count_as_hits_and_misses() {
    let mut server = Server::new();
    server.run("SET k v");
    for line in ["EXISTS k nokey", "TYPE k", "TTL nokey", "GET k"] {
        server.run(line);
    }
    let counted =
        (server.stats.keyspace_hits_total.get(), server.stats.keyspace_misses_total.get());
    assert_eq!(counted, (3, 2));
}

#[test]
fn time_that_steps_back_revives_nothing() {
    let mut server = Server::new();
    server.run("SET k v PX 1000");
    server.advance(1_000);
    assert_eq!(server.run("EXISTS k"), "0");
    server.set_wall_ms(START_MS);
    assert_eq!(server.run_on(Client::FIRST, "EXISTS k"), "0");
}
