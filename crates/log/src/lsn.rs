use std::{fmt, time::Duration};

/// Position of a record in the log. The first record is 1; 0 stands for "nothing yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Time by which a record must be safe from a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// The log syncs its frame at once.
    Always,
    /// The log syncs its frame at most this long after writing it.
    Interval(Duration),
    /// The operating system decides, unless another record asks for a sync.
    Os,
}
