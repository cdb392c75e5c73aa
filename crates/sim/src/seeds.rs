//! Runs many seeds, on all processors.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crate::{Failure, Outcome, Trace, run};

/// Seeds that are to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// Seed that runs first.
    pub first: u64,
    /// Number of all seeds.
    pub count: u64,
    /// Says whether each request is printed.
    pub trace: Trace,
}

impl Seeds {
    /// Reads the range from the arguments of a command line.
    ///
    /// # Errors
    /// If they are not `--from SEED` and `--seeds COUNT`.
    pub fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut seeds = Seeds { first: 0, count: 1_000, trace: Trace::Off };
        while let Some(option) = arguments.next() {
            if option == "--trace" {
                seeds.trace = Trace::On;
                continue;
            }
            let value = arguments.next().and_then(|value| value.parse().ok());
            match (option.as_str(), value) {
                ("--from", Some(first)) => seeds.first = first,
                ("--seeds", Some(count)) if 0 < count => seeds.count = count,
                _ => {
                    return Err(
                        "expected [--from SEED] [--seeds COUNT] [--trace], with whole numbers, \
                                the count above 0"
                            .into(),
                    );
                }
            }
        }
        Ok(seeds)
    }
}

/// Runs all seeds. Returns the sum of what they saw.
///
/// # Errors
/// The failure with the lowest seed among those found before the processors stopped.
pub fn run_seeds(seeds: Seeds) -> Result<Outcome, Failure> {
    let next = AtomicU64::new(seeds.first);
    let end = seeds.first + seeds.count;
    let outcomes = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if end <= seed {
                        return;
                    }
                    let outcome = run_caught(seed, seeds.trace);
                    if outcome.is_err() {
                        next.store(end, Ordering::Relaxed);
                    }
                    let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                    outcomes.push((seed, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_unstable_by_key(|(seed, _)| *seed);
    let mut sum = Outcome::default();
    for (_, outcome) in outcomes {
        sum.add(&outcome?);
    }
    Ok(sum)
}

/// Runs a seed; a panic is a failure like any other.
fn run_caught(seed: u64, trace: Trace) -> Result<Outcome, Failure> {
    catch_unwind(AssertUnwindSafe(|| run(seed, trace))).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
            .unwrap_or_else(|| "unknown".into());
        Err(Failure { seed, life: 0, text: format!("panic: {text}") })
    })
}
