//! String commands: values, errors and number formats are those of Redis 7.0.

use crate::common::{Client, START_MS, Server, check, show_bytes};

#[test]
fn a_value_is_what_was_set_last() {
    check(
        r#"
        GET k                        -> nil
        SET k v                      -> OK
        GET k                        -> 'v'
        SET k ""                     -> OK
        GET k                        -> ''
        SET "a\x00b\r\n" "\xff\x00"  -> OK
        GET "a\x00b\r\n"             -> '\xff\x00'
        GETSET k w                   -> ''
        GETSET new w                 -> nil
        GETDEL k                     -> 'w'
        GETDEL k                     -> nil
        SETNX k 1                    -> 1
        SETNX k 2                    -> 0
        GET k                        -> '1'
    "#,
    );
}

#[test]
fn set_conditions_decide_and_get_answers_with_the_old_value() {
    check(
        "
        SET k 1 XX            -> nil
        SET k 1 XX GET        -> nil
        GET k                 -> nil
        SET k 1 NX            -> OK
        SET k 2 NX            -> nil
        SET k 2 nx GET        -> '1'
        SET k 2 XX            -> OK
        SET k 3 GET           -> '2'
        SET new 1 NX GET      -> nil
        GET new               -> '1'
        SET k 4 XX XX         -> OK
        SET k 5 NX XX         -> -ERR syntax error
        SET k 5 XX NX         -> -ERR syntax error
        SET k 5 nonsense      -> -ERR syntax error
        SET k 5 PERSIST       -> -ERR syntax error
        GET k                 -> '4'
        HSET h f v            -> 1
        SET h 1 GET           -> -WRONGTYPE Operation against a key holding the wrong kind of value
        SET h 1 NX            -> nil
        SET h 1 NX GET        -> -WRONGTYPE Operation against a key holding the wrong kind of value
        SET h 1 XX            -> OK
        GET h                 -> '1'
    ",
    );
}

#[test]
fn times_to_live_are_validated_after_the_syntax_and_before_anything_else() {
    check(
        "
        SET k v EX            -> -ERR syntax error
        SET k v EX 10 PX 10   -> -ERR syntax error
        SET k v EX 10 KEEPTTL -> -ERR syntax error
        SET k v KEEPTTL PX 10 -> -ERR syntax error
        SET k v EX x          -> -ERR value is not an integer or out of range
        SET k v EX 0          -> -ERR invalid expire time in 'set' command
        SET k v PX -1         -> -ERR invalid expire time in 'set' command
        SET k v EX 9223372036854776            -> -ERR invalid expire time in 'set' command
        SET k v EX 9223372036854775            -> -ERR invalid expire time in 'set' command
        SET k v PX 9223372036854775807         -> -ERR invalid expire time in 'set' command
        SET k v EXAT 9223372036854776          -> -ERR invalid expire time in 'set' command
        SET k v XX EX 0                        -> -ERR invalid expire time in 'set' command
        SETEX k 0 v                            -> -ERR invalid expire time in 'setex' command
        SETEX k x v                            -> -ERR value is not an integer or out of range
        PSETEX k -5 v                          -> -ERR invalid expire time in 'psetex' command
        EXISTS k                               -> 0
        SET k v EX 10 EX 20                    -> OK
        SET k v PXAT 9223372036854775807       -> OK
        GET k                                  -> 'v'
        GETEX missing EX 0                     -> nil
        GETEX k EX 0                           -> -ERR invalid expire time in 'getex' command
        GETEX k KEEPTTL                        -> -ERR syntax error
        GETEX k NX                             -> -ERR syntax error
        GETEX missing EX 10 PERSIST            -> -ERR syntax error
        HSET h f v                             -> 1
        GETEX h EX 0 -> -WRONGTYPE Operation against a key holding the wrong kind of value
    ",
    );
}

