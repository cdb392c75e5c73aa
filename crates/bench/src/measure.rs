//! One measurement: a load, a window, a sample.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::Result;
use hdrhistogram::Histogram;
use rustix::process::{Pid, getpid};

use crate::{
    clock::{duration_ns, now_ns, thread_cpu_ns},
    limits::{FILL_PIPELINE, FILL_PIPELINE_BYTES},
    load::{Driver, Group, OpenLoop, OpenResult},
    machine::{process_cpu_ns, run_queue_wait_ns, steal_ns},
    replies::Oddities,
    requests::{Cursor, KeySpace, Pool, Template},
    stats::{float, medians, new_histogram, percentile_us, record},
};

/// Above this share of its processor the load side may be what limits a measurement.
pub const LOAD_SHARE_HIGH: f64 = 0.95;

/// Below this share of a processor the server was not what limited it.
pub const SERVER_SHARE_LOW: f64 = 0.90;

/// Delay of an open loop's requests (99th percentile) above which the run is marked.
const LATE_US: f64 = 100.0;

/// Above this share of lost time a measurement is marked: other programs were at work.
const DISTURBED_SHARE: f64 = 0.05;

/// Pace of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// This many requests under way on every connection.
    Pipeline(usize),
    /// This many requests per second over all connections.
    Rate(u64),
}

/// Plan of one measurement of one server.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub address: SocketAddr,
    /// Its process, where known.
    pub pid: Option<Pid>,
    pub clients: usize,
    pub pace: Pace,
    pub pool: &'a Pool,
    /// Position in the pool to start at.
    pub start: u64,
    pub warm_up: Duration,
    pub window: Duration,
    /// Told the count of requests answered so far, the warm-up included.
    pub progress: Option<&'a AtomicU64>,
}

/// The measurements of one measurement, or their medians over several.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub requests_per_s: f64,
    /// Median latency in microseconds: of a pipeline's round trip, or of a request since it was
    /// due.
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// Share of one processor the load side used.
    pub load_cpu: f64,
    /// Share of the time in which this program waited for a processor or the host took one away.
    /// The server's own waiting is left out: its threads may rightly wait for each other.
    pub lost: f64,
    /// Processors the server used, where its process is known.
    pub server_cpu: Option<f64>,
    /// Its processor time per request in microseconds.
    pub server_us_per_request: Option<f64>,
    /// How late requests left, 99th percentile in microseconds; open loop only.
    pub late_p99_us: Option<f64>,
    /// Requests never answered; open loop only.
    pub unanswered: u64,
    /// The open-loop schedule was given up.
    pub overloaded: bool,
    /// Errors and absent keys, the warm-up included.
    pub oddities: Oddities,
}

impl Sample {
    /// The median of every measurement, each for itself; errors and unanswered requests add up.
    pub fn median(samples: &[Self]) -> Self {
        let mut oddities = Oddities::default();
        samples.iter().for_each(|sample| oddities.merge(&sample.oddities));
        let medians = medians!(
            samples,
            [requests_per_s, p50_us, p99_us, p999_us, load_cpu, lost],
            [server_cpu, server_us_per_request, late_p99_us]
        );
        Self {
            unanswered: samples.iter().map(|sample| sample.unanswered).sum(),
            overloaded: samples.iter().any(|sample| sample.overloaded),
            oddities,
            ..medians
        }
    }

    /// Says what a reader must know before trusting the measurements.
    pub fn notes(&self) -> String {
        let mut notes = Vec::new();
        let server_idles = self.server_cpu.is_none_or(|share| share < SERVER_SHARE_LOW);
        if self.late_p99_us.is_none() && LOAD_SHARE_HIGH < self.load_cpu && server_idles {
            notes.push("load-bound".to_owned());
        }
        if let Some(late_us) = self.late_p99_us.filter(|late_us| LATE_US < *late_us) {
            notes.push(format!("sent-late:{late_us:.0}us"));
        }
        if DISTURBED_SHARE < self.lost {
            notes.push(format!("disturbed:{:.0}%", self.lost * 100.0));
        }
        if self.overloaded {
            notes.push("overloaded".to_owned());
        }
        if 0 < self.unanswered {
            notes.push(format!("unanswered:{}", self.unanswered));
        }
        if 0 < self.oddities.nils {
            notes.push(format!("nil:{}", self.oddities.nils));
        }
        if 0 < self.oddities.errors {
            let example = self.oddities.example.as_deref().unwrap_or_default();
            notes.push(format!("ERRORS:{} ({example})", self.oddities.errors));
        }
        notes.join(" ")
    }
}

pub fn measure(plan: &Plan<'_>) -> Result<Sample> {
    let mut group = Group::connect(plan.address, plan.clients)?;
    let mut sample = match plan.pace {
        Pace::Pipeline(pipeline) => measure_closed(&mut group, plan, pipeline)?,
        Pace::Rate(rate) => measure_open(&mut group, plan, rate)?,
    };
    sample.oddities = group.oddities();
    Ok(sample)
}

