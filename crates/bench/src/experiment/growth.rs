//! `growth`: what a client feels, and what memory costs, while a table grows from nothing.

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use rustix::process::{Pid, getpid};

use super::{Bench, Target, null_reply, require};
use crate::{
    cli::{Growth, bail_usage, check_clients, key_space},
    clock::now_ns,
    limits::{SLOW_REPLIES_SHOWN, SLOW_REPLY},
    load::{Driver, Group},
    machine::{resident_bytes, run_queue_wait_ns, steal_ns},
    measure::Fill,
    random::Random,
    report::{self, Column, Csv, Field, field, measurement, number, text},
    requests::{KEY_BYTES, KeySpace, write_get},
    server::Durability,
    stats::{float, float_of, mebibytes, new_histogram, percentile_us, record},
};

/// Measurements of one step of the growth. Times are in microseconds.
struct Step {
    server: &'static str,
    durability: Durability,
    net_threads: u32,
    space: KeySpace,
    keys: u64,
    writes_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    p9999_us: f64,
    max_us: f64,
    writers_max_us: f64,
    resident: u64,
    resident_before: u64,
    lost_ms: f64,
}

impl Step {
    /// Memory per entry beyond its key and value.
    fn overhead_bytes(&self) -> f64 {
        let grown = float(self.resident) - float(self.resident_before);
        grown / float(self.keys) - float_of(KEY_BYTES + self.space.value_bytes)
    }
}

const COLUMNS: &[Column<Step>] = &[
    text("server", 8, |step| step.server.to_owned()),
    number("keys", 10, |step| step.keys.to_string()),
    number("kreq/s", 7, |step| measurement(step.writes_per_s / 1_000.0)),
    number("p50 us", 7, |step| measurement(step.p50_us)),
    number("p99 us", 7, |step| measurement(step.p99_us)),
    number("p99.99 us", 9, |step| measurement(step.p9999_us)),
    number("max ms", 7, |step| measurement(step.max_us / 1_000.0)),
    number("writers max ms", 7, |step| measurement(step.writers_max_us / 1_000.0)),
    number("resident MiB", 8, |step| measurement(mebibytes(float(step.resident)))),
    number("over B", 7, |step| measurement(step.overhead_bytes())),
    number("lost ms", 7, |step| measurement(step.lost_ms)),
];

const FIELDS: &[Field<Step>] = &[
    field("server", |step| step.server.to_owned()),
    field("durability", |step| step.durability.name().to_owned()),
    field("net_threads", |step| step.net_threads.to_string()),
    field("value_bytes", |step| step.space.value_bytes.to_string()),
    field("keys", |step| step.keys.to_string()),
    field("writes_per_s", |step| format!("{:.1}", step.writes_per_s)),
    field("p50_us", |step| format!("{:.1}", step.p50_us)),
    field("p99_us", |step| format!("{:.1}", step.p99_us)),
    field("p9999_us", |step| format!("{:.1}", step.p9999_us)),
    field("max_us", |step| format!("{:.1}", step.max_us)),
    field("writers_max_us", |step| format!("{:.1}", step.writers_max_us)),
    field("resident_bytes", |step| step.resident.to_string()),
    field("overhead_bytes_per_entry", |step| format!("{:.2}", step.overhead_bytes())),
    field("lost_ms", |step| format!("{:.3}", step.lost_ms)),
];

pub fn growth(arguments: &Growth) -> Result<()> {
    require(&arguments.servers, "--servers")?;
    check_clients(arguments.clients)?;
    let space = key_space(arguments.keys, arguments.value_bytes, 1)?;
    if arguments.step == 0 {
        bail_usage!("--step is at least 1");
    }
    let bench =
        Bench::new(&arguments.setup, &arguments.servers, arguments.durability != Durability::None)?;
    let mut csv = bench.csv(FIELDS)?;
    println!("{}", report::heading(COLUMNS));
    let mut summaries = Vec::new();
    for kind in &arguments.servers {
        let target =
            bench.start(*kind, arguments.durability, arguments.net_threads, null_reply(space))?;
        let summary = grow(arguments, space, &target, csv.as_mut());
        summaries.push(summary.with_context(|| format!("growing {}", kind.name()))?);
        target.discard();
    }
    println!();
    summaries.iter().for_each(|summary| println!("{summary}"));
    Ok(())
}

/// Grows one server step by step and says in words how it went.
fn grow(
    arguments: &Growth,
    space: KeySpace,
    target: &Target,
    mut csv: Option<&mut Csv<Step>>,
) -> Result<String> {
    let pid = target.pid.context("a server this program started has a process")?;
    let mut group = Group::connect(target.address, arguments.clients + 1)?;
    let mut growing = Growing::new(arguments, space, pid)?;
    growing.keys_until(0);
    group.run_closed(&mut growing)?;
    let resident_before = resident_bytes(pid).context("the server's memory")?;
    let mut keys = 0;
    while keys < space.keys {
        let started_ns = now_ns();
        let lost_before_ns = lost_ns(pid);
        let first = keys;
        keys = space.keys.min(keys + arguments.step);
        growing.keys_until(keys);
        group.run_closed(&mut growing)?;
        let oddities = group.oddities();
        if let Some(example) = oddities.example {
            bail!("the server refused {} requests: {example}", oddities.errors);
        }
        let seconds = float(now_ns() - started_ns) / 1e9;
        let step = Step {
            server: target.name,
            durability: arguments.durability,
            net_threads: arguments.net_threads,
            space,
            keys,
            p50_us: percentile_us(&growing.probe_ns, 50.0),
            p99_us: percentile_us(&growing.probe_ns, 99.0),
            p9999_us: percentile_us(&growing.probe_ns, 99.99),
            max_us: percentile_us(&growing.probe_ns, 100.0),
            writers_max_us: percentile_us(&growing.writers_ns, 100.0),
            writes_per_s: float(keys - first) / seconds,
            resident: resident_bytes(pid).context("the server's memory")?,
            resident_before,
            lost_ms: float(lost_ns(pid).saturating_sub(lost_before_ns)) / 1e6,
        };
        println!("{}", report::line(COLUMNS, &step));
        csv.as_mut().map_or(Ok(()), |csv| csv.append(&step))?;
        growing.end_step()?;
    }
    Ok(growing.summary(target.name))
}

