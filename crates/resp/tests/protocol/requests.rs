//! The parser against a table of cases, against a reference parser, and on mutated streams.

use crate::model::{Random, Said, parse, reference};
use busload_hostile::{Random as Changes, mutate_with, within};
use busload_resp::{Authentication, Parser, ParserLimits, Progress, ProtocolError};

fn request(args: &[&str]) -> Said {
    Said::Request(args.iter().map(|arg| arg.as_bytes().to_vec()).collect())
}

fn said(stream: &[u8]) -> Vec<Said> {
    parse(&[stream], &ParserLimits::default()).0
}

#[test]
fn requests_are_read_as_redis_reads_them() {
    let cases: &[(&str, Vec<Said>)] = &[
        ("*1\r\n$4\r\nPING\r\n", vec![request(&["PING"])]),
        ("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n", vec![request(&["SET", "k", ""])]),
        (
            "*2\r\n$4\r\nECHO\r\n$12\r\nline\r\n*1\r\n$4\r\n",
            vec![request(&["ECHO", "line\r\n*1\r\n$4"])],
        ),
        ("PING\r\n", vec![request(&["PING"])]),
        ("PING\n", vec![request(&["PING"])]),
        ("  SET \t a\x0b \x0c b \r\n", vec![request(&["SET", "a\x0b", "b"])]),
        (
            "SET a\\n \"a\\n\\r\\t\\b\\a\\q\\\\\\\"\"\r\n",
            vec![request(&["SET", "a\\n", "a\n\r\t\x08\x07q\\\""])],
        ),
        ("SET 'a\\n' 'it\\'s' ''\r\n", vec![request(&["SET", "a\\n", "it's", ""])]),
        ("ECHO \"\\x41\\x7a\\x4\\xzz\"\r\n", vec![request(&["ECHO", "Azx4xzz"])]),
        ("ECHO mid\"dle of\"\r\n", vec![request(&["ECHO", "middle of"])]),
        ("ECHO \"a\"\x0b'b'\r\n", vec![request(&["ECHO", "a", "b"])]),
        (
            "\r\n\n*0\r\n*-1\r\n*-5\r\nPING\r\n",
            vec![
                Said::Nothing,
                Said::Nothing,
                Said::Nothing,
                Said::Nothing,
                Said::Nothing,
                request(&["PING"]),
            ],
        ),
        ("   \r\n", vec![Said::Nothing]),
        // Only the first of the two bytes of a line end is checked, and none after an argument.
        ("*1\rX$4\rXPINGXXPING\r\n", vec![request(&["PING"]), request(&["PING"])]),
    ];
    for (stream, expected) in cases {
        assert_eq!(&said(stream.as_bytes()), expected, "{stream:?}");
    }
}

#[test]
fn what_is_no_request_gives_the_error_of_redis() {
    let (invalid_count, invalid_len) = ("invalid multibulk length", "invalid bulk length");
    let cases: &[(&[u8], &str)] = &[
        (b"*\r\n", invalid_count),
        (b"*a\r\n", invalid_count),
        (b"*+1\r\n", invalid_count),
        (b"*01\r\n", invalid_count),
        (b"*-0\r\n", invalid_count),
        (b"* 1\r\n", invalid_count),
        (b"*1048577\r\n", invalid_count),
        (b"*2147483648\r\n", invalid_count),
        (b"*9223372036854775808\r\n", invalid_count),
        (b"*3 \r\n", invalid_count),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
        (b"*1\r\n\r\n", "expected '$', got ' '"),
        (b"*1\r\n\xe9\r\n", "expected '$', got '\u{e9}'"),
        (b"*1\r\n$\r\n", invalid_len),
        (b"*1\r\n$-1\r\n", invalid_len),
        (b"*1\r\n$a\r\n", invalid_len),
        (b"*1\r\n$04\r\n", invalid_len),
        (b"*1\r\n$1a\r\n", invalid_len),
        (b"*1\r\n$-0\r\n", invalid_len),
        (b"*1\r\n$536870913\r\n", invalid_len),
        (b"*1\r\n$9223372036854775807\r\n", invalid_len),
        (b"*1\r\n$18446744073709551616\r\n", invalid_len),
        (b"*2\r\n$1\r\na\r\n$x\r\n", invalid_len),
        (b"SET \"a\r\n", "unbalanced quotes in request"),
        (b"SET 'a\r\n", "unbalanced quotes in request"),
        (b"SET \"a\"b\r\n", "unbalanced quotes in request"),
        (b"SET 'a'b\r\n", "unbalanced quotes in request"),
        (b"SET \"a\\\r\n", "unbalanced quotes in request"),
    ];
    for (stream, text) in cases {
        let Some(Said::Broken(error)) = said(stream).pop() else {
            panic!("accepted: {}", stream.escape_ascii())
        };
        let mut reply = Vec::new();
        error.write(&mut reply);
        let text = text.chars().map(|c| u8::try_from(c).expect("latin 1"));
        let expected =
            [b"-ERR Protocol error: ".to_vec(), text.collect(), b"\r\n".to_vec()].concat();
        assert_eq!(reply.escape_ascii().to_string(), expected.escape_ascii().to_string());
        if error != ProtocolError::ExpectedBulk(b'\r') {
            assert_eq!(
                format!("-ERR {error}\r\n").chars().map(|c| c as u8).collect::<Vec<_>>(),
                reply
            );
        }
    }
}

