//! The writer byte for byte, and the two readers of replies against it and each other.

use crate::model::Random;
use busload_hostile::{Random as Changes, mutate_with, within};
use busload_resp::Version::{Resp2, Resp3};
use busload_resp::reply::{NullKind, Reply, ReplyCounter, ReplyCounts, ReplyError};
use busload_resp::{
    write_array, write_big_number, write_bool, write_bulk, write_bulk_header, write_crlf,
    write_double, write_error, write_integer, write_map, write_null, write_null_array, write_push,
    write_set, write_simple, write_verbatim,
};

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = b"before ".to_vec();
    write(&mut out);
    out.escape_ascii().to_string().strip_prefix("before ").expect("writers append").to_owned()
}

#[test]
fn replies_are_written_as_redis_writes_them() {
    assert_eq!(written(|out| write_simple(out, "OK")), r"+OK\r\n");
    assert_eq!(written(|out| write_error(out, b"ERR no")), r"-ERR no\r\n");
    assert_eq!(written(|out| write_bulk(out, b"")), r"$0\r\n\r\n");
    assert_eq!(written(|out| write_bulk(out, b"a\r\n\xff")), r"$4\r\na\r\n\xff\r\n");
    assert_eq!(written(|out| write_bulk_header(out, 536_870_912)), r"$536870912\r\n");
    assert_eq!(written(write_crlf), r"\r\n");
    assert_eq!(written(|out| write_null(out, Resp2)), r"$-1\r\n");
    assert_eq!(written(|out| write_null(out, Resp3)), r"_\r\n");
    assert_eq!(written(|out| write_null_array(out, Resp2)), r"*-1\r\n");
    assert_eq!(written(|out| write_null_array(out, Resp3)), r"_\r\n");
    assert_eq!(written(|out| write_map(out, 6, Resp2)), r"*12\r\n");
    assert_eq!(written(|out| write_map(out, 6, Resp3)), r"%6\r\n");
    assert_eq!(written(|out| write_set(out, 3, Resp2)), r"*3\r\n");
    assert_eq!(written(|out| write_set(out, 3, Resp3)), r"~3\r\n");
    assert_eq!(written(|out| write_push(out, 2)), r">2\r\n");
    assert_eq!(written(|out| write_double(out, 0.1, Resp2)), r"$19\r\n0.10000000000000001\r\n");
    assert_eq!(written(|out| write_double(out, 3.0, Resp3)), r",3\r\n");
    assert_eq!(written(|out| write_double(out, f64::NEG_INFINITY, Resp3)), r",-inf\r\n");
    assert_eq!(written(|out| write_bool(out, true, Resp2)), r":1\r\n");
    assert_eq!(written(|out| write_bool(out, false, Resp2)), r":0\r\n");
    assert_eq!(written(|out| write_bool(out, true, Resp3)), r"#t\r\n");
    assert_eq!(written(|out| write_bool(out, false, Resp3)), r"#f\r\n");
    assert_eq!(written(|out| write_verbatim(out, "txt", b"a b", Resp2)), r"$3\r\na b\r\n");
    assert_eq!(written(|out| write_verbatim(out, "txt", b"a b", Resp3)), r"=7\r\ntxt:a b\r\n");
    assert_eq!(written(|out| write_big_number(out, "123", Resp2)), r"$3\r\n123\r\n");
    assert_eq!(written(|out| write_big_number(out, "123", Resp3)), r"(123\r\n");
}

#[test]
fn numbers_and_counts_of_every_length_are_written_whole() {
    for number in [0, 1, 9, 10, 99, 100, 255, 256, 266, 1_000_000, i64::MAX, -1, -10, i64::MIN] {
        assert_eq!(written(|out| write_integer(out, number)), format!(r":{number}\r\n"));
    }
    for count in [0, 1, 9, 10, 11, 99, 100, 101, 255, 256, 266, 355, 1_048_576] {
        assert_eq!(written(|out| write_array(out, count)), format!(r"*{count}\r\n"));
        assert_eq!(written(|out| write_bulk_header(out, count)), format!(r"${count}\r\n"));
    }
}

#[test]
fn an_error_is_one_line_whatever_it_quotes() {
    assert_eq!(written(|out| write_error(out, b"ERR 'a\r\nb\n'")), r"-ERR \'a  b \'\r\n");
    assert_eq!(written(|out| write_error(out, b"ERR a\r\n")), r"-ERR a\r\n");
    assert_eq!(written(|out| write_error(out, b"\r\nERR a\n\r\n")), r"-ERR a\r\n");
    assert_eq!(written(|out| write_error(out, b"")), r"-\r\n");
    assert_eq!(written(|out| write_error(out, b"\r\n")), r"-\r\n");
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.into())
}

