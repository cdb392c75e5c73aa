//! Processors used during a measurement, and the sample of a load of many clients.

use std::fs;

use rustix::process::Pid;

use crate::{
    clock::{Window, now_ns, own_cpu_ns, thread_cpu_ns},
    counters::Counters,
    failures::{Failed, Failures},
    harness::sample as new,
    harness::sample::{LOAD_SHARE_HIGH, SERVER_SHARE_LOW},
    machine::{busy_ns, family_cpu_ns, process_cpu_ns, steal_ns},
    report::measurement,
    stats::{float, mean_us, medians, percentile_us},
    tables::Measured,
};

/// Delay of an open loop's requests (99th percentile) above which the row is marked.
const LATE_US: f64 = 250.0;

/// Above this share of one processor, programs that have nothing to do with it have disturbed a
/// measurement.
const DISTURBED: f64 = 0.1;

/// Process or thread that answers the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answering {
    /// This program itself, as the S3 server in it, or nobody.
    #[default]
    Nobody,
    Process(Pid),
    /// A thread of this process, by its id.
    Thread(Pid),
}

impl Answering {
    fn cpu_ns(self) -> Option<u64> {
        match self {
            Self::Nobody => None,
            Self::Process(pid) => process_cpu_ns(pid),
            Self::Thread(thread) => {
                let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
                fs::read_to_string(path).ok()?.split_ascii_whitespace().next()?.parse().ok()
            }
        }
    }
}

/// Processes whose processor time is measured beside our own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watched {
    pub answering: Answering,
    /// The Postgres server, if it runs here.
    pub postgres: Option<Pid>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    at_ns: u64,
    /// Processor time of the calling thread, and of this whole process.
    thread_ns: u64,
    own_ns: u64,
    server_ns: Option<u64>,
    server_is_own: bool,
    postgres_ns: Option<u64>,
    /// Time that the machine's processors spent in programs, and that the host took away.
    busy_ns: Option<u64>,
    steal_ns: Option<u64>,
}

impl Mark {
    pub fn now(watched: Watched) -> Self {
        Self {
            at_ns: now_ns(),
            thread_ns: thread_cpu_ns(),
            own_ns: own_cpu_ns(),
            server_ns: watched.answering.cpu_ns(),
            server_is_own: matches!(watched.answering, Answering::Thread(_)),
            postgres_ns: watched.postgres.and_then(family_cpu_ns),
            busy_ns: busy_ns(),
            steal_ns: steal_ns(),
        }
    }
}

/// Processors used between two marks: 1 is one processor all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    pub wall_s: f64,
    /// Used by the thread that read the clocks.
    pub thread: f64,
    /// Used by this whole program.
    pub own: f64,
    pub server: Option<f64>,
    pub postgres: Option<f64>,
    /// Used by programs that have nothing to do with it, and by the machine's host.
    pub others: f64,
}

impl Cpu {
    /// Returns what was used between two marks.
    pub fn between(start: &Mark, end: &Mark) -> Self {
        let wall_ns = float(end.at_ns.saturating_sub(start.at_ns).max(1));
        let share = |start: u64, end: u64| float(end.saturating_sub(start)) / wall_ns;
        let share_of = |start: Option<u64>, end: Option<u64>| {
            start.zip(end).map(|(start, end)| share(start, end))
        };
        let own = share(start.own_ns, end.own_ns);
        let server = share_of(start.server_ns, end.server_ns);
        let postgres = share_of(start.postgres_ns, end.postgres_ns);
        let server_process = server.filter(|_| !start.server_is_own).unwrap_or(0.0);
        let known = own + server_process + postgres.unwrap_or(0.0);
        let busy = share_of(start.busy_ns, end.busy_ns).unwrap_or(known);
        let stolen = share_of(start.steal_ns, end.steal_ns).unwrap_or(0.0);
        Self {
            wall_s: wall_ns / 1e9,
            thread: share(start.thread_ns, end.thread_ns),
            own,
            server,
            postgres,
            others: (busy - known).max(0.0) + stolen,
        }
    }
}

