//! The seams without a machine: everything that happens is decided by a seed and by the test.
//!
//! * [`SimRng`]: the numbers;
//! * [`SimClock`]: time that moves when the test says so;
//! * [`SimDisk`]: files in memory that know what a power loss would leave of them;
//! * [`SimNet`] and [`SimClients`]: the two ends of connections in memory.
//!
//! Same seed and same calls, same result. No thread, no system call, no clock in here.

mod clock;
mod disk;
mod net;
mod rng;

pub use clock::SimClock;
pub use disk::{CrashKind, Fault, JournalEntry, Repeat, SimDisk, SimFile};
pub use net::{ClientId, SimClients, SimNet, SimNetOptions};
pub use rng::SimRng;
