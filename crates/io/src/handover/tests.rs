//! The hand-over with real threads. The loom tests beside this file check its interleavings.

#![cfg(not(loom))]

use std::sync::atomic::AtomicU32;

use super::*;

/// Waker that counts its wakes.
#[derive(Default)]
struct Counter(AtomicU32);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counted() -> (Arc<Counter>, Sleeper) {
    let counter = Arc::new(Counter::default());
    let sleeper = Sleeper::new(Waker::from(Arc::clone(&counter)));
    (counter, sleeper)
}

#[test]
fn a_full_queue_gives_the_item_back() {
    let (mut sender, mut receiver) = channel(2);
    assert_eq!((sender.try_send('a'), sender.try_send('b')), (Ok(()), Ok(())));
    assert!(sender.is_full());
    assert_eq!(sender.try_send('c'), Err(Refused::Full('c')));
    assert_eq!(receiver.try_recv(), Some('a'));
    assert!(!sender.is_full());
    assert_eq!(sender.try_send('d'), Ok(()));
    let mut items = vec!['x'];
    assert_eq!(receiver.drain_into(&mut items), 2);
    assert_eq!(items, ['x', 'b', 'd']);
    assert_eq!((receiver.drain_into(&mut items), receiver.try_recv()), (0, None));
    assert!(sender.is_empty() && receiver.is_empty());
}

#[test]
fn the_end_of_either_side_is_visible_to_the_other() {
    let (mut sender, receiver) = channel(2);
    drop(receiver);
    assert!(sender.is_closed());
    let refused = sender.try_send(7).unwrap_err();
    assert_eq!(refused, Refused::Closed(7));
    assert_eq!(refused.into_inner(), 7);

    let (mut sender, mut receiver) = channel(2);
    sender.try_send(8).unwrap();
    assert!(!receiver.is_closed());
    drop(sender);
    assert!(receiver.is_closed());
    assert_eq!(receiver.try_recv(), Some(8), "what was sent before the end is still there");
}

#[test]
fn items_left_in_a_queue_are_dropped_with_it() {
    let item = Arc::new(());
    let (mut sender, receiver) = channel(1);
    sender.try_send(Arc::clone(&item)).unwrap();
    drop((sender, receiver));
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn only_a_sleeper_is_woken_and_once_per_sleep() {
    let (counter, sleeper) = counted();
    let notify = sleeper.notify_handle();
    let count = || counter.0.load(Ordering::Relaxed);
    notify.notify();
    assert_eq!(count(), 0);
    sleeper.prepare();
    let other = notify.clone();
    other.notify();
    notify.notify();
    assert_eq!(count(), 1);
    sleeper.awake();
    notify.notify();
    assert_eq!(count(), 1);
    sleeper.prepare();
    drop(other);
    assert_eq!(count(), 2, "who goes wakes");
}

#[test]
fn batches_pass_between_sleeping_threads_in_order() {
    const COUNT: u64 = 100_000;
    let (mut sender, mut receiver) = channel(4);
    let taker_waker = ThreadWaker::current();
    let taker = Sleeper::new(taker_waker.waker());
    let notify_taker = taker.notify_handle();
    let (handle_out, handle_in) = std::sync::mpsc::channel();
    let producer = thread::spawn(move || {
        let waker = ThreadWaker::current();
        let sleeper = Sleeper::new(waker.waker());
        handle_out.send(sleeper.notify_handle()).unwrap();
        for item in 0..COUNT {
            while sender.is_full() {
                sleeper.prepare();
                if sender.is_full() {
                    waker.park(None);
                }
                sleeper.awake();
            }
            sender.try_send(item).unwrap();
            notify_taker.notify();
        }
    });
    let notify_producer = handle_in.recv().unwrap();
    let mut items = Vec::new();
    let mut expected = 0;
    while expected < COUNT {
        if receiver.drain_into(&mut items) == 0 {
            taker.prepare();
            if receiver.is_empty() {
                taker_waker.park(None);
            }
            taker.awake();
            continue;
        }
        notify_producer.notify();
        for item in items.drain(..) {
            assert_eq!(item, expected);
            expected += 1;
        }
    }
    producer.join().unwrap();
    assert!(receiver.is_closed());
}

#[test]
fn a_park_ends_by_a_wake_or_with_its_time() {
    let waker = ThreadWaker::current();
    let handle = waker.waker();
    handle.wake_by_ref();
    handle.wake_by_ref();
    waker.park(None);
    waker.park(Some(Duration::from_millis(1)));
    let other = thread::spawn(move || handle.wake());
    waker.park(None);
    other.join().unwrap();
}

#[test]
#[should_panic(expected = "a queue without room")]
fn a_queue_without_room_is_refused() {
    channel::<()>(0);
}
