//! What a line may hold and when a batch leaves it.

use std::time::Duration;

use thiserror::Error;

use crate::limits::{BATCHES_IN_FLIGHT_MAX, LANES_MAX, REQUEST_OVERHEAD_BYTES, REQUESTS_MAX};

/// What a [`Line`](crate::Line) may hold and when a batch leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineSettings {
    /// Requests that may wait. More are refused.
    pub requests_max: usize,
    /// Bytes that may wait: keys, writes and [`REQUEST_OVERHEAD_BYTES`] for each request.
    pub bytes_max: usize,
    /// Entries of one batch.
    pub batch_entries_max: usize,
    /// Bytes of keys and writes in one batch. An entry that is larger leaves alone.
    pub batch_bytes_max: usize,
    /// Batches, of reads and of writes together, that may be under way.
    pub batches_in_flight_max: usize,
    /// Write lanes. A key belongs to one lane, and a lane has at most one batch under way.
    pub lanes: usize,
    /// When a batch leaves.
    pub departure: Departure,
    /// Which reads of one key share an answer.
    pub sharing: Sharing,
}

/// When a batch leaves. It needs a free place among [`LineSettings::batches_in_flight_max`] in any
/// case.
///
/// Reads are one class, writes are another. Reads make one batch, the writes of each lane make
/// another; entries of all kinds count for it, though only those of one kind leave together.
///
/// How long an entry has waited counts from when it could leave: from its arrival, or from when the
/// last operation it had to wait for was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// At once when no batch of its class is under way. While others are, a further one leaves with
    /// at least `min_batch` entries, or as many bytes as a batch may have, or when its oldest entry
    /// has waited one mean trip time of its class.
    ///
    /// A batch of reads takes all that wait up to its share, which is what waits and is under way
    /// divided by all places but one (or four times `min_batch`, if that is more). Otherwise one
    /// large batch would take for long what the others then lack, and the few that are left would
    /// come and go in small ones.
    WhenFree {
        /// Entries that make a further batch worth its trip.
        min_batch: usize,
    },
    /// With `entries` entries, or as many bytes as a batch may have, or when the oldest has waited
    /// for `wait`. This is the fixed window that others use, here for comparison: it makes a lone
    /// request wait.
    Window {
        /// Entries that fill a batch; it takes no more.
        entries: usize,
        /// Longest wait for company.
        wait: Duration,
    },
}

/// Which reads of one key share an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Those that wait for the same batch. A read sees every write that was acknowledged before it
    /// was asked.
    #[default]
    Waiting,
    /// Also those that come while a read of the key is under way. The answer may be older than the
    /// question: a write by someone else, acknowledged after the batch has read and before this
    /// read was asked, may be missed. Writes through the same line are never missed.
    InFlight,
}

impl Default for LineSettings {
    fn default() -> Self {
        Self {
            requests_max: 64 * 1024,
            bytes_max: 64 * 1024 * 1024,
            batch_entries_max: 256,
            batch_bytes_max: 1024 * 1024,
            batches_in_flight_max: 4,
            lanes: 2,
            departure: Departure::default(),
            sharing: Sharing::default(),
        }
    }
}

impl Default for Departure {
    fn default() -> Self {
        Self::WhenFree { min_batch: 8 }
    }
}

/// A setting that makes no sense, and what it must be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// The setting must be at least 1.
    #[error("{setting} must be at least 1")]
    Zero {
        /// The field of [`LineSettings`].
        setting: &'static str,
    },
    /// The setting is above what a line can do.
    #[error("{setting} is {value} and must be at most {max}")]
    TooLarge {
        /// The field of [`LineSettings`].
        setting: &'static str,
        /// What it is.
        value: usize,
        /// What it may be at most.
        max: usize,
    },
    /// The line could not hold a single request.
    #[error(
        "bytes_max is {value} and must be more than {overhead}, which every request counts besides its key"
    )]
    BytesTooFew {
        /// What `bytes_max` is.
        value: usize,
        /// [`REQUEST_OVERHEAD_BYTES`].
        overhead: usize,
    },
    /// A batch could never have as many entries as the departure asks for.
    #[error(
        "{setting} is {value} and must not be above batch_entries_max, which is {batch_entries_max}"
    )]
    AboveBatch {
        /// `min_batch` or `entries`.
        setting: &'static str,
        /// What it is.
        value: usize,
        /// [`LineSettings::batch_entries_max`].
        batch_entries_max: usize,
    },
}

impl LineSettings {
    /// Finds the first setting that makes no sense.
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
        let (setting, value) = self.departure.entries();
        if self.batch_entries_max < value {
            let batch_entries_max = self.batch_entries_max;
            return Err(SettingsError::AboveBatch { setting, value, batch_entries_max });
        }
        Ok(())
    }

    /// Entries a batch takes at most.
    pub(crate) fn batch_takes_max(&self) -> usize {
        match self.departure {
            Departure::WhenFree { .. } => self.batch_entries_max,
            Departure::Window { entries, .. } => entries,
        }
    }

    fn counts(&self) -> [(&'static str, usize, usize); 6] {
        let (departure, entries) = self.departure.entries();
        [
            ("requests_max", self.requests_max, REQUESTS_MAX),
            ("batch_entries_max", self.batch_entries_max, usize::MAX),
            ("batch_bytes_max", self.batch_bytes_max, usize::MAX),
            ("batches_in_flight_max", self.batches_in_flight_max, BATCHES_IN_FLIGHT_MAX),
            ("lanes", self.lanes, LANES_MAX),
            (departure, entries, usize::MAX),
        ]
    }
}

impl Departure {
    /// The entries it asks for, with the name of the setting.
    pub(crate) fn entries(self) -> (&'static str, usize) {
        match self {
            Self::WhenFree { min_batch } => ("min_batch", min_batch),
            Self::Window { entries, .. } => ("entries", entries),
        }
    }
}

fn check_count(setting: &'static str, value: usize, max: usize) -> Result<(), SettingsError> {
    match value {
        0 => Err(SettingsError::Zero { setting }),
        _ if max < value => Err(SettingsError::TooLarge { setting, value, max }),
        _ => Ok(()),
    }
}
