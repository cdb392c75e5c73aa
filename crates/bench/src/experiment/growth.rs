//! `growth`: what a client feels, and what memory costs, while a table grows from nothing.

use anyhow::{Context, Result, bail};
use clap::Args;
use hdrhistogram::Histogram;
use rustix::process::{Pid, getpid};

use super::Bench;
use crate::{
    cli::Setup,
    clock::{duration_ns, now_ns},
    harness::{
        Number, Sample, Table, TableLayout,
        arguments::{clients, count, keys},
        label, measurement,
        sample::{P50_US, P99_US, PER_S},
        shown,
    },
    limits::{SLOW_REPLIES_SHOWN, SLOW_REPLY, VALUE_BYTES_MAX},
    load::{Driver, Group},
    machine::{resident_bytes, run_queue_wait_ns, steal_ns},
    measure::Fill,
    random::Random,
    requests::{KEY_BYTES, KeySpace, write_get},
    server::{Durability, Launch, Server, ServerKind},
    stats::{float, float_of, new_histogram, percentile_us, record},
};

#[derive(Debug, Args)]
#[command(after_long_help = "\
Some connections write new keys at full pipelined speed; one more asks for one of the keys \
written so far, alone on its connection, and every one of its replies is timed. At each step the \
writers pause and the server's resident memory is read: what it has grown by since its start, \
less the bytes of keys and values, by entry, is `over B`. `lost ms` is how long threads of the \
server or of this program were ready but had no processor in the step (other programs, or the \
host of a virtual machine): slow replies that it explains are not the server's.")]
pub struct Growth {
    /// Servers to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "busload")]
    servers: Vec<ServerKind>,
    /// Keys at the end
    #[arg(
        long,
        value_name = "N",
        default_value = "10000000",
        value_parser = keys
    )]
    keys: u64,
    /// Keys between two looks at the memory
    #[arg(
        long,
        value_name = "N",
        default_value = "500000",
        value_parser = keys
    )]
    step: u64,
    /// Connections that write
    #[arg(long, value_name = "N", default_value = "8", value_parser = clients)]
    clients: usize,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value = "32", value_parser = count::<0, VALUE_BYTES_MAX>)]
    value_bytes: usize,
    /// Durability
    #[arg(long, value_enum, default_value = "none")]
    durability: Durability,
    /// Wiring of busload: its --net-threads
    #[arg(long, value_name = "N", default_value_t = 0)]
    net_threads: u32,
    #[command(flatten)]
    setup: Setup,
}

/// A step of the growth of a server.
#[derive(Clone, Copy)]
struct Case {
    server: &'static str,
    keys: u64,
}

const P9999_US: Number = Number::new("p9999_us", "p99.99 us");
const MAX_MS: Number = Number::scaled("max_us", "max ms", 1e-3);
const WRITERS_MAX_MS: Number = Number::scaled("writers_max_us", "writers max ms", 1e-3);
const RESIDENT: Number = Number::scaled("resident_bytes", "resident MiB", 1.0 / 1_048_576.0);
const OVERHEAD: Number = Number::new("overhead_bytes_per_entry", "over B");
const LOST_MS: Number = Number::new("lost_ms", "lost ms");

const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("server", "server", 8, |case| case.server.to_owned()),
        label("keys", "keys", 10, |case| case.keys.to_string()),
        shown(PER_S),
        shown(P50_US),
        shown(P99_US),
        shown(P9999_US),
        shown(MAX_MS),
        shown(WRITERS_MAX_MS),
        shown(RESIDENT),
        shown(OVERHEAD),
        shown(LOST_MS),
    ],
    main: PER_S,
    ratios: |_, _| Vec::new(),
};

