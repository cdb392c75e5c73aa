//! Settings of the request queue: its limits and its dispatch policy.

use std::time::Duration;

use thiserror::Error;

use crate::limits::{BATCHES_IN_FLIGHT_MAX, REQUEST_OVERHEAD_BYTES, REQUESTS_MAX};

/// Limits and dispatch policy of a [`RequestQueue`](crate::RequestQueue).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    /// Maximum number of pending requests. More are refused.
    pub requests_max: usize,
    /// Maximum of pending bytes: keys, writes and [`REQUEST_OVERHEAD_BYTES`] for each request.
    pub bytes_max: usize,
    /// Maximum number of entries in one batch.
    pub batch_entries_max: usize,
    /// Maximum of bytes of keys and writes in one batch. A larger entry is sent alone.
    pub batch_bytes_max: usize,
    /// Maximum number of batches in flight, of reads and writes together.
    pub batches_in_flight_max: usize,
    /// Dispatch policy: when a batch is sent.
    pub dispatch: DispatchPolicy,
    /// Reads of one key that share an answer.
    pub sharing: Sharing,
}

/// Dispatch policy: when a batch is sent. It needs a free slot among
/// [`QueueSettings::batches_in_flight_max`] in any case.
///
/// Reads are one class, writes are another. Writes of all kinds count for the next batch, though
/// only those of one kind are sent together.
///
/// An entry's wait begins when it could be sent: on its arrival, or when the last earlier operation
/// on its key was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DispatchPolicy {
    /// Sends a batch at once whenever a slot is free. The queue finds by itself how many batches of
    /// a class may be in flight: it measures what a request costs with one limit and with another.
    /// Writes leave a quarter of the slots to reads.
    ///
    /// A batch takes all pending entries up to its share: the entries of its class that are pending
    /// or in flight, divided by all slots but one, or [`BATCH_SHARE_MIN`] if that is more.
    /// Otherwise one large batch would keep for long what the others then lack.
    ///
    /// [`BATCH_SHARE_MIN`]: crate::limits::BATCH_SHARE_MIN
    #[default]
    Adaptive,
    /// Like [`Adaptive`], but with all slots of the queue.
    ///
    /// [`Adaptive`]: Self::Adaptive
    Eager,
    /// Sends a batch when it has `entries` entries, or as many bytes as a batch may have, or when
    /// its oldest entry has waited for `wait`. This is the usual fixed window, here for comparison:
    /// it makes a lone request wait.
    Window {
        /// Number of entries that fill a batch; it takes no more.
        entries: usize,
        /// Longest wait for more entries.
        wait: Duration,
    },
    /// Sends all pending entries at once, beside any others. This suits a backend that bounds its
    /// own work, such as an object store with a window of parallel reads.
    ///
    /// A request counts as pending until its entry is answered or its batch ends, also when its
    /// caller has gone. So [`QueueSettings::requests_max`] bounds what is in flight as well, and
    /// `batches_in_flight_max` may be as large.
    Immediate,
}

/// Says which reads of one key share an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Reads that are pending at the same time. A read sees every write that was acknowledged
    /// before it was made.
    #[default]
    Waiting,
    /// Also reads that arrive while a read of the key is in flight. The answer may be older than
    /// the request: it may miss a write by another process that was acknowledged after the batch
    /// has read and before this read was made. Writes through the same queue are never missed.
    InFlight,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            requests_max: 64 * 1024,
            bytes_max: 64 * 1024 * 1024,
            batch_entries_max: 256,
            batch_bytes_max: 1024 * 1024,
            batches_in_flight_max: 32,
            dispatch: DispatchPolicy::default(),
            sharing: Sharing::default(),
        }
    }
}

/// A setting that makes no sense, and what it must be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// The setting must be at least 1.
    #[error("{setting} must be at least 1")]
    Zero {
        /// Name of the field of [`QueueSettings`].
        setting: &'static str,
    },
    /// The setting is more than a queue supports.
    #[error("{setting} is {value} and must be at most {max}")]
    TooLarge {
        /// Name of the field of [`QueueSettings`].
        setting: &'static str,
        /// Value of the setting.
        value: usize,
        /// Largest value that is allowed.
        max: usize,
    },
    /// The queue could not hold a single request.
    #[error(
        "bytes_max is {value} and must be more than {overhead}, \
         which every request counts besides its key"
    )]
    BytesTooFew {
        /// The value of `bytes_max` that was given.
        value: usize,
        /// The least value: that of [`REQUEST_OVERHEAD_BYTES`].
        overhead: usize,
    },
    /// A batch could never have as many entries as the dispatch policy asks for.
    #[error(
        "{setting} is {value} and must not be above batch_entries_max, which is {batch_entries_max}"
    )]
    AboveBatch {
        /// Name of the field of [`DispatchPolicy::Window`].
        setting: &'static str,
        /// Value of the setting.
        value: usize,
        /// The limit: the value of [`QueueSettings::batch_entries_max`].
        batch_entries_max: usize,
    },
}

impl QueueSettings {
    /// Returns the first setting that makes no sense, if there is one.
    pub fn check(&self) -> Result<(), SettingsError> {
        for (setting, value, max) in self.counts() {
            check_count(setting, value, max)?;
        }
        if self.bytes_max <= REQUEST_OVERHEAD_BYTES {
            return Err(SettingsError::BytesTooFew {
                value: self.bytes_max,
                overhead: REQUEST_OVERHEAD_BYTES,
            });
        }
        if let DispatchPolicy::Window { entries: value, .. } = self.dispatch
            && self.batch_entries_max < value
        {
            let batch_entries_max = self.batch_entries_max;
            return Err(SettingsError::AboveBatch { setting: "entries", value, batch_entries_max });
        }
        Ok(())
    }

    /// Returns the maximum number of entries in one batch.
    pub(crate) fn batch_takes_max(&self) -> usize {
        match self.dispatch {
            DispatchPolicy::Adaptive | DispatchPolicy::Eager | DispatchPolicy::Immediate => {
                self.batch_entries_max
            }
            DispatchPolicy::Window { entries, .. } => entries,
        }
    }

    fn counts(&self) -> [(&'static str, usize, usize); 5] {
        let entries = match self.dispatch {
            DispatchPolicy::Window { entries, .. } => entries,
            DispatchPolicy::Adaptive | DispatchPolicy::Eager | DispatchPolicy::Immediate => 1,
        };
        let batches_max = match self.dispatch {
            DispatchPolicy::Immediate => REQUESTS_MAX,
            DispatchPolicy::Adaptive | DispatchPolicy::Eager | DispatchPolicy::Window { .. } => {
                BATCHES_IN_FLIGHT_MAX
            }
        };
        [
            ("requests_max", self.requests_max, REQUESTS_MAX),
            ("batch_entries_max", self.batch_entries_max, usize::MAX),
            ("batch_bytes_max", self.batch_bytes_max, usize::MAX),
            ("batches_in_flight_max", self.batches_in_flight_max, batches_max),
            ("entries", entries, usize::MAX),
        ]
    }
}

fn check_count(setting: &'static str, value: usize, max: usize) -> Result<(), SettingsError> {
    match value {
        0 => Err(SettingsError::Zero { setting }),
        _ if max < value => Err(SettingsError::TooLarge { setting, value, max }),
        _ => Ok(()),
    }
}
