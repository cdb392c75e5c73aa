//! Tables of chunks: the real binary, real sockets, stores that Dolt wrote.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod cache;
mod check;
mod commands;
mod outages;
mod shown;
#[path = "../support/mod.rs"]
mod support;
mod tool;

use support::{fixtures, served::Served};
