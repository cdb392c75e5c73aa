//! Limits of how credentials of AWS are found and refreshed, with their reasons.

use std::time::Duration;

/// Longest file of profiles; AWS' own has a few hundred bytes for each.
pub const CONFIG_FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest file of a cached SSO token, and longest output of a `credential_process`.
pub const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// Profiles that may follow each other by `source_profile`.
pub const PROFILE_CHAIN_MAX: usize = 8;

/// Time in which STS and SSO have to answer.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer of STS and SSO.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Time in which a `credential_process` has to end, for those that ask another service.
pub const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

/// Time before their end at which credentials are refreshed; those that hold less than twice that
/// are refreshed when half of it is over.
pub const REFRESH_BEFORE_END: Duration = Duration::from_secs(300);
/// Time before their end from which on requests wait for new credentials: one that was signed
/// has to arrive, and clocks differ.
pub const UNUSABLE_BEFORE_END: Duration = Duration::from_secs(10);
/// Time after which keys in a file, and whether there are any, are read again.
pub const REREAD_INTERVAL: Duration = Duration::from_secs(300);
/// Time after a failure in which the next attempt is not made.
pub const FAILURE_PAUSE: Duration = Duration::from_secs(1);

const _: () = assert!(UNUSABLE_BEFORE_END.as_secs() < REFRESH_BEFORE_END.as_secs());
/// Longest lifetime of an SSO token that is believed, in seconds: a year.
pub const TOKEN_SECONDS_MAX: u64 = 365 * 24 * 3_600;
