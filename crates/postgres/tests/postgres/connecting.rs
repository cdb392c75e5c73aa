//! Connecting to real servers: with and without TLS, with good and bad logins, and with failures.

mod certificates;
mod failures;
mod fake;
mod logins;
mod servers;
mod session;
mod tls;