#[test]
fn values_end_with_their_time_and_keep_it_only_when_told_to() {
    check(
        "
        SET k v EX 10         -> OK
        @ 9999
        GET k                 -> 'v'
        @ 1
        GET k                 -> nil
        SET k v PX 100        -> OK
        SET k w KEEPTTL       -> OK
        @ reopen
        PTTL k                -> 100
        SET k w               -> OK
        PTTL k                -> -1
        SETEX k 5 v           -> OK
        APPEND k w            -> 2
        SETRANGE k 0 x        -> 2
        SETBIT k 17 1         -> 0
        TTL k                 -> 5
        SET k 1 KEEPTTL       -> OK
        INCR k                -> 2
        INCRBYFLOAT k 1       -> '3'
        TTL k                 -> 5
        @ reopen
        TTL k                 -> 5
        GETEX k               -> '3'
        TTL k                 -> 5
        GETEX k PX 700        -> '3'
        PTTL k                -> 700
        GETEX k PERSIST       -> '3'
        PTTL k                -> -1
        PSETEX k 20 v         -> OK
        GETSET k w            -> 'v'
        PTTL k                -> -1
    ",
    );
}

#[test]
fn what_is_expired_is_absent_to_every_change() {
    check(
        "
        MSET a 5 b 5 c 5 d 5 e 5 f 5   -> OK
        PEXPIRE a 10          -> 1
        PEXPIRE b 10          -> 1
        PEXPIRE c 10          -> 1
        PEXPIRE d 10          -> 1
        PEXPIRE e 10          -> 1
        HSET h f v            -> 1
        PEXPIRE h 10          -> 1
        @ 10
        INCR a                -> 1
        APPEND b x            -> 1
        SETRANGE c 1 x        -> 2
        SETBIT d 0 0          -> 0
        SETNX e new           -> 1
        HSET h g w            -> 1
        MSETNX a 1 f 1        -> 0
        @ reopen
        MGET a b c d e f      -> ['1', 'x', '\\x00x', '\\x00', 'new', '5']
        HGETALL h             -> ['g', 'w']
        TTL a                 -> -1
        TTL h                 -> -1
    ",
    );
}

#[test]
fn a_time_that_is_over_deletes() {
    let mut server = Server::new();
    let at = START_MS / 1000;
    assert_eq!(server.run("SET k v"), "OK");
    assert_eq!(server.run("SET k w EXAT 1 GET"), "'v'");
    assert_eq!(server.run("EXISTS k"), "0");
    assert_eq!(server.run(format!("SET k v EXAT {}", at + 1)), "OK");
    assert_eq!(server.run("PTTL k"), "1000");
    assert_eq!(server.run(format!("GETEX k EXAT {at}")), "'v'");
    assert_eq!(server.run("DBSIZE"), "0");
    assert_eq!(server.run("SET absent v PXAT 1"), "OK");
    assert_eq!(server.run("DBSIZE"), "0");
}

#[test]
fn several_keys_at_once() {
    check(
        "
        MSET a 1 b 2 a 3              -> OK
        MGET a b c a                  -> ['3', '2', nil, '3']
        HSET h f v                    -> 1
        MGET a h                      -> ['3', nil]
        MSET a                        -> -ERR wrong number of arguments for 'mset' command
        MSET a 1 b                    -> -ERR wrong number of arguments for 'mset' command
        MSETNX a 1 b                  -> -ERR wrong number of arguments for 'msetnx' command
        MSETNX new 1 a 1              -> 0
        EXISTS new                    -> 0
        MSETNX new 1 h 1              -> 0
        MSETNX x 1 y 2 x 3            -> 1
        MGET x y                      -> ['3', '2']
        MSET h 1                      -> OK
        TYPE h                        -> string
    ",
    );
}

