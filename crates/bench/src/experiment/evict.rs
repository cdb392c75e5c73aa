//! `evict`: how often reads hit a cache that holds only a part of what is asked for.

mod client;
mod trace;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use self::{client::CacheAside, trace::Trace};
use crate::{
    bytes::{bytes_text, parse_bytes},
    cleanup::Cleanup,
    cli::name_of,
    clock::now_ns,
    harness::{
        Number, Sample, Table, TableLayout,
        arguments::{count, keys},
        label,
        sample::PER_S,
        shown,
    },
    limits::{ROUNDS_MAX, VALUE_BYTES_MAX},
    machine,
    server::{self, Binary, Durability, Launch, Processors, ServerKind, Starter, busload_at},
    stats::float,
};

/// Part of the trace that fills the cache before hits count, as a divisor.
const FILLING_SHARE: usize = 4;

#[derive(Debug, Args)]
#[command(after_long_help = "\
A client reads the keys of a trace and sets those that are not there, as in front of a database. \
Every server has the same memory for keys, values and all that it keeps of them (busload: \
memory_max of a table with evict=s3-fifo and no log; Redis: maxmemory, no persistence, default \
samples), and gets the same requests in the same order. `hits` is the share of reads that found \
their key, without the first quarter of the trace. `entries` and `B/entry` are the keys at the \
end, and the memory that the server says it uses, by key.

Traces: `zipf` reads some keys much more often than others; `scan` is the same, and a quarter of \
the time every second read is of a key that is read once; `shift` moves the keys that are read \
slowly to others.")]
pub struct Evict {
    /// Servers and policies to measure; the last one is the baseline of ratios
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "busload-s3-fifo,redis-lfu,redis-lru"
    )]
    policies: Vec<Policy>,
    /// Traces
    #[arg(long, value_enum, value_delimiter = ',', default_value = "zipf,scan,shift")]
    traces: Vec<Trace>,
    /// Memory of the cache
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = parse_bytes)]
    memory: u64,
    /// Distinct keys that are read again and again
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = keys)]
    keys: u64,
    /// Reads of a trace
    #[arg(long, value_name = "N", default_value = "4000000", value_parser = keys)]
    reads: u64,
    /// Reads under way at once
    #[arg(long, value_name = "N", default_value = "64", value_parser = count::<1, 1024>)]
    pipeline: usize,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value = "100",
        value_parser = count::<1, VALUE_BYTES_MAX>)]
    value_bytes: usize,
    /// Measurements of each trace, each with a seed of its own
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<1, ROUNDS_MAX>)]
    rounds: usize,
    #[command(flatten)]
    binary: Binary,
    /// The redis-server binary
    #[arg(long, value_name = "PATH", default_value = "redis-server")]
    redis: PathBuf,
    #[command(flatten)]
    processors: Processors,
    /// Append the measurements to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// A server, and how it chooses what to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// busload, `evict = "s3-fifo"`
    BusloadS3Fifo,
    /// redis-server, `maxmemory-policy allkeys-lru`
    RedisLru,
    /// redis-server, `maxmemory-policy allkeys-lfu`
    RedisLfu,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    trace: Trace,
    policy: Policy,
}

const HITS: Number = Number::scaled("hit_share", "hits %", 100.0);
const ENTRIES: Number = Number::count("entries", "entries");
const PER_ENTRY: Number = Number::new("bytes_per_entry", "B/entry");
const USED: Number = Number::scaled("used_bytes", "used MiB", 1.0 / 1_048_576.0);

const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("trace", "trace", 6, |case| name_of(&case.trace)),
        label("policy", "policy", 16, |case| name_of(&case.policy)),
        shown(HITS),
        shown(ENTRIES),
        shown(PER_ENTRY),
        shown(USED),
        shown(PER_S),
    ],
    main: HITS,
    ratios: |_, _| Vec::new(),
};

