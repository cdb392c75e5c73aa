//! Requests of one key that share an entry.

use busload_batch::{QueueSettings, Sharing};

use crate::desk::{Desk, settings};

fn in_flight() -> QueueSettings {
    QueueSettings { sharing: Sharing::InFlight, ..settings() }
}

#[test]
fn reads_that_wait_share_one_entry_and_are_answered_in_order_of_arrival() {
    let mut desk = Desk::new(settings());
    desk.read_all(&["a", "b", "a", "a", "b"]);
    assert_eq!(desk.all(), ["read a b"]);
    assert_eq!(desk.answer(0, 1), [(1, None), (4, None)]);
    assert_eq!(desk.answer(0, 0), [(0, None), (2, None), (3, None)]);
    assert_eq!(desk.queue.stats().reads.joined, 3);
}

#[test]
fn read_does_not_join_one_under_way() {
    let mut desk = Desk::new(settings());
    desk.read("a");
    assert_eq!(desk.next(), "read a");
    desk.read("a");
    assert_eq!(desk.next(), "read a");
    assert_eq!(desk.answer(0, 0), [(0, None)]);
    assert_eq!(desk.answer(1, 0), [(1, None)]);
}

#[test]
fn read_joins_one_under_way_where_that_is_wanted() {
    let mut desk = Desk::new(in_flight());
    desk.read("a");
    assert_eq!(desk.next(), "read a");
    desk.read("a");
    assert_eq!(desk.next(), "nothing");
    assert_eq!(desk.answer(0, 0), [(0, None), (1, None)]);
    desk.read("a");
    assert_eq!(desk.next(), "read a", "the other is answered");
}

#[test]
fn read_never_joins_past_a_write() {
    let mut desk = Desk::new(in_flight());
    desk.read("a");
    assert_eq!(desk.next(), "read a");
    desk.write("a", "=1");
    desk.read("a");
    assert_eq!(desk.next(), "nothing");
    assert_eq!(desk.answer(0, 0), [(0, None)]);
    assert_eq!(desk.next(), "write a=1");
    desk.read("a");
    assert_eq!(desk.next(), "nothing");
    assert_eq!(desk.answer(1, 0), [(1, Some(2))]);
    assert_eq!(desk.all(), ["read a"]);
    assert_eq!(desk.answer(2, 0), [(2, None), (3, None)]);
}

#[test]
fn writes_that_wait_merge_and_keep_their_receipts() {
    type Waiters = &'static [(usize, Option<usize>)];
    let cases: [(&[&str], &[&str], Waiters); 4] = [
        (&["=1", "=22", "=333"], &["write a=333"], &[(0, Some(2)), (1, Some(3)), (2, Some(4))]),
        (&["+1", "+2"], &["write a+12"], &[(0, Some(2)), (1, Some(3))]),
        (&["+1", "=2"], &["write a+1"], &[(0, Some(2))]),
        (&["+12345", "+6789"], &["write a+12345"], &[(0, Some(6))]),
    ];
    for (writes, batches, waiters) in cases {
        let mut desk = Desk::new(settings());
        for text in writes {
            desk.write("a", text);
        }
        assert_eq!(desk.all(), batches, "{writes:?}");
        assert_eq!(desk.answer(0, 0), waiters, "{writes:?}");
    }
}

#[test]
fn write_that_does_not_merge_goes_behind_and_further_ones_merge_into_it() {
    let mut desk = Desk::new(settings());
    for text in ["=1", "+2", "+3", "=4"] {
        desk.write("a", text);
    }
    for (batch, expected) in ["write a=1", "write a+23", "write a=4"].into_iter().enumerate() {
        assert_eq!(desk.all(), [expected]);
        desk.end(batch);
    }
}

#[test]
fn write_does_not_merge_into_one_under_way_nor_past_a_read() {
    let mut desk = Desk::new(settings());
    desk.write("a", "+1");
    assert_eq!(desk.next(), "write a+1");
    desk.write("a", "+2");
    desk.read("a");
    desk.write("a", "+3");
    for (batch, expected) in ["write a+2", "read a", "write a+3"].into_iter().enumerate() {
        assert_eq!(desk.end(batch).len(), 1);
        assert_eq!(desk.all(), [expected]);
    }
}

#[test]
fn kind_is_that_of_the_merged_write() {
    let mut desk = Desk::new(settings());
    desk.read("a");
    desk.read("b");
    assert_eq!(desk.next(), "read a b");
    desk.write("a", "+1");
    desk.write("a", "+2");
    desk.write("b", "+1");
    desk.end(0);
    assert_eq!(desk.next(), "write a+12 b+1");
}
