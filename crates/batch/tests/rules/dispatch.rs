//! Dispatch policy: when a batch is sent.

use busload_batch::limits::LIMIT_INITIAL;
use busload_batch::{
    DispatchPolicy, LastWins, Operation, QueueSettings, RequestOptions, RequestQueue,
};

use crate::desk::{Desk, Key, millis, settings};

const KEYS: [Key; 6] = ["a", "b", "c", "d", "e", "f"];

fn adaptive() -> QueueSettings {
    QueueSettings { dispatch: DispatchPolicy::Adaptive, batch_entries_max: 100, ..settings() }
}

#[test]
fn lone_request_leaves_at_once() {
    let mut desk = Desk::new(adaptive());
    desk.read("a");
    assert_eq!(desk.wake(), Some(desk.now));
    assert_eq!(desk.next(), "read a");
    assert_eq!(desk.wake(), None);
}

#[test]
fn serial_caller_never_waits() {
    let mut desk = Desk::new(adaptive());
    for batch in 0..10 {
        if batch % 2 == 0 {
            desk.read("a")
        } else {
            desk.write("a", "=1")
        };
        assert_ne!(desk.next(), "nothing");
        desk.now += millis(3);
        assert_eq!(desk.end(batch).len(), 1);
    }
}

#[test]
fn further_batch_leaves_at_once() {
    let mut desk = Desk::new(adaptive());
    desk.read("a");
    assert_eq!(desk.next(), "read a");
    desk.read("b");
    assert_eq!(desk.wake(), Some(desk.now));
    assert_eq!(desk.next(), "read b");
}

#[test]
fn window_counts_from_when_an_entry_could_leave() {
    let dispatch = DispatchPolicy::Window { entries: 2, wait: millis(3) };
    let window = QueueSettings { dispatch, ..adaptive() };
    let mut desk = Desk::new(window);
    desk.write("a", "=1");
    desk.write("b", "=1");
    assert_eq!(desk.next(), "write a=1 b=1");
    desk.read("a");
    desk.now += millis(50);
    assert_eq!(desk.wake(), None, "it waits for the write, and no timer helps");
    desk.end(0);
    assert_eq!(desk.wake(), Some(desk.now + millis(3)));
}

#[test]
fn reads_and_writes_do_not_hold_each_other_back() {
    let mut desk = Desk::new(adaptive());
    desk.read("a");
    desk.write("b", "=1");
    assert_eq!(desk.all(), ["read a", "write b=1"]);
}

#[test]
fn limit_found_so_far_holds_for_reads_and_writes_apart() {
    let mut desk = Desk::new(QueueSettings { batches_in_flight_max: 100, ..adaptive() });
    for key in ["a", "b", "c", "d", "e", "f"] {
        desk.read(key);
        desk.next();
    }
    assert_eq!(desk.queue.in_flight(), LIMIT_INITIAL);
    assert_eq!(desk.wake(), None, "no slot is free");
    desk.write("g", "=1");
    assert_eq!(desk.next(), "write g=1");
    desk.end(0);
    assert_eq!(desk.next(), "read e f");
}

/// The backend may block all writes for long, as Postgres does while it builds an index.
#[test]
fn writes_leave_slots_to_reads() {
    let mut desk = Desk::new(QueueSettings { batches_in_flight_max: 4, ..adaptive() });
    for key in KEYS {
        desk.write(key, "=1");
        desk.next();
    }
    assert_eq!(desk.queue.in_flight(), 3);
    desk.read("another");
    assert_eq!(desk.next(), "read another");
}

#[test]
fn no_more_batches_are_under_way_than_may() {
    let mut desk = Desk::new(QueueSettings { batches_in_flight_max: 2, ..settings() });
    desk.read("a");
    assert_eq!(desk.all(), ["read a"]);
    desk.write("b", "=1");
    assert_eq!(desk.all(), ["write b=1"]);
    desk.read("c");
    assert_eq!((desk.next().as_str(), desk.wake()), ("nothing", None));
    desk.answer(0, 0);
    assert_eq!((desk.next().as_str(), desk.wake()), ("nothing", None));
    desk.end(0);
    assert_eq!(desk.next(), "read c");
}

#[test]
fn batch_has_no_more_entries_than_may() {
    let mut desk = Desk::new(QueueSettings { batch_entries_max: 4, ..settings() });
    desk.read_all(&KEYS);
    assert_eq!(desk.all(), ["read a b c d", "read e f"]);
}

