//! Simulation of the memory tables: the real net, tx, log, snapshots and recovery on a simulated
//! network, disk and clock. One seed decides everything that happens.
//!
//! ```text
//!  Clients --bytes--> SimNet -> NetStage -> Tx -> LogStage, ZeroHelper -> SimDisk
//!     |                            |                                        ^
//!     | replies         executed batches, with their replies                |  snapshots
//!     v                            v                                   Coroutine(Maintenance)
//!  observed ------------------> Model (plain maps, one command after the other)
//!                                  |
//!  crash, restart: contents == contents of the model after some prefix of its transactions,
//!  which includes every transaction that a client saw acknowledged, or whose effects it saw
//! ```
//!
//! **Steps.** One thread makes one random event happen after the other: a client sends or reads, a
//! stage takes a turn, the thread of the snapshots does some operations of the disk, time passes.
//! The chances differ from life to life of the server. A life ends with a crash between two steps
//! or at an operation of the disk chosen beforehand (also during recovery), with a failed disk, or
//! with a clean shutdown.
//!
//! **Checks.** [`model::Model`] executes what tx executed, in its order, and compares every reply.
//! Each reply depends on transactions: the last that changed what it shows. When a client receives
//! it they must survive what their tables promise: a power loss (`sync=always`) or a kill (`os`,
//! `interval`). After each restart the contents must be those after a prefix of all transactions
//! that holds these. So no acknowledged or observed write is lost, transactions are whole, and the
//! histories are linearizable: the one order explains every reply.
//!
//! **Limits.** Of what is durable only newest snapshots are corrupted here. Clocks do not go back.
//! Threads take turns between operations of the disk and turns of stages; races within those are
//! for loom (`busload_io::handover`).

#![forbid(unsafe_code)]

pub mod clients;
pub mod coroutine;
pub mod history;
pub mod life;
pub mod model;
pub mod seeds;
pub mod server;
pub mod workload;

pub use life::{Failure, Outcome, run};
pub use server::Trace;
