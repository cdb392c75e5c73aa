//! A private S3 server and a proxy in front of it that delays, corrupts and refuses, for tests and
//! benchmarks.
//!
//! ```text
//!     client ---> FaultProxy (delays, corrupts, refuses; notes what it saw) ---> Bucket (S3 over a directory)
//! ```
//!
//! Both listen on loopback, on ports of their own, on few threads of their own, and end when they
//! are dropped. The server is s3s with s3s-fs where that does as S3 does. What it does not do is
//! done here: conditions of reads (`If-Match`, `If-None-Match`), suffix ranges longer than the
//! object, ETags that cost nothing to know, reads in large pieces, listings of one folder without a
//! walk through all.
//!
//! Nothing here sleeps on a thread: delays are timers, bodies are streams, and a peer that reads
//! slowly slows only its own response.

#![forbid(unsafe_code)]

mod etag;
mod fault;
mod limits;
mod listing;
mod proxy;
mod s3;
mod server;

pub use fault::{Fault, Faults, Rule};
pub use proxy::{FaultProxy, Seen};
pub use server::{Bucket, Error, url};
