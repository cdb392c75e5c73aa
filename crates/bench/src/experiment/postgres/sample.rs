//! The measurements of one row: clocks read at both ends of the window, and what the load saw in
//! between.

use std::{
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::Pid;

use super::counters::Counters;
use crate::{
    clock::{Window, now_ns},
    failures::Failed,
    machine::{family_cpu_ns, process_cpu_ns},
    stats::{float, median, percentile_us},
    usage::{Clocks, Span, disturbed},
};

/// How late an open-loop request may be asked (99th percentile) before the row is marked.
const LATE_US: f64 = 250.0;

/// Whose processor time is measured beside our own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watched {
    /// The Postgres server, if it runs here.
    pub postgres: Option<Pid>,
    /// The busload server, if the load goes there.
    pub busload: Option<Pid>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    clocks: Clocks,
    postgres_ns: Option<u64>,
    busload_ns: Option<u64>,
}

impl Mark {
    fn now(watched: Watched) -> Self {
        Self {
            clocks: Clocks::now(),
            postgres_ns: watched.postgres.and_then(family_cpu_ns),
            busload_ns: watched.busload.and_then(process_cpu_ns),
        }
    }
}

/// Processors used over a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    pub load: f64,
    /// By Postgres, where it runs here.
    pub postgres: Option<f64>,
    /// By the busload server.
    pub busload: Option<f64>,
    /// By programs that have nothing to do with it, and by the machine's host.
    pub others: f64,
}

impl Cpu {
    fn between(start: &Mark, end: &Mark) -> Self {
        let span = Span { start: &start.clocks, end: &end.clocks };
        let load = span.own();
        let postgres = span.share_of(start.postgres_ns, end.postgres_ns);
        let busload = span.share_of(start.busload_ns, end.busload_ns);
        let known = load + postgres.unwrap_or(0.0) + busload.unwrap_or(0.0);
        Self { load, postgres, busload, others: span.others(known) }
    }
}

/// Reads the clocks when the window begins and when it ends, on a thread of its own: looking at
/// three hundred sessions takes milliseconds in which no client should have to wait.
pub struct Watch {
    thread: JoinHandle<Cpu>,
    /// Dropped when the load failed, so that nobody waits for the window's end.
    _hurry: mpsc::Sender<()>,
}

impl Watch {
    pub fn start(watched: Watched, window: Window) -> Result<Self> {
        let (hurry, hurried) = mpsc::channel();
        let thread = thread::Builder::new().name("clocks".to_owned()).spawn(move || {
            wait_until(&hurried, window.from_ns);
            let start = Mark::now(watched);
            wait_until(&hurried, window.until_ns);
            Cpu::between(&start, &Mark::now(watched))
        });
        Ok(Self { thread: thread.context("a thread for clocks")?, _hurry: hurry })
    }

    pub fn finish(self) -> Result<Cpu> {
        self.thread.join().map_err(|_| anyhow::anyhow!("the thread for clocks panicked"))
    }
}

fn wait_until(hurried: &mpsc::Receiver<()>, at_ns: u64) {
    let _ = hurried.recv_timeout(Duration::from_nanos(at_ns.saturating_sub(now_ns())));
}

/// The measurements of one row, or their medians over several rounds.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Length of the window in seconds.
    pub seconds: f64,
    /// Rows answered per second.
    pub per_s: f64,
    /// Response times in microseconds: mean,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
    pub batch: Option<f64>,
    pub statements_per_s: Option<f64>,
    pub cpu: Cpu,
    /// How late requests were asked, 99th percentile in microseconds; open loop only.
    pub late_p99_us: Option<f64>,
    /// Requests never answered; open loop only.
    pub unanswered: u64,
    /// The open-loop schedule was given up.
    pub overloaded: bool,
    /// Refused requests and wrong answers, the warm-up included.
    pub failed: Failed,
}

impl Sample {
    /// From what a load saw in `window`, with the statements that Postgres counted meanwhile.
    pub fn new(counters: &Counters, window: Window, cpu: Cpu, statements: Option<u64>) -> Self {
        let seconds = float(window.until_ns - window.from_ns) / 1e9;
        let per_s = float(counters.answered) / seconds;
        // The warm-up is part of both, so that statements need not be counted at the very ends of
        // the window.
        let batch = statements
            .filter(|statements| 0 < *statements && 0 < counters.answered_ever)
            .map(|statements| float(counters.answered_ever) / float(statements));
        let has_times = !counters.latency_ns.is_empty();
        Self {
            seconds,
            per_s,
            mean_us: if has_times { counters.latency_ns.mean() / 1_000.0 } else { 0.0 },
            p50_us: percentile_us(&counters.latency_ns, 50.0),
            p99_us: percentile_us(&counters.latency_ns, 99.0),
            max_us: float(counters.latency_ns.max()) / 1_000.0,
            batch,
            statements_per_s: batch.map(|batch| per_s / batch),
            cpu,
            late_p99_us: (!counters.late_ns.is_empty())
                .then(|| percentile_us(&counters.late_ns, 99.0)),
            unanswered: counters.unanswered,
            overloaded: counters.overloaded,
            failed: counters.failed.clone(),
        }
    }

