//! Private Postgres clusters for tests and benchmarks.

#![forbid(unsafe_code)]
