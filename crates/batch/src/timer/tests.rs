//! The alarm on a clock that the test moves; the thread on the system's clock.

use std::sync::mpsc::{Receiver, channel};

use proptest::prelude::*;

use super::*;

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// An alarm and a thread that wakes on time, on a clock that the test moves.
#[derive(Default)]
struct Simulation {
    alarm: TimerState,
    now: Duration,
    wakes_at: Option<Duration>,
    rings: Vec<Duration>,
    disturbed: usize,
}

impl Simulation {
    fn run_thread(&mut self) {
        loop {
            match self.alarm.step(self.now) {
                Step::Callback => self.rings.push(self.now),
                Step::Sleep(time) => return self.wakes_at = Some(self.now + time),
                Step::SleepForever | Step::End => return self.wakes_at = None,
            }
        }
    }

    fn want(&mut self, wanted: Option<Duration>) {
        if self.alarm.want(wanted) == Disturb::Yes {
            self.disturbed += 1;
            self.run_thread();
        }
    }

    fn advance(&mut self, to: Duration) {
        while let Some(at) = self.wakes_at.filter(|at| *at <= to) {
            self.now = at;
            self.run_thread();
        }
        self.now = to;
    }
}

#[test]
fn a_time_that_moved_away_disturbs_nobody_and_rings_once_when_it_has_come() {
    let mut simulation = Simulation::default();
    simulation.run_thread();
    simulation.want(Some(us(100)));
    for later in 1..=50 {
        simulation.advance(us(later));
        simulation.want(Some(us(100 + 10 * later)));
    }
    assert_eq!(simulation.disturbed, 1, "only the first, from a thread that slept forever");
    simulation.advance(us(10_000));
    assert_eq!(simulation.rings, [us(600)]);
}

#[test]
fn a_nearer_time_disturbs_the_thread_and_rings_when_it_comes() {
    let mut simulation = Simulation::default();
    simulation.run_thread();
    simulation.want(Some(us(1_000_000)));
    simulation.want(Some(us(500)));
    assert_eq!(simulation.disturbed, 2);
    simulation.advance(us(2_000_000));
    assert_eq!(simulation.rings, [us(500)], "the farther time was replaced");
}

#[test]
fn a_time_no_longer_wanted_does_not_ring() {
    let mut simulation = Simulation::default();
    simulation.run_thread();
    simulation.want(Some(us(10)));
    simulation.want(None);
    simulation.advance(us(1000));
    assert_eq!(simulation.rings, []);
}

#[derive(Debug, Clone)]
enum Operation {
    Want(Option<u64>),
    Advance(u64),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        3 => (0u64..200).prop_map(|ahead| Operation::Want(Some(ahead))),
        1 => Just(Operation::Want(None)),
        3 => (0u64..150).prop_map(Operation::Advance),
    ];
    prop::collection::vec(operation, 1..60)
}

proptest! {
    /// A wanted time calls back exactly when it has come, unless another replaced it before that.
    #[test]
    fn rings_are_those_of_an_alarm_that_is_always_awake(operations in operations()) {
        let mut simulation = Simulation::default();
        simulation.run_thread();
        let (mut now, mut wanted, mut expected) = (us(0), None, Vec::new());
        for operation in operations {
            match operation {
                Operation::Want(ahead) => {
                    wanted = ahead.map(|ahead| now + us(ahead));
                    simulation.want(wanted);
                    // One that is due at once calls back now.
                    if wanted == Some(now) {
                        expected.push(now);
                        wanted = None;
                        simulation.advance(now);
                    }
                }
                Operation::Advance(by) => {
                    now += us(by);
                    expected.extend(wanted.take_if(|at| *at <= now));
                    simulation.advance(now);
                }
            }
            prop_assert_eq!(&simulation.rings, &expected);
        }
    }
}

/// Returns a timer whose callbacks send to a channel, which closes when the timer and its thread
/// are gone.
fn timer() -> (Timer, Clock, Receiver<Duration>) {
    let clock = Clock::start();
    let (sender, rings) = channel();
    let timer = Timer::new(clock, Arc::new(move || sender.send(clock.now()).unwrap_or_default()));
    (timer, clock, rings)
}

const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn rings_come_never_early_and_finer_than_a_millisecond() {
    let (mut timer, clock, rings) = timer();
    let mut fastest = Duration::MAX;
    let begun = clock.now();
    // Takes the fastest of as many rounds as needed, so that a busy machine does not matter. A
    // timer in units of milliseconds needs at least 1 ms.
    for round in 0.. {
        if 100 <= round && (fastest < us(950) || TIMEOUT < clock.now() - begun) {
            break;
        }
        let asked = clock.now();
        timer.want(Some(asked + us(500))).expect("a thread");
        let took = rings.recv_timeout(TIMEOUT).expect("it rings") - asked;
        assert!(us(500) <= took, "{took:?}");
        fastest = fastest.min(took);
    }
    assert!(fastest < us(950), "{fastest:?}");
}

#[test]
fn a_timer_that_wants_nothing_has_no_thread_and_one_that_is_dropped_ends_it() {
    let (mut timer, clock, rings) = timer();
    timer.want(None).expect("no thread is needed");
    assert_eq!(timer.thread, Thread::NotStarted);
    timer.want(Some(clock.now() + TIMEOUT * 100)).expect("a thread");
    assert_eq!(timer.thread, Thread::Started);
    drop(timer);
    let ended = rings.recv_timeout(TIMEOUT).expect_err("it does not ring");
    assert_eq!(ended, std::sync::mpsc::RecvTimeoutError::Disconnected, "the thread has ended");
}

#[test]
fn a_time_that_has_come_rings_at_once() {
    let (mut timer, _, rings) = timer();
    timer.want(Some(TIMEOUT * 100)).expect("a thread");
    timer.want(Some(us(0))).expect("a thread");
    rings.recv_timeout(TIMEOUT).expect("it rings");
}
