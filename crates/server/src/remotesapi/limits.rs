//! Limits of Dolt's protocol, and how they relate.

use crate::http::limits::STREAM_WINDOW_BYTES;

/// An encoded request.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Addresses of one request.
pub const ADDRESS_COUNT_MAX: usize = 16_384;
/// Requests of one stream that are being answered; the next ones wait.
pub const REQUESTS_AHEAD_MAX: usize = 8;
/// Chunks of one resource of records: its URL, 27 characters for each, stays below the 8 KiB that proxies allow.
pub const RECORDS_CHUNKS_MAX: usize = 192;
/// Stored bytes of its chunks, about (a larger one is alone).
pub const RECORDS_STORED_BYTES_MAX: u64 = 4 << 20;
/// Memory for resources of records that were given out lately. Others are made again when they are asked for.
pub const RECORDS_BYTES_MAX: u64 = 64 << 20;

const _: () = assert!(REQUEST_BYTES_MAX <= STREAM_WINDOW_BYTES as usize);
