//! The async batcher over services whose trips the tests hold at a gate.
//!
//! Most tests run on one thread and let every task run that can (`settle`), so nothing depends on
//! how fast the machine is.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod boarding;
mod cancellation;
mod failures;
mod functions;
mod gate;
mod order;
mod replies;
mod shutdown;
