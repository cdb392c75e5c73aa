//! The stages net and tx, the code that wires them together, reply order, gating and the command
//! table.
//!
//! ```text
//!  sockets --> net --RequestBatch--> tx --records--> log --> disk
//!     ^         ^                    | |              |
//!     +-replies-+<---RequestBatch----+ +--> sources   +--> written, durable --> net sends replies
//! ```
//!
//! * [`net`] owns sockets, the order of replies within a connection and the release of gated
//!   replies.
//! * [`tx`] owns all tables and every connection's state that commands can change. It is the single
//!   writer, so it needs no mutex, and it does no IO.
//! * [`command`] holds the table of commands and their handlers.
//! * [`source`] is the seam to tables that are not in memory.
//! * [`wiring`] runs the stages in one loop or on two threads; the log always has threads of its
//!   own.
//!
//! Every stage follows one rule: when it is free it takes everything queued for it, up to a limit,
//! and processes it at once; it never waits for more. Every limit is in [`limits`].

#![forbid(unsafe_code)]

pub mod args;
pub mod batch;
pub mod command;
mod decimal;
pub mod error;
pub mod gate;
pub mod gauges;
pub mod glob;
pub mod latency;
pub mod latency_events;
pub mod limits;
mod monitor;
pub mod name_pattern;
pub mod net;
pub mod password_limiter;
mod reaper;
mod redact;
pub mod reload;
pub mod reply;
pub mod secret;
pub mod session;
pub mod settings;
pub mod slow_log;
pub mod source;
pub mod stats;
pub mod tx;
pub mod wiring;
