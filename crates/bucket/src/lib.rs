//! A private S3 server and a proxy in front of it that delays, corrupts and refuses, for tests and
//! benchmarks; and a DynamoDB server that knows reads.
//!
//! ```text
//!     client ---> FaultProxy (delays, corrupts, ---> Bucket (S3 over a directory)
//!                 refuses; records requests)
//! ```
//!
//! Both listen on loopback, on ports and a few threads of their own, and end when they are dropped.
//! The server is s3s with s3s-fs where that behaves like S3. The rest is done here: conditions of
//! reads (`If-Match`, `If-None-Match`), suffix ranges longer than the object, cheap ETags, reads in
//! large pieces, listings of one folder without a walk through all.
//!
//! No thread sleeps: delays are timers, bodies are streams, and a client that reads slowly slows
//! only its own response.

#![forbid(unsafe_code)]

mod dynamo;
mod etag;
mod fault;
mod limits;
mod listing;
mod proxy;
mod s3;
mod server;

pub use dynamo::{Dynamo, DynamoFault, DynamoSeen};
pub use fault::{Fault, Faults, Rule};
pub use proxy::{FaultProxy, Seen};
pub use server::{Bucket, Error, url};
