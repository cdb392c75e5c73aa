//! Hash commands: values, errors and number formats are those of Redis 7.0.

use std::collections::{BTreeMap, BTreeSet};

use busload_pipeline::settings::Settings;
use busload_resp::reply::Reply;

use crate::common::{Client, Server, check};

#[test]
fn fields_are_set_read_and_deleted() {
    check(
        r#"
        HSET h f 1                    -> 1
        HSET h f 2 g 3 f 4            -> 1
        HGET h f                      -> '4'
        HGET h missing                -> nil
        HGET missing f                -> nil
        HMGET h f missing g f         -> ['4', nil, '3', '4']
        HMGET missing f g             -> [nil, nil]
        HMSET h a "" "" b             -> OK
        HGET h a                      -> ''
        HGET h ""                     -> 'b'
        HLEN h                        -> 4
        HLEN missing                  -> 0
        HSTRLEN h f                   -> 1
        HSTRLEN h a                   -> 0
        HSTRLEN h missing             -> 0
        HSTRLEN missing f             -> 0
        HEXISTS h a                   -> 1
        HEXISTS h missing             -> 0
        HEXISTS missing a             -> 0
        HSETNX h f 5                  -> 0
        HSETNX h new 5                -> 1
        HDEL h a "" a missing new     -> 3
        HSET h "\x00\r\n" "\xff"      -> 1
        HGET h "\x00\r\n"             -> '\xff'
        HDEL h "\x00\r\n" f           -> 2
        @ reopen
        HGETALL h                     -> ['g', '3']
        HDEL h f                      -> 0
        HDEL h g                      -> 1
        EXISTS h                      -> 0
        HDEL h g                      -> 0
        @ reopen
        EXISTS h                      -> 0
    "#,
    );
}

#[test]
fn whole_hashes_are_arrays_or_maps() {
    check(
        "
        HSET h f v                    -> 1
        HGETALL h                     -> ['f', 'v']
        HKEYS h                       -> ['f']
        HVALS h                       -> ['v']
        HGETALL missing               -> []
        HKEYS missing                 -> []
        HVALS missing                 -> []
        @ resp3
        HGETALL h                     -> {'f': 'v'}
        HKEYS h                       -> ['f']
        HVALS h                       -> ['v']
        HGETALL missing               -> {}
        HKEYS missing                 -> []
        HGET h missing                -> nil
        HMGET h f missing             -> ['v', nil]
    ",
    );
}

#[test]
fn other_kinds_are_refused_and_stay_as_they_are() {
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let mut transcript = String::from("SET s v -> OK\n");
    for line in [
        "HSET s f v",
        "HSETNX s f v",
        "HMSET s f v",
        "HGET s f",
        "HMGET s f",
        "HGETALL s",
        "HDEL s f",
        "HLEN s",
        "HEXISTS s f",
        "HKEYS s",
        "HVALS s",
        "HINCRBY s f 1",
        "HINCRBYFLOAT s f 1",
        "HSTRLEN s f",
        "HSCAN s 0",
        "HSCAN s 0 nonsense",
        "HRANDFIELD s",
        "HRANDFIELD s 1 WITHVALUES",
    ] {
        transcript.push_str(&format!("{line} -> {wrong}\n"));
    }
    transcript.push_str(
        "
        HINCRBY s f x                 -> -ERR value is not an integer or out of range
        HINCRBYFLOAT s f x            -> -ERR value is not a valid float
        HINCRBYFLOAT s f inf          -> -ERR value is NaN or Infinity
        HSCAN s x                     -> -ERR invalid cursor
        HRANDFIELD s x                -> -ERR value is not an integer or out of range
        HSET s f v g                  -> -ERR wrong number of arguments for 'hset' command
        GET s                         -> 'v'
    ",
    );
    check(&transcript);
}

