//! Thousands of random commands on busload and on a real Redis: every reply is the same, byte for
//! byte.
//!
//! Replies may differ in what busload leaves open: the order of fields and keys, which field a
//! random choice gives, the milliseconds between the two servers' executing a command, and replies
//! after a MULTI inside a transaction, which spoils it as in newer servers. After every few hundred
//! commands busload starts again from its log, so the comparison covers the logged data, too.

use busload_io::{Clock, RealClock, Rng, sim::SimRng};
use busload_resp::reply::Reply;

use crate::common::{Client, Server, redis::Redis, show};

const SEEDS: u64 = 8;
const COMMANDS_PER_SEED: usize = 6_000;
const COMMANDS_PER_LOG: usize = 500;

/// Templates of commands; each placeholder is one word but for `{options}`, which is several.
const TEMPLATES: &[&str] = &[
    "GET {key}",
    "GET {key}",
    "SET {key} {value}",
    "SET {key} {value}",
    "SET {key} {value} {options}",
    "SET {key} {value} {options} {options}",
    "SET {key} {value} {options} {options} {options}",
    "SETNX {key} {value}",
    "SETEX {key} {time} {value}",
    "PSETEX {key} {time} {value}",
    "GETSET {key} {value}",
    "GETDEL {key}",
    "GETEX {key}",
    "GETEX {key} {options}",
    "GETEX {key} {options} {options}",
    "GETEX {key} PERSIST",
    "MGET {key} {key} {key}",
    "MSET {key} {value} {key} {value}",
    "MSETNX {key} {value} {key} {value}",
    "APPEND {key} {value}",
    "STRLEN {key}",
    "INCR {key}",
    "DECR {key}",
    "INCRBY {key} {integer}",
    "DECRBY {key} {integer}",
    "INCRBYFLOAT {key} {increment}",
    "SETRANGE {key} {offset} {value}",
    "GETRANGE {key} {index} {index}",
    "SUBSTR {key} {index} {index}",
    "SETBIT {key} {offset} {bit}",
    "GETBIT {key} {offset}",
    "BITCOUNT {key}",
    "BITCOUNT {key} {index} {index}",
    "BITCOUNT {key} {index} {index} {unit}",
    "HSET {key} {field} {value}",
    "HSET {key} {field} {value} {field} {value} {field} {value}",
    "HSETNX {key} {field} {value}",
    "HMSET {key} {field} {value} {field} {value}",
    "HGET {key} {field}",
    "HMGET {key} {field} {field} {field}",
    "HGETALL {key}",
    "HDEL {key} {field}",
    "HDEL {key} {field} {field} {field}",
    "HLEN {key}",
    "HEXISTS {key} {field}",
    "HKEYS {key}",
    "HVALS {key}",
    "HINCRBY {key} {field} {integer}",
    "HINCRBYFLOAT {key} {field} {increment}",
    "HSTRLEN {key} {field}",
    "HSCAN {key} 0 COUNT 1000",
    "HSCAN {key} 0 MATCH {pattern} COUNT 1000",
    "HSCAN {key} {integer} COUNT 0",
    "HRANDFIELD {key}",
    "HRANDFIELD {key} {index}",
    "HRANDFIELD {key} {index} WITHVALUES",
    "DEL {key}",
    "DEL {key} {key}",
    "UNLINK {key}",
    "EXISTS {key} {key}",
    "TYPE {key}",
    "TOUCH {key} {key}",
    "EXPIRE {key} {time}",
    "PEXPIRE {key} {time}",
    "EXPIREAT {key} {date}",
    "PEXPIREAT {key} {date}000",
    "EXPIREAT {key} {date} {when}",
    "PEXPIREAT {key} {date}000 {when}",
    "EXPIREAT {key} {date} {when} {when}",
    "TTL {key}",
    "PTTL {key}",
    "EXPIRETIME {key}",
    "PEXPIRETIME {key}",
    "PERSIST {key}",
    "RENAME {key} {key}",
    "RENAMENX {key} {key}",
    "COPY {key} {key}",
    "COPY {key} {key} REPLACE",
    "COPY {key} {key} DB 1",
    "KEYS *",
    "KEYS {pattern}",
    "SCAN 0 COUNT 1000",
    "SCAN 0 MATCH {pattern} COUNT 1000 TYPE hash",
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "EXEC",
    "DISCARD",
];

