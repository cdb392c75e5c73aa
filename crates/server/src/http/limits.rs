//! Limits of the HTTP front, and how they relate.

use std::time::Duration;

use busload_dolt::ChunkAddress;

use crate::{grpc, remotesapi};

/// Connections served at once, if there are files for so many; further ones wait to be accepted. A
/// client of Dolt has up to 66.
pub const CONNECTION_COUNT_LIMIT: u32 = 4096;
/// Calls under way on one HTTP/2 connection; a client keeps further ones to itself.
pub const STREAM_COUNT_LIMIT: u32 = 256;

/// How long to leave the listener alone when it fails, as it does when the process is out of file
/// descriptors.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// A connection without a request is closed after this, or twice this at the latest. More than the
/// usual minute between two scrapes. The head of an HTTP/1.1 request has as long: hyper counts from
/// the end of the answer before.
pub const IDLE_MAX: Duration = Duration::from_secs(75);
/// A connection that is told to go may finish what it has for so long.
pub const LEAVE_GRACE: Duration = Duration::from_secs(10);
/// Who takes nothing of what is sent, or nothing of one of the answers, for so long is gone.
pub const WRITE_STALL_MAX: Duration = Duration::from_secs(60);
/// A message of a call that began and does not go on for so long ends the call.
pub const MESSAGE_STALL_MAX: Duration = WRITE_STALL_MAX;
/// A piece of a long answer is taken within this: nothing is held for ever by who takes a byte now
/// and then.
pub const PIECE_TIME_MAX: Duration = Duration::from_secs(3600);
/// A silent HTTP/2 connection is asked whether it lives this often,
pub const PING_INTERVAL: Duration = Duration::from_secs(20);
/// and answers within this.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Frames of HTTP/2 that ask for no answer, like PING, SETTINGS and WINDOW_UPDATE, that a
/// connection may send at once before it was sent any answer. One that sends more is told to calm
/// down, and closed. A call that is given up before it is answered costs one, too: clients with
/// timeouts of their own give up hundreds at once when a store does not answer.
pub const CONTROL_FRAMES_START: u64 = 1_000;
/// The same each second, up to as many,
pub const CONTROL_FRAMES_PER_SECOND: u64 = 500;
/// and at most with all that it was sent: what was sent before it was taken is told of later.
pub const CONTROL_FRAMES_EARNED_MAX: u64 = 10_000;
/// DATA with less is such a frame, too, unless it is the last of its stream. Messages with an
/// address have more, and clients do not cut them so small.
pub const DATA_BYTES_MIN: u64 = 16;

/// A host and a port that a client says: names of DNS have 253 bytes at most. URLs in answers begin
/// with it, of thousands of files at once.
pub const AUTHORITY_BYTES_MAX: usize = 260;
/// The head of a request: HTTP/1.1 counts its bytes, HTTP/2 those of the decoded headers.
pub const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// Buffer of an HTTP/1.1 connection; a head that does not fit into it is refused before it has come
/// whole.
pub const HTTP1_BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Headers of an HTTP/1.1 request.
pub const HEADER_COUNT_MAX: usize = 64;
/// A message of a call, of any service: a longer one is refused by its header.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// What a client may send on one stream before it is read: the largest request at once.
pub const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// The same for all streams of a connection.
pub const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// So much of one stream's answer waits for the socket before the next piece of it is asked for; a
/// piece is not cut for that.
pub const STREAM_SEND_BYTES_MAX: usize = 64 * 1024;
/// The usual piece of a long answer. A stream whose client reads nothing holds two.
pub const PIECE_BYTES: usize = 256 * 1024;

/// Requests and answers in memory that their clients have not sent completely, or not taken: what
/// has come of them. Of one connection,
pub const CONNECTION_BYTES_MAX: usize = 160 << 20;
/// and of all. A connection has no more of it than it leaves to others; beyond that its calls fail
/// with `RESOURCE_EXHAUSTED`. When there is more all the same, the connection with the most is
/// closed, of the address with the most.
pub const ALL_BYTES_MAX: usize = 512 << 20;
/// A connection with as little is not refused, whatever others have.
pub const CONNECTION_BYTES_MIN: usize = 64 << 10;

const _: () = assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);
const _: () = assert!((HEADER_BYTES_MAX as usize) < HTTP1_BUFFER_BYTES_MAX);
const _: () = assert!(grpc::limits::REQUEST_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(remotesapi::limits::REQUEST_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () =
    assert!(MESSAGE_BYTES_MAX < CONNECTION_BYTES_MAX / 16, "one goes beyond it by little");
const _: () =
    assert!(CONNECTION_BYTES_MIN < CONNECTION_BYTES_MAX && CONNECTION_BYTES_MAX < ALL_BYTES_MAX);
const _: () = assert!(
    2 * PIECE_BYTES * (STREAM_COUNT_LIMIT as usize) < CONNECTION_BYTES_MAX,
    "long answers alone cannot reach it"
);
const _: () = assert!(CONTROL_FRAMES_PER_SECOND <= CONTROL_FRAMES_START);
const _: () =
    assert!(1000 % CONTROL_FRAMES_PER_SECOND == 0, "each has a whole number of milliseconds");
const _: () = assert!(DATA_BYTES_MIN < ChunkAddress::BYTES as u64);
const _: () = assert!(WRITE_STALL_MAX.as_secs() < PIECE_TIME_MAX.as_secs());
const _: () = assert!(IDLE_MAX.as_secs() > 60, "scrapes keep their connection");
