//! Limits of Dolt's protocol, and how they relate.

use std::time::Duration;

use crate::{
    grpc::limits::ADDRESS_COUNT_MAX,
    http::limits::{PIECE_BYTES, STREAM_WINDOW_BYTES},
};

/// An encoded request.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Requests of one stream that are answered together.
pub const BATCH_REQUESTS_MAX: usize = 512;
/// Addresses of all of them, about (one request may have more): larger batches would not fill
/// resources better, and their first answer would come later.
pub const BATCH_ADDRESSES_MAX: usize = 2048;
/// Batches of one stream that are being answered; the next requests wait, and leave together.
pub const BATCHES_AHEAD_MAX: usize = 2;
/// Requests that are being answered one by one, since their batch could not be answered.
pub const REQUESTS_AHEAD_MAX: usize = 8;
/// Chunks of one resource of records: its URL, 27 characters for each, stays below the 8 KiB that
/// proxies allow.
pub const RECORDS_CHUNKS_MAX: usize = 192;
/// Stored bytes of its chunks, about (a larger one is alone).
pub const RECORDS_STORED_BYTES_MAX: u64 = 4 << 20;
/// A chunk with more stored bytes is given in its file if it is a record there, and is a resource
/// of its own otherwise.
pub const RECORDS_CHUNK_STORED_BYTES_MAX: u32 = 256 << 10;
/// Resources of records that one request has made at once.
pub const RECORDS_AT_ONCE_MAX: usize = 16;
/// Stored bytes of those that are made for one table, about (a larger chunk is alone); the others
/// wait.
pub const RECORDS_MAKING_BYTES_MAX: u64 = 64 << 20;
/// The same of those that are made again for downloads.
pub const RECORDS_REMAKING_BYTES_MAX: u64 = 64 << 20;
/// Records are to be made within this part of the time for an answer; chunks of a resource that
/// takes longer are given in their files. 2.5 s with the default timeout, which a store that is not
/// behind a slow link does not need for 4 MiB.
pub const RECORDS_MAKING_SHARE: u32 = 4;
/// A store that does not answer in time has so much of it, or a twentieth, to say why.
pub const RECORDS_EXPLANATION_TIME: Duration = Duration::from_millis(100);
/// Memory for resources of records of all tables that were given out lately. Others are made again
/// when they are asked for. A fetch asks for locations about 100 MiB ahead of what it downloads.
pub const RECORDS_BYTES_MAX: u64 = 128 << 20;
/// Table files that one stream remembers to have told the client of. Beyond it, they are told
/// again.
pub const FILES_TOLD_MAX: usize = 4096;

/// Memory for bytes on their way to clients, of one table; other downloads wait. Clients that keep
/// up hold as much: it is enough for 75 clones at once, of three files at a time each.
pub const SENDING_BYTES_MAX: u64 = 512 << 20;
/// What the downloads of one connection hold of it together.
pub const SENDING_SHARE_BYTES_MAX: u64 = SENDING_BYTES_MAX / 4;
/// What one download holds of it at most, if its client reads nothing: what
/// [`Object::stream`](busload_objects::Object::stream) reads ahead, and a piece on the connection.
pub const SENDING_EACH_BYTES_MAX: u64 = (2 << 20) + PIECE_BYTES as u64;
/// The same of records: one piece is being sent while the next one is copied. A larger resource
/// than [`RECORDS_SHARED_BYTES_MAX`] is held whole.
pub const SENDING_RECORDS_BYTES_MAX: u64 = 2 * PIECE_BYTES as u64;
/// Up to this, a download of records asks for them again for every piece; they are in memory as
/// long as they are asked for. A larger one would not stay there with others.
pub const RECORDS_SHARED_BYTES_MAX: u64 = RECORDS_BYTES_MAX / 4;
/// Who was told that there is nothing now may ask again after this.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

const _: () = assert!(
    ADDRESS_COUNT_MAX * 22 + 1024 <= REQUEST_BYTES_MAX,
    "22 bytes each, where they are in a list"
);
const _: () = assert!(BATCH_ADDRESSES_MAX <= ADDRESS_COUNT_MAX);
const _: () = assert!(RECORDS_CHUNKS_MAX <= BATCH_ADDRESSES_MAX, "small requests fill resources");
const _: () = assert!(REQUEST_BYTES_MAX <= STREAM_WINDOW_BYTES as usize);
const _: () = assert!(RECORDS_CHUNK_STORED_BYTES_MAX as u64 <= RECORDS_STORED_BYTES_MAX);
const _: () = assert!(RECORDS_STORED_BYTES_MAX <= RECORDS_MAKING_BYTES_MAX);
const _: () = assert!(RECORDS_STORED_BYTES_MAX <= RECORDS_REMAKING_BYTES_MAX);
const _: () = assert!(RECORDS_STORED_BYTES_MAX < RECORDS_SHARED_BYTES_MAX);
const _: () = assert!(66 * SENDING_EACH_BYTES_MAX < SENDING_BYTES_MAX, "one client's connections");
const _: () = assert!(225 * SENDING_EACH_BYTES_MAX < SENDING_BYTES_MAX, "75 clones");
const _: () = assert!(SENDING_EACH_BYTES_MAX < SENDING_SHARE_BYTES_MAX);
