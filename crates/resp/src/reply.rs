//! Replies as a client reads them, for tests and load generators.

mod counter;
mod value;

pub use counter::{ReplyCounter, ReplyCounts};
pub use value::{NullKind, Reply, ReplyError};
