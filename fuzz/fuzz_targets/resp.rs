//! Streams of requests: any cut into pieces gives what the reference parser finds.

#![no_main]

#[path = "../../crates/resp/tests/protocol/model.rs"]
#[allow(dead_code, reason = "random streams are the fuzzer's")]
mod model;

use busload_resp::{Authentication, ParserLimits, reply::Reply};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (which, piece_len, stream) = input;
    let low = ParserLimits {
        request_bytes: 600,
        bulk_bytes: 400,
        inline_bytes: 24,
        arg_count: 11,
        authentication: Authentication::Done,
    };
    let limits = match which % 3 {
        0 => ParserLimits::default(),
        1 => low,
        _ => ParserLimits { authentication: Authentication::Required, ..ParserLimits::default() },
    };
    let pieces: Vec<&[u8]> = stream.chunks(usize::from(piece_len).max(1)).collect();
    assert_eq!(model::parse(&pieces, &limits).0, model::reference(stream, &limits).0);
    let mut rest = stream;
    while let Ok(Some((_, len))) = Reply::parse(rest) {
        rest = &rest[len..];
    }
});
