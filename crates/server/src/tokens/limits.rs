//! Limits of tokens and of the endpoint that checks them.

use std::time::Duration;

/// Longest token: those of identity providers have one to two thousand bytes.
pub const TOKEN_BYTES_MAX: usize = 8 << 10;
/// Longest file of tokens.
pub const FILE_BYTES_MAX: u64 = 16 << 20;
/// Most entries of the file.
pub const ENTRY_COUNT_MAX: usize = 100_000;
/// Most patterns of one entry, or of one answer.
pub const PATTERN_COUNT_MAX: usize = 1_000;
/// Longest pattern; longer names of stores are never asked about.
pub const PATTERN_BYTES_MAX: usize = 512;
/// Difference of clocks that the times in a JWT are forgiven.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60);
/// Time within which the endpoint has to answer, the wait for its turn included.
pub const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(5);
/// Most requests to the endpoint at once; further ones wait.
pub const ENDPOINT_CALLS_MAX: usize = 64;
/// Longest answer of the endpoint.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Most answers that are kept, one for a token and a store; those used least go first.
pub const ANSWER_COUNT_MAX: usize = 10_000;
/// Time that a permission is kept if the endpoint does not say.
pub const TTL_DEFAULT: Duration = Duration::from_secs(60);
/// Longest time that a permission is kept, whatever the endpoint says: a token that the endpoint
/// takes back is refused after that.
pub const TTL_MAX: Duration = Duration::from_secs(3600);
/// Time that a refusal is kept.
pub const REFUSAL_TTL: Duration = Duration::from_secs(10);
/// Time after a failure in which the same question is not asked again.
pub const FAILURE_PAUSE: Duration = Duration::from_secs(1);

const _: () = assert!(TTL_DEFAULT.as_secs() <= TTL_MAX.as_secs());
