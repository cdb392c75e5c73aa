//! The parts of a gRPC call that all services over chunk stores share: `busload.v1.Chunks` of the
//! server and Dolt's protocol (`busload_remotesapi`).
//!
//! ```text
//!  HTTP front --call--> service: CallMemory  memory for an answer? else RESOURCE_EXHAUSTED
//!                                Deadline    grpc-timeout, else the table's timeout
//!                                addresses   20 bytes each, else INVALID_ARGUMENT
//!                                status      of an error of the store
//!                                CallTimes   how long it took until the answer could be sent
//!                                Shown       the part of a client's text that an error repeats
//! ```
//!
//! The crate knows chunk stores (`busload_dolt`) and gRPC's statuses. It knows neither services nor
//! the front: the front implements [`MemoryAccount`].

#![forbid(unsafe_code)]

mod addresses;
mod deadline;
pub mod limits;
mod memory;
mod shown;
mod status;
mod times;

pub use addresses::{addresses, check_count};
pub use deadline::{Deadline, DeadlineTimer};
pub use memory::{CallMemory, MemoryAccount, Reservation, check_memory};
pub use shown::{SHOWN_BYTES_MAX, Shown};
pub use status::status;
pub use times::{CallTimer, CallTimes, TimedCall};