#[test]
fn integers_are_checked_before_they_change() {
    check(
        r#"
        INCR n                        -> 1
        INCRBY n 9                    -> 10
        DECR n                        -> 9
        DECRBY n 10                   -> -1
        DECRBY n -9223372036854775808 -> -ERR decrement would overflow
        INCRBY n -9223372036854775807 -> -9223372036854775808
        DECR n                        -> -ERR increment or decrement would overflow
        INCRBY n x                    -> -ERR value is not an integer or out of range
        INCRBY n 9223372036854775808  -> -ERR value is not an integer or out of range
        GET n                         -> '-9223372036854775808'
        SET n 9223372036854775807     -> OK
        INCR n                        -> -ERR increment or decrement would overflow
        SET n " 1"                    -> OK
        INCR n                        -> -ERR value is not an integer or out of range
        SET n 01                      -> OK
        INCR n                        -> -ERR value is not an integer or out of range
        SET n 9223372036854775808     -> OK
        DECR n                        -> -ERR value is not an integer or out of range
        SET n ""                      -> OK
        INCR n                        -> -ERR value is not an integer or out of range
        HSET h f 1                    -> 1
        INCR h -> -WRONGTYPE Operation against a key holding the wrong kind of value
        INCRBY h x                    -> -ERR value is not an integer or out of range
    "#,
    );
}

#[test]
fn decimals_are_exact_and_printed_without_an_exponent() {
    check(
        "
        INCRBYFLOAT n 0.1             -> '0.1'
        INCRBYFLOAT n 0.2             -> '0.3'
        INCRBYFLOAT n -0.3            -> '0'
        INCRBYFLOAT n 5.0e3           -> '5000'
        @ resp3
        SET n 3.0e3                   -> OK
        INCRBYFLOAT n 200             -> '3200'
        INCRBYFLOAT n inf             -> -ERR increment would produce NaN or Infinity
        INCRBYFLOAT n nan             -> -ERR value is not a valid float
        INCRBYFLOAT n x               -> -ERR value is not a valid float
        GET n                         -> '3200'
        SET n x                       -> OK
        INCRBYFLOAT n 1               -> -ERR value is not a valid float
        HSET h f 1                    -> 1
        INCRBYFLOAT h 1 -> -WRONGTYPE Operation against a key holding the wrong kind of value
    ",
    );
    // From here on Redis's binary sums differ.
    check(
        "
        SET n 5000                    -> OK
        @ reopen
        INCRBYFLOAT n 1e-17           -> '5000.00000000000000001'
        INCRBYFLOAT n 100000000000000000000000000000000000 -> \
        '100000000000000000000000000000005000.00000000000000001'
    ",
    );
}

#[test]
fn the_longest_decimal_is_logged() {
    let mut server = Server::new();
    server.run("SET n 1e4932");
    assert_eq!(server.run("INCRBYFLOAT n 1").len(), 4933 + 2);
    assert_eq!(server.run("INCRBYFLOAT n 0.12345678901234567").len(), 4933 + 18 + 2);
    let before = server.run("GET n");
    assert_eq!(server.reopen().run("GET n"), before);
}

