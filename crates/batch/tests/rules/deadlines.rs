//! Late requests are returned, whatever their stage.

use busload_batch::{DispatchPolicy, QueueSettings, Stage};

use crate::desk::{Desk, millis, settings};

fn one_at_a_time() -> QueueSettings {
    QueueSettings { batches_in_flight_max: 1, ..settings() }
}

#[test]
fn request_that_waits_is_late_at_its_deadline_and_not_before() {
    let mut desk = Desk::new(one_at_a_time());
    desk.read("a");
    assert_eq!(desk.next(), "read a");
    let deadline = desk.now + millis(10);
    desk.read_until("b", deadline);
    desk.write_until("c", "=1", deadline);
    assert_eq!(desk.wake(), Some(deadline));
    desk.now += millis(9);
    assert_eq!(desk.expire(), []);
    desk.now = deadline;
    assert_eq!(desk.expire(), [(1, Stage::Waiting), (2, Stage::Waiting)]);
    assert_eq!(desk.wake(), None);
    desk.end(0);
    assert_eq!(desk.next(), "nothing", "what is late does not leave");
    assert_eq!(desk.queue.stats().expired, 2);
}

#[test]
fn request_under_way_is_late_and_its_batch_goes_on() {
    let mut desk = Desk::new(one_at_a_time());
    let deadline = desk.now + millis(10);
    desk.write_until("a", "=1", deadline);
    desk.write("a", "=2");
    assert_eq!(desk.next(), "write a=2");
    desk.now = deadline;
    assert_eq!(desk.expire(), [(0, Stage::InFlight)]);
    assert_eq!(desk.answer(0, 0), [(1, Some(2))]);
}

#[test]
fn late_write_that_was_merged_with_others_may_be_made() {
    let mut desk = Desk::new(one_at_a_time());
    desk.read("a");
    assert_eq!(desk.next(), "read a");
    desk.write("a", "+1");
    desk.write_until("a", "+2", desk.now + millis(1));
    desk.now += millis(1);
    assert_eq!(desk.expire(), [(2, Stage::Merged)]);
    desk.end(0);
    assert_eq!(desk.next(), "write a+12");
}

#[test]
fn deadlines_pass_in_their_own_order() {
    let mut desk = Desk::new(one_at_a_time());
    desk.read("z");
    assert_eq!(desk.next(), "read z");
    let start = desk.now;
    for (key, millis_from_now) in [("a", 30), ("b", 10), ("c", 40), ("d", 20), ("e", 10)] {
        desk.read_until(key, start + millis(millis_from_now));
    }
    let mut order = Vec::new();
    while let Some(wake) = desk.wake() {
        desk.now = wake;
        order.push((
            desk.now - start,
            desk.expire().iter().map(|(waiter, _)| *waiter).collect::<Vec<_>>(),
        ));
    }
    let expected = [(10, vec![2, 5]), (20, vec![4]), (30, vec![1]), (40, vec![3])];
    assert_eq!(
        order,
        expected.map(|(millis_from_now, waiters)| (millis(millis_from_now), waiters))
    );
}

#[test]
fn nobody_is_woken_for_the_deadline_of_one_who_is_gone() {
    let mut desk = Desk::new(one_at_a_time());
    let (soon, later) = (desk.now + millis(5), desk.now + millis(9));
    desk.read_until("a", soon);
    assert_eq!(desk.next(), "read a");
    let left = desk.read_until("b", soon);
    desk.read_until("c", later);
    desk.queue.cancel(left);
    desk.answer(0, 0);
    assert_eq!(desk.wake(), Some(later));
}

#[test]
fn deadline_in_the_past_is_late_at_once() {
    let mut desk = Desk::new(settings());
    desk.read_until("a", desk.now - millis(5));
    assert_eq!(desk.wake(), Some(desk.now));
    assert_eq!(desk.expire(), [(0, Stage::Waiting)]);
    assert!(desk.queue.is_empty());
}

#[test]
fn nearest_of_dispatch_and_deadline_wakes() {
    let dispatch = DispatchPolicy::Window { entries: 8, wait: millis(5) };
    for (deadline, wake) in [(3, 3), (5, 5), (9, 5)] {
        let mut desk = Desk::new(QueueSettings { dispatch, ..settings() });
        desk.read_until("a", desk.now + millis(deadline));
        assert_eq!(desk.wake(), Some(desk.now + millis(wake)));
    }
}
