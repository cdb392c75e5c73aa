//! Tables on real Postgres servers, and on one that misbehaves.

mod connecting;
mod failure;
mod table;
