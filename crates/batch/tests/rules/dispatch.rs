//! Dispatch policy: when a batch is sent.

use std::time::Duration;

use busload_batch::limits::BATCH_TIME_MEAN_INITIAL;
use busload_batch::{DispatchPolicy, QueueSettings};

use crate::desk::{Desk, Key, millis, settings};

const KEYS: [Key; 6] = ["a", "b", "c", "d", "e", "f"];

fn with_min_batch(min_batch: usize) -> QueueSettings {
    QueueSettings { dispatch: DispatchPolicy::WhenFree { min_batch }, ..settings() }
}

#[test]
fn lone_request_leaves_at_once() {
    let mut desk = Desk::new(with_min_batch(8));
    desk.read("a");
    assert_eq!(desk.wake(), Some(desk.now));
    assert_eq!(desk.next(), "read a");
    assert_eq!(desk.wake(), None);
}

#[test]
fn serial_caller_never_waits() {
    let mut desk = Desk::new(with_min_batch(8));
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
fn further_batch_leaves_with_min_batch_entries() {
    let mut desk = Desk::new(with_min_batch(3));
    desk.read("a");
    assert_eq!(desk.next(), "read a");
    desk.read("b");
    desk.read("c");
    desk.read("c");
    assert_eq!(desk.next(), "nothing", "three requests, but two entries");
    desk.read("d");
    assert_eq!(desk.wake(), Some(desk.now));
    assert_eq!(desk.next(), "read b c d");
}

#[test]
fn further_batch_leaves_when_its_bytes_fill_it() {
    let mut desk = Desk::new(QueueSettings { batch_bytes_max: 9, ..with_min_batch(8) });
    desk.read("a");
    assert_eq!(desk.next(), "read a");
    desk.read("1234");
    assert_eq!(desk.next(), "nothing");
    desk.read("56789");
    assert_eq!(desk.next(), "read 1234 56789");
}

#[test]
fn further_batch_leaves_when_its_oldest_has_waited_one_mean_batch() {
    let mut desk = Desk::new(with_min_batch(8));
    desk.read("a");
    assert_eq!(desk.next(), "read a");
    desk.now += millis(20);
    desk.end(0);
    desk.read("b");
    assert_eq!(desk.next(), "read b");

    desk.now += millis(1);
    desk.read("c");
    let asked = desk.now;
    desk.now += millis(7);
    desk.read("d");
    assert_eq!(desk.wake(), Some(asked + millis(20)));
    desk.now = asked + millis(20) - Duration::from_nanos(1);
    assert_eq!(desk.next(), "nothing");
    desk.now = asked + millis(20);
    assert_eq!(desk.next(), "read c d");
}

#[test]
fn batch_that_has_not_ended_yet_is_taken_to_need_a_while() {
    let mut desk = Desk::new(with_min_batch(8));
    desk.read("a");
    desk.next();
    desk.read("b");
    assert_eq!(desk.wake(), Some(desk.now + BATCH_TIME_MEAN_INITIAL));
}

#[test]
fn waiting_counts_from_when_an_entry_could_leave() {
    let mut desk = Desk::new(with_min_batch(8));
    desk.write("a", "=1");
    assert_eq!(desk.next(), "write a=1");
    desk.read("b");
    assert_eq!(desk.next(), "read b");
    desk.read("a");
    desk.now += millis(50);
    assert_eq!(desk.wake(), None, "it waits for the write, and no timer helps");
    desk.end(0);
    assert_eq!(desk.wake(), Some(desk.now + BATCH_TIME_MEAN_INITIAL));
}

#[test]
fn reads_and_writes_do_not_hold_each_other_back() {
    let mut desk = Desk::new(with_min_batch(8));
    desk.read("a");
    desk.write("b", "=1");
    assert_eq!(desk.all(), ["read a", "write b=1"]);
}

#[test]
fn partition_waits_for_company_while_another_partition_is_under_way() {
    let mut desk = Desk::new(QueueSettings { write_partitions: 2, ..with_min_batch(8) });
    let (mine, other) = keys_of_two_write_partitions();
    desk.write(mine, "=1");
    assert_eq!(desk.all(), [format!("write {mine}=1")]);
    desk.write(other, "=1");
    assert_eq!(desk.wake(), Some(desk.now + BATCH_TIME_MEAN_INITIAL));
    desk.now += BATCH_TIME_MEAN_INITIAL;
    assert_eq!(desk.all(), [format!("write {other}=1")]);
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

/// Three slots: two of them share the pending reads, the third is free for those that come
/// meanwhile.
#[test]
fn batch_of_reads_takes_its_share_so_that_all_places_have_something_to_do() {
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    for (places, expected) in [
        (1, &["read a b c d e f g h i j k l"][..]),
        (2, &["read a b c d e f g h i j k l"]),
        (3, &["read a b c d e f", "read g h i j k l"]),
        (7, &["read a b c d", "read e f g h", "read i j k l"]),
    ] {
        let limits =
            QueueSettings { batches_in_flight_max: places, batch_entries_max: 100, ..settings() };
        let mut desk = Desk::new(limits);
        desk.read_all(&keys);
        assert_eq!(desk.all(), expected, "{places} places");
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

/// Returns two keys of different write partitions, if there are two.
fn keys_of_two_write_partitions() -> (Key, Key) {
    let two_write_partitions = || Desk::new(QueueSettings { write_partitions: 2, ..settings() });
    let leaves_beside_a = |key: &Key| {
        let mut desk = two_write_partitions();
        desk.write("a", "=1");
        desk.write(key, "=1");
        desk.all().len() == 2
    };
    (
        "a",
        KEYS[1..]
            .iter()
            .copied()
            .find(leaves_beside_a)
            .expect("five keys are enough for two partitions"),
    )
}
