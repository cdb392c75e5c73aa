//! Limits of reads of DynamoDB, each with its reason.

use std::time::Duration;

/// Keys of one request: DynamoDB takes no more in a BatchGetItem.
pub const BATCH_KEYS_MAX: usize = 100;
/// Requests of one table in flight. With two a batch that is stuck, or that pauses because DynamoDB
/// throttles, does not hold up the others; more would only split what fits one request.
pub const BATCHES_IN_FLIGHT_MAX: usize = 2;
/// Reads that wait for a request of one table, which is one per store and caller.
pub const QUEUED_KEYS_MAX: usize = 64 * 1024;
/// Bytes of one answer: DynamoDB sends at most 16 MiB of items, whose JSON may be longer.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Time for one answer. DynamoDB takes milliseconds.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Attempts at a key, the first one included, of which none brought an answer to any key of its
/// batch.
pub const ATTEMPTS_MAX: u32 = 6;
/// Attempts at a batch, if each answered some of its keys.
pub const ATTEMPTS_IN_ALL_MAX: u32 = 100;
/// First pause after a failed attempt; it doubles, less up to half of it by chance.
pub const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest pause between two attempts.
pub const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Requests for one key each that are made at once, for the keys of a batch that was refused.
pub const SINGLE_READS_MAX: usize = 8;
/// Time for which no batch is sent after DynamoDB refused one but not its keys: the account may not
/// call BatchGetItem.
pub const BATCH_RETRIAL: Duration = Duration::from_secs(600);

/// Characters of an answer that an error quotes.
pub const QUOTED_CHARACTERS_MAX: usize = 300;

const _: () = {
    assert!(BACKOFF_MIN.as_millis() < BACKOFF_MAX.as_millis());
    assert!(ATTEMPTS_MAX <= ATTEMPTS_IN_ALL_MAX);
    assert!(SINGLE_READS_MAX <= BATCH_KEYS_MAX && BATCH_KEYS_MAX <= QUEUED_KEYS_MAX);
};
