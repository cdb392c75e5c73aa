//! Simulated seams: the seed and the test decide everything that happens.
//!
//! * [`SimRng`]: random numbers;
//! * [`SimClock`]: time that moves when the test says so;
//! * [`SimDisk`]: files in memory that know what a power loss would leave of them;
//! * [`SimNet`] and [`SimClients`]: the two ends of connections in memory.
//!
//! The same seed and the same calls give the same result. Nothing here uses a thread, a system call
//! or a clock.

mod clock;
mod disk;
mod net;
mod rng;

pub use clock::SimClock;
pub use disk::{CrashKind, Fault, JournalEntry, Repeat, SimDisk, SimFile};
pub use net::{ClientId, SimClients, SimNet, SimNetOptions};
pub use rng::SimRng;
