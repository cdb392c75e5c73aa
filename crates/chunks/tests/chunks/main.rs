//! Readers of table files, archives and manifests on real and on hostile files.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod archives;
mod fixtures;
mod hostile;
mod lookup;
mod references;
mod support;
mod tables;
