//! A caller that gives up affects nobody, whatever the others are doing; outdated ids do nothing.

use busload_batch::QueueSettings;

use crate::desk::{Desk, settings};

#[test]
fn last_waiter_takes_its_entry_along() {
    let mut desk = Desk::new(settings());
    let first = desk.read("a");
    let second = desk.read("a");
    desk.read("b");
    assert_eq!(desk.queue.cancel(first), Some(0));
    assert_eq!(desk.queue.waiting(), 2);
    assert_eq!(desk.queue.cancel(second), Some(1));
    assert_eq!(desk.all(), ["read b"]);
}

#[test]
fn line_is_empty_when_all_have_left() {
    let mut desk = Desk::new(settings());
    let requests = [desk.read("a"), desk.write("a", "=1"), desk.read("a"), desk.write("b", "=1")];
    assert!(!desk.queue.is_empty());
    for request in requests {
        assert!(desk.queue.cancel(request).is_some());
    }
    assert!(desk.queue.is_empty());
    assert_eq!(
        (desk.queue.waiting_bytes(), desk.next().as_str(), desk.wake()),
        (0, "nothing", None)
    );
}

#[test]
fn who_opened_an_entry_may_leave_it_to_others() {
    let mut desk = Desk::new(settings());
    let first = desk.read("a");
    desk.read("a");
    let write = desk.write("b", "+1");
    desk.write("b", "+2");
    assert_eq!((desk.queue.cancel(first), desk.queue.cancel(write)), (Some(0), Some(2)));
    assert_eq!(desk.all(), ["read a", "write b+12"]);
    assert_eq!(desk.answer(0, 0), [(1, None)]);
    assert_eq!(desk.answer(1, 0), [(3, Some(3))]);
}

#[test]
fn batch_under_way_goes_on_without_the_one_who_left() {
    let mut desk = Desk::new(settings());
    let first = desk.read("a");
    desk.read("a");
    let alone = desk.read("b");
    assert_eq!(desk.next(), "read a b");
    assert_eq!((desk.queue.cancel(first), desk.queue.cancel(alone)), (Some(0), Some(2)));
    desk.write("b", "=1");
    assert_eq!(desk.next(), "nothing", "the read of b is still made, so the write waits");
    assert_eq!(desk.answer(0, 1), []);
    assert_eq!(desk.next(), "write b=1");
    assert_eq!(desk.end(0), [(0, 1)]);
}

#[test]
fn what_waited_behind_the_one_who_left_may_go_on() {
    let mut desk = Desk::new(settings());
    desk.read("a");
    assert_eq!(desk.next(), "read a");
    let write = desk.write("a", "=1");
    desk.read("a");
    assert_eq!(desk.next(), "nothing");
    desk.queue.cancel(write);
    assert_eq!(desk.next(), "read a", "reads beside reads");

    let read = desk.read("b");
    desk.write("b", "=1");
    desk.queue.cancel(read);
    assert_eq!(desk.next(), "write b=1");
}

#[test]
fn reads_that_a_write_kept_apart_never_share_a_batch() {
    let mut desk = Desk::new(settings());
    desk.read("a");
    let write = desk.write("a", "=1");
    desk.read("a");
    desk.queue.cancel(write);
    assert_eq!(desk.all(), ["read a", "read a"]);
    assert_eq!((desk.answer(0, 0), desk.answer(1, 0)), (vec![(0, None)], vec![(2, None)]));
}

#[test]
fn who_left_cannot_leave_again_even_when_its_place_is_taken() {
    let mut desk = Desk::new(settings());
    let gone = desk.read("a");
    assert_eq!(desk.queue.cancel(gone), Some(0));
    assert_eq!(desk.queue.cancel(gone), None);
    desk.read("a");
    assert_eq!(desk.queue.cancel(gone), None);
    let answered = desk.read("b");
    assert_eq!(desk.next(), "read a b");
    desk.end(0);
    desk.read("c");
    assert_eq!(desk.queue.cancel(answered), None);
    assert_eq!(desk.queue.waiting(), 1);
}

#[test]
fn entry_is_answered_once_and_batch_ends_once_even_when_their_places_are_taken() {
    let mut desk = Desk::new(QueueSettings { batches_in_flight_max: 1, ..settings() });
    desk.read("a");
    desk.read("b");
    assert_eq!(desk.next(), "read a b");
    assert_eq!(desk.answer(0, 0), [(0, None)]);
    assert_eq!(desk.answer(0, 0), []);
    assert_eq!(desk.answer(0, 2), [], "there is no third entry");
    assert_eq!(desk.end(0), [(1, 1)]);
    assert_eq!(desk.end(0), []);

    desk.read("c");
    assert_eq!(desk.next(), "read c");
    assert_eq!(desk.answer(0, 0), []);
    assert_eq!(desk.end(0), []);
    assert_eq!(desk.queue.in_flight(), 1);
    assert_eq!(desk.answer(1, 0), [(2, None)]);
    assert_eq!(desk.queue.stats().reads.batches_ended, 1);
}

#[test]
fn a_batch_is_awaited_while_one_of_its_requests_has_no_answer() {
    let mut desk = Desk::new(settings());
    let [first, second, third] = ["a", "a", "b"].map(|key| desk.read(key));
    assert_eq!(desk.queue.batch_of(first), None, "it is pending");
    assert_eq!(desk.next(), "read a b");
    let batch = desk.queue.batch_of(first).expect("its batch is in flight");
    assert_eq!(desk.queue.batch_of(third), Some(batch));
    desk.queue.cancel(first);
    desk.answer(0, 1);
    assert!(desk.queue.is_awaited(batch));
    desk.queue.cancel(second);
    assert!(!desk.queue.is_awaited(batch));
    assert_eq!((desk.queue.batch_of(second), desk.queue.in_flight()), (None, 1));
    desk.end(0);
    assert!(!desk.queue.is_awaited(batch));
}
