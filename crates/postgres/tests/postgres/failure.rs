//! Requests while Postgres, the network, or another client of Postgres fails or interferes.
//!
//! Each test has a cluster, or a proxy before one, that it may stop, kill, pause and cut.

mod conflict;
mod hanging;
mod items;
mod load;
mod lost;
mod order;
mod outage;
mod schema;
mod support;
