//! How much waits, and how much may.

use super::entry::Size;
use crate::limits::REQUEST_OVERHEAD_BYTES;
use crate::request::Refusal;
use crate::settings::LineSettings;

/// Requests that wait, and their bytes.
pub(super) struct Load {
    pub requests: usize,
    pub bytes: usize,
    requests_max: usize,
    bytes_max: usize,
}

impl Load {
    pub fn new(settings: &LineSettings) -> Self {
        Self {
            requests: 0,
            bytes: 0,
            requests_max: settings.requests_max,
            bytes_max: settings.bytes_max,
        }
    }

    /// Whether one more request may wait, of this size.
    ///
    /// It is counted whole, though it may turn out to join an entry: so a full line refuses without
    /// looking for one.
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

    /// Something that waits had `before` bytes and has `after`.
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
