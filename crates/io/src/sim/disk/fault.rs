//! Planned faults of the simulated disk.

use crate::{DiskErrorKind, DiskOperation, FileName};

/// Number of times that a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// One operation fails; those after it succeed.
    Once,
    /// The operation and all after it fail.
    Forever,
}

/// Planned failure of an operation.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Kind of operation that fails.
    pub operation: DiskOperation,
    /// Prefix of the names of the files concerned (for a rename, its old name; the directory's name
    /// is empty).
    pub name_prefix: FileName,
    /// Number of these operations that succeed first.
    pub after: u64,
    /// Number of times that the fault strikes.
    pub repeat: Repeat,
    /// Kind of the error that the operation returns.
    pub error: DiskErrorKind,
}

impl Fault {
    /// Plans that the operation of this kind after `after` others fails once, on any file.
    pub fn once(operation: DiskOperation, after: u64, error: DiskErrorKind) -> Self {
        Self { operation, name_prefix: FileName::new(), after, repeat: Repeat::Once, error }
    }

    /// Plans that all operations of this kind after `after` others fail, on any file.
    pub fn forever(operation: DiskOperation, after: u64, error: DiskErrorKind) -> Self {
        Self { repeat: Repeat::Forever, ..Self::once(operation, after, error) }
    }

    /// Restricts the fault to files whose names begin with `name_prefix`.
    pub fn on(self, name_prefix: &str) -> Self {
        Self { name_prefix: name_prefix.to_owned(), ..self }
    }
}

/// Fault with the number of operations it has seen.
#[derive(Debug)]
pub(super) struct Planned {
    fault: Fault,
    seen: u64,
}

impl Planned {
    pub(super) fn new(fault: Fault) -> Self {
        Self { fault, seen: 0 }
    }

    /// Counts an operation and returns the error that it must fail with, if any.
    pub(super) fn strike(&mut self, operation: DiskOperation, name: &str) -> Option<DiskErrorKind> {
        if operation != self.fault.operation || !name.starts_with(&self.fault.name_prefix) {
            return None;
        }
        let before = self.seen;
        self.seen += 1;
        let strikes = match self.fault.repeat {
            Repeat::Once => before == self.fault.after,
            Repeat::Forever => self.fault.after <= before,
        };
        strikes.then_some(self.fault.error)
    }
}
