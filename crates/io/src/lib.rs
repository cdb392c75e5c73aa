//! The seams between busload and the machine it runs on: [`Net`], [`Disk`], [`Clock`], [`Rng`], and
//! the hand-over of whole batches between threads ([`handover`]).
//!
//! Everything above this crate is a state machine that never touches a socket, a file or a clock.
//! Each seam has a real implementation and a simulated one with faults, so the same code runs in
//! production and under a seed that decides every event.
//!
//! The socket seam is completion-based: the caller submits operations and later polls for events. A
//! readiness-based driver (epoll, kqueue) fits behind it, and so does io_uring with multishot
//! receive.

#![forbid(unsafe_code)]

mod clock;
mod disk;
pub mod handover;
mod limits;
mod net;
mod rng;
pub mod sim;

pub use clock::{Clock, RealClock};
pub use disk::{Disk, DiskError, DiskErrorKind, DiskOperation, FileName, RealDisk, RealFile};
pub use net::{
    Address, Buffer, CloseReason, ConnId, Event, Idle, Net, NetCounters, NetOptions, Peer, RealNet,
    SendChunk, Span,
};
pub use rng::{OsRng, Rng};