/// Writes the keys from `first_key` on, in order, as fast as the server takes them.
pub fn fill(
    address: SocketAddr,
    clients: usize,
    space: KeySpace,
    keys: std::ops::Range<u64>,
) -> Result<()> {
    let mut group = Group::connect(address, clients)?;
    let mut fill = Fill::new(clients, space, keys);
    group.run_closed(&mut fill)?;
    let oddities = group.oddities();
    if let Some(example) = oddities.example {
        anyhow::bail!("the server refused {} writes: {example}", oddities.errors);
    }
    Ok(())
}

fn measure_closed(group: &mut Group, plan: &Plan<'_>, pipeline: usize) -> Result<Sample> {
    let mut timed = Timed::new(plan, pipeline)?;
    group.run_closed(&mut timed)?;
    let (Some(start), Some(end)) = (timed.start, timed.end) else {
        anyhow::bail!("not one reply came after the window of {:?}", plan.window);
    };
    Ok(sample(&timed.latency_ns, timed.requests, start, end))
}

fn measure_open(group: &mut Group, plan: &Plan<'_>, rate: u64) -> Result<Sample> {
    let open = OpenLoop {
        pool: plan.pool,
        cursor: Cursor::new(plan.pool, plan.start),
        rate,
        warm_up: plan.warm_up,
        window: plan.window,
    };
    let mut marks = Vec::with_capacity(2);
    let result: OpenResult = group.run_open(open, || marks.push(Mark::now(plan.pid)))?;
    let (Some(start), Some(end)) = (marks.first(), marks.last()) else {
        anyhow::bail!("an open loop that never began");
    };
    Ok(Sample {
        late_p99_us: Some(percentile_us(&result.late_ns, 99.0)),
        unanswered: result.unanswered,
        overloaded: result.overloaded,
        ..sample(&result.latency_ns, result.answered, *start, *end)
    })
}

fn sample(latency_ns: &Histogram<u64>, requests: u64, start: Mark, end: Mark) -> Sample {
    let wall_ns = float(end.at_ns.saturating_sub(start.at_ns).max(1));
    let server_ns =
        start.server_ns.zip(end.server_ns).map(|(start, end)| float(end.saturating_sub(start)));
    Sample {
        requests_per_s: float(requests) / wall_ns * 1e9,
        p50_us: percentile_us(latency_ns, 50.0),
        p99_us: percentile_us(latency_ns, 99.0),
        p999_us: percentile_us(latency_ns, 99.9),
        load_cpu: float(end.load_ns - start.load_ns) / wall_ns,
        lost: float(end.lost_ns.saturating_sub(start.lost_ns)) / wall_ns,
        server_cpu: server_ns.map(|ns| ns / wall_ns),
        server_us_per_request: server_ns.map(|ns| ns / float(requests.max(1)) / 1_000.0),
        ..Sample::default()
    }
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at_ns: u64,
    load_ns: u64,
    server_ns: Option<u64>,
    lost_ns: u64,
}

impl Mark {
    fn now(pid: Option<Pid>) -> Self {
        let lost_ns = [run_queue_wait_ns(getpid()), steal_ns()].into_iter().flatten().sum();
        Self {
            at_ns: now_ns(),
            load_ns: thread_cpu_ns(),
            server_ns: pid.and_then(process_cpu_ns),
            lost_ns,
        }
    }
}

/// Sends from the pool for a given time.
struct Timed<'a> {
    pool: &'a Pool,
    cursor: Cursor,
    pipeline: usize,
    /// The first request of each connection's present pipeline.
    firsts: Vec<usize>,
    warm_until_ns: u64,
    window_ns: u64,
    pid: Option<Pid>,
    start: Option<Mark>,
    end: Option<Mark>,
    latency_ns: Histogram<u64>,
    requests: u64,
    answered: u64,
    progress: Option<&'a AtomicU64>,
}

impl<'a> Timed<'a> {
    fn new(plan: &Plan<'a>, pipeline: usize) -> Result<Self> {
        Ok(Self {
            pool: plan.pool,
            cursor: Cursor::new(plan.pool, plan.start),
            pipeline,
            firsts: vec![0; plan.clients],
            warm_until_ns: now_ns() + duration_ns(plan.warm_up),
            window_ns: duration_ns(plan.window),
            pid: plan.pid,
            start: None,
            end: None,
            latency_ns: new_histogram()?,
            requests: 0,
            answered: 0,
            progress: plan.progress,
        })
    }
}

