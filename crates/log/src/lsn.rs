use std::{fmt, time::Duration};

/// Position of a record in the log. The first record is 1; 0 stands for "nothing yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When a record has to be safe from a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Its frame is synced at once.
    Always,
    /// At most this long after its frame was written.
    Interval(Duration),
    /// When the system likes, or another record asks for it.
    Os,
}