/// Commands that decide how Redis keeps a value. INCRBYFLOAT is not among them: it leaves an
/// integer in a form that Redis uses for other strings.
const ENCODING_TEMPLATES: &[&str] = &[
    "OBJECT ENCODING {key}",
    "OBJECT ENCODING {key}",
    "OBJECT ENCODING {key}",
    "OBJECT ENCODING {key}",
    "SET {key} {value}",
    "SET {key} {value} KEEPTTL",
    "GETSET {key} {value}",
    "MSET {key} {value} {key} {value}",
    "APPEND {key} {value}",
    "APPEND {key} 1",
    "SETRANGE {key} {offset} {value}",
    "SETRANGE {key} 1 2",
    "SETBIT {key} {offset} {bit}",
    "INCR {key}",
    "GETEX {key} EX 10000000",
    "PERSIST {key}",
    "HSET {key} {field} {value}",
    "HSET {key} {field} {long}",
    "HSET {key} {long} {value}",
    "HSETNX {key} {field} {long}",
    "HINCRBY {key} {field} 1",
    "HINCRBYFLOAT {key} {field} 1",
    "HDEL {key} {field} {field} {field} {field}",
    "HDEL {key} {long}",
    "COPY {key} {key} REPLACE",
    "RENAME {key} {key}",
    "DEL {key}",
];

const OPTIONS: &[&str] = &[
    "NX",
    "XX",
    "GET",
    "KEEPTTL",
    "PERSIST",
    "EX {time}",
    "PX {time}000",
    "EXAT {date}",
    "PXAT {date}000",
    "EXAT 1",
    "EX 0",
    "EX -1",
    "PX x",
    "EX",
    "EX 9223372036854775807",
    "PX 9223372036854775807",
    "EXAT 9223372036854775",
    "nonsense",
];
const KEYS: &[&str] = &["a", "b", "c", "d", "text", "number", "hash", "small"];
const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "7",
    "100",
    "-100",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "01",
    "+1",
    " 1",
    "-0",
    "1.0",
    "x",
    "",
];
/// Whole increments and short fractions, so that Redis's binary sums are exact as busload's always
/// are.
const INCREMENTS: &[&str] =
    &["1e2", "3", "-7.0", "+15e-1x", "5.", "inf", "-inf", "nan", "", " 1", "x", "-0", "1e1"];
const FLOATS: &[&str] =
    &["0.5", "-7.125", "+1.5", ".5", "5.", "-0.0", "1e-3", "inf", "nan", "1.2.3"];
/// Offsets into strings. Strings of hundreds of megabytes, and transactions for which the log
/// reserves space for them, are left to other tests.
const OFFSETS: &[&str] = &[
    "0",
    "1",
    "5",
    "7",
    "8",
    "63",
    "100",
    "1000",
    "4294967296",
    "-1",
    "99999999999999999999",
    "x",
];
const INDEXES: &[&str] =
    &["0", "1", "2", "-1", "-2", "-3", "5", "100", "-100", "9223372036854775807", "x"];
/// Times in seconds or milliseconds: hours at least, so that nothing expires while a slow machine
/// runs the test.
const TIMES: &[&str] =
    &["10000000", "20000000", "5000000000", "0", "-1", "x", "9223372036854775807"];
const DATES: &[&str] =
    &["4000000000", "4100000000", "4200000000", "1", "-1", "x", "9223372036854775807"];
const PATTERNS: &[&str] = &["*", "?", "f*", "*1*", "[a-c]", "[^a]", "number", "\\a", "", "f[0-9]"];
const WHEN: &[&str] = &["NX", "XX", "GT", "LT", "nonsense"];
/// Values below and above the size that Redis keeps in a compact hash.
const LONG: &[&str] = &[
    "x123456789012345678901234567890123456789012345678901234567890123",
    "x1234567890123456789012345678901234567890123456789012345678901234",
];
const NESTED: &str = "ERR MULTI calls can not be nested";
const UNITS: &[&str] = &["BYTE", "BIT", "bit", "nonsense"];

/// Compares every key with every pattern, on both servers.
#[test]
fn patterns_match_what_redis_matches() {
    const PATTERNS_COUNT: usize = 4_000;
    let Some(mut redis) = Redis::start() else {
        println!("redis-server is not installed: nothing was compared");
        return;
    };
    let mut server = Server::new();
    let mut rng = SimRng::new(1);
    let mut bytes = |length_max: usize, among: &[u8]| -> Vec<u8> {
        let length = below(&mut rng, length_max + 1);
        (0..length).map(|_| among[below(&mut rng, among.len())]).collect()
    };
    redis.run("FLUSHALL");
    for _ in 0..300 {
        let key = bytes(8, b"aab]-B\x80\xff");
        for reply in
            [server.send(Client::FIRST, &[b"SET", &key, b"v"]), redis.send(&[b"SET", &key, b"v"])]
        {
            assert_eq!(reply, b"+OK\r\n");
        }
    }
    let mut shown = 0;
    for _ in 0..PATTERNS_COUNT {
        let pattern = bytes(10, b"aab**??[[]]^-\\B\x80\xff");
        let words: [&[u8]; 2] = [b"KEYS", &pattern];
        let [ours, theirs] =
            [server.send(Client::FIRST, &words), redis.send(&words)].map(|bytes| {
                let (reply, _) = Reply::parse(&bytes).expect("a reply").expect("all of it");
                sorted(&reply, false)
            });
        assert_eq!(show(&ours), show(&theirs), "{}", pattern.escape_ascii());
        shown += usize::from(ours != Reply::Array(Vec::new()));
    }
    assert!(PATTERNS_COUNT / 10 < shown, "patterns have to match now and then: {shown}");
}