pub fn evict(arguments: &Evict) -> Result<()> {
    let busload = match arguments.policies.contains(&Policy::BusloadS3Fifo) {
        true => busload_at(arguments.binary.busload.as_deref())?,
        false => PathBuf::new(),
    };
    let cpus = Some(arguments.processors.server_cpu.clone());
    let starter = Starter {
        redis: arguments.redis.clone(),
        ..arguments.binary.starter(busload, cpus, std::env::temp_dir())
    };
    let cleanup = Cleanup::install()?;
    arguments.processors.bind_load()?;
    let programs: Vec<_> =
        arguments.policies.iter().map(|policy| policy.program(&starter)).collect();
    let sizes = format!(
        "{} of memory, {} keys, {}-byte values, {} reads",
        bytes_text(arguments.memory),
        arguments.keys,
        arguments.value_bytes,
        arguments.reads
    );
    let about = machine::about(&programs, [arguments.processors.text(), sizes])?;
    println!("{about}");
    let mut table = Table::open(&LAYOUT, arguments.csv.as_deref(), &about)?;
    for &trace in &arguments.traces {
        let cases: Vec<_> =
            arguments.policies.iter().map(|&policy| Case { trace, policy }).collect();
        table.group(&name_of(&trace), &cases, arguments.rounds, |case, round| {
            measure(arguments, &starter, &cleanup, *case, round)
        })?;
    }
    Ok(())
}

/// Plays a trace to a new server.
fn measure(
    arguments: &Evict,
    starter: &Starter,
    cleanup: &Cleanup,
    case: Case,
    round: usize,
) -> Result<Sample> {
    let server = case.policy.start(starter, cleanup, arguments.memory)?;
    let reads = usize::try_from(arguments.reads).context("a number of reads")?;
    let keys = case.trace.keys(arguments.keys, reads, u64::try_from(round)?);
    let mut client = CacheAside::connect(server.resp(), arguments.value_bytes)?;
    case.policy.set_up(&mut client, arguments.memory)?;
    let (filling, counted) = keys.split_at(keys.len() / FILLING_SHARE);
    let began_ns = now_ns();
    client.play(filling, arguments.pipeline)?;
    let hits = client.play(counted, arguments.pipeline)?;
    let seconds = float(now_ns() - began_ns) / 1e9;
    let (used, entries) = (client.info("memory", "used_memory")?, client.entries()?);
    if entries == 0 || arguments.keys <= entries {
        bail!("the cache holds {entries} keys: nothing was evicted, or everything");
    }
    Ok(Sample::default()
        .with(HITS, float(hits) / float(u64::try_from(counted.len())?))
        .with(ENTRIES, float(entries))
        .with(USED, float(used))
        .with(PER_ENTRY, float(used) / float(entries))
        .with(PER_S, float(arguments.reads) / seconds))
}

impl Policy {
    fn program<'a>(&self, starter: &'a Starter) -> &'a std::path::Path {
        match self {
            Policy::BusloadS3Fifo => &starter.busload,
            Policy::RedisLru | Policy::RedisLfu => &starter.redis,
        }
    }

    /// Starts a server, busload with so much memory.
    fn start(self, starter: &Starter, cleanup: &Cleanup, memory: u64) -> Result<server::Server> {
        let data = cleanup.directory(&starter.directory)?;
        let launch = |kind| Launch {
            kind,
            durability: Durability::None,
            net_threads: 0,
            reply_bytes: 0,
            arguments: &[],
        };
        match self {
            Policy::BusloadS3Fifo => {
                let url = format!("memory:?sync=off&evict=s3-fifo&memory_max={memory}");
                let table = server::Table { name: client::TABLE, url };
                starter.launch(cleanup, data, &launch(ServerKind::Busload), &[table])
            }
            Policy::RedisLru | Policy::RedisLfu => {
                starter.launch(cleanup, data, &launch(ServerKind::Redis), &[])
            }
        }
    }

    /// Gives a server the settings that it was not started with.
    fn set_up(self, client: &mut CacheAside, memory: u64) -> Result<()> {
        let policy = match self {
            Policy::BusloadS3Fifo => return Ok(()),
            Policy::RedisLru => "allkeys-lru",
            Policy::RedisLfu => "allkeys-lfu",
        };
        client.set("maxmemory", &memory.to_string())?;
        client.set("maxmemory-policy", policy)
    }
}
