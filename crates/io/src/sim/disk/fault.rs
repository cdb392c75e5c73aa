//! Planned faults.

use crate::{DiskErrorKind, DiskOperation, FileName};

/// How often a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// One operation fails, those after it succeed.
    Once,
    /// That operation and all after it fail.
    Forever,
}

/// A failing operation to come.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which kind of operation fails.
    pub operation: DiskOperation,
    /// Only operations on files whose names begin so (of a rename the source's; the directory's
    /// name is empty).
    pub name_prefix: FileName,
    /// How many of these operations succeed before.
    pub after: u64,
    /// How often it strikes.
    pub repeat: Repeat,
    /// The error's kind.
    pub error: DiskErrorKind,
}

impl Fault {
    /// The operation of this kind after `after` others fails once, on whatever file.
    pub fn once(operation: DiskOperation, after: u64, error: DiskErrorKind) -> Self {
        Self { operation, name_prefix: FileName::new(), after, repeat: Repeat::Once, error }
    }

    /// All operations of this kind after `after` others fail, on whatever file.
    pub fn forever(operation: DiskOperation, after: u64, error: DiskErrorKind) -> Self {
        Self { repeat: Repeat::Forever, ..Self::once(operation, after, error) }
    }

    /// Only on files whose names begin with this.
    pub fn on(self, name_prefix: &str) -> Self {
        Self { name_prefix: name_prefix.to_owned(), ..self }
    }
}

/// A fault and how many operations it has seen.
#[derive(Debug)]
pub(super) struct Planned {
    fault: Fault,
    seen: u64,
}

impl Planned {
    pub(super) fn new(fault: Fault) -> Self {
        Self { fault, seen: 0 }
    }

    /// Counts an operation; the error it fails with if it is its turn.
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