#[test]
fn every_type_of_reply_is_read() {
    let cases: &[(&str, Reply)] = &[
        ("+OK\r\n", Reply::Simple(b"OK".into())),
        ("+\r\n", Reply::Simple(b"".into())),
        ("-ERR a b\r\n", Reply::Error(b"ERR a b".into())),
        ("!5\r\nERR a\r\n", Reply::Error(b"ERR a".into())),
        (":-12\r\n", Reply::Integer(-12)),
        ("$0\r\n\r\n", bulk("")),
        ("$4\r\na\r\nb\r\n", bulk("a\r\nb")),
        ("$-1\r\n", Reply::Null(NullKind::Bulk)),
        ("*-1\r\n", Reply::Null(NullKind::Array)),
        ("_\r\n", Reply::Null(NullKind::Resp3)),
        ("*0\r\n", Reply::Array(vec![])),
        ("*2\r\n:1\r\n*1\r\n$-1\r\n", {
            Reply::Array(vec![Reply::Integer(1), Reply::Array(vec![Reply::Null(NullKind::Bulk)])])
        }),
        ("%1\r\n$1\r\na\r\n:1\r\n", Reply::Map(vec![(bulk("a"), Reply::Integer(1))])),
        ("~1\r\n#t\r\n", Reply::Set(vec![Reply::Bool(true)])),
        (">1\r\n#f\r\n", Reply::Push(vec![Reply::Bool(false)])),
        ("|1\r\n+a\r\n:1\r\n:2\r\n", {
            let attributes = vec![(Reply::Simple(b"a".into()), Reply::Integer(1))];
            Reply::Attribute(attributes, Box::new(Reply::Integer(2)))
        }),
        (",1.5\r\n", Reply::Double(b"1.5".into())),
        ("(12345678901234567890123\r\n", Reply::BigNumber(b"12345678901234567890123".into())),
        ("=6\r\ntxt:ab\r\n", Reply::Verbatim { format: *b"txt", text: b"ab".into() }),
    ];
    for (text, reply) in cases {
        assert_eq!(
            Reply::parse(text.as_bytes()),
            Ok(Some((reply.clone(), text.len()))),
            "{text:?}"
        );
        for len in 0..text.len() {
            assert_eq!(Reply::parse(&text.as_bytes()[..len]), Ok(None), "{text:?} cut at {len}");
        }
    }
}

#[test]
fn what_is_no_reply_is_refused() {
    let cases: &[(&str, ReplyError)] = &[
        ("?\r\n", ReplyError::UnknownType(b'?')),
        ("\r\n", ReplyError::InvalidText),
        ("+a\n", ReplyError::InvalidText),
        (":a\r\n", ReplyError::InvalidNumber),
        ("$-2\r\n", ReplyError::InvalidNumber),
        ("*a\r\n", ReplyError::InvalidNumber),
        ("$18446744073709551616\r\n", ReplyError::InvalidNumber),
        ("$1\r\nabc", ReplyError::InvalidText),
        ("#x\r\n", ReplyError::InvalidText),
        ("_x\r\n", ReplyError::InvalidText),
        ("=2\r\nab\r\n", ReplyError::InvalidText),
    ];
    for (text, error) in cases {
        assert_eq!(Reply::parse(text.as_bytes()), Err(*error), "{text:?}");
    }
    assert_eq!(Reply::parse("*1\r\n".repeat(100).as_bytes()), Err(ReplyError::TooDeep));
    assert_eq!(Reply::parse(b"*9223372036854775807\r\n"), Ok(None));
    assert_eq!(Reply::parse(b"$9223372036854775807\r\n"), Ok(None));
}

#[test]
fn the_counter_tells_errors_nulls_and_pushes_apart() {
    let stream = "+OK\r\n-ERR first\r\n$-1\r\n_\r\n*-1\r\n\
        *2\r\n-ERR nested\r\n$-1\r\n>2\r\n+a\r\n:1\r\n%1\r\n+a\r\n*0\r\n-ERR x\r\n";
    for piece_len in 1..=stream.len() {
        let mut counter = ReplyCounter::default();
        let pieces = stream.as_bytes().chunks(piece_len);
        let replies: u64 = pieces.map(|piece| counter.feed(piece).expect("well formed")).sum();
        assert_eq!(replies, 8);
        let expected = ReplyCounts { replies, errors: 2, errors_nested: 1, nulls: 3, pushes: 1 };
        assert_eq!(counter.counts(), expected);
        assert_eq!(counter.first_error(), Some(&b"ERR first"[..]), "in pieces of {piece_len}");
        assert!(counter.is_at_boundary());
    }
    assert_eq!(ReplyCounter::default().first_error(), None);
}

#[test]
fn attributes_are_no_replies_of_their_own() {
    let mut counter = ReplyCounter::default();
    assert_eq!(counter.feed(b"|1\r\n+a\r\n*1\r\n:1\r\n"), Ok(0));
    assert!(!counter.is_at_boundary());
    assert_eq!(counter.feed(b":2\r\n"), Ok(1));
}