#[test]
fn an_error_waits_for_the_end_of_its_line() {
    for stream in
        [&b"*x"[..], b"*x\r", b"*1\r\n:", b"*1\r\n:1\r", b"*1\r\n$-1\r", b"*1048577", b"'a"]
    {
        assert_eq!(said(stream), [], "{}", stream.escape_ascii());
    }
}

#[test]
fn lines_are_limited_at_the_exact_byte() {
    let limits = ParserLimits { inline_bytes: 10, ..ParserLimits::default() };
    let cases: &[(&[u8], Option<ProtocolError>)] = &[
        (b"123456789\r\n", None),
        (b"1234567890\n", None),
        (b"1234567890", None),
        (b"12345678901", Some(ProtocolError::InlineTooBig)),
        (b"12345678901\n", Some(ProtocolError::InlineTooBig)),
        (b"*123456789", None),
        (b"*1234567890", Some(ProtocolError::MultibulkCountTooBig)),
        (b"*1234567890\r\n", Some(ProtocolError::MultibulkCountTooBig)),
        (b"*1\r\n$123456789", None),
        (b"*1\r\n$1234567890", Some(ProtocolError::BulkCountTooBig)),
        (b"*1\r\n$1234567890\r\n", Some(ProtocolError::BulkCountTooBig)),
    ];
    for (stream, error) in cases {
        for piece_len in [1, 3, 100] {
            let pieces: Vec<&[u8]> = stream.chunks(piece_len).collect();
            let found = match parse(&pieces, &limits).0.pop() {
                Some(Said::Broken(error)) => Some(error),
                _ => None,
            };
            assert_eq!(found, *error, "{} in {piece_len}", stream.escape_ascii());
        }
    }
}

#[test]
fn counts_and_sizes_are_limited_at_the_exact_number() {
    let limits =
        ParserLimits { arg_count: 3, bulk_bytes: 5, request_bytes: 31, ..ParserLimits::default() };
    let last = |stream: &[u8]| parse(&[stream], &limits).0.pop();
    assert_eq!(last(b"*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"), Some(request(&["a", "b", "c"])));
    assert_eq!(last(b"*4\r\n"), Some(Said::Broken(ProtocolError::InvalidMultibulkLength)));
    assert_eq!(last(b"*1\r\n$5\r\n12345\r\n"), Some(request(&["12345"])));
    assert_eq!(last(b"*1\r\n$6\r\n"), Some(Said::Broken(ProtocolError::InvalidBulkLength)));
    // 4 + 11 + 11 bytes, and 6 more.
    let two = b"*3\r\n$5\r\n12345\r\n$5\r\n12345\r\n";
    assert_eq!(last(two), None);
    let mut stream = two.to_vec();
    stream.extend_from_slice(b"$0\r\n");
    assert_eq!(last(&stream), Some(Said::Broken(ProtocolError::RequestTooBig)));
    stream.extend_from_slice(b"\r\n");
    let roomier = ParserLimits { request_bytes: 32, ..limits };
    assert_eq!(parse(&[&stream], &roomier).0, [request(&["12345", "12345", ""])]);
    // Refused as soon as it is announced, not once it has arrived.
    let limits = ParserLimits { request_bytes: 600 << 20, ..ParserLimits::default() };
    let stream = b"*2\r\n$1\r\na\r\n$536870912\r\n";
    assert_eq!(parse(&[stream], &limits).0, []);
    let limits = ParserLimits { request_bytes: 512 << 20, ..ParserLimits::default() };
    assert_eq!(parse(&[stream], &limits).0, [Said::Broken(ProtocolError::RequestTooBig)]);
}