#[test]
fn replies_are_those_of_redis() {
    let Some(mut redis) = Redis::start() else {
        println!("redis-server is not installed: nothing was compared");
        return;
    };
    for seed in 0..SEEDS {
        compare(&mut redis, seed, TEMPLATES, COMMANDS_PER_LOG);
    }
}

/// Runs without a new start from the log, which Redis could not imitate.
#[test]
fn encodings_are_those_of_redis() {
    let Some(mut redis) = Redis::start() else {
        println!("redis-server is not installed: nothing was compared");
        return;
    };
    for seed in 0..SEEDS {
        compare(&mut redis, seed, ENCODING_TEMPLATES, usize::MAX);
    }
}

fn compare(redis: &mut Redis, seed: u64, templates: &[&str], commands_per_log: usize) {
    let clock = RealClock::new();
    let mut server = Server::new();
    let mut rng = SimRng::new(seed);
    let hello = if seed.is_multiple_of(2) { "HELLO 2" } else { "HELLO 3" };
    server.run(hello);
    // The seed before may have ended in a transaction.
    redis.run("DISCARD");
    redis.run(hello);
    redis.run("FLUSHALL");
    let mut queued: Option<Vec<Vec<Vec<u8>>>> = None;
    for ordinal in 0..COMMANDS_PER_SEED {
        if ordinal % commands_per_log == commands_per_log - 1 && queued.is_none() {
            server = server.reopen();
            server.run(hello);
        }
        let command = draw_command(&mut rng, templates);
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        server.set_wall_ms(clock.wall_ms());
        let (ours, theirs) = (server.send(Client::FIRST, &words), redis.send(&words));
        let context = || format!("seed {seed}, command {ordinal}: {}", show_command(&command));
        let [ours, theirs] = [ours, theirs].map(|bytes| match Reply::parse(&bytes) {
            Ok(Some((reply, length))) if length == bytes.len() => reply,
            other => panic!("{}: {other:?}", context()),
        });
        let name = command[0].to_ascii_uppercase();
        let ends = name == b"EXEC" || name == b"DISCARD" && !ours.is_error();
        let done = queued.take_if(|_| ends);
        assert_same(&command, &ours, &theirs, done.as_deref(), &context);
        if name == b"MULTI" && ours == Reply::Error(NESTED.into()) {
            assert_eq!(server.run("DISCARD"), redis.run("DISCARD"));
            queued = None;
        }
        match &mut queued {
            Some(queue) if ours == Reply::Simple(b"QUEUED".into()) => queue.push(command),
            None if name == b"MULTI" && !ours.is_error() => queued = Some(Vec::new()),
            _ => {}
        }
    }
}

fn assert_same(
    command: &[Vec<u8>],
    ours: &Reply,
    theirs: &Reply,
    queue: Option<&[Vec<Vec<u8>>]>,
    context: &dyn Fn() -> String,
) {
    if let (Some(queue), Reply::Array(ours), Reply::Array(theirs)) = (queue, ours, theirs) {
        assert_eq!((ours.len(), theirs.len()), (queue.len(), queue.len()), "{}", context());
        for ((command, ours), theirs) in queue.iter().zip(ours).zip(theirs) {
            let context = || format!("{}, in it {}", context(), show_command(command));
            assert_same(command, ours, theirs, None, &context);
        }
        return;
    }
    let name = String::from_utf8_lossy(&command[0]).to_ascii_uppercase();
    let same = match (name.as_str(), ours, theirs) {
        ("TTL" | "EXPIRETIME", Reply::Integer(ours), Reply::Integer(theirs)) => {
            close(*ours, *theirs, 20)
        }
        ("PTTL" | "PEXPIRETIME", Reply::Integer(ours), Reply::Integer(theirs)) => {
            close(*ours, *theirs, 20_000)
        }
        ("HRANDFIELD", Reply::Bulk(_), Reply::Bulk(_)) => true,
        ("HRANDFIELD", Reply::Array(ours), Reply::Array(theirs)) => {
            let nested = |of: &[Reply]| {
                of.iter().map(|one| matches!(one, Reply::Array(_))).collect::<Vec<_>>()
            };
            nested(ours) == nested(theirs)
        }
        ("HGETALL" | "HKEYS" | "HVALS" | "KEYS" | "SCAN" | "HSCAN", ours, theirs) => {
            let in_pairs = matches!(name.as_str(), "HGETALL" | "HSCAN");
            sorted(ours, in_pairs) == sorted(theirs, in_pairs)
        }
        _ => ours == theirs,
    };
    assert!(same, "{}\n    busload {}\n    Redis   {}", context(), show(ours), show(theirs));
}