/// Returns the note beside a row that other programs disturbed.
pub fn disturbed(others: f64) -> Option<String> {
    (DISTURBED < others).then(|| format!("disturbed:{:.0}%", others * 100.0))
}

/// The measurements of one row, or their medians over several rounds.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub seconds: f64,
    /// Rows or chunks answered per second.
    pub per_s: f64,
    /// Response times in microseconds.
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
    /// Processors used by the load, by the server, by Postgres where it runs here, and by
    /// programs that have nothing to do with it.
    pub cpu_load: f64,
    pub cpu_server: Option<f64>,
    pub cpu_postgres: Option<f64>,
    pub cpu_others: f64,
    /// Requests per statement, and statements per second, where Postgres counted them.
    pub batch: Option<f64>,
    pub statements_per_s: Option<f64>,
    /// Requests to the object store and bytes from it, where they were counted.
    pub store_requests: Option<f64>,
    pub store_bytes: Option<f64>,
    /// Delay of an open loop's requests: 99th percentile in microseconds.
    pub late_p99_us: Option<f64>,
    /// Requests of an open loop that were never answered.
    pub unanswered: u64,
    /// The open loop's schedule was given up.
    pub overloaded: bool,
    /// The load's thread may be what limited the server.
    pub load_bound: bool,
    /// Whether all of the store was on local disk before the measurement ended.
    pub filled_early: bool,
    /// Refused requests and wrong answers, the warm-up included.
    pub failed: Failed,
}

impl Sample {
    /// Makes a sample from what a load saw in a window.
    pub fn new(counters: &Counters, window: Window, ends: Ends) -> Self {
        let until_ns = match ends {
            Ends::WithLastAnswer if 0 < counters.answered => counters.last_ns.min(window.until_ns),
            _ => window.until_ns,
        };
        let seconds = float(until_ns.saturating_sub(window.from_ns).max(1)) / 1e9;
        let has_late = !counters.late_ns.is_empty();
        Self {
            seconds,
            per_s: float(counters.answered) / seconds,
            mean_us: mean_us(&counters.latency_ns),
            p50_us: percentile_us(&counters.latency_ns, 50.0),
            p99_us: percentile_us(&counters.latency_ns, 99.0),
            max_us: float(counters.latency_ns.max()) / 1_000.0,
            late_p99_us: has_late.then(|| percentile_us(&counters.late_ns, 99.0)),
            unanswered: counters.unanswered,
            overloaded: counters.overloaded,
            failed: counters.failed.clone(),
            ..Self::default()
        }
    }

    /// Adds the processors used, the load being the thread that read the clocks.
    pub fn with_thread(self, cpu: Cpu) -> Self {
        let load_bound = LOAD_SHARE_HIGH < cpu.thread
            && cpu.server.is_some_and(|share| share < SERVER_SHARE_LOW);
        Self { cpu_load: cpu.thread, load_bound, ..self.with_others(cpu) }
    }

    /// Adds the processors used, the load being this whole program.
    pub fn with_program(self, cpu: Cpu) -> Self {
        Self { cpu_load: cpu.own, cpu_postgres: cpu.postgres, ..self.with_others(cpu) }
    }

    fn with_others(self, cpu: Cpu) -> Self {
        Self { cpu_server: cpu.server, cpu_others: cpu.others, ..self }
    }

    /// Adds the statements that Postgres counted while all these answers came. The warm-up is
    /// part of both, so that statements need not be counted at the very ends of the window.
    pub fn with_statements(self, counters: &Counters, statements: Option<u64>) -> Self {
        let counted = statements.filter(|count| 0 < *count && 0 < counters.answered_ever);
        let batch = counted.map(|count| float(counters.answered_ever) / float(count));
        Self { batch, statements_per_s: batch.map(|batch| self.per_s / batch), ..self }
    }

