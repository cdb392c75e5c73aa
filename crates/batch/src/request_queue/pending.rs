//! Accounting of pending requests and bytes against their limits.

use super::entry::Size;
use crate::limits::REQUEST_OVERHEAD_BYTES;
use crate::request::Refusal;
use crate::settings::QueueSettings;

/// Number of pending requests, and their bytes.
pub(super) struct Pending {
    pub requests: usize,
    pub bytes: usize,
    requests_max: usize,
    bytes_max: usize,
}

impl Pending {
    pub fn new(settings: &QueueSettings) -> Self {
        Self {
            requests: 0,
            bytes: 0,
            requests_max: settings.requests_max,
            bytes_max: settings.bytes_max,
        }
    }

    /// Checks whether one more request of this size may be added.
    ///
    /// It counts whole, though it may turn out to join an entry, so that a full queue refuses
    /// without searching for one.
    #[inline]
    pub fn admit(&self, size: Size) -> Result<(), Refusal> {
        let Self { requests_max, bytes_max, .. } = *self;
        let bytes = size.bytes().saturating_add(REQUEST_OVERHEAD_BYTES);
        if bytes_max < bytes {
            return Err(Refusal::TooLarge { bytes, bytes_max });
        }
        if requests_max <= self.requests || bytes_max < self.bytes.saturating_add(bytes) {
            return Err(Refusal::Full { requests_max, bytes_max });
        }
        Ok(())
    }

    /// Corrects the count for a pending entry that had `before` bytes and now has `after`.
    pub fn resize(&mut self, before: usize, after: usize) {
        self.bytes = self.bytes - before + after;
    }

    pub fn add_requests(&mut self, count: usize) {
        self.requests += count;
        self.bytes += count * REQUEST_OVERHEAD_BYTES;
    }

    pub fn remove_requests(&mut self, count: usize) {
        self.requests -= count;
        self.bytes -= count * REQUEST_OVERHEAD_BYTES;
    }
}
