//! Limits of every gRPC call for chunks.

use std::time::Duration;

/// Most addresses in one call.
pub const ADDRESS_COUNT_MAX: usize = 16_384;
/// Longest timeout that a client can set.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