    /// Makes a sample of a load of pipelines with `under_way` requests at any time.
    pub fn of_pipelines(sample: &new::Sample, window_s: f64, under_way: f64) -> Self {
        let nils = sample.counted("nil");
        let example = (0 < nils).then(|| "nil for a chunk that is there".to_owned());
        let wrong = Failures { count: nils, example };
        let per_s = sample.or_zero(new::PER_S);
        // Little's law: a pipeline's time is what all connections together need for one each.
        let mean_us = if 0.0 < per_s { under_way / per_s * 1e6 } else { 0.0 };
        let sample_of_load = Self {
            seconds: window_s,
            per_s,
            mean_us,
            p50_us: sample.or_zero(new::P50_US),
            p99_us: sample.or_zero(new::P99_US),
            failed: Failed { refused: sample.failed.refused.clone(), wrong },
            ..Self::default()
        };
        sample_of_load.with_thread(Cpu {
            thread: sample.or_zero(new::CPU_LOAD),
            server: sample.get(new::CPU_SERVER),
            others: sample.or_zero(new::LOST_SHARE),
            ..Cpu::default()
        })
    }
}

/// End of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    WithWindow,
    /// With the last answer, if that comes before the window's end: the load had a list of
    /// requests.
    WithLastAnswer,
}

impl Measured for Sample {
    fn median(samples: &[Self]) -> Self {
        let medians = medians!(
            samples,
            [seconds, per_s, mean_us, p50_us, p99_us, max_us, cpu_load, cpu_others],
            [
                cpu_server,
                cpu_postgres,
                batch,
                statements_per_s,
                store_requests,
                store_bytes,
                late_p99_us
            ]
        );
        let load_bound = LOAD_SHARE_HIGH < medians.cpu_load
            && medians.cpu_server.is_some_and(|share| share < SERVER_SHARE_LOW)
            && samples.iter().any(|sample| sample.load_bound);
        Self {
            unanswered: samples.iter().map(|sample| sample.unanswered).sum(),
            overloaded: samples.iter().any(|sample| sample.overloaded),
            load_bound,
            filled_early: samples.iter().any(|sample| sample.filled_early),
            failed: Failed::sum(samples.iter().map(|sample| &sample.failed)),
            ..medians
        }
    }

    fn notes(&self) -> String {
        let mut notes = Vec::new();
        let mut note = |applies: bool, text: &str| {
            if applies {
                notes.push(text.to_owned());
            }
        };
        note(self.load_bound, "load-bound");
        note(self.filled_early, "filled-early");
        note(self.overloaded, "overloaded");
        note(0 < self.unanswered, &format!("unanswered:{}", self.unanswered));
        let late_us = self.late_p99_us.unwrap_or(0.0);
        note(LATE_US < late_us, &format!("asked-late:{late_us:.0}us"));
        notes.extend(disturbed(self.cpu_others));
        notes.extend(self.failed.notes());
        notes.join(" ")
    }

    fn headline(&self) -> String {
        let (per_s, p50) = (measurement(self.per_s / 1_000.0), measurement(self.p50_us));
        format!("{per_s} k/s, p50 {p50} us")
    }

