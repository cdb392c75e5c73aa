//! Measures the parser, the writer and the reply counter on one core.
//!
//! `cargo bench -p busload-resp --bench speed`

use std::hint::black_box;
use std::time::Duration;

use busload_resp::reply::ReplyCounter;
use busload_resp::{
    Parser, ParserLimits, Progress, write_array, write_bulk, write_integer, write_simple,
};

const REQUESTS: usize = 64 * 1024;
const ROUNDS: usize = 60;
/// Length of one read of a socket.
const CHUNK_BYTES: usize = 64 * 1024;

fn main() {
    let key = |index: usize| format!("key:{index:012}");
    let set = |len: usize| {
        requests(move |index, out| {
            command(out, &[b"SET", key(index).as_bytes(), &vec![b'x'; len]]);
        })
    };
    parse("GET, key 16", &requests(|index, out| command(out, &[b"GET", key(index).as_bytes()])));
    parse("SET, key 16, value 32", &set(32));
    parse("SET, key 16, value 512", &set(512));
    parse("inline PING", &requests(|_, out| out.extend_from_slice(b"PING\r\n")));
    count("+OK", &requests(|_, out| write_simple(out, "OK")));
    count("bulk 32", &requests(|_, out| write_bulk(out, &[b'x'; 32])));
    count("bulk 512", &requests(|_, out| write_bulk(out, &[b'x'; 512])));
    write("bulk 32", |out| write_bulk(out, black_box(&[b'x'; 32])));
    write("integer", |out| write_integer(out, black_box(100_000)));
}

fn requests(mut each: impl FnMut(usize, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    (0..REQUESTS).for_each(|index| each(index, &mut out));
    out
}

fn command(out: &mut Vec<u8>, args: &[&[u8]]) {
    write_array(out, args.len());
    args.iter().for_each(|arg| write_bulk(out, arg));
}

fn parse(what: &str, stream: &[u8]) {
    let limits = ParserLimits::default();
    let mut parser = Parser::default();
    let mut args = Vec::new();
    report(what, stream.len(), || {
        let (mut start, mut end, mut found) = (0, 0, 0);
        while end < stream.len() {
            end = stream.len().min(end + CHUNK_BYTES);
            args.clear();
            loop {
                match parser.parse(&stream[start..end], &limits, &mut args) {
                    Ok(Progress::Request { end }) => {
                        start += end;
                        found += 1;
                    }
                    Ok(Progress::Incomplete { .. }) => break,
                    other => panic!("{other:?}"),
                }
            }
            black_box(&args);
        }
        found
    });
}

fn count(what: &str, stream: &[u8]) {
    let mut counter = ReplyCounter::default();
    report(&format!("count {what}"), stream.len(), || {
        let chunks = stream.chunks(CHUNK_BYTES);
        chunks.map(|chunk| counter.feed(chunk).expect("the stream is well formed") as usize).sum()
    });
}

fn write(what: &str, each: impl Fn(&mut Vec<u8>)) {
    let bytes = requests(|_, out| each(out)).len();
    let mut out = Vec::with_capacity(bytes);
    report(&format!("write {what}"), bytes, || {
        out.clear();
        (0..REQUESTS).for_each(|_| each(&mut out));
        black_box(&out);
        REQUESTS
    });
}

/// Prints the rate of the fastest round, the one least disturbed.
#[allow(clippy::disallowed_methods, reason = "a measurement is about the real clock")]
fn report(what: &str, bytes: usize, mut round: impl FnMut() -> usize) {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = std::time::Instant::now();
        assert_eq!(round(), REQUESTS);
        best = best.min(start.elapsed());
    }
    let seconds = best.as_secs_f64();
    println!(
        "{what:26} {:6.1} M/s {:6.2} GB/s",
        REQUESTS as f64 / seconds / 1e6,
        bytes as f64 / seconds / 1e9
    );
}