#[test]
fn clients_that_have_to_authenticate_may_announce_little() {
    let limits =
        ParserLimits { authentication: Authentication::Required, ..ParserLimits::default() };
    let last = |stream: &[u8]| parse(&[stream], &limits).0.pop();
    let (count, len) =
        (ProtocolError::UnauthenticatedMultibulkLength, ProtocolError::UnauthenticatedBulkLength);
    assert_eq!(last(b"*10\r\n"), None);
    assert_eq!(last(b"*11\r\n"), Some(Said::Broken(count)));
    assert_eq!(last(b"*2147483647\r\n"), Some(Said::Broken(count)));
    assert_eq!(last(b"*2147483648\r\n"), Some(Said::Broken(ProtocolError::InvalidMultibulkLength)));
    assert_eq!(last(b"*1\r\n$16384\r\n"), None);
    assert_eq!(last(b"*1\r\n$16385\r\n"), Some(Said::Broken(len)));
    assert_eq!(last(b"*1\r\n$536870913\r\n"), Some(Said::Broken(ProtocolError::InvalidBulkLength)));
    assert_eq!(count.to_string(), "Protocol error: unauthenticated multibulk length");
    assert_eq!(len.to_string(), "Protocol error: unauthenticated bulk length");
}

#[test]
fn nothing_is_allocated_for_what_is_only_announced() {
    let (mut parser, mut args) = (Parser::default(), Vec::new());
    let stream = b"*1048576\r\n$536870912\r\nabc";
    let progress = parser.parse(stream, &ParserLimits::default(), &mut args);
    assert_eq!(progress, Ok(Progress::Incomplete { needed: 64 * 1024 }));
    assert_eq!(args.capacity(), 0);
    // The bytes that have arrived raise the hint.
    let mut stream = stream.to_vec();
    stream.resize(100_000, b'x');
    let progress = parser.parse(&stream, &ParserLimits::default(), &mut args);
    assert_eq!(progress, Ok(Progress::Incomplete { needed: 200_000 }));
    // The exact length, as soon as the hint may reach it.
    let (mut parser, stream) = (Parser::default(), b"*1\r\n$1000\r\nabc");
    let progress = parser.parse(stream, &ParserLimits::default(), &mut args);
    assert_eq!(progress, Ok(Progress::Incomplete { needed: 4 + 7 + 1002 }));
}

#[test]
fn arguments_are_appended_after_those_of_earlier_requests() {
    let (mut parser, mut args) = (Parser::default(), Vec::new());
    let stream = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nGET bc\r\n";
    let first = parser.parse(stream, &ParserLimits::default(), &mut args);
    assert_eq!(first, Ok(Progress::Request { end: 20 }));
    let second = parser.parse(&stream[20..], &ParserLimits::default(), &mut args);
    assert_eq!(second, Ok(Progress::Request { end: 8 }));
    let ranges: Vec<(u32, u32)> = args.iter().map(|arg| (arg.start, arg.end)).collect();
    assert_eq!(ranges, [(8, 11), (17, 18), (0, 3), (4, 6)]);
}

#[test]
fn after_reset_the_next_byte_begins_a_request() {
    let (mut parser, mut args) = (Parser::default(), Vec::new());
    let progress = parser.parse(b"*2\r\n$3\r\nGET\r\n$1", &ParserLimits::default(), &mut args);
    assert!(matches!(progress, Ok(Progress::Incomplete { .. })) && parser.is_started());
    parser.reset();
    args.clear();
    let progress = parser.parse(b"PING\r\n", &ParserLimits::default(), &mut args);
    assert_eq!((progress, args.len()), (Ok(Progress::Request { end: 6 }), 1));
}