    fn failed(&self) -> &Failed {
        &self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TRIES;

    const WINDOW: Window = Window { from_ns: 1_000_000_000, until_ns: 3_000_000_000 };

    fn near(value: f64, wanted: f64) -> bool {
        (value - wanted).abs() <= wanted.abs() * 0.002
    }

    #[test]
    fn measurements_follow_from_what_was_seen_in_the_window() {
        let mut counters = Counters::new().unwrap();
        for (millisecond, latency_us) in
            [(500, 9_999), (1_000, 100), (1_500, 200), (2_000, 600), (3_000, 9_999)]
        {
            let now_ns = millisecond * 1_000_000;
            counters.answer(WINDOW, 1, now_ns - latency_us * 1_000, now_ns);
        }
        let sample = Sample::new(&counters, WINDOW, Ends::WithWindow);
        assert!(near(sample.seconds, 2.0) && near(sample.per_s, 1.5), "{sample:?}");
        assert!(near(sample.mean_us, 300.0) && near(sample.p50_us, 200.0), "{sample:?}");
        assert!(near(sample.p99_us, 600.0) && near(sample.max_us, 600.0), "{sample:?}");
        // Five answers in all came from two statements.
        let sample = sample.with_statements(&counters, Some(2));
        assert!(near(sample.batch.unwrap(), 2.5) && near(sample.statements_per_s.unwrap(), 0.6));
        // The last answer that counts came after one second.
        let sample = Sample::new(&counters, WINDOW, Ends::WithLastAnswer);
        assert!(near(sample.seconds, 1.0) && near(sample.per_s, 3.0), "{sample:?}");
    }

    #[test]
    fn without_answers_nothing_is_made_up() {
        let counters = Counters::new().unwrap();
        let sample = Sample::new(&counters, WINDOW, Ends::WithLastAnswer);
        assert!(sample.per_s == 0.0 && sample.mean_us == 0.0 && sample.max_us == 0.0);
        assert_eq!(sample.late_p99_us, None);
        assert_eq!(sample.with_statements(&counters, Some(3)).batch, None);
    }

    #[test]
    fn the_median_is_taken_number_by_number_and_failures_add_up() {
        let round = |per_s, mean_us, batch, refused| {
            let example = (0 < refused).then(|| "full".to_owned());
            let refused = Failures { count: refused, example };
            let failed = Failed { refused, ..Failed::default() };
            Sample { per_s, mean_us, batch, failed, ..Sample::default() }
        };
        let rounds = [
            round(3.0, 10.0, None, 0),
            round(1.0, 30.0, Some(8.0), 2),
            round(2.0, 20.0, Some(4.0), 1),
        ];
        let middle = Sample::median(&rounds);
        assert!(near(middle.per_s, 2.0) && near(middle.mean_us, 20.0));
        assert!(near(middle.batch.unwrap(), 6.0));
        assert_eq!(middle.notes(), "REFUSED:3 (full)");
    }

    #[test]
    fn processors_are_shared_out_and_the_rest_is_that_of_others() {
        let mark = |at_ns, used| Mark {
            at_ns,
            own_ns: used,
            thread_ns: used / 2,
            busy_ns: Some(used * 4),
            steal_ns: Some(0),
            postgres_ns: Some(used * 2),
            ..Mark::default()
        };
        let cpu = Cpu::between(&mark(0, 0), &mark(1_000, 500));
        assert!(near(cpu.own, 0.5) && near(cpu.postgres.unwrap(), 1.0) && near(cpu.others, 0.5));
        assert!(near(cpu.thread, 0.25) && cpu.server.is_none(), "{cpu:?}");
        assert_eq!(Sample::default().with_program(cpu).notes(), "disturbed:50%");
    }

    #[test]
    fn a_busy_load_beside_an_idle_server_is_marked() {
        let cpu = |thread, server| Cpu { thread, server: Some(server), ..Cpu::default() };
        let notes = |cpu| Sample::median(&[Sample::default().with_thread(cpu)]).notes();
        assert_eq!(notes(cpu(0.99, 0.5)), "load-bound");
        assert_eq!(notes(cpu(0.99, 0.99)), "");
        // A whole program is more than one thread.
        let own = Cpu { own: 1.9, server: Some(0.5), ..Cpu::default() };
        assert_eq!(Sample::median(&[Sample::default().with_program(own)]).notes(), "");
    }

    #[test]
    fn a_thread_that_works_is_seen_to() {
        let watched = Watched {
            answering: Answering::Thread(rustix::thread::gettid()),
            ..Watched::default()
        };
        let is_seen = (0..TRIES).any(|_| {
            let start = Mark::now(watched);
            while now_ns() < start.at_ns + 30_000_000 {
                std::hint::black_box(0);
            }
            let cpu = Cpu::between(&start, &Mark::now(watched));
            // Less where others had the processors.
            0.1 < cpu.thread && cpu.server.is_some_and(|share| 0.1 < share)
        });
        assert!(is_seen);
    }
}
