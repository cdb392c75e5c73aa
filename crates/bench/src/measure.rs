//! One measurement of a server that speaks RESP: a load, a window, a sample.

use std::{net::SocketAddr, ops::Range, sync::atomic::AtomicBool, time::Duration};

use anyhow::{Result, bail};
use rustix::process::Pid;

use crate::{
    clock::{Window, duration_ns, now_ns},
    counters::Counters,
    harness::{
        Answering, Ends, Mark, Number, Sample, Usage, Watched,
        sample::{CPU_LOAD, CPU_SERVER, LOAD_SHARE_HIGH, LOST_SHARE, P999_US, SERVER_SHARE_LOW},
    },
    limits::{FILL_PIPELINE, FILL_PIPELINE_BYTES, SLOW_REPLY_NS},
    load::{Driver, Group, OpenLoop, is_set},
    progress::Progress,
    random::Random,
    requests::{KeySpace, Pools, letters, write_set},
    schedule::Schedule,
    stats::{float, percentile_us, record},
};

/// Replies a second that took longer than [`SLOW_REPLY_NS`].
pub const SLOW_PER_S: Number = Number::new("slow_per_s", ">5 ms/s");
/// Processor time of the server by request.
pub const SERVER_US: Number = Number::new("server_us_per_request", "us/req");

/// System calls of the server by request.
pub const CALLS: Number = Number::new("calls_per_request", "calls");
/// Requests that busload executed at once, on average.
pub const BATCH: Number = Number::new("batch", "batch");

/// Pace of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// This many requests under way on every connection.
    Pipeline(usize),
    /// This many requests per second over all connections.
    Rate(u64),
}

impl Pace {
    /// Returns the name in tables.
    pub fn name(self) -> String {
        match self {
            Self::Pipeline(pipeline) => pipeline.to_string(),
            Self::Rate(rate) if rate % 1_000 == 0 => format!("{}k/s", rate / 1_000),
            Self::Rate(rate) => format!("{rate}/s"),
        }
    }
}

/// Plan of one measurement of one server.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub address: SocketAddr,
    /// Its process, where known.
    pub pid: Option<Pid>,
    pub clients: usize,
    pub pace: Pace,
    pub pools: Pools<'a>,
    /// Position in the pools to start at, modulo its length.
    pub start: u64,
    pub warm_up: Duration,
    pub window: Duration,
    /// Ends the window early when set.
    pub stop: Option<&'a AtomicBool>,
}

impl Plan<'_> {
    fn first(&self) -> Result<usize> {
        Ok(usize::try_from(self.start % u64::try_from(self.pools.all.len())?)?)
    }

    fn mark(&self) -> Mark {
        let answering = self.pid.map_or(Answering::Nobody, Answering::Process);
        Mark::now(Watched { answering, ..Watched::default() })
    }
}

pub fn measure(plan: &Plan<'_>) -> Result<Sample> {
    let mut group = Group::connect(plan.address, plan.clients)?;
    let mut sample = match plan.pace {
        Pace::Pipeline(pipeline) => measure_closed(&mut group, plan, pipeline)?,
        Pace::Rate(rate) => measure_open(&mut group, plan, rate)?,
    };
    sample.failed = group.failed();
    Ok(sample.count("nil", group.nils()))
}

/// Writes keys in order, as fast as the server takes them.
pub fn fill(address: SocketAddr, clients: usize, space: KeySpace, keys: Range<u64>) -> Result<()> {
    fill_by(write_set, address, clients, space, keys)
}

/// Writes keys, or what `write` makes of their numbers, in order.
pub fn fill_by(
    write: Write,
    address: SocketAddr,
    clients: usize,
    space: KeySpace,
    keys: Range<u64>,
) -> Result<()> {
    let mut group = Group::connect(address, clients)?;
    let progress = Progress::begin("loading", "keys", keys.start, keys.end);
    let (done, fill) = (keys.start, Fill { write, ..Fill::new(clients, space, keys) });
    group.run_closed(&mut ShownFill { fill, done, progress })?;
    let refused = group.failed().refused;
    if let Some(example) = refused.example {
        bail!("the server refused {} writes: {example}", refused.count);
    }
    Ok(())
}

fn measure_closed(group: &mut Group, plan: &Plan<'_>, pipeline: usize) -> Result<Sample> {
    let mut timed = Timed {
        plan,
        next: plan.first()?,
        pipeline,
        firsts: vec![0; plan.clients],
        warm_until_ns: now_ns() + duration_ns(plan.warm_up),
        start: None,
        end: None,
        counters: Counters::new()?,
    };
    group.run_closed(&mut timed)?;
    let (Some(start), Some(end)) = (timed.start, timed.end) else {
        bail!("not one reply came after the window of {:?}", plan.window);
    };
    let usage = Usage::between(&start, &end);
    let idles = usage.server.is_none_or(|share| share < SERVER_SHARE_LOW);
    let load_bound = LOAD_SHARE_HIGH < usage.thread && idles;
    let window = Window { from_ns: start.at_ns, until_ns: end.at_ns };
    Ok(sample(&timed.counters, window, &usage).flag("load-bound", load_bound))
}

