//! What becomes of requests when Postgres, the way to it, or another client of it gets in their
//! way.
//!
//! Each test has a cluster, or a proxy before one, that it may stop, kill, pause and cut.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod conflict;
mod hanging;
mod items;
mod load;
mod lost;
mod order;
mod outage;
mod schema;
mod support;