#[test]
fn parts_of_strings() {
    check(
        r#"
        APPEND k ""                   -> 0
        EXISTS k                      -> 1
        APPEND k Hello                -> 5
        APPEND k " World"             -> 11
        STRLEN k                      -> 11
        STRLEN missing                -> 0
        GETRANGE k 0 4                -> 'Hello'
        GETRANGE k -5 -1              -> 'World'
        GETRANGE k 0 -1               -> 'Hello World'
        GETRANGE k 0 -100             -> 'H'
        GETRANGE k -100 -100          -> 'H'
        GETRANGE k -1 -5              -> ''
        GETRANGE k 5 3                -> ''
        GETRANGE k 100 200            -> ''
        GETRANGE k -9223372036854775808 9223372036854775807 -> 'Hello World'
        GETRANGE k 0 x                -> -ERR value is not an integer or out of range
        GETRANGE missing 0 1          -> ''
        SUBSTR k 1 2                  -> 'el'
        SETRANGE k 6 Redis            -> 11
        SETRANGE k 12 !               -> 13
        GET k                         -> 'Hello Redis\x00!'
        SETRANGE k 0 ""               -> 13
        SETRANGE k -1 x               -> -ERR offset is out of range
        SETRANGE k x x                -> -ERR value is not an integer or out of range
        SETRANGE new 5 ""             -> 0
        EXISTS new                    -> 0
        SETRANGE new 3 x              -> 4
        GET new                       -> '\x00\x00\x00x'
        HSET h f v                    -> 1
        SETRANGE h 0 "" -> -WRONGTYPE Operation against a key holding the wrong kind of value
        SETRANGE h 536870912 x -> -WRONGTYPE Operation against a key holding the wrong kind of value
        APPEND h x -> -WRONGTYPE Operation against a key holding the wrong kind of value
        STRLEN h -> -WRONGTYPE Operation against a key holding the wrong kind of value
        GETRANGE h 0 1 -> -WRONGTYPE Operation against a key holding the wrong kind of value
        SETRANGE k 536870912 x -> -ERR string exceeds maximum allowed size (proto-max-bulk-len)
        SETRANGE k 536870911 xx -> -ERR string exceeds maximum allowed size (proto-max-bulk-len)
   SETRANGE k 9223372036854775807 x -> -ERR string exceeds maximum allowed size (proto-max-bulk-len)
        SETRANGE k 9223372036854775807 "" -> 13
    "#,
    );
}

#[test]
fn a_string_grows_to_512_megabytes_and_no_further() {
    check(
        "
        SETRANGE k 536870911 x        -> 536870912
        APPEND k x -> -ERR string exceeds maximum allowed size (proto-max-bulk-len)
        APPEND k xxx -> -ERR string exceeds maximum allowed size (proto-max-bulk-len)
        SETBIT k 4294967295 0         -> 0
        SETBIT k 4294967296 0         -> -ERR bit offset is not an integer or out of range
        STRLEN k                      -> 536870912
        GETRANGE k -3 -1              -> '\\x00\\x00x'
        BITCOUNT k                    -> 4
        DEL k                         -> 1
    ",
    );
}

#[test]
fn bits() {
    check(
        r#"
        SETBIT k 7 1                  -> 0
        SETBIT k 7 0                  -> 1
        GET k                         -> '\x00'
        SETBIT k 16 0                 -> 0
        STRLEN k                      -> 3
        SETBIT k 0 1                  -> 0
        GETBIT k 0                    -> 1
        GETBIT k 1                    -> 0
        GETBIT k 4294967295           -> 0
        GETBIT missing 0              -> 0
        GET k                         -> '\x80\x00\x00'
        SETBIT k 1 2                  -> -ERR bit is not an integer or out of range
        SETBIT k 1 x                  -> -ERR bit is not an integer or out of range
        SETBIT k -1 1                 -> -ERR bit offset is not an integer or out of range
        SETBIT k x 1                  -> -ERR bit offset is not an integer or out of range
        SETBIT k 4294967296 1         -> -ERR bit offset is not an integer or out of range
        GETBIT k 4294967296           -> -ERR bit offset is not an integer or out of range
        HSET h f v                    -> 1
        SETBIT h 0 2                  -> -ERR bit is not an integer or out of range
        SETBIT h 0 1 -> -WRONGTYPE Operation against a key holding the wrong kind of value
        GETBIT h 0 -> -WRONGTYPE Operation against a key holding the wrong kind of value
    "#,
    );
}

