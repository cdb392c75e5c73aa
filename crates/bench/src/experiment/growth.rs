//! `growth`: what a client feels, and what memory costs, while a table grows from nothing.

use anyhow::{Context, Result, bail};
use clap::Args;
use hdrhistogram::Histogram;
use rustix::process::{Pid, getpid};

use super::memory_tables::{Bench, Setup};
use crate::{
    cli::name_of,
    clock::now_ns,
    harness::{
        Number, Sample, Table, TableLayout,
        arguments::{clients, keys},
        label,
        sample::{P50_US, P99_US, PER_S},
        shown,
    },
    limits::SLOW_REPLY_NS,
    load::{Driver, Group},
    machine::{resident_bytes, run_queue_wait_ns, steal_ns},
    measure::Fill,
    random::Random,
    requests::{KEY_BYTES, write_get},
    server::{Launch, Server},
    stats::{float, float_of, new_histogram, percentile_us, record},
};

#[derive(Debug, Args)]
#[command(
    after_long_help = "\
Some connections write new keys at full pipelined speed; one more asks for one of the keys \
written so far, alone on its connection, and every one of its replies is timed. At each step the \
writers pause and the server's resident memory is read: what it has grown by since its start, \
less the bytes of keys and values, by entry, is `over B`. `slow` counts replies that took longer \
than 5 ms. `lost ms` is how long threads of the server or of this program were ready but had no \
processor in the step (other programs, or the host of a virtual machine): slow replies that it \
explains are not the server's.",
    mut_arg("servers", |argument| argument.default_value("busload")),
    mut_arg("keys", |argument| argument.default_value("10000000")),
)]
pub struct Growth {
    /// Keys between two looks at the memory
    #[arg(long, value_name = "N", default_value = "500000", value_parser = keys)]
    step: u64,
    /// Connections that write
    #[arg(long, value_name = "N", default_value = "8", value_parser = clients)]
    clients: usize,
    #[command(flatten)]
    setup: Setup,
}

/// A step of the growth of a server.
#[derive(Clone, Copy)]
struct Case {
    launch: Launch,
    keys: u64,
}

const P9999_US: Number = Number::new("p9999_us", "p99.99 us");
const MAX_MS: Number = Number::scaled("max_us", "max ms", 1e-3);
const RESIDENT: Number = Number::scaled("resident_bytes", "resident MiB", 1.0 / 1_048_576.0);
const OVERHEAD: Number = Number::new("overhead_bytes_per_entry", "over B");
const LOST_MS: Number = Number::new("lost_ms", "lost ms");

const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("server", "server", 8, |case| name_of(&case.launch.kind)),
        label("durability", "durable", 6, |case| name_of(&case.launch.durability)),
        label("net_threads", "net", 3, |case| case.launch.net_threads.to_string()),
        label("keys", "keys", 10, |case| case.keys.to_string()),
        shown(PER_S),
        shown(P50_US),
        shown(P99_US),
        shown(P9999_US),
        shown(MAX_MS),
        shown(RESIDENT),
        shown(OVERHEAD),
        shown(LOST_MS),
    ],
    main: PER_S,
    ratios: |_, _| Vec::new(),
};

pub fn growth(arguments: &Growth) -> Result<()> {
    let setup = &arguments.setup;
    let bench = Bench::new(setup, &setup.servers, &format!("{} writers", arguments.clients))?;
    let mut table = bench.table("Growth", &LAYOUT)?;
    for launch in setup.launches() {
        let grown = grow(arguments, launch, &bench.start(&launch)?, &mut table);
        grown.with_context(|| format!("growing {}", name_of(&launch.kind)))?;
    }
    Ok(())
}

/// Grows one server step by step.
fn grow(
    arguments: &Growth,
    launch: Launch,
    server: &Server,
    table: &mut Table<Case>,
) -> Result<()> {
    let Growth { step, clients, setup } = arguments;
    let (pid, space) = (server.pid(), setup.space(1));
    let resident = || resident_bytes(pid).map(float).context("the server's memory");
    let mut group = Group::connect(server.resp(), clients + 1)?;
    let mut growing = Growing {
        fill: Fill::new(*clients, space, 0..0),
        busy: 0,
        written: 0,
        random: Random::new(space.seed),
        probe: Vec::new(),
        probe_ns: new_histogram()?,
    };
    // Connections have their buffers before the memory is looked at.
    growing.begin_step(0, *clients);
    group.run_closed(&mut growing)?;
    let resident_before = resident()?;
    let mut keys = 0;
    while keys < space.keys {
        let started_ns = now_ns();
        let lost_before_ns = lost_ns(pid);
        let first = keys;
        keys = space.keys.min(keys + step);
        growing.begin_step(keys, *clients);
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
            .with(RESIDENT, resident)
            .with(OVERHEAD, overhead - float_of(KEY_BYTES + space.value_bytes))
            .with(LOST_MS, lost / 1e6)
            .count("slow", probe_ns.count_between(SLOW_REPLY_NS, u64::MAX));
        table.add(Case { launch, keys }, sample)?;
    }
    Ok(())
}

/// A probe on connection 0, writers on the others.
struct Growing {
    fill: Fill,
    /// Writers that still have something to send in this step.
    busy: usize,
    written: u64,
    random: Random,
    probe: Vec<u8>,
    probe_ns: Histogram<u64>,
}

impl Growing {
    /// The next step writes up to this many keys.
    fn begin_step(&mut self, keys: u64, writers: usize) {
        self.fill.extend_to(keys);
        self.busy = writers;
        self.probe_ns.reset();
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
        match connection {
            0 => record(&mut self.probe_ns, now_ns - sent_ns),
            _ => self.written += u64::from(requests),
        }
    }
}

/// Time that server or load could have used but did not get: waiting behind other programs, or for
/// the host.
fn lost_ns(server: Pid) -> u64 {
    let waits = [run_queue_wait_ns(server), run_queue_wait_ns(getpid()), steal_ns()];
    waits.into_iter().flatten().sum()
}