pub fn growth(arguments: &Growth) -> Result<()> {
    let Growth { keys, value_bytes, durability, net_threads, .. } = *arguments;
    let space = KeySpace { keys, value_bytes, seed: 1 };
    let more = format!(
        "{value_bytes}-byte values, durability {}, net-threads {net_threads}",
        durability.name()
    );
    let durabilities = std::iter::once(durability);
    let bench = Bench::new(&arguments.setup, &arguments.servers, durabilities, &more)?;
    let mut table = bench.table("Growth", &LAYOUT)?;
    let mut summaries = Vec::new();
    for &kind in &arguments.servers {
        let server = bench.start(&Launch { kind, durability, net_threads, reply_bytes: 0 })?;
        let summary = grow(arguments, space, kind.name(), &server, &mut table);
        summaries.push(summary.with_context(|| format!("growing {}", kind.name()))?);
    }
    println!();
    summaries.iter().for_each(|summary| println!("{summary}"));
    Ok(())
}

/// Grows one server step by step and says in words how it went.
fn grow(
    arguments: &Growth,
    space: KeySpace,
    name: &'static str,
    server: &Server,
    table: &mut Table<Case>,
) -> Result<String> {
    let pid = server.pid();
    let resident = || resident_bytes(pid).map(float).context("the server's memory");
    let mut group = Group::connect(server.resp(), arguments.clients + 1)?;
    let mut growing = Growing::new(arguments, space, pid)?;
    growing.keys_until(0);
    group.run_closed(&mut growing)?;
    let resident_before = resident()?;
    let mut keys = 0;
    while keys < space.keys {
        let started_ns = now_ns();
        let lost_before_ns = lost_ns(pid);
        let first = keys;
        keys = space.keys.min(keys + arguments.step);
        growing.keys_until(keys);
        group.run_closed(&mut growing)?;
        let refused = group.failed().refused;
        if let Some(example) = refused.example {
            bail!("the server refused {} requests: {example}", refused.count);
        }
        let seconds = float(now_ns() - started_ns) / 1e9;
        let lost = float(lost_ns(pid).saturating_sub(lost_before_ns));
        let (probe_ns, resident) = (&growing.probe_ns, resident()?);
        let overhead = (resident - resident_before) / float(keys);
        let sample = Sample::default()
            .with(PER_S, float(keys - first) / seconds)
            .with(P50_US, percentile_us(probe_ns, 50.0))
            .with(P99_US, percentile_us(probe_ns, 99.0))
            .with(P9999_US, percentile_us(probe_ns, 99.99))
            .with(MAX_MS, percentile_us(probe_ns, 100.0))
            .with(WRITERS_MAX_MS, percentile_us(&growing.writers_ns, 100.0))
            .with(RESIDENT, resident)
            .with(OVERHEAD, overhead - float_of(KEY_BYTES + space.value_bytes))
            .with(LOST_MS, lost / 1e6);
        table.add(Case { server: name, keys }, sample)?;
        growing.end_step()?;
    }
    Ok(growing.summary(name))
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
    /// Replies that the probe waited for too long, in words; the first of them.
    slow: Vec<String>,
    slow_count: u64,
    lost_ns: u64,
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
            self.slow.push(format!(
                "  slow: {} ms at {} keys; without a processor since the one before: {} ms",
                measurement(float(latency_ns) / 1e6),
                self.written,
                measurement(float(lost_ns.saturating_sub(self.lost_ns)) / 1e6)
            ));
        }
        self.lost_ns = lost_ns;
    }

    fn summary(&self, name: &str) -> String {
        let first = format!(
            "{name}: {} probe replies, p99.99 {} us, slowest {} ms; slowest pipeline of the \
             writers {} ms; {} probe replies above {SLOW_REPLY:?}",
            self.all_probe_ns.len(),
            measurement(percentile_us(&self.all_probe_ns, 99.99)),
            measurement(percentile_us(&self.all_probe_ns, 100.0) / 1_000.0),
            measurement(percentile_us(&self.all_writers_ns, 100.0) / 1_000.0),
            self.slow_count
        );
        [vec![first], self.slow.clone()].concat().join("\n")
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
        if duration_ns(SLOW_REPLY) < latency_ns {
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