/// Measures an open loop, whose thread is always busy.
fn measure_open(group: &mut Group, plan: &Plan<'_>, rate: u64) -> Result<Sample> {
    let start_ns = now_ns();
    let from_ns = start_ns + duration_ns(plan.warm_up);
    let window = Window { from_ns, until_ns: from_ns + duration_ns(plan.window) };
    let (next, schedule) = (plan.first()?, Schedule::new(start_ns, rate));
    let mut marks = Vec::with_capacity(2);
    let open = OpenLoop { pools: plan.pools, next, schedule, window, stop: plan.stop };
    let (counters, window) = group.run_open(open, || marks.push(plan.mark()))?;
    let (Some(start), Some(end)) = (marks.first(), marks.last()) else {
        bail!("an open loop that never began");
    };
    Ok(sample(&counters, window, &Usage::between(start, end)))
}

fn sample(counters: &Counters, window: Window, usage: &Usage) -> Sample {
    let server_us = |server| server * usage.wall_s * 1e6 / float(counters.answered.max(1));
    let seconds = float(window.until_ns.saturating_sub(window.from_ns).max(1)) / 1e9;
    let slow = counters.latency_ns.count_between(SLOW_REPLY_NS, u64::MAX);
    Sample::of(counters, window, Ends::WithWindow)
        .with(SLOW_PER_S, float(slow) / seconds)
        .with(P999_US, percentile_us(&counters.latency_ns, 99.9))
        .with(CPU_LOAD, usage.thread)
        .with(CPU_SERVER, usage.server)
        .with(SERVER_US, usage.server.map(server_us))
        .with(LOST_SHARE, usage.lost)
}

/// Sends from the pool for a given time.
struct Timed<'a> {
    plan: &'a Plan<'a>,
    next: usize,
    pipeline: usize,
    /// The first request of each connection's present pipeline.
    firsts: Vec<usize>,
    warm_until_ns: u64,
    start: Option<Mark>,
    end: Option<Mark>,
    counters: Counters,
}

impl Driver for Timed<'_> {
    fn advance(&mut self, connection: usize, _now_ns: u64) -> u32 {
        if self.end.is_some() {
            return 0;
        }
        let pool = self.plan.pools.of(connection);
        self.firsts[connection] = pool.take(&mut self.next, self.pipeline);
        u32::try_from(self.pipeline).expect("within the limit of a pipeline")
    }

    fn bytes(&self, connection: usize) -> &[u8] {
        self.plan.pools.of(connection).slice(self.firsts[connection], self.pipeline)
    }

    /// The window begins with the first reply after the warm-up and ends with the first one past
    /// its length: its wall time is measured, not assumed.
    fn finished(&mut self, _connection: usize, requests: u32, sent_ns: u64, now_ns: u64) {
        match (self.start, self.end) {
            (None, _) if self.warm_until_ns <= now_ns => self.start = Some(self.plan.mark()),
            (Some(start), None) => {
                self.counters.answered += u64::from(requests);
                record(&mut self.counters.latency_ns, now_ns - sent_ns);
                let is_over = start.at_ns + duration_ns(self.plan.window) <= now_ns;
                if is_over || is_set(self.plan.stop) {
                    self.end = Some(self.plan.mark());
                }
            }
            _ => {}
        }
    }
}

/// Function that appends a request for a number.
pub type Write = fn(&mut Vec<u8>, u64, &[u8]);

/// Writes every key once, in order.
pub struct Fill {
    write: Write,
    /// The pipeline of each connection.
    pipelines: Vec<Vec<u8>>,
    value: Vec<u8>,
    pipeline: usize,
    keys: Range<u64>,
}

impl Fill {
    /// Shares the keys among `clients` connections, pipeline by pipeline.
    pub fn new(clients: usize, space: KeySpace, keys: Range<u64>) -> Self {
        let pipeline = (FILL_PIPELINE_BYTES / (space.value_bytes + 64)).clamp(1, FILL_PIPELINE);
        let value = letters(&mut Random::new(space.seed), space.value_bytes);
        let (write, pipelines) = (write_set, vec![Vec::new(); clients]);
        Self { write, pipelines, value, pipeline, keys }
    }

    /// Goes on with the keys up to `end`.
    pub fn extend_to(&mut self, end: u64) {
        self.keys.end = self.keys.end.max(end);
    }
}

impl Driver for Fill {
    fn advance(&mut self, connection: usize, _now_ns: u64) -> u32 {
        let pipeline = &mut self.pipelines[connection];
        pipeline.clear();
        let keys = self.keys.by_ref().take(self.pipeline);
        let count = keys.inspect(|key| (self.write)(pipeline, *key, &self.value)).count();
        u32::try_from(count).expect("within the limit of a pipeline")
    }

    fn bytes(&self, connection: usize) -> &[u8] {
        &self.pipelines[connection]
    }

    fn finished(&mut self, _connection: usize, _requests: u32, _sent_ns: u64, _now_ns: u64) {}
}

/// Filling whose progress is shown.
struct ShownFill {
    fill: Fill,
    done: u64,
    progress: Progress,
}

impl Driver for ShownFill {
    fn advance(&mut self, connection: usize, now_ns: u64) -> u32 {
        self.fill.advance(connection, now_ns)
    }

    fn bytes(&self, connection: usize) -> &[u8] {
        self.fill.bytes(connection)
    }

    fn finished(&mut self, _connection: usize, requests: u32, _sent_ns: u64, _now_ns: u64) {
        self.done += u64::from(requests);
        self.progress.show(self.done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filling_covers_every_key_once() {
        let space = KeySpace { keys: 300, value_bytes: 1, seed: 1 };
        let mut fill = Fill::new(2, space, 0..300);
        let counts: Vec<_> = (0..4).map(|turn| fill.advance(turn % 2, 0)).collect();
        assert_eq!(counts, [128, 128, 44, 0]);
        assert!(fill.bytes(0).starts_with(b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000256"));
    }
}
