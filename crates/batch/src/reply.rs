//! Calls replies, and isolates a reply that panics from the others.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::core::EndedWaiter;
use crate::service::{BatchError, LoadedOne, Reply, Service, StoredOne};
use crate::{Answered, Late, Operation, Stage};

pub(crate) fn give_late<S: Service, R: Reply<S>>(late: Late<R>) {
    let sent = late.stage != Stage::Waiting;
    give_error::<S, R>(late.operation, late.waiter, BatchError::TooLate { sent });
}

pub(crate) fn give_error<S: Service, R: Reply<S>>(
    operation: Operation,
    reply: R,
    error: BatchError<S::Error>,
) {
    shielded(|| match operation {
        Operation::Read => reply.loaded(Err(error)),
        Operation::Write => reply.stored(Err(error), None),
    });
}

/// Answers the waiters of a read, entry by entry.
pub(crate) fn give_loaded<S: Service, R: Reply<S>>(
    waiters: &mut Vec<EndedWaiter<S, R>>,
    results: Vec<LoadedOne<S>>,
) {
    give_each(waiters, results, |answered, result, is_first| {
        let (waiter, outcome) = (answered.waiter, result.map_err(BatchError::Failed));
        if is_first { waiter.loaded(outcome) } else { waiter.loaded_shared(outcome) }
    });
}

/// Answers the waiters of a write, entry by entry.
pub(crate) fn give_stored<S: Service, R: Reply<S>>(
    waiters: &mut Vec<EndedWaiter<S, R>>,
    results: Vec<StoredOne<S>>,
) {
    give_each(waiters, results, |answered, result, _| {
        let receipt = answered.receipt.filter(|_| result.is_ok());
        answered.waiter.stored(result.map_err(BatchError::Failed), receipt);
    });
}

/// Gives each waiter its entry's result: clones for all but the last waiter of an entry, which gets
/// the result itself. The last argument of `give` says whether the
/// waiter is the first of its entry.
fn give_each<W, C, T: Clone>(
    waiters: &mut Vec<(usize, Answered<W, C>)>,
    results: Vec<T>,
    give: impl Fn(Answered<W, C>, T, bool),
) {
    // Sorted by entry and, within one, by arrival.
    debug_assert!(waiters.is_sorted_by_key(|(entry, _)| *entry));
    let mut waiters = waiters.drain(..).peekable();
    for (entry, result) in results.into_iter().enumerate() {
        let mut is_first = true;
        while let Some((_, answered)) = waiters.next_if(|(of, _)| *of == entry) {
            if waiters.peek().is_some_and(|(of, _)| *of == entry) {
                shielded(|| give(answered, result.clone(), is_first));
            } else {
                shielded(|| give(answered, result, is_first));
                break;
            }
            is_first = false;
        }
    }
}

/// Runs user code and swallows its panic, which the panic hook has reported.
fn shielded(code: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(code));
}
