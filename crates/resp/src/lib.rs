//! RESP2 and RESP3, the protocol of Redis: a request parser, a reply writer, and a reply parser for
//! tests and load generators.
//!
//! ```text
//!  bytes of a connection --> Parser --> ArgRange... (into the same bytes)        server side
//!  Vec<u8>               <-- write_*                                             server side
//!  bytes of a connection --> ReplyCounter (how many) | Reply (what)              client side
//! ```
//!
//! Nothing here touches a socket, a file or a clock, and nothing is allocated for a length that was
//! merely announced. A request's arguments are ranges of the bytes it arrived in; only an inline
//! request with quotes is copied, because unescaping makes new bytes.
//!
//! Everything visible to a client (errors, when they come, number formats) follows Redis 7.0, with
//! these exceptions:
//! - a NUL byte in a line is a byte like any other, whereas Redis takes it for the end of its input
//!   and waits;
//! - line limits hold at the exact byte, whereas those of Redis depend on how reads cut the bytes;
//! - a request above [`ParserLimits::request_bytes`] gets an error, whereas Redis closes the
//!   connection without one;
//! - [`ParserLimits::arg_count`] is 1024 * 1024 by default, as before Redis 7.

#![forbid(unsafe_code)]

mod error;
mod limits;
mod number;
mod parser;

mod inline;

mod double;
mod writer;

pub mod reply;

pub use error::ProtocolError;
pub use limits::{Authentication, ParserLimits};
pub use number::parse_i64;
pub use parser::{ArgRange, Parser, Progress};
pub use writer::{
    Version, write_array, write_big_number, write_bool, write_bulk, write_bulk_header, write_crlf,
    write_double, write_error, write_integer, write_map, write_null, write_null_array, write_push,
    write_set, write_simple, write_verbatim,
};
