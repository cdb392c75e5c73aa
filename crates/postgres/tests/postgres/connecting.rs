//! Connecting to real servers: with and without TLS, with good and bad logins, and with failures.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod certificates;
mod failures;
mod fake;
mod logins;
mod servers;
mod session;
mod tls;