impl Driver for Timed<'_> {
    fn advance(&mut self, connection: usize, _now_ns: u64) -> u32 {
        if self.end.is_some() {
            return 0;
        }
        self.firsts[connection] = self.cursor.take(self.pipeline);
        u32::try_from(self.pipeline).expect("within the limit of a pipeline")
    }

    fn bytes(&self, connection: usize) -> &[u8] {
        self.pool.slice(self.firsts[connection], self.pipeline)
    }

    /// The window begins with the first reply after the warm-up and ends with the first one past
    /// its length: its wall time is measured, not assumed.
    fn finished(&mut self, _connection: usize, requests: u32, sent_ns: u64, now_ns: u64) {
        if let Some(progress) = self.progress {
            self.answered += u64::from(requests);
            progress.store(self.answered, Ordering::Relaxed);
        }
        match (self.start, self.end) {
            (None, _) if self.warm_until_ns <= now_ns => self.start = Some(Mark::now(self.pid)),
            (Some(start), None) => {
                self.requests += u64::from(requests);
                record(&mut self.latency_ns, now_ns - sent_ns);
                if start.at_ns + self.window_ns <= now_ns {
                    self.end = Some(Mark::now(self.pid));
                }
            }
            _ => {}
        }
    }
}

/// Writes every key once, in order.
pub struct Fill {
    templates: Vec<Template>,
    counts: Vec<usize>,
    pipeline: usize,
    keys: std::ops::Range<u64>,
}

impl Fill {
    /// Keys left are shared among `clients` connections, pipeline by pipeline.
    pub fn new(clients: usize, space: KeySpace, keys: std::ops::Range<u64>) -> Self {
        let pipeline = (FILL_PIPELINE_BYTES / (space.value_bytes + 64)).clamp(1, FILL_PIPELINE);
        let template = Template::new(pipeline, space);
        Self { templates: vec![template; clients], counts: vec![0; clients], pipeline, keys }
    }
}

impl Fill {
    /// Goes on with the keys up to `end`.
    pub fn extend_to(&mut self, end: u64) {
        self.keys.end = self.keys.end.max(end);
    }
}

impl Driver for Fill {
    fn advance(&mut self, connection: usize, _now_ns: u64) -> u32 {
        let left = usize::try_from(self.keys.end - self.keys.start).unwrap_or(usize::MAX);
        let count = left.min(self.pipeline);
        self.templates[connection].number(self.keys.start, count);
        self.counts[connection] = count;
        self.keys.start += u64::try_from(count).expect("a count fits in 64 bits");
        u32::try_from(count).expect("within the limit of a pipeline")
    }

    fn bytes(&self, connection: usize) -> &[u8] {
        self.templates[connection].slice(self.counts[connection])
    }

    fn finished(&mut self, _connection: usize, _requests: u32, _sent_ns: u64, _now_ns: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(requests_per_s: f64) -> Sample {
        Sample { requests_per_s, ..Sample::default() }
    }

    #[test]
    fn the_median_is_taken_measurement_by_measurement() {
        let samples = [
            Sample { p99_us: 9.0, server_cpu: Some(0.5), ..plain(10.0) },
            Sample { p99_us: 1.0, server_cpu: None, ..plain(30.0) },
            Sample { p99_us: 5.0, server_cpu: Some(0.7), ..plain(20.0) },
        ];
        let middle = Sample::median(&samples);
        assert!((middle.requests_per_s - 20.0).abs() < 1e-9);
        assert!((middle.p99_us - 5.0).abs() < 1e-9);
        assert!((middle.server_cpu.unwrap() - 0.6).abs() < 1e-9);
    }

    #[test]
    fn errors_of_all_rounds_are_shown() {
        let failed = |count| Sample {
            oddities: Oddities { errors: count, example: Some("ERR no".to_owned()), nils: 0 },
            ..plain(1.0)
        };
        assert_eq!(
            Sample::median(&[failed(2), failed(3), plain(1.0)]).notes(),
            "ERRORS:5 (ERR no)"
        );
    }

    #[test]
    fn a_busy_load_beside_an_idle_server_is_marked() {
        let sample =
            |load_cpu, server_cpu| Sample { load_cpu, server_cpu: Some(server_cpu), ..plain(1.0) };
        assert_eq!(sample(0.99, 0.5).notes(), "load-bound");
        assert_eq!(sample(0.99, 0.99).notes(), "");
        assert_eq!(sample(0.5, 0.5).notes(), "");
    }

    #[test]
    fn a_disturbed_measurement_is_marked() {
        assert_eq!(Sample { lost: 0.06, ..plain(1.0) }.notes(), "disturbed:6%");
        assert_eq!(Sample { lost: 0.04, ..plain(1.0) }.notes(), "");
    }

    #[test]
    fn filling_covers_every_key_once() {
        let space = KeySpace { keys: 300, value_bytes: 1, seed: 1 };
        let mut fill = Fill::new(2, space, 0..300);
        let counts: Vec<_> = (0..4).map(|turn| fill.advance(turn % 2, 0)).collect();
        assert_eq!(counts, [128, 128, 44, 0]);
        assert!(fill.bytes(0).starts_with(b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000256"));
    }
}