#[test]
fn the_count_of_arguments_is_checked() {
    for (command, least) in [
        ("hset", 3),
        ("hsetnx", 3),
        ("hmset", 3),
        ("hget", 2),
        ("hmget", 2),
        ("hgetall", 1),
        ("hdel", 2),
        ("hlen", 1),
        ("hexists", 2),
        ("hkeys", 1),
        ("hvals", 1),
        ("hincrby", 3),
        ("hincrbyfloat", 3),
        ("hstrlen", 2),
        ("hscan", 2),
        ("hrandfield", 1),
    ] {
        let line = format!("{command}{}", " 1".repeat(least - 1));
        let expected = format!("-ERR wrong number of arguments for '{command}' command");
        check(&format!("{line} -> {expected}"));
        assert_ne!(Server::new().run(format!("{line} 1")), expected);
    }
    check(
        "
        HSET h f v g                  -> -ERR wrong number of arguments for 'hset' command
        HMSET h f v g                 -> -ERR wrong number of arguments for 'hmset' command
        HGET h f g                    -> -ERR wrong number of arguments for 'hget' command
    ",
    );
}

#[test]
fn numbers_in_fields() {
    check(
        "
        HINCRBY h n 5                 -> 5
        HINCRBY h n -7                -> -2
        HINCRBY h n -9223372036854775808 -> -ERR increment or decrement would overflow
        HINCRBY h n 9223372036854775808  -> -ERR value is not an integer or out of range
        HSET h text x                 -> 1
        HINCRBY h text 1              -> -ERR hash value is not an integer
        HINCRBYFLOAT h text 1         -> -ERR hash value is not a float
        HINCRBYFLOAT h n 0.5          -> '-1.5'
        HINCRBY h n 1                 -> -ERR hash value is not an integer
        HINCRBYFLOAT h n 1.5e1        -> '13.5'
        HINCRBYFLOAT h new 10.50      -> '10.5'
        HINCRBYFLOAT h n nan          -> -ERR value is not a valid float
        HINCRBYFLOAT h n -inf         -> -ERR value is NaN or Infinity
        HSET h text inf               -> 0
        HINCRBYFLOAT h text 1         -> -ERR increment would produce NaN or Infinity
        HMGET h n new                 -> ['13.5', '10.5']
    ",
    );
    check(
        "
        HSET h n 0.1                  -> 1
        HINCRBYFLOAT h n 0.2          -> '0.3'
        PEXPIRE h 100                 -> 1
        HINCRBY h i 1                 -> 1
        PTTL h                        -> 100
        @ reopen
        PTTL h                        -> 100
        HGETALL h                     -> ['n', '0.3', 'i', '1']
        @ 100
        HINCRBY h i 1                 -> 1
        HGETALL h                     -> ['i', '1']
        PTTL h                        -> -1
    ",
    );
}

#[test]
fn scanning_arguments() {
    check(
        "
        HSET h f1 1 f2 2              -> 2
        HSCAN h 0 MATCH *2            -> ['0', ['f2', '2']]
        HSCAN h 0 match f[3-9] count 5 -> ['0', []]
        HSCAN h 0 MATCH x MATCH f1    -> ['0', ['f1', '1']]
        HSCAN missing 0               -> ['0', []]
        HSCAN missing 0 nonsense      -> ['0', []]
        HSCAN missing x               -> -ERR invalid cursor
        HSCAN h -                     -> -ERR invalid cursor
        HSCAN h 18446744073709551616  -> -ERR invalid cursor
        HSCAN h 0 COUNT 0             -> -ERR syntax error
        HSCAN h 0 COUNT -1            -> -ERR syntax error
        HSCAN h 0 COUNT x             -> -ERR value is not an integer or out of range
        HSCAN h 0 COUNT               -> -ERR syntax error
        HSCAN h 0 MATCH               -> -ERR syntax error
        HSCAN h 0 TYPE string         -> -ERR syntax error
        HSCAN h 0 NOVALUES x          -> -ERR syntax error
        HSCAN h 0 MATCH *2 NOVALUES   -> ['0', ['f2']]
        HSCAN h 0 novalues MATCH *2 COUNT 5 -> ['0', ['f2']]
        HSCAN missing 0 NOVALUES      -> ['0', []]
    ",
    );
}

