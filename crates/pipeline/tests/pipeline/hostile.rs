//! The command table with hostile sizes: whatever a client asks for, no turn keeps others waiting
//! for long.
//!
//! The test measures the longest turn in processor time of this thread, which does not depend on
//! what else the machine does. The bound is several times what a slice takes here, and a fraction
//! of what the whole command takes.

#![cfg(target_os = "linux")]

use std::{collections::BTreeSet, time::Duration};

use crate::world::{Client, World, request, settings};
use busload_pipeline::{command::COMMANDS, settings::SyncMode};
use busload_resp::reply::ReplyCounter;

/// Number of pairs in the largest request: the limit is 2^20 arguments.
const MANY: usize = 500_000;
const VALUE_BYTES: usize = 500_000_000;
/// Longest permitted turn. A slice takes some milliseconds here; the commands below took a hundred
/// to several thousand.
const LONGEST_TURN: Duration = Duration::from_millis(60);

/// Returns the processor time of this thread so far.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn keys() -> Vec<Vec<u8>> {
    (0..MANY).map(|number| format!("key:{number:09}").into_bytes()).collect()
}

fn pairs() -> Vec<Vec<u8>> {
    keys().into_iter().flat_map(|key| [key, b"v".to_vec()]).collect()
}

fn with(start: &[&[u8]], rest: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    start.iter().map(|word| word.to_vec()).chain(rest).collect()
}

/// Returns what a hostile client sends of this command, in a world with a hash of a million fields,
/// half a million keys and a string of 500 MB; nothing for a command whose cost does not grow.
fn hostile(name: &str) -> Vec<Vec<Vec<u8>>> {
    let words = |line: &str| vec![line.split(' ').map(|word| word.as_bytes().to_vec()).collect()];
    let pattern = |command: &[&[u8]]| {
        let class = [b"*[".to_vec(), b"b".repeat(1_000_000), b"]*[13]*".to_vec()].concat();
        vec![with(command, vec![class]), with(command, vec![b"*[13][24]*[57]*".to_vec()])]
    };
    let large = || vec![b"x".repeat(50_000_000)];
    match name {
        "get" | "strlen" => words(&format!("{name} big")),
        "getbit" => words("getbit big 4000000000"),
        "getrange" | "substr" => words(&format!("{name} big 1 -2")),
        "set" => vec![with(&[b"set", b"s"], large())],
        "setnx" => vec![with(&[b"setnx", b"s2"], large())],
        "getset" => vec![with(&[b"getset", b"s"], large())],
        "setex" | "psetex" => vec![with(&[name.as_bytes(), b"s", b"1000000"], large())],
        "append" => {
            vec![with(&[b"append", b"s"], large()), with(&[b"append", b"big", b"x"], Vec::new())]
        }
        "setrange" => words("setrange gap 400000000 x"),
        "setbit" => words("setbit gap2 3200000000 1"),
        "bitcount" => words("bitcount big"),
        "mget" | "exists" | "touch" | "watch" => vec![with(&[name.as_bytes()], keys())],
        "mset" | "msetnx" => vec![with(&[name.as_bytes()], pairs())],
        "del" | "unlink" => vec![
            with(&[name.as_bytes()], keys()),
            with(&[b"mset"], pairs()),
            with(&[name.as_bytes(), b"gap", b"gap2", b"s"], Vec::new()),
        ],
        "hset" | "hmset" => vec![with(&[name.as_bytes(), b"h"], pairs())],
        "hmget" => vec![with(&[b"hmget", b"hash"], keys())],
        "hdel" => vec![with(&[b"hdel", b"h"], keys())],
        "hgetall" | "hkeys" | "hvals" => words(&format!("{name} hash")),
        "hrandfield" => {
            [words("hrandfield hash 400000 withvalues"), words("hrandfield hash -1000000")].concat()
        }
        "hscan" => {
            [words("hscan hash 0 count 10000000"), pattern(&[b"hscan", b"hash", b"0", b"match"])]
                .concat()
        }
        "scan" => [words("scan 0 count 10000000"), pattern(&[b"scan", b"0", b"match"])].concat(),
        "keys" => [words("keys *"), pattern(&[b"keys"])].concat(),
        "copy" => [words("copy hash hash4"), words("copy big big4")].concat(),
        "rename" => ["copy hash hash2", "copy big big2", "rename hash2 hash3", "rename big2 big3"]
            .into_iter()
            .flat_map(words)
            .collect(),
        "renamenx" => [words("renamenx hash3 hash2"), words("renamenx big3 big2")].concat(),
        "memory" => words("memory usage hash samples 0"),
        "object" => words("object encoding hash"),
        "config" => pattern(&[b"config", b"get"]),
        "acl" => {
            vec![with(&[b"acl", b"setuser", b"x"], keys()), with(&[b"acl", b"deluser"], keys())]
        }
        "command" => vec![with(&[b"command", b"getkeys", b"mget"], keys())],
        "ping" | "echo" => vec![with(&[name.as_bytes()], large())],
        "expire" => words("expire hash 100000"),
        "persist" => words("persist hash"),
        "flushdb" => words("flushdb"),
        "flushall" => words("flushall"),
        // These take one number, one short text, or nothing on which their cost could depend.
        "getdel" | "getex" | "incr" | "incrby" | "decr" | "decrby" | "incrbyfloat" | "hsetnx"
        | "hget" | "hlen" | "hexists" | "hincrby" | "hincrbyfloat" | "hstrlen" | "type"
        | "pexpire" | "expireat" | "pexpireat" | "ttl" | "pttl" | "expiretime" | "pexpiretime"
        | "randomkey" | "unwatch" | "hello" | "auth" | "select" | "client" | "dbsize" | "info"
        | "function" | "slowlog" | "latency" | "monitor" | "time" | "bgsave" | "bgrewriteaof"
        | "save" | "lastsave" => Vec::new(),
        // A transaction executes whole: it costs what its commands cost. The others end something.
        "multi" | "exec" | "discard" | "quit" | "reset" | "shutdown" => Vec::new(),
        other => panic!(
            "say what a hostile client would send of {other}, or that its cost does not grow"
        ),
    }
}