/// If each piece were parsed from the beginning, the first of these would take 20,000,000,000
/// arguments.
#[test]
fn a_request_in_many_pieces_is_read_once() {
    let count = 200_000;
    let mut stream = format!("*{count}\r\n").into_bytes();
    (0..count).for_each(|_| stream.extend_from_slice(b"$1\r\nx\r\n"));
    let (mut parser, mut args) = (Parser::default(), Vec::new());
    for end in (0..stream.len()).step_by(7) {
        let progress = parser.parse(&stream[..end], &ParserLimits::default(), &mut args);
        assert!(matches!(progress, Ok(Progress::Incomplete { .. })));
    }
    let progress = parser.parse(&stream, &ParserLimits::default(), &mut args);
    assert_eq!(progress, Ok(Progress::Request { end: stream.len() }));
    assert_eq!(args.len(), count);
}

#[test]
fn cutting_a_stream_at_any_byte_changes_nothing() {
    let mut random = Random(1);
    let limits = ParserLimits::default();
    for _ in 0..60 {
        let stream = random.stream();
        let whole = parse(&[&stream], &limits);
        assert_eq!(whole, reference(&stream, &limits), "{}", stream.escape_ascii());
        for at in 0..stream.len() {
            let (head, tail) = stream.split_at(at);
            assert_eq!(
                parse(&[head, tail], &limits).0,
                whole.0,
                "{} at {at}",
                stream.escape_ascii()
            );
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(parse(&bytes, &limits).0, whole.0, "{} bytewise", stream.escape_ascii());
    }
}

/// Limits so low that random streams reach them.
fn low_limits() -> ParserLimits {
    ParserLimits {
        request_bytes: 600,
        bulk_bytes: 400,
        inline_bytes: 24,
        arg_count: 11,
        authentication: Authentication::Done,
    }
}

/// Bytes that begin something, or announce more than there is.
const TOKENS: &[&[u8]] = &[
    b"*",
    b"$",
    b"\r\n",
    b"\"",
    b"'",
    b"*-1",
    b"*0\r\n",
    b"*1048576\r\n",
    b"*2147483647\r\n",
    b"$-1\r\n",
    b"$16385\r\n",
    b"$536870912\r\n",
    b"*99999999999999999999",
    b"$99999999999999999999",
];

/// Most memory that a stream takes for each of its bytes: the bytes themselves twice, and what
/// stands for the shortest arguments and requests.
const MEMORY_FACTOR: usize = 64;

/// The same bytes in any pieces give the same requests, those that the reference finds.
#[test]
fn mutated_streams_read_as_the_reference_reads_them() {
    let all_limits = [
        ParserLimits::default(),
        low_limits(),
        ParserLimits { authentication: Authentication::Required, ..ParserLimits::default() },
    ];
    let mut errors = std::collections::HashSet::new();
    for seed in 1..=30_000 {
        let mut random = Random(seed);
        let mut stream = random.stream();
        if random.below(4) != 0 {
            mutate_with(&mut stream, &mut Changes(seed), TOKENS);
        }
        let limits = &all_limits[random.below(3)];
        let expected = reference(&stream, limits);
        let piece_len_max = [1, 4, 16, 64, 4096][random.below(5)];
        let pieces = random.cut(&stream, piece_len_max);
        let bytes_max = MEMORY_FACTOR * stream.len() + 4096;
        let found = within(bytes_max, "a stream", || parse(&pieces, limits));
        assert_eq!(found.0, expected.0, "seed {seed}: {}", stream.escape_ascii());
        match found.0.last() {
            Some(Said::Broken(error)) => {
                errors.insert(std::mem::discriminant(error));
            }
            _ => assert_eq!(found.1, expected.1, "seed {seed}: {}", stream.escape_ascii()),
        }
    }
    assert!(9 <= errors.len(), "the mutations have to reach the errors: {}", errors.len());
}