/// Starts a server with a hash of this many fields `f0`, `f1`, ... whose values are their numbers.
fn server_with_hash(count: usize) -> Server {
    let mut server = Server::new();
    for index in 0..count {
        server.run(format!("HSET h f{index} {index}"));
    }
    assert_eq!(server.run("HLEN h"), count.to_string());
    server
}

fn ask(server: &mut Server, line: &str) -> Reply {
    let words = crate::common::words(line.as_bytes());
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let bytes = server.send(Client::FIRST, &words);
    let (reply, length) = Reply::parse(&bytes).expect("a reply").expect("a whole one");
    assert_eq!(length, bytes.len());
    reply
}

fn texts(reply: Reply) -> Vec<String> {
    let Reply::Array(elements) = reply else { panic!("no array: {reply:?}") };
    let text = |element| match element {
        Reply::Bulk(bytes) => String::from_utf8(bytes).expect("text"),
        other => panic!("no string: {other:?}"),
    };
    elements.into_iter().map(text).collect()
}

/// Sends one HSCAN. Returns the next cursor and the pairs.
fn scan(server: &mut Server, cursor: &str, options: &str) -> (String, Vec<(String, String)>) {
    let Reply::Array(parts) = ask(server, &format!("HSCAN h {cursor} {options}")) else {
        panic!("no array")
    };
    let [Reply::Bulk(next), pairs] = <[Reply; 2]>::try_from(parts).expect("a cursor and pairs")
    else {
        panic!("no cursor")
    };
    let pairs = texts(pairs);
    let pairs = pairs.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    (String::from_utf8(next).expect("digits"), pairs)
}

#[test]
fn a_scan_meets_every_field_that_stays_while_the_hash_grows_and_shrinks() {
    let mut server = server_with_hash(2_000);
    let mut found = BTreeMap::new();
    let mut cursor = String::from("0");
    let mut rounds = 0;
    loop {
        let (next, pairs) = scan(&mut server, &cursor, "COUNT 20");
        assert!(pairs.len() < 500, "{} fields at once", pairs.len());
        found.extend(pairs);
        cursor = next;
        if cursor == "0" {
            break;
        }
        rounds += 1;
        for index in 0..20 {
            server.run(format!("HSET h new{} x", rounds * 20 + index));
        }
        server.run(format!("HDEL h f{}", 1_000 + rounds));
    }
    assert!(10 < rounds, "{rounds} rounds");
    for index in 0..1_000 {
        assert_eq!(found.get(&format!("f{index}")), Some(&index.to_string()), "f{index}");
    }
}

#[test]
fn a_cursor_that_nobody_gave_out_harms_nothing() {
    let mut server = server_with_hash(1_000);
    for cursor in ["1", "7", "-1", "1099511627775", "1099511627776", "18446744073709551615"] {
        let (next, pairs) = scan(&mut server, cursor, "COUNT 10");
        assert!(next.parse::<u64>().unwrap() < 1 << 53, "{next}");
        assert!(pairs.iter().all(|(field, value)| *field == format!("f{value}")));
    }
}

#[test]
fn a_pattern_and_a_count_narrow_a_scan() {
    let mut server = server_with_hash(1_000);
    let (next, all) = scan(&mut server, "0", "COUNT 1000000");
    assert_eq!((next.as_str(), all.len()), ("0", 1_000));
    let (_, some) = scan(&mut server, "0", "COUNT 1000000 MATCH f99?");
    let some: BTreeSet<_> = some.into_iter().map(|(field, _)| field).collect();
    assert_eq!(some, (990..1_000).map(|index| format!("f{index}")).collect());
}