/// A probe on connection 0, writers on the others.
struct Growing {
    pid: Pid,
    writers: usize,
    fill: Fill,
    /// Writers that still have something to send in this step.
    busy: usize,
    written: u64,
    random: Random,
    probe: Vec<u8>,
    probe_ns: Histogram<u64>,
    writers_ns: Histogram<u64>,
    all_probe_ns: Histogram<u64>,
    all_writers_ns: Histogram<u64>,
    slow: Vec<Slow>,
    slow_count: u64,
    lost_ns: u64,
}

/// A reply the probe waited for too long.
struct Slow {
    keys: u64,
    ms: f64,
    lost_ms: f64,
}

impl Growing {
    fn new(arguments: &Growth, space: KeySpace, pid: Pid) -> Result<Self> {
        Ok(Self {
            pid,
            writers: arguments.clients,
            fill: Fill::new(arguments.clients, space, 0..0),
            busy: 0,
            written: 0,
            random: Random::new(space.seed),
            probe: Vec::new(),
            probe_ns: new_histogram()?,
            writers_ns: new_histogram()?,
            all_probe_ns: new_histogram()?,
            all_writers_ns: new_histogram()?,
            slow: Vec::new(),
            slow_count: 0,
            lost_ns: lost_ns(pid),
        })
    }

    /// The next step writes up to this many keys.
    fn keys_until(&mut self, keys: u64) {
        self.fill.extend_to(keys);
        self.busy = self.writers;
    }

    fn end_step(&mut self) -> Result<()> {
        self.all_probe_ns.add(&self.probe_ns).context("histograms of one shape")?;
        self.all_writers_ns.add(&self.writers_ns).context("histograms of one shape")?;
        self.probe_ns.reset();
        self.writers_ns.reset();
        Ok(())
    }

    /// Reads the lost time only here and not with every reply, as it costs system calls: it covers
    /// the time since the slow reply before.
    fn note_slow(&mut self, latency_ns: u64) {
        self.slow_count += 1;
        let lost_ns = lost_ns(self.pid);
        if self.slow.len() < SLOW_REPLIES_SHOWN {
            self.slow.push(Slow {
                keys: self.written,
                ms: float(latency_ns) / 1e6,
                lost_ms: float(lost_ns.saturating_sub(self.lost_ns)) / 1e6,
            });
        }
        self.lost_ns = lost_ns;
    }

    fn summary(&self, name: &str) -> String {
        let mut lines = vec![format!(
            "{name}: {} probe replies, p99.99 {} us, slowest {} ms; slowest pipeline of the \
             writers {} ms; {} probe replies above {SLOW_REPLY:?}",
            self.all_probe_ns.len(),
            measurement(percentile_us(&self.all_probe_ns, 99.99)),
            measurement(percentile_us(&self.all_probe_ns, 100.0) / 1_000.0),
            measurement(percentile_us(&self.all_writers_ns, 100.0) / 1_000.0),
            self.slow_count
        )];
        lines.extend(self.slow.iter().map(|slow| {
            format!(
                "  slow: {} ms at {} keys; without a processor since the one before: {} ms",
                measurement(slow.ms),
                slow.keys,
                measurement(slow.lost_ms)
            )
        }));
        lines.join("\n")
    }
}

impl Driver for Growing {
    fn advance(&mut self, connection: usize, now_ns: u64) -> u32 {
        if connection == 0 {
            if self.busy == 0 {
                return 0;
            }
            self.probe.clear();
            write_get(&mut self.probe, self.random.below(self.written.max(1)));
            return 1;
        }
        let requests = self.fill.advance(connection - 1, now_ns);
        self.busy -= usize::from(requests == 0);
        requests
    }

    fn bytes(&self, connection: usize) -> &[u8] {
        match connection.checked_sub(1) {
            None => &self.probe,
            Some(writer) => self.fill.bytes(writer),
        }
    }

    fn finished(&mut self, connection: usize, requests: u32, sent_ns: u64, now_ns: u64) {
        let latency_ns = now_ns - sent_ns;
        if connection != 0 {
            self.written += u64::from(requests);
            record(&mut self.writers_ns, latency_ns);
            return;
        }
        record(&mut self.probe_ns, latency_ns);
        if crate::clock::duration_ns(SLOW_REPLY) < latency_ns {
            self.note_slow(latency_ns);
        }
    }
}

/// Time that server or load could have used but did not get: waiting behind other programs, or for
/// the host.
fn lost_ns(server: Pid) -> u64 {
    let waits = [run_queue_wait_ns(server), run_queue_wait_ns(getpid()), steal_ns()];
    waits.into_iter().flatten().sum()
}
