//! Loom runs every interleaving of the hand-over. A lost wake-up shows as a deadlock.

#![cfg(loom)]

use loom::sync::atomic::AtomicU64;

use super::*;

/// Explores a model with at most three forced switches: enough for every known bug of such
/// protocols, and few enough interleavings.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A way for a thread to sleep.
trait Park {
    fn park(&self);
}

impl Park for ThreadWaker {
    fn park(&self) {
        self.park(None);
    }
}

/// Sleeps on a condition variable. Loom 0.7 takes an unpark that arrives late, while the thread
/// already waits for a join, for the end of that join. Tests in which that can happen use this type
/// instead of [`ThreadWaker`].
struct Notifier {
    rung: Mutex<bool>,
    changed: loom::sync::Condvar,
}

impl Wake for Notifier {
    fn wake(self: std::sync::Arc<Self>) {
        *self.rung.lock().expect("no panic") = true;
        self.changed.notify_one();
    }
}

impl Park for Notifier {
    fn park(&self) {
        let mut rung = self.rung.lock().expect("no panic");
        while !*rung {
            rung = self.changed.wait(rung).expect("no panic");
        }
        *rung = false;
    }
}

/// Sleeps until `done`, following the protocol.
fn sleep_until(sleeper: &Sleeper, waker: &impl Park, mut done: impl FnMut() -> bool) {
    while !done() {
        sleeper.prepare();
        if done() {
            return sleeper.awake();
        }
        waker.park();
        sleeper.awake();
    }
}

#[test]
fn loom_an_item_sent_to_a_thread_about_to_sleep_is_seen() {
    check(|| {
        let (mut sender, mut receiver) = channel(2);
        let waker = ThreadWaker::current();
        let sleeper = Sleeper::new(waker.waker());
        let notify = sleeper.notify_handle();
        let producer = thread::spawn(move || {
            for item in 1..=2 {
                sender.try_send(item).expect("there is room for both");
                notify.notify();
            }
            // Dropped only after the join: the drop must not be what wakes.
            notify
        });
        let mut items = Vec::new();
        sleep_until(&sleeper, &waker, || {
            receiver.drain_into(&mut items);
            items.len() == 2
        });
        assert_eq!(items, [1, 2]);
        producer.join().expect("no panic");
    });
}

#[test]
fn loom_a_published_number_is_seen() {
    check(|| {
        let durable = Arc::new(AtomicU64::new(0));
        let waker = ThreadWaker::current();
        let sleeper = Sleeper::new(waker.waker());
        let notify = sleeper.notify_handle();
        let published = Arc::clone(&durable);
        let producer = thread::spawn(move || {
            published.store(1, Ordering::Release);
            notify.notify();
            notify
        });
        sleep_until(&sleeper, &waker, || durable.load(Ordering::Acquire) == 1);
        producer.join().expect("no panic");
    });
}

#[test]
fn loom_two_producers_wake_one_sleeper() {
    check(|| {
        let notifier = Notifier { rung: Mutex::new(false), changed: loom::sync::Condvar::new() };
        let notifier = std::sync::Arc::new(notifier);
        let sleeper = Sleeper::new(Waker::from(std::sync::Arc::clone(&notifier)));
        let mut receivers = Vec::new();
        let producers: Vec<_> = (0..2)
            .map(|item| {
                let (mut sender, receiver) = channel(1);
                receivers.push(receiver);
                let notify = sleeper.notify_handle();
                thread::spawn(move || {
                    sender.try_send(item).expect("there is room");
                    notify.notify();
                    notify
                })
            })
            .collect();
        let mut items = Vec::new();
        sleep_until(&sleeper, &*notifier, || {
            for receiver in &mut receivers {
                receiver.drain_into(&mut items);
            }
            items.len() == 2
        });
        items.sort_unstable();
        assert_eq!(items, [0, 1]);
        producers.into_iter().for_each(|producer| drop(producer.join().expect("no panic")));
    });
}

#[test]
fn loom_the_end_of_the_last_sender_wakes_and_leaves_its_items() {
    check(|| {
        let (mut sender, mut receiver) = channel(1);
        let waker = ThreadWaker::current();
        let sleeper = Sleeper::new(waker.waker());
        let notify = sleeper.notify_handle();
        let producer = thread::spawn(move || {
            sender.try_send(1).expect("there is room");
            drop(sender);
            drop(notify);
        });
        sleep_until(&sleeper, &waker, || receiver.is_closed());
        // The sender was seen as dropped before this check, so the check is final.
        assert_eq!(receiver.try_recv(), Some(1));
        producer.join().expect("no panic");
    });
}

#[test]
fn loom_a_full_queue_moves_on_when_it_is_emptied() {
    check(|| {
        let (mut sender, mut receiver) = channel(1);
        let taker_waker = ThreadWaker::current();
        let taker = Sleeper::new(taker_waker.waker());
        let notify_taker = taker.notify_handle();
        let (handle_out, handle_in) = loom::sync::mpsc::channel();
        let producer = thread::spawn(move || {
            let waker = ThreadWaker::current();
            let sleeper = Sleeper::new(waker.waker());
            handle_out.send(sleeper.notify_handle()).expect("the taker waits for it");
            for item in 1..=2 {
                sleep_until(&sleeper, &waker, || !sender.is_full());
                sender.try_send(item).expect("only the receiver changes whether it is full");
                notify_taker.notify();
            }
            notify_taker
        });
        let notify_producer = handle_in.recv().expect("the producer sends it");
        let mut items = Vec::new();
        sleep_until(&taker, &taker_waker, || {
            if 0 < receiver.drain_into(&mut items) {
                notify_producer.notify();
            }
            items.len() == 2
        });
        assert_eq!(items, [1, 2]);
        producer.join().expect("no panic");
    });
}

#[test]
fn loom_a_wake_before_the_park_ends_it() {
    check(|| {
        let waker = ThreadWaker::current();
        let handle = waker.waker();
        let other = thread::spawn(move || handle.wake_by_ref());
        waker.park(None);
        other.join().expect("no panic");
    });
}
