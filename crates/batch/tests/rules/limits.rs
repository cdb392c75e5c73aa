//! Limits of a queue, and its refusals.

use busload_batch::limits::{BATCHES_IN_FLIGHT_MAX, REQUEST_OVERHEAD_BYTES, REQUESTS_MAX};
use busload_batch::{DispatchPolicy, NoWrites, QueueSettings, Refusal, RequestQueue, Sharing};

use crate::desk::{Desk, settings};

const OVERHEAD: usize = REQUEST_OVERHEAD_BYTES;

fn full(settings: &QueueSettings) -> Refusal {
    Refusal::Full { requests_max: settings.requests_max, bytes_max: settings.bytes_max }
}

#[test]
fn requests_that_wait_are_limited_and_those_under_way_are_not() {
    let settings = QueueSettings { requests_max: 2, ..settings() };
    let mut desk = Desk::new(settings.clone());
    desk.read("a");
    let second = desk.read("a");
    assert_eq!(desk.try_read("a"), Err(full(&settings)));
    assert_eq!(desk.try_write("b", "=1"), Err(full(&settings)));
    desk.queue.cancel(second);
    desk.read("b");
    assert_eq!(desk.next(), "read a b");
    assert_eq!(desk.queue.waiting(), 0);
    desk.read("c");
    desk.read("d");
    assert_eq!(desk.try_read("e"), Err(full(&settings)));
    assert_eq!(desk.queue.stats().refused, 3);
}

#[test]
fn with_an_immediate_dispatch_requests_in_flight_count_until_they_are_answered() {
    let settings =
        QueueSettings { requests_max: 3, dispatch: DispatchPolicy::Immediate, ..settings() };
    let mut desk = Desk::new(settings.clone());
    desk.read("a");
    assert_eq!(desk.next(), "read a");
    let second = desk.read("b");
    desk.read("c");
    assert_eq!(desk.next(), "read b c", "batches in flight hold nothing back");
    assert_eq!(desk.try_read("d"), Err(full(&settings)));
    desk.queue.cancel(second);
    let refused = desk.try_read("d");
    assert_eq!(refused, Err(full(&settings)), "its batch goes on, and so does the work for it");
    assert_eq!(desk.answer(0, 0), [(0, None)]);
    desk.read("d");
    assert_eq!(desk.answer(1, 0), []);
    desk.read("e");
    assert_eq!((desk.queue.waiting(), desk.next().as_str()), (3, "read d e"));
}

#[test]
fn bytes_that_wait_are_limited() {
    let settings = QueueSettings { bytes_max: 2 * OVERHEAD + 10, ..settings() };
    let mut desk = Desk::new(settings.clone());
    desk.write("aaaa", "=123");
    assert_eq!(desk.queue.waiting_bytes(), OVERHEAD + 8);
    assert_eq!(desk.try_read("bbb"), Err(full(&settings)));
    desk.read("bb");
    assert_eq!(desk.queue.waiting_bytes(), settings.bytes_max);
}

#[test]
fn request_larger_than_the_line_is_refused_for_good() {
    let settings = QueueSettings { bytes_max: OVERHEAD + 10, ..settings() };
    let mut desk = Desk::new(settings.clone());
    let too_large = |bytes| Err(Refusal::TooLarge { bytes, bytes_max: settings.bytes_max });
    assert_eq!(desk.try_read("12345678901"), too_large(OVERHEAD + 11));
    assert_eq!(desk.try_write("12345", "=67890"), too_large(OVERHEAD + 11));
    desk.read("1234567890");
}

#[test]
fn bytes_are_those_of_what_is_kept() {
    let mut desk = Desk::new(settings());
    desk.write("key", "=12345");
    desk.write("key", "=1");
    assert_eq!(desk.queue.waiting_bytes(), 2 * OVERHEAD + 3 + 2);
    desk.read("key");
    desk.read("key");
    assert_eq!(desk.queue.waiting_bytes(), 4 * OVERHEAD + 3 + 2 + 3);
    assert_eq!(desk.next(), "write key=1");
    assert_eq!(desk.queue.waiting_bytes(), 2 * OVERHEAD + 3);
}

#[test]
fn reads_that_join_one_under_way_are_limited_too() {
    let settings = QueueSettings { requests_max: 2, sharing: Sharing::InFlight, ..settings() };
    let mut desk = Desk::new(settings.clone());
    desk.read("a");
    assert_eq!(desk.next(), "read a");
    desk.read("a");
    let third = desk.read("a");
    assert_eq!(desk.try_read("a"), Err(full(&settings)));
    desk.queue.cancel(third);
    desk.read("a");
    assert_eq!(desk.answer(0, 0).len(), 3);
    assert_eq!((desk.queue.waiting(), desk.queue.waiting_bytes()), (0, 0));
}

#[test]
fn settings_that_make_no_sense_are_refused_and_say_why() {
    let ok = settings;
    let window = |entries| DispatchPolicy::Window { entries, wait: Default::default() };
    let cases = [
        (QueueSettings { requests_max: 0, ..ok() }, "requests_max must be at least 1"),
        (QueueSettings { batch_entries_max: 0, ..ok() }, "batch_entries_max must be at least 1"),
        (QueueSettings { batch_bytes_max: 0, ..ok() }, "batch_bytes_max must be at least 1"),
        (
            QueueSettings { batches_in_flight_max: 0, ..ok() },
            "batches_in_flight_max must be at least 1",
        ),
        (QueueSettings { dispatch: window(0), ..ok() }, "entries must be at least 1"),
        (
            QueueSettings { dispatch: window(9), ..ok() },
            "entries is 9 and must not be above batch_entries_max, which is 8",
        ),
        (
            QueueSettings { bytes_max: OVERHEAD, ..ok() },
            "bytes_max is 128 and must be more than 128, \
             which every request counts besides its key",
        ),
        (
            QueueSettings { requests_max: REQUESTS_MAX + 1, ..ok() },
            "requests_max is 16777216 and must be at most 16777215",
        ),
        (
            QueueSettings { batches_in_flight_max: BATCHES_IN_FLIGHT_MAX + 1, ..ok() },
            "batches_in_flight_max is 256 and must be at most 255",
        ),
    ];
    for (settings, expected) in cases {
        let error = RequestQueue::<u8, NoWrites, ()>::new(settings).expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(QueueSettings::default().check(), Ok(()));
}

#[test]
fn refusals_say_what_the_limits_are() {
    let full = Refusal::Full { requests_max: 3, bytes_max: 500 };
    assert_eq!(full.to_string(), "the queue is full: at most 3 requests and 500 bytes may wait");
    let too_large = Refusal::TooLarge { bytes: 501, bytes_max: 500 };
    assert_eq!(
        too_large.to_string(),
        "the request counts 501 bytes, and at most 500 bytes may wait"
    );
}
