//! The async batcher over services whose batches the tests hold at a gate.
//!
//! Most tests run on one thread and run every runnable task (`settle`), so nothing depends on the
//! speed of the machine.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod cancellation;
mod dispatch;
mod failures;
mod functions;
mod gate;
mod order;
mod replies;
mod shutdown;
mod streaming;
mod traces;
