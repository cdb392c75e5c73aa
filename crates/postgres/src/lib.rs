//! One Postgres table: many callers' single-key reads and writes in few statements.

#![forbid(unsafe_code)]
