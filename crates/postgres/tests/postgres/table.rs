//! Tables with a Postgres of their own. One cluster serves all tests; each has relations of its
//! own.

mod keys;
mod read;
mod schema;
mod support;
mod write;