/// Three slots: two of them share the pending entries, the third is free for those that come
/// meanwhile.
#[test]
fn batch_takes_its_share_so_that_all_slots_have_something_to_do() {
    for (slots, expected) in
        [(1, &[120][..]), (2, &[120]), (3, &[60, 60]), (4, &[40, 40, 40]), (7, &[32, 32, 32, 24])]
    {
        for operation in [Operation::Read, Operation::Write] {
            let settings = QueueSettings {
                batches_in_flight_max: slots,
                batch_entries_max: 200,
                ..settings()
            };
            let mut queue = RequestQueue::new(settings).expect("sound settings");
            for key in 0..120_u8 {
                let (now, options) = (millis(0), RequestOptions::default());
                match operation {
                    Operation::Read => queue.submit_load(now, key, (), options),
                    Operation::Write => queue.submit_store(now, key, LastWins(0), (), options),
                }
                .expect("the queue has room");
            }
            let batches = std::iter::from_fn(|| queue.next_batch(millis(0)));
            let sizes: Vec<usize> = batches.map(|batch| batch.content.len()).collect();
            assert_eq!(sizes, expected, "{slots} slots, {operation:?}");
        }
    }
}

#[test]
fn batch_has_no_more_bytes_than_may_and_a_larger_entry_leaves_alone() {
    let mut desk = Desk::new(QueueSettings { batch_bytes_max: 6, ..settings() });
    for (key, text) in [("a", "=1"), ("b", "=1"), ("c", "=12345678"), ("d", "=1")] {
        desk.write(key, text);
    }
    for (batch, expected) in
        ["write a=1 b=1", "write c=12345678", "write d=1"].into_iter().enumerate()
    {
        assert_eq!(desk.next(), expected);
        desk.end(batch);
    }
}

#[test]
fn longest_waiting_goes_first_though_others_never_stop_coming() {
    for same_time in [true, false] {
        let mut desk = Desk::new(QueueSettings {
            batches_in_flight_max: 1,
            batch_entries_max: 1,
            ..settings()
        });
        desk.read("a");
        assert_eq!(desk.next(), "read a");
        desk.read("b");
        desk.write("c", "=1");
        desk.read("d");
        desk.write("e", "=1");
        let mut left = Vec::new();
        for batch in 0..4 {
            // The same key keeps one class full all the time.
            desk.read("more");
            desk.now += if same_time { millis(0) } else { millis(1) };
            desk.end(batch);
            left.push(desk.next());
        }
        assert_eq!(left, ["read b", "write c=1", "read d", "write e=1"], "same time: {same_time}");
    }
}

#[test]
fn window_leaves_when_it_is_full_or_over() {
    let dispatch = DispatchPolicy::Window { entries: 3, wait: millis(5) };
    let mut desk = Desk::new(QueueSettings { dispatch, ..settings() });
    desk.read("a");
    assert_eq!(desk.wake(), Some(desk.now + millis(5)), "a lone request waits for the window");
    assert_eq!(desk.next(), "nothing");
    desk.now += millis(4);
    desk.read("b");
    assert_eq!(desk.next(), "nothing");
    desk.now += millis(1);
    assert_eq!(desk.next(), "read a b");

    desk.write_all(&KEYS[..4], "=1");
    assert_eq!(
        desk.wake(),
        Some(desk.now + millis(5)),
        "a and b are being read, c and d do not fill the window"
    );
    desk.write("e", "=1");
    assert_eq!(desk.next(), "write c=1 d=1 e=1");
}

#[test]
fn window_takes_no_more_than_its_entries() {
    let dispatch = DispatchPolicy::Window { entries: 2, wait: millis(5) };
    let mut desk = Desk::new(QueueSettings { dispatch, ..settings() });
    desk.read_all(&KEYS[..5]);
    assert_eq!(desk.all(), ["read a b", "read c d"], "others under way do not matter");
    desk.now += millis(5);
    assert_eq!(desk.all(), ["read e"]);
}

#[test]
fn window_of_no_time_never_waits() {
    let dispatch = DispatchPolicy::Window { entries: 8, wait: millis(0) };
    let mut desk = Desk::new(QueueSettings { dispatch, ..settings() });
    for key in ["a", "b"] {
        desk.read(key);
        assert_eq!(desk.next(), format!("read {key}"));
    }
}
