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
    report::{self, Column, Csv, measurement, number, text},
    requests::{KEY_BYTES, KeySpace, write_get},
    server::Durability,
    stats::{float, new_histogram, percentile_us, record},
};

const COLUMNS: &[Column] = &[
    text("server", 8),
    number("keys", 10),
    number("kreq/s", 7),
    number("p50 us", 7),
    number("p99 us", 7),
    number("p99.99 us", 9),
    number("max ms", 7),
    number("writers max ms", 7),
    number("resident MiB", 8),
    number("over B", 7),
    number("lost ms", 7),
];

const CSV_HEADER: &[&str] = &[
    "server",
    "durability",
    "net_threads",
    "value_bytes",
    "keys",
    "writes_per_s",
    "p50_us",
    "p99_us",
    "p9999_us",
    "max_us",
    "writers_max_us",
    "resident_bytes",
    "overhead_bytes_per_entry",
    "lost_ms",
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
    let csv = arguments.setup.csv.as_deref();
    let mut csv = csv.map(|path| Csv::open(path, &bench.about, CSV_HEADER)).transpose()?;
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
    mut csv: Option<&mut Csv>,
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
            keys,
            writes_per_s: float(keys - first) / seconds,
            resident: resident_bytes(pid).context("the server's memory")?,
            resident_before,
            lost_ms: float(lost_ns(pid).saturating_sub(lost_before_ns)) / 1e6,
        };
        println!("{}", report::row(COLUMNS, &step.row(target.name, &growing)));
        if let Some(csv) = csv.as_mut() {
            csv.append(&step.csv_fields(arguments, target.name, &growing))?;
        }
        growing.end_step()?;
    }
    Ok(growing.summary(target.name))
}

/// Measurements of one step that no client sees.
struct Step {
    keys: u64,
    writes_per_s: f64,
    resident: u64,
    resident_before: u64,
    lost_ms: f64,
}

impl Step {
    /// Memory per entry beyond its key and value.
    fn overhead_bytes(&self, space: KeySpace) -> f64 {
        let grown = float(self.resident) - float(self.resident_before);
        let content = KEY_BYTES + space.value_bytes;
        grown / float(self.keys) - float(u64::try_from(content).expect("a length fits in 64 bits"))
    }

    fn row(&self, name: &str, growing: &Growing) -> Vec<String> {
        vec![
            name.to_owned(),
            self.keys.to_string(),
            measurement(self.writes_per_s / 1_000.0),
            measurement(percentile_us(&growing.probe_ns, 50.0)),
            measurement(percentile_us(&growing.probe_ns, 99.0)),
            measurement(percentile_us(&growing.probe_ns, 99.99)),
            measurement(percentile_us(&growing.probe_ns, 100.0) / 1_000.0),
            measurement(percentile_us(&growing.writers_ns, 100.0) / 1_000.0),
            measurement(float(self.resident) / 1_048_576.0),
            measurement(self.overhead_bytes(growing.space)),
            measurement(self.lost_ms),
        ]
    }

    fn csv_fields(&self, arguments: &Growth, name: &str, growing: &Growing) -> Vec<String> {
        vec![
            name.to_owned(),
            arguments.durability.name().to_owned(),
            arguments.net_threads.to_string(),
            arguments.value_bytes.to_string(),
            self.keys.to_string(),
            format!("{:.1}", self.writes_per_s),
            format!("{:.1}", percentile_us(&growing.probe_ns, 50.0)),
            format!("{:.1}", percentile_us(&growing.probe_ns, 99.0)),
            format!("{:.1}", percentile_us(&growing.probe_ns, 99.99)),
            format!("{:.1}", percentile_us(&growing.probe_ns, 100.0)),
            format!("{:.1}", percentile_us(&growing.writers_ns, 100.0)),
            self.resident.to_string(),
            format!("{:.2}", self.overhead_bytes(growing.space)),
            format!("{:.3}", self.lost_ms),
        ]
    }
}

/// A probe on connection 0, writers on the others.
struct Growing {
    space: KeySpace,
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
            space,
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

    /// What was lost is read here and not with every reply: it costs system calls, so it covers the
    /// time since the slow reply before.
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
            "{name}: {} probe replies, p99.99 {} us, slowest {} ms; slowest pipeline of the writers {} ms; \
             {} probe replies above {SLOW_REPLY:?}",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_what_neither_key_nor_value_explains() {
        let step = Step {
            keys: 1_000,
            writes_per_s: 0.0,
            resident: 100_000,
            resident_before: 30_000,
            lost_ms: 0.0,
        };
        let space = KeySpace { keys: 1_000, value_bytes: 34, seed: 1 };
        assert!((step.overhead_bytes(space) - 20.0).abs() < 1e-9);
    }
}
