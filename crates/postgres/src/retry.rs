//! Retries of statements that lost against another transaction.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use crate::{
    failure::{Class, Fault},
    limits,
    stats::Counters,
};

/// Makes attempts until one does not end in a serialization failure or a deadlock, a bounded number
/// of times.
///
/// Postgres has rolled back such an attempt, so that even writes may be repeated.
pub(crate) async fn on_conflict<T, F>(
    counters: &Counters,
    mut attempt: impl FnMut() -> F,
) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    let mut pause = limits::CONFLICT_BACKOFF_MIN;
    for _ in 0..limits::CONFLICT_RETRIES_MAX {
        match attempt().await {
            Err(error) if error.class() == Class::Conflict => {
                counters.conflicts_retried.add(1);
                tokio::time::sleep(jittered(pause)).await;
                pause *= 2;
            }
            done => return done,
        }
    }
    attempt().await
}

/// Returns between half of the pause and all of it, so that statements that met once do not meet
/// again.
fn jittered(pause: Duration) -> Duration {
    const STEPS: u32 = 512;
    let random = RandomState::new().hash_one(()) % u64::from(STEPS);
    pause / 2 + pause * u32::try_from(random).unwrap_or(0) / (2 * STEPS)
}