    /// The median of every measurement, each for itself; failures add up.
    pub fn median(samples: &[Self]) -> Self {
        let of =
            |measurement: fn(&Self) -> f64| median(samples.iter().map(measurement)).unwrap_or(0.0);
        let of_some =
            |measurement: fn(&Self) -> Option<f64>| median(samples.iter().filter_map(measurement));
        Self {
            seconds: of(|sample| sample.seconds),
            per_s: of(|sample| sample.per_s),
            mean_us: of(|sample| sample.mean_us),
            p50_us: of(|sample| sample.p50_us),
            p99_us: of(|sample| sample.p99_us),
            max_us: of(|sample| sample.max_us),
            batch: of_some(|sample| sample.batch),
            statements_per_s: of_some(|sample| sample.statements_per_s),
            cpu: Cpu {
                load: of(|sample| sample.cpu.load),
                postgres: of_some(|sample| sample.cpu.postgres),
                busload: of_some(|sample| sample.cpu.busload),
                others: of(|sample| sample.cpu.others),
            },
            late_p99_us: of_some(|sample| sample.late_p99_us),
            unanswered: samples.iter().map(|sample| sample.unanswered).sum(),
            overloaded: samples.iter().any(|sample| sample.overloaded),
            failed: Failed::sum(samples.iter().map(|sample| &sample.failed)),
        }
    }

    /// What a reader must know before trusting the measurements.
    pub fn notes(&self) -> String {
        let mut notes = Vec::new();
        notes.extend(disturbed(self.cpu.others));
        if let Some(late_us) = self.late_p99_us.filter(|late_us| LATE_US < *late_us) {
            notes.push(format!("asked-late:{late_us:.0}us"));
        }
        if self.overloaded {
            notes.push("overloaded".to_owned());
        }
        if 0 < self.unanswered {
            notes.push(format!("unanswered:{}", self.unanswered));
        }
        notes.extend(self.failed.notes());
        notes.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::{Failure, Failures};

    const WINDOW: Window = Window { from_ns: 1_000_000_000, until_ns: 3_000_000_000 };

    fn near(value: f64, wanted: f64) -> bool {
        (value - wanted).abs() <= wanted.abs() * 0.002
    }

    #[test]
    fn measurements_follow_from_what_was_seen_in_the_window() {
        let mut counters = Counters::new().unwrap();
        for (millisecond, latency_us) in
            [(500, 9_999), (1_000, 100), (1_500, 200), (2_999, 600), (3_000, 9_999)]
        {
            let now_ns = millisecond * 1_000_000;
            counters.answer(WINDOW, 1, now_ns - latency_us * 1_000, now_ns);
        }
        let sample = Sample::new(&counters, WINDOW, Cpu::default(), Some(2));
        assert!(near(sample.seconds, 2.0) && near(sample.per_s, 1.5), "{sample:?}");
        assert!(near(sample.mean_us, 300.0) && near(sample.p50_us, 200.0), "{sample:?}");
        assert!(near(sample.p99_us, 600.0) && near(sample.max_us, 600.0), "{sample:?}");
        // Five answers in all came from two statements.
        assert!(
            near(sample.batch.unwrap(), 2.5) && near(sample.statements_per_s.unwrap(), 0.6),
            "{sample:?}"
        );
    }

    #[test]
    fn without_answers_nothing_is_made_up() {
        let sample = Sample::new(&Counters::new().unwrap(), WINDOW, Cpu::default(), None);
        assert!(sample.per_s == 0.0 && sample.mean_us == 0.0 && sample.max_us == 0.0);
        assert_eq!((sample.batch, sample.statements_per_s, sample.late_p99_us), (None, None, None));
    }

    #[test]
    fn the_median_is_taken_measurement_by_measurement_and_failures_add_up() {
        let round = |per_s, mean_us, batch, refused| {
            let refused =
                Failures { count: refused, example: (0 < refused).then(|| "full".to_owned()) };
            let failed = Failed { refused, ..Failed::default() };
            Sample { per_s, mean_us, batch, failed, ..Sample::default() }
        };
        let rounds = [
            round(3.0, 10.0, None, 0),
            round(1.0, 30.0, Some(8.0), 2),
            round(2.0, 20.0, Some(4.0), 1),
        ];
        let middle = Sample::median(&rounds);
        assert!(
            near(middle.per_s, 2.0)
                && near(middle.mean_us, 20.0)
                && near(middle.batch.unwrap(), 6.0)
        );
        assert_eq!(middle.notes(), "REFUSED:3 (full)");
    }

    #[test]
    fn processors_are_shared_out_and_what_is_left_is_of_others() {
        let mark = |at_ns, used| Mark {
            clocks: Clocks { at_ns, own_ns: used, busy_ns: Some(used * 4), steal_ns: Some(0) },
            postgres_ns: Some(used * 2),
            busload_ns: None,
        };
        let cpu = Cpu::between(&mark(0, 0), &mark(1_000, 500));
        assert!(near(cpu.load, 0.5) && near(cpu.postgres.unwrap(), 1.0) && near(cpu.others, 0.5));
        assert_eq!(cpu.busload, None);
        let sample = Sample { cpu, ..Sample::default() };
        assert_eq!(sample.notes(), "disturbed:50%");
    }

    #[test]
    fn wrong_answers_are_shown_whatever_else_is() {
        let mut counters = Counters::new().unwrap();
        counters.failed.add(Failure::Wrong("row 5 is missing".to_owned()));
        let sample = Sample::new(&counters, WINDOW, Cpu::default(), None);
        assert_eq!(sample.notes(), "WRONG:1 (row 5 is missing)");
    }

    #[test]
    fn a_watch_sees_what_this_program_uses() {
        let is_seen = (0..crate::clock::TRIES).any(|_| {
            let now_ns = now_ns();
            let window = Window { from_ns: now_ns, until_ns: now_ns + 50_000_000 };
            let watch = Watch::start(Watched::default(), window).unwrap();
            while crate::clock::now_ns() < window.until_ns {
                std::hint::black_box(0);
            }
            let cpu = watch.finish().unwrap();
            assert!(cpu.postgres.is_none(), "{cpu:?}");
            // Less where others had the processors.
            0.1 < cpu.load
        });
        assert!(is_seen);
    }
}
