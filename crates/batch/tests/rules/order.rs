//! Operations on one key take effect in order of arrival; a batch is sorted, unique, of one write
//! partition and one kind.

use busload_batch::limits::KIND_SEARCH_BATCHES;
use busload_batch::{Content, DispatchPolicy, NoWrites, QueueSettings, RequestQueue};

use crate::desk::{Desk, millis, settings};

#[test]
fn batch_is_sorted_and_has_each_key_once() {
    let mut desk = Desk::new(settings());
    desk.read_all(&["c", "a", "d", "a", "b", "c"]);
    assert_eq!(desk.all(), ["read a b c d"]);
    desk.write_all(&["c", "a", "b", "a"], "=1");
    desk.end(0);
    assert_eq!(desk.all(), ["write a=1 b=1 c=1"]);
}

#[test]
fn write_waits_until_all_reads_before_it_are_answered() {
    let mut desk = Desk::new(settings());
    desk.read("a");
    assert_eq!(desk.all(), ["read a"]);
    desk.read("a");
    assert_eq!(desk.all(), ["read a"], "two reads at the same time");
    desk.write("a", "=1");
    assert_eq!(desk.next(), "nothing");
    desk.answer(1, 0);
    assert_eq!(desk.next(), "nothing", "one read is still under way");
    desk.answer(0, 0);
    assert_eq!(desk.next(), "write a=1");
}

#[test]
fn read_after_a_write_waits_for_its_answer_and_not_for_the_end_of_the_batch() {
    let mut desk = Desk::new(settings());
    desk.write("a", "=1");
    desk.write("b", "=1");
    assert_eq!(desk.all(), ["write a=1 b=1"]);
    desk.read("a");
    desk.read("b");
    desk.read("c");
    assert_eq!(desk.all(), ["read c"]);
    desk.answer(0, 0);
    assert_eq!(desk.all(), ["read a"]);
    desk.end(0);
    assert_eq!(desk.all(), ["read b"]);
}

#[test]
fn read_never_overtakes_a_write_nor_a_write_a_read() {
    let mut desk = Desk::new(settings());
    desk.read("a");
    desk.write("a", "=1");
    desk.read("a");
    desk.write("a", "=2");
    for (number, expected) in ["read a", "write a=1", "read a", "write a=2"].into_iter().enumerate()
    {
        assert_eq!(desk.all(), [expected]);
        assert_eq!(desk.end(number), [(0, number)]);
    }
    assert_eq!(desk.next(), "nothing");
}

#[test]
fn batches_of_writes_leave_side_by_side() {
    let mut desk = Desk::new(settings());
    desk.write("a", "=1");
    assert_eq!(desk.all(), ["write a=1"]);
    desk.write("b", "=1");
    desk.write("a", "=2");
    assert_eq!(desk.all(), ["write b=1"], "a waits for its own earlier write");
    desk.end(0);
    assert_eq!(desk.all(), ["write a=2"]);
}

#[test]
fn kinds_leave_in_batches_of_their_own() {
    let mut desk = Desk::new(settings());
    for (key, text) in [("a", "=1"), ("b", "+1"), ("c", "=1"), ("d", "+1"), ("e", "=1")] {
        desk.write(key, text);
    }
    assert_eq!(desk.next(), "write a=1 c=1 e=1");
    desk.end(0);
    assert_eq!(desk.next(), "write b+1 d+1");
}

#[test]
fn search_for_a_kind_is_bounded() {
    let mut desk = Desk::new(QueueSettings { batch_entries_max: 2, ..settings() });
    desk.write("first", "=1");
    let others = ["a", "b", "c", "d", "e", "f", "g", "h"];
    assert_eq!(others.len(), 2 * KIND_SEARCH_BATCHES);
    desk.write_all(&others, "+1");
    desk.write("last", "=1");
    assert_eq!(desk.next(), "write first=1");
    for (batch, expected) in
        ["write a+1 b+1", "write c+1 d+1", "write e+1 f+1", "write g+1 h+1"].iter().enumerate()
    {
        desk.end(batch);
        assert_eq!(desk.next(), *expected);
    }
    desk.end(4);
    assert_eq!(desk.next(), "write last=1");
}

#[test]
fn line_goes_on_when_its_clock_stands_still_or_goes_back() {
    let dispatch = DispatchPolicy::Adaptive;
    let mut desk = Desk::new(QueueSettings { dispatch, batches_in_flight_max: 1, ..settings() });
    desk.read("a");
    assert_eq!(desk.all(), ["read a"]);
    desk.now -= millis(50);
    desk.read_until("b", millis(60));
    assert_eq!(desk.next(), "nothing");
    assert_eq!(
        desk.wake(),
        Some(desk.now),
        "the deadline has passed at the latest time that was told"
    );
    assert_eq!(desk.expire().len(), 1);
    desk.read("c");
    assert_eq!(desk.end(0), [(0, 0)]);
    assert_eq!(desk.all(), ["read c"]);
}

#[test]
fn line_that_only_reads_needs_no_write_type() {
    let mut queue = RequestQueue::<_, NoWrites, _>::new(settings()).unwrap();
    queue.submit_load(millis(0), 7, "waiter", Default::default()).unwrap();
    let batch = queue.next_batch(millis(0)).unwrap();
    assert_eq!(batch.content, Content::Read(vec![7]));
}
