//! A private S3 server and a proxy in front of it that delays, damages and refuses, for tests and benchmarks.

#![forbid(unsafe_code)]

mod fault;
mod server;

pub use fault::{Fault, FaultProxy, Faults, Rule, Seen};
pub use server::{Bucket, Error, url};