#[test]
fn random_fields_arguments() {
    check(
        "
        HRANDFIELD missing            -> nil
        HRANDFIELD missing 5          -> []
        HRANDFIELD missing -5 WITHVALUES -> []
        HSET h f v                    -> 1
        HRANDFIELD h                  -> 'f'
        HRANDFIELD h 0                -> []
        HRANDFIELD h 5                -> ['f']
        HRANDFIELD h -3               -> ['f', 'f', 'f']
        HRANDFIELD h 5 WITHVALUES     -> ['f', 'v']
        HRANDFIELD h -2 withvalues    -> ['f', 'v', 'f', 'v']
        HRANDFIELD h 1 nonsense       -> -ERR syntax error
        HRANDFIELD h 1 WITHVALUES x   -> -ERR syntax error
        HRANDFIELD h x                -> -ERR value is not an integer or out of range
        HRANDFIELD h x nonsense       -> -ERR value is not an integer or out of range
        HRANDFIELD h 9223372036854775807 -> ['f']
        HRANDFIELD h 9223372036854775807 WITHVALUES  -> -ERR value is out of range
        HRANDFIELD h -9223372036854775807 WITHVALUES -> -ERR value is out of range
        HRANDFIELD h -9223372036854775808 -> -ERR value is out of range, value must between \
        -9223372036854775807 and 9223372036854775807
        @ resp3
        HRANDFIELD h                  -> 'f'
        HRANDFIELD missing            -> nil
        HRANDFIELD h -2 WITHVALUES    -> [['f', 'v'], ['f', 'v']]
        HRANDFIELD h 2 WITHVALUES     -> [['f', 'v']]
        HRANDFIELD h 2                -> ['f']
        HRANDFIELD missing 2 WITHVALUES -> []
    ",
    );
}

#[test]
fn random_fields_are_different_ones_unless_the_count_is_negative() {
    for size in [1, 10, 64, 1_000] {
        let mut server = server_with_hash(size);
        for count in [1, 3, 1 + size / 4, 1 + size / 2, size, size + 1] {
            let fields = texts(ask(&mut server, &format!("HRANDFIELD h {count}")));
            let different: BTreeSet<_> = fields.iter().collect();
            assert_eq!(
                (fields.len(), different.len()),
                (count.min(size), count.min(size)),
                "of {size}"
            );
            let repeated = texts(ask(&mut server, &format!("HRANDFIELD h -{count} WITHVALUES")));
            assert_eq!(repeated.len(), 2 * count);
            assert!(repeated.chunks(2).all(|pair| pair[0] == format!("f{}", pair[1])));
        }
    }
}

#[test]
fn every_field_can_be_drawn() {
    for (size, line) in [
        (10, "HRANDFIELD h"),
        (10, "HRANDFIELD h 3"),
        (10, "HRANDFIELD h 7"),
        (200, "HRANDFIELD h 20"),
    ] {
        let mut server = server_with_hash(size);
        let mut drawn = BTreeSet::new();
        for _ in 0..20 * size {
            match ask(&mut server, line) {
                Reply::Bulk(field) => _ = drawn.insert(String::from_utf8(field).unwrap()),
                fields => drawn.extend(texts(fields)),
            }
        }
        assert_eq!(drawn.len(), size, "{line}");
    }
}

#[test]
fn a_small_request_cannot_ask_for_an_endless_reply() {
    let settings = Settings { client_reply_bytes: 1_000_000, ..Settings::default() };
    let mut server = Server::with(settings);
    server.run("HSET h f v");
    for count in ["-9223372036854775807", "-150000"] {
        let reply = server.run(format!("HRANDFIELD h {count}"));
        assert_eq!(reply, "-ERR value is out of range, the reply would be too large");
    }
    assert_eq!(server.run("HLEN h"), "1");
}

#[test]
fn a_large_hash_survives_a_restart() {
    let mut server = server_with_hash(3_000);
    for index in (0..3_000).step_by(3) {
        server.run(format!("HDEL h f{index}"));
    }
    let large = vec![b'x'; 100_000];
    server.send(Client::FIRST, &[b"HSET", b"h", b"large", &large]);
    let mut server = server.reopen();
    assert_eq!(server.run("HLEN h"), "2001");
    assert_eq!(server.run("HSTRLEN h large"), "100000");
    assert_eq!(server.run("HMGET h f0 f1 f2 f3 f2999"), "[nil, '1', '2', nil, '2999']");
}
