//! Limits of the HTTP front, and how they relate.

use std::time::Duration;

use busload_dolt::ChunkAddress;
use busload_remotesapi::limits as remotesapi;

use crate::grpc;

/// Most connections at once, if the system allows that many open files; further ones wait to be
/// accepted. A client of Dolt has up to 66.
pub const CONNECTION_COUNT_LIMIT: u32 = 4096;
/// Most calls in flight on one HTTP/2 connection; the client delays further ones.
pub const STREAM_COUNT_LIMIT: u32 = 256;

/// Pause after the listener failed, as it does when the process is out of file descriptors.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Time after which an idle connection is closed, twice this at the latest. It is longer than the
/// usual minute between two scrapes. It also bounds the time for the head of an HTTP/1.1 request,
/// which hyper counts from the end of the answer before.
pub const IDLE_MAX: Duration = Duration::from_secs(75);
/// Time for a connection that is shut down to finish its requests.
pub const LEAVE_GRACE: Duration = Duration::from_secs(10);
/// Time after which a connection is closed if its client takes no bytes, or none of one answer.
pub const WRITE_STALL_MAX: Duration = Duration::from_secs(60);
/// Time after which a call fails if nothing more comes of a message that has begun.
pub const MESSAGE_STALL_MAX: Duration = WRITE_STALL_MAX;
/// Time in which a client has to take a whole piece of an answer, so that one that takes a byte now
/// and then does not hold memory for ever.
pub const PIECE_TIME_MAX: Duration = Duration::from_secs(3600);
/// Interval of PINGs on a silent HTTP/2 connection.
pub const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Time in which a client has to answer a PING.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Initial budget of control frames: frames of HTTP/2 that ask for no answer, like PING, SETTINGS
/// and WINDOW_UPDATE. A connection that exceeds its budget gets ENHANCE_YOUR_CALM and is closed.
/// Cancelling a call before it is answered costs frames, too: clients with timeouts of their own
/// cancel hundreds at once when a store does not answer.
pub const CONTROL_FRAMES_START: u64 = 1_000;
/// Control frames that the budget gains each second, up to [`CONTROL_FRAMES_START`].
pub const CONTROL_FRAMES_PER_SECOND: u64 = 500;
/// Greatest budget that answers can earn. Clients acknowledge long after they were sent an answer,
/// so earned frames have to last.
pub const CONTROL_FRAMES_EARNED_MAX: u64 = 10_000;
/// Least length of a DATA frame that does not count as a control frame. The last of a stream never
/// does. Messages with an address are longer, and clients do not cut them so small.
pub const DATA_BYTES_MIN: u64 = 16;

/// Longest host and port that a client may ask for: DNS names have at most 253 bytes. An answer
/// repeats it in the URLs of thousands of files.
pub const AUTHORITY_BYTES_MAX: usize = 260;
/// Longest head of a request: HTTP/1.1 counts its bytes, HTTP/2 those of the decoded headers.
pub const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// Buffer of an HTTP/1.1 connection; hyper refuses a head that does not fit before it is complete.
pub const HTTP1_BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Most headers of an HTTP/1.1 request.
pub const HEADER_COUNT_MAX: usize = 64;
/// Longest message of a call of any service: a longer one is refused by its header.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Flow-control window of one stream: it takes the largest request at once.
pub const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Flow-control window of all streams of a connection together.
pub const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Bytes of one stream's answer that hyper buffers before it asks for the next piece. It does not
/// cut a piece for that.
pub const STREAM_SEND_BYTES_MAX: usize = 64 * 1024;
/// Usual piece of a long answer. A stream whose client reads nothing holds two.
pub const PIECE_BYTES: usize = 256 * 1024;

/// Interval of the samples that `/api/stats` keeps.
pub const HISTORY_INTERVAL: Duration = Duration::from_secs(1);
/// Most samples that are kept: those of the last five minutes.
pub const HISTORY_SAMPLE_COUNT_LIMIT: usize = 300;
/// Most tables whose counters are in the samples.
pub const HISTORY_TABLE_COUNT_LIMIT: usize = 64;
/// Most commands of the slow log that `/api/stats` lists, the newest.
pub const SLOW_COMMAND_COUNT_LIMIT: usize = 20;
/// Most reasons of bad health that `/api/stats` lists, the worst first.
pub const HEALTH_REASON_COUNT_LIMIT: usize = 32;

/// Memory of one connection for requests and answers: bytes received of requests, and bytes of
/// answers that the client has not taken.
pub const CONNECTION_BYTES_MAX: usize = 160 << 20;
/// Memory of all connections for requests and answers. A connection may hold no more of it than is
/// left; beyond that its calls fail with `RESOURCE_EXHAUSTED`. If the limit is still passed,
/// the connection that holds most is closed, of the client address that holds most.
pub const ALL_BYTES_MAX: usize = 512 << 20;
/// Memory up to which a connection is never refused, whatever others hold.
pub const CONNECTION_BYTES_MIN: usize = 64 << 10;

const _: () = assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);
const _: () = assert!(grpc::limits::REQUEST_BYTES_MAX <= STREAM_WINDOW_BYTES as usize);
const _: () = assert!(remotesapi::REQUEST_BYTES_MAX <= STREAM_WINDOW_BYTES as usize);
const _: () = assert!(grpc::limits::MESSAGE_BYTES <= PIECE_BYTES);
const _: () = assert!(remotesapi::PIECE_BYTES <= PIECE_BYTES);
const _: () = assert!((HEADER_BYTES_MAX as usize) < HTTP1_BUFFER_BYTES_MAX);
const _: () = assert!(grpc::limits::REQUEST_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(remotesapi::REQUEST_BYTES_MAX <= MESSAGE_BYTES_MAX);
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
