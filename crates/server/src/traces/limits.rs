//! Limits of the spans on their way to the collector.

use std::time::Duration;

/// Most spans that wait for the collector. Further ones are dropped and counted.
pub const SPANS_QUEUED_MAX: usize = 2048;
/// Most spans of one request to the collector.
pub const SPANS_PER_EXPORT_MAX: usize = 512;
/// Time for which the first span waits for others, unless there are enough for a request.
pub const EXPORT_PAUSE: Duration = Duration::from_secs(1);
/// Time that the collector has at a shutdown to take what is queued.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

const _: () = assert!(SPANS_PER_EXPORT_MAX <= SPANS_QUEUED_MAX);