#[test]
fn the_counter_refuses_what_is_no_reply_and_survives_hostile_lengths() {
    for stream in [
        "?",
        "\r\n",
        "$x\r\n",
        "$1\n",
        "*-2\r\n",
        "$-2\r\n",
        "%-1\r\n",
        "$1111111111111111111111\r\n",
    ] {
        assert!(ReplyCounter::default().feed(stream.as_bytes()).is_err(), "{stream:?}");
    }
    let mut counter = ReplyCounter::default();
    assert_eq!(counter.feed(b"$9223372036854775807\r\nabc"), Ok(0));
    assert!(
        counter.feed("*9223372036854775807\r\n".repeat(3).as_bytes()).is_ok(),
        "it is within the bulk string"
    );
    let many = ReplyCounter::default().feed("*9223372036854775807\r\n".repeat(3).as_bytes());
    assert_eq!(many, Err(ReplyError::InvalidNumber));
    // A long error does not cost memory.
    let mut counter = ReplyCounter::default();
    (0..1000).for_each(|_| assert_eq!(counter.feed(&[b'-'; 100]), Ok(0)));
    assert_eq!(counter.first_error().map(<[u8]>::len), Some(256));
}

/// Appends a random reply of at most `depth` levels.
fn reply(random: &mut Random, out: &mut Vec<u8>, depth: usize) {
    let kinds = if depth == 0 { 9 } else { 14 };
    match random.below(kinds) {
        0 => write_simple(out, "OK"),
        1 => write_error(out, b"ERR wrong"),
        2 => write_integer(out, (random.below(1 << 30) as i64 - 1000) >> random.below(30)),
        3 => write_null(out, [Resp2, Resp3][random.below(2)]),
        4 => write_double(out, random.below(1000) as f64 / 7.0, Resp3),
        5 => write_bool(out, random.below(2) == 0, Resp3),
        6 => write_verbatim(out, "txt", &random.bytes(20), Resp3),
        7 | 8 => write_bulk(out, &random.bytes(150)),
        kind => {
            let count = random.below(4);
            match kind {
                9 | 10 => write_array(out, count),
                11 => write_set(out, count, Resp3),
                12 => write_push(out, count),
                _ => write_map(out, count, Resp3),
            }
            let elements = if kind == 13 { count * 2 } else { count };
            (0..elements).for_each(|_| reply(random, out, depth - 1));
        }
    }
}

#[test]
fn counting_replies_and_reading_them_agree() {
    for seed in 1..=3_000 {
        let mut random = Random(seed);
        let mut stream = Vec::new();
        (0..random.below(12)).for_each(|_| reply(&mut random, &mut stream, 3));
        let mut expected = ReplyCounts::default();
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let (reply, len) = Reply::parse(rest).expect("well formed").expect("whole");
            rest = &rest[len..];
            expected.pushes += u64::from(matches!(reply, Reply::Push(_)));
            expected.replies += u64::from(!matches!(reply, Reply::Push(_)));
            expected.errors += u64::from(reply.is_error());
            expected.nulls += u64::from(matches!(reply, Reply::Null(_)));
        }
        let mut counter = ReplyCounter::default();
        for piece in random.cut(&stream, 40) {
            counter.feed(piece).expect("well formed");
        }
        let found = ReplyCounts { errors_nested: 0, ..counter.counts() };
        assert_eq!(found, expected, "seed {seed}: {}", stream.escape_ascii());
        assert!(counter.is_at_boundary());
    }
}

/// Bytes that begin a reply, or announce more than there is.
const TOKENS: &[&[u8]] =
    &[b"*1\r\n", b"%2\r\n", b"~", b">", b"$-1\r\n", b"$?", b"_\r\n", b",inf", b"*2147483647\r\n"];

/// Most memory that a reply takes for each of its bytes: the shortest one has three.
const MEMORY_FACTOR: usize = 64;

#[test]
fn mutated_replies_never_panic() {
    let mut refused = 0;
    for seed in 1..=30_000 {
        let mut random = Random(seed);
        let mut stream = Vec::new();
        (0..4).for_each(|_| reply(&mut random, &mut stream, 3));
        mutate_with(&mut stream, &mut Changes(seed), TOKENS);
        within(MEMORY_FACTOR * stream.len() + 4096, "a stream", || {
            let mut rest = &stream[..];
            while let Ok(Some((_, len))) = Reply::parse(rest) {
                assert!(0 < len && len <= rest.len());
                rest = &rest[len..];
            }
        });
        let mut counter = ReplyCounter::default();
        refused +=
            usize::from(random.cut(&stream, 30).iter().any(|piece| counter.feed(piece).is_err()));
    }
    assert!(1_000 < refused, "the mutations have to break something: {refused}");
}