fn close(ours: i64, theirs: i64, tolerance: i64) -> bool {
    ours == theirs || 0 < ours && 0 < theirs && (ours - theirs).abs() <= tolerance
}

/// Sorts the elements (or pairs of them) of a reply, also those of an array in it.
fn sorted(reply: &Reply, in_pairs: bool) -> Reply {
    match reply {
        Reply::Array(elements)
            if elements.iter().any(|element| matches!(element, Reply::Array(_))) =>
        {
            Reply::Array(elements.iter().map(|element| sorted(element, in_pairs)).collect())
        }
        Reply::Array(elements) => {
            let mut groups: Vec<_> = elements.chunks(if in_pairs { 2 } else { 1 }).collect();
            groups.sort_by_key(|group| group.iter().map(show).collect::<Vec<_>>());
            Reply::Array(groups.concat())
        }
        Reply::Map(pairs) => {
            let mut pairs = pairs.clone();
            pairs.sort_by_key(|(field, _)| show(field));
            Reply::Map(pairs)
        }
        other => other.clone(),
    }
}

fn draw_command(rng: &mut SimRng, templates: &[&str]) -> Vec<Vec<u8>> {
    let template = draw(rng, templates);
    let mut command = Vec::new();
    expand(rng, template, &mut command);
    match below(rng, 60) {
        0 if 1 < command.len() => _ = command.pop(),
        1 => command.push(b"extra".into()),
        2 => command[0].make_ascii_lowercase(),
        _ => {}
    }
    command
}

fn expand(rng: &mut SimRng, template: &str, words: &mut Vec<Vec<u8>>) {
    for word in template.split_whitespace() {
        let word: Vec<u8> = match word {
            "{options}" => {
                let options = draw(rng, OPTIONS);
                expand(rng, options, words);
                continue;
            }
            "{key}" => draw(rng, KEYS).into(),
            "{field}" => draw_field(rng),
            "{value}" => draw_value(rng),
            "{integer}" => draw(rng, INTEGERS).into(),
            "{increment}" => draw(rng, INCREMENTS).into(),
            "{offset}" => draw(rng, OFFSETS).into(),
            "{index}" => draw(rng, INDEXES).into(),
            "{bit}" => draw(rng, &["0", "1", "1", "2", "x"]).into(),
            "{time}" => draw(rng, TIMES).into(),
            "{time}000" => format!("{}000", draw(rng, TIMES)).into(),
            "{date}" => draw(rng, DATES).into(),
            "{date}000" => format!("{}000", draw(rng, DATES)).into(),
            "{long}" => draw(rng, LONG).into(),
            "{pattern}" => draw(rng, PATTERNS).into(),
            "{when}" => draw(rng, WHEN).into(),
            "{unit}" => draw(rng, UNITS).into(),
            plain => plain.into(),
        };
        words.push(word);
    }
}

/// Draws a field, sometimes from many, so that hashes become large.
fn draw_field(rng: &mut SimRng) -> Vec<u8> {
    match below(rng, 4) {
        0 => format!("f{}", below(rng, 300)).into(),
        1 => b"".into(),
        _ => format!("f{}", below(rng, 4)).into(),
    }
}

fn draw_value(rng: &mut SimRng) -> Vec<u8> {
    match below(rng, 12) {
        0..4 => draw(rng, INTEGERS).into(),
        4..6 => draw(rng, FLOATS).into(),
        6 => (0..below(rng, 100)).map(|_| rng.next_u64() as u8).collect(),
        7 => vec![b'v'; below(rng, 70_000)],
        8 => b"\0\r\n'\"\xff".into(),
        _ => format!("value {}", below(rng, 100)).into(),
    }
}

fn draw<'a>(rng: &mut SimRng, among: &[&'a str]) -> &'a str {
    among[below(rng, among.len())]
}

fn below(rng: &mut SimRng, limit: usize) -> usize {
    (rng.next_u64() % limit as u64) as usize
}

fn show_command(command: &[Vec<u8>]) -> String {
    let shown = command.iter().map(|word| match word.len() {
        0..=80 => format!("'{}'", word.escape_ascii()),
        length => format!("({length} bytes)"),
    });
    shown.collect::<Vec<_>>().join(" ")
}