/// Executes a request. Returns the longest turn and how the reply begins.
fn run(world: &mut World, client: &Client, words: &[Vec<u8>]) -> (Duration, String) {
    world.clients.write(client.id, &request(words));
    let (mut longest, mut replies, mut start) =
        (Duration::ZERO, ReplyCounter::default(), Vec::new());
    loop {
        let before = processor_time();
        world.turn();
        world.tx.housekeep(crate::world::read(&world.clock));
        longest = longest.max(processor_time() - before);
        let bytes = world.clients.read(client.id);
        start.extend(bytes.iter().take(40 - start.len().min(40)));
        if replies.feed(&bytes).unwrap() != 0 {
            return (longest, start.escape_ascii().to_string());
        }
    }
}

/// Number of attempts. A machine that preempts the thread in the middle of a turn, or provides
/// memory late, makes a turn long now and then; a command that costs too much makes it long every
/// time.
const PASSES_MAX: u32 = 3;

#[test]
fn whatever_a_client_asks_for_nobody_waits_long() {
    let mut slow = slow_commands();
    for _ in 1..PASSES_MAX {
        if slow.is_empty() {
            break;
        }
        let again = slow_commands();
        slow.retain(|name| again.contains(name));
    }
    assert!(slow.is_empty(), "turns above {LONGEST_TURN:?}, {PASSES_MAX} times: {slow:?}");
}

/// Returns the names of commands of which one turn was too long.
fn slow_commands() -> BTreeSet<&'static str> {
    let mut world = World::wide(settings(SyncMode::Off));
    let client = world.connect();
    let big = VALUE_BYTES.to_string();
    let offset = pairs().into_iter().map(|mut word| {
        if word.starts_with(b"key") {
            word[3] = b'+';
        }
        word
    });
    for prepared in [
        with(&[b"MSET"], pairs()),
        with(&[b"HSET", b"hash"], pairs()),
        with(&[b"HSET", b"hash"], offset.collect()),
        with(&[b"SETRANGE", b"big", big.as_bytes(), b"x"], Vec::new()),
    ] {
        let (_, reply) = run(&mut world, &client, &prepared);
        assert!(!reply.starts_with('-'), "{reply}");
    }
    let mut slow = BTreeSet::new();
    let last = |name: &&str| !matches!(*name, "flushdb" | "flushall");
    let names: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
    let (first, flushes): (Vec<&str>, Vec<&str>) = names.into_iter().partition(last);
    for name in first.into_iter().chain(flushes) {
        for words in hostile(name) {
            let (longest, reply) = run(&mut world, &client, &words);
            println!("{name:12} {longest:9.1?}  {reply}");
            if LONGEST_TURN < longest {
                slow.insert(name);
            }
        }
    }
    slow
}