#[test]
fn counting_bits() {
    check(
        r#"
        SET k foobar                  -> OK
        BITCOUNT k                    -> 26
        BITCOUNT k 0 0                -> 4
        BITCOUNT k 1 1                -> 6
        BITCOUNT k 1 1 BYTE           -> 6
        BITCOUNT k 5 30 bit           -> 17
        BITCOUNT k 0 -1 BIT           -> 26
        BITCOUNT k -8 -1 BIT          -> 4
        BITCOUNT k 1 1 BIT            -> 1
        BITCOUNT k 9 8 BIT            -> 0
        BITCOUNT k 100 200            -> 0
        BITCOUNT k -2 -5              -> 0
        BITCOUNT k -2 -5 nonsense     -> 0
        BITCOUNT k 0 -1 nonsense      -> -ERR syntax error
        BITCOUNT k 0                  -> -ERR syntax error
        BITCOUNT k 0 1 BYTE x         -> -ERR syntax error
        BITCOUNT k x 1                -> -ERR value is not an integer or out of range
        BITCOUNT missing x nonsense   -> 0
        SET k ""                      -> OK
        BITCOUNT k                    -> 0
        BITCOUNT k 0 -1 BIT           -> 0
        HSET h f v                    -> 1
        BITCOUNT h x y -> -WRONGTYPE Operation against a key holding the wrong kind of value
    "#,
    );
}

#[test]
fn the_count_of_arguments_is_checked() {
    for (command, least) in [
        ("get", 1),
        ("set", 2),
        ("setnx", 2),
        ("setex", 3),
        ("psetex", 3),
        ("getset", 2),
        ("getdel", 1),
        ("getex", 1),
        ("mget", 1),
        ("mset", 2),
        ("msetnx", 2),
        ("append", 2),
        ("strlen", 1),
        ("incr", 1),
        ("incrby", 2),
        ("decr", 1),
        ("decrby", 2),
        ("incrbyfloat", 2),
        ("setrange", 3),
        ("getrange", 3),
        ("substr", 3),
        ("setbit", 3),
        ("getbit", 2),
        ("bitcount", 1),
    ] {
        let line = format!("{command}{}", " 1".repeat(least - 1));
        let expected = format!("-ERR wrong number of arguments for '{command}' command");
        check(&format!("{line} -> {expected}"));
        assert_ne!(Server::new().run(format!("{line} 1")), expected);
    }
}

#[test]
fn large_values_come_back_whole() {
    let mut server = Server::new();
    let large: Vec<u8> = (0..3_000_000u32).map(|index| (index % 251) as u8).collect();
    let show_bulk = |bytes: &[u8]| format!("'{}'", bytes.escape_ascii());
    assert_eq!(show_bytes(&server.send(Client::FIRST, &[b"SET", b"k", &large])), "OK");
    assert_eq!(server.run("GET k"), show_bulk(&large));
    assert_eq!(server.run("GETRANGE k 1000000 -1000001"), show_bulk(&large[1_000_000..2_000_000]));
    assert_eq!(server.run("GETRANGE k 5 9"), show_bulk(&large[5..10]));
    assert_eq!(server.run("MGET k k"), format!("[{0}, {0}]", show_bulk(&large)));
    assert_eq!(server.run("SETRANGE k 2 xy"), "3000000");
    assert_eq!(server.run("APPEND k z"), "3000001");
    let changed = [&large[..2], b"xy", &large[4..], b"z"].concat();
    let mut server = server.reopen();
    assert_eq!(server.run("GETSET k small"), show_bulk(&changed));
    assert_eq!(server.run("GET k"), "'small'");
}

#[test]
fn only_what_changed_is_logged() {
    let mut server = Server::new();
    let large = vec![b'x'; 300_000];
    server.send(Client::FIRST, &[b"SET", b"k", &large]);
    let before = server.logged_bytes();
    for round in 0..100 {
        server.run(format!("SETRANGE k {} y", 1000 * round));
        server.run(format!("SETBIT k {} 0", 8000 * round + 4));
        server.run("APPEND k y");
    }
    let logged = server.logged_bytes() - before;
    assert!(logged < 100_000, "{logged} bytes");
    let value = server.run("GET k");
    assert_eq!(server.reopen().run("GET k"), value);
}
