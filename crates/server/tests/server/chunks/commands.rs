//! Replies of chunk tables to Redis clients.

use busload_chunks::{ChunkAddress, ChunkLocation, Span, Stored};
use busload_resp::reply::Reply;

use super::{
    Served,
    fixtures::{self, Listed},
};
use crate::support::client::binary_command;

const BOTH: [&[&str]; 2] = [&["--net-threads", "0"], &["--net-threads", "1"]];

fn address(listed: &Listed) -> ChunkAddress {
    listed.address.parse().unwrap()
}

/// Returns a key with the address in raw bytes.
fn raw(table: &str, address: &ChunkAddress) -> Vec<u8> {
    [table.as_bytes(), b":", &address.0].concat()
}

#[track_caller]
fn bulk(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Bulk(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn array(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(replies) => replies,
        other => panic!("{other:?}"),
    }
}

/// Reads all chunks of a store with MGET, by text and raw keys in turn, and verifies each.
#[track_caller]
fn get_all(served: &mut Served, table: &str, chunks: &[Listed]) {
    for (batch, some) in chunks.chunks(200).enumerate() {
        let keys: Vec<Vec<u8>> = some
            .iter()
            .map(|listed| match batch % 2 {
                0 => format!("{table}:{}", listed.address).into_bytes(),
                _ => raw(table, &address(listed)),
            })
            .collect();
        let words: Vec<&[u8]> =
            std::iter::once(&b"MGET"[..]).chain(keys.iter().map(Vec::as_slice)).collect();
        served.client.send(&binary_command(&words));
        let replies = array(served.client.receive().unwrap());
        assert_eq!(replies.len(), some.len());
        for (listed, reply) in some.iter().zip(replies) {
            let contents = bulk(reply);
            assert_eq!(contents.len(), listed.bytes, "{table} {}", listed.address);
            assert_eq!(ChunkAddress::of(&contents), address(listed), "{table}");
        }
    }
}

#[test]
fn every_chunk_of_every_sound_store_is_served_cold_and_warm_with_both_threadings() {
    let tables: Vec<String> = fixtures::sound()
        .map(|name| fixtures::table(name, name, "disk=64MiB&disk_free=0"))
        .collect();
    let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    for arguments in BOTH {
        let mut served = Served::start(&tables, arguments);
        for name in fixtures::sound() {
            let chunks = fixtures::listed(name);
            get_all(&mut served, name, &chunks);
            get_all(&mut served, name, &chunks);
        }
        assert!(served.server.stop().success());
    }
}

#[test]
fn questions_about_chunks_are_answered_like_those_about_keys() {
    let chunks = fixtures::listed("real-classic");
    let (one, two) = (&chunks[0], &chunks[1]);
    let unknown = "00000000000000000000000000000000";
    for arguments in BOTH {
        let mut served = Served::start(&[&fixtures::table("db", "real-classic", "")], arguments);
        served.check(&format!(
            "EXISTS db:{a} -> 1
             EXISTS db:{a} db:{b} db:{unknown} db:{a} -> 3
             EXISTS db:{unknown} -> 0
             STRLEN db:{a} -> {}
             STRLEN db:{b} -> {}
             STRLEN db:{unknown} -> 0
             TYPE db:{a} -> string
             TYPE db:{unknown} -> none
             GET db:{unknown} -> nil
             MGET db:{unknown} db:{unknown} -> nil nil
             SET db2 v -> OK
             SELECT 3 -> OK
             EXISTS db:{a} -> 1
             DBSIZE -> 0",
            one.bytes,
            two.bytes,
            a = one.address,
            b = two.address,
        ));
        // One command that reads a memory table and a store.
        let reply = served.client.call(&["MGET", "nothing", &format!("db:{}", one.address)]);
        let mut replies = array(reply);
        assert_eq!(bulk(replies.remove(1)).len(), one.bytes);
    }
}

#[test]
fn raw_addresses_are_keys_too() {
    let chunks = fixtures::listed("real-classic");
    let mut served = Served::start(&[&fixtures::table("db", "real-classic", "")], &[]);
    for listed in chunks.iter().take(50) {
        let key = raw("db", &address(listed));
        served.client.send(&binary_command(&[b"GET", &key]));
        assert_eq!(bulk(served.client.receive().unwrap()).len(), listed.bytes);
        served.client.send(&binary_command(&[b"EXISTS", &key]));
        assert_eq!(served.client.receive().unwrap(), Reply::Integer(1));
        served.client.send(&binary_command(&[b"STRLEN", &key]));
        assert_eq!(
            served.client.receive().unwrap(),
            Reply::Integer(i64::try_from(listed.bytes).unwrap())
        );
    }
    served.client.send(&binary_command(&[b"GET", &raw("db", &ChunkAddress([0xff; 20]))]));
    assert!(matches!(served.client.receive().unwrap(), Reply::Null(_)));
}

#[test]
fn what_is_no_address_is_an_error_of_that_request_alone() {
    let one = fixtures::listed("real-classic").remove(0).address;
    let mut served = Served::start(&[&fixtures::table("db", "real-classic", "")], &[]);
    let expected = "is no address of a chunk; expected 32 characters of 0-9a-v, or 20 bytes";
    served.check(&format!(
        "GET db: -> -ERR table db: `` {expected}
         GET db:x -> -ERR table db: `x` {expected}
         EXISTS db:x -> -ERR table db: `x` {expected}
         STRLEN db:x -> -ERR table db: `x` {expected}
         TYPE db:x -> -ERR table db: `x` {expected}
         GET db:{upper} -> -ERR table db: `{upper}` {expected}
         EXISTS db:{one} -> 1",
        upper = one.to_uppercase(),
    ));
    let long = served.run(&format!("GET db:{}", "y".repeat(100_000)));
    assert!(long.len() < 300 && long.contains(expected), "{long}");
    let binary = raw("db", &ChunkAddress([0xff; 20]));
    served.client.send(&binary_command(&[b"GET", &binary[..binary.len() - 1]]));
    let reply = served.client.receive().unwrap();
    assert!(matches!(reply, Reply::Error(ref text) if text.is_ascii()), "{reply:?}");
}

#[test]
fn what_a_store_cannot_do_is_refused_by_name() {
    let one = fixtures::listed("real-classic").remove(0).address;
    let mut served = Served::start(&[&fixtures::table("db", "real-classic", "")], &[]);
    for line in [
        "SET db:a 1",
        "DEL db:a",
        "UNLINK db:a",
        "HGET db:a f",
        "HGETALL db:a",
        "HSET db:a f v",
        "HDEL db:a f",
        "INCR db:a",
        "APPEND db:a x",
        "EXPIRE db:a 10",
        "TTL db:a",
        "GETDEL db:a",
        "MSET db:a 1",
    ] {
        let command = line.split(' ').next().unwrap();
        let reply = served.run(line);
        let expected = format!("-ERR table db: {command} is not supported on a chunks table");
        assert_eq!(reply, expected, "{line}");
    }
    let mixed = served.run("DEL a db:a");
    assert!(mixed.starts_with("-ERR"), "{mixed}");
    assert_eq!(served.run("MULTI"), "OK");
    let queued = served.run(&format!("GET db:{one}"));
    assert!(queued.contains("cannot be queued") && queued.contains("chunks table"), "{queued}");
    assert!(served.run("EXEC").starts_with("-EXECABORT"));
    served.check("KEYS * -> \nDBSIZE -> 0\nFLUSHALL -> OK");
    assert_eq!(served.run(&format!("EXISTS db:{one}")), "1");
}

#[test]
fn as_stored_a_chunk_is_a_record_that_decodes_to_its_address() {
    for (name, arguments) in ["real-classic", "real-archive-v3"].into_iter().zip(BOTH) {
        let chunks = fixtures::listed(name);
        let table = fixtures::table("db", name, "contents=stored");
        let mut served = Served::start(&[&table], arguments);
        for listed in &chunks {
            let record = bulk(served.client.call(&["GET", &format!("db:{}", listed.address)]));
            let length = i64::try_from(record.len()).unwrap();
            let location = ChunkLocation {
                span: Span { offset: 0, length: u32::try_from(record.len()).unwrap() },
                dictionary: None,
            };
            let stored = Stored::parse(record.into(), &location).unwrap();
            let contents = stored.decode(None).unwrap();
            assert_eq!(contents.len(), listed.bytes);
            assert_eq!(ChunkAddress::of(&contents), address(listed));
            let measured = served.client.call(&["STRLEN", &format!("db:{}", listed.address)]);
            assert_eq!(measured, Reply::Integer(length), "the length of what GET answers");
        }
    }
}

#[test]
fn chunks_that_are_not_what_their_addresses_say_are_errors_and_never_nil() {
    for name in fixtures::MADE_UP {
        let mut served = Served::start(&[&fixtures::table("db", name, "")], &[]);
        for listed in fixtures::listed(name) {
            let reply = served.run(&format!("GET db:{}", listed.address));
            assert!(reply.starts_with("-ERR table db: "), "{name} {}: {reply}", listed.address);
            assert_eq!(
                served.run(&format!("EXISTS db:{}", listed.address)),
                "1",
                "it is there all the same"
            );
        }
        assert_eq!(served.run("GET db:00000000000000000000000000000002"), "nil");
    }
}

#[test]
fn replies_keep_the_order_of_a_connection_whatever_has_to_wait() {
    let chunks = fixtures::listed("real-archive-v3");
    for arguments in BOTH {
        let mut served = Served::start(&[&fixtures::table("db", "real-archive-v3", "")], arguments);
        let mut sent = Vec::new();
        for (index, listed) in chunks.iter().enumerate() {
            let key = format!("db:{}", listed.address);
            sent.extend(binary_command(&[b"GET", key.as_bytes()]));
            sent.extend(binary_command(&[b"ECHO", index.to_string().as_bytes()]));
        }
        served.client.send(&sent);
        for (index, listed) in chunks.iter().enumerate() {
            assert_eq!(bulk(served.client.receive().unwrap()).len(), listed.bytes);
            assert_eq!(bulk(served.client.receive().unwrap()), index.to_string().into_bytes());
        }
    }
}

#[test]
fn a_table_in_memory_for_chunks_answers_the_same() {
    let chunks = fixtures::listed("real-archive-v3");
    for query in
        ["memory=16MiB", "disk=0", "disk=0&memory=16MiB", "fill=touched", "fill_whole_max=0"]
    {
        let mut served = Served::start(&[&fixtures::table("db", "real-archive-v3", query)], &[]);
        get_all(&mut served, "db", &chunks);
        get_all(&mut served, "db", &chunks);
    }
}
