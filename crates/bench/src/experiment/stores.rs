//! `stores`: many chunk stores by pattern on one server: how fast they open, and what an open store
//! and a closed one cost.
//!
//! ```text
//!  alone           a few stores, one after the other: round trips to the bucket of a first request
//!  first, second   a third of the stores each: the first request of each opens it
//!  again           another request to every open store
//!  pushed          a file and a manifest are written into some open stores, and at once the chunk
//!                  in that file is asked for, until it is there
//!                  nobody asks any more, and all are closed
//!  third           the last third, which is closed, too: what is resident now beside before was
//!                  left behind by closed stores
//! ```

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    ops::Range,
    path::Path,
};

use anyhow::{Context, Result, bail};
use busload_chunks::{ChunkAddress, FileKind};
use clap::{Args, ValueEnum};

use super::store_bench::{PREFIX, StoreArguments, StoreBench};
use crate::{
    cli::{bail_usage, name_of},
    clock::{duration_ns, now_ns, pause},
    failures::{Failed, Failure},
    harness::{
        Mark, Number, Sample, Table, TableLayout, Target, Unit, Usage, Wanted, Watched,
        arguments::count, hidden, label, print_targets, sample::CPU_OTHERS, shown,
    },
    limits::{CHUNK_FILL, CHUNK_POLL, CHUNKS_MAX, CLIENTS_MAX, SILENCE, STORES_MAX},
    machine::{resident_bytes, threads},
    server::Server,
    stats::{float, float_of, new_histogram, percentile_us, ratio, record},
    store::{Filler, Store, fill},
};

/// Stores that differ; the others have the files of one of them.
const DIFFERENT: usize = 20;
/// Bytes of a chunk's contents.
const CONTENTS_BYTES: usize = 120;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Makes stores of --least to --most chunks (20 different ones, the others are hard links) and starts \
one server with --stores '*/*=URL', so that each store is opened by its first request. One \
connection sends GET of one chunk of each store, --pipeline of them at a time, and every chunk is \
checked against its address. `B/chunk` is what resident memory has grown by since the row before, \
by chunk of the stores opened since; `left B` is what the closed stores of a row left behind. \
`alone` asks one store after the other, so with --over s3 and --first-byte its p50 tells the \
round trips of a first request. `pushed` writes a file and a manifest into open stores and asks \
for the new chunk at once, again and again until it comes: the time from the manifest to the \
chunk. Stores are read from the file system, or, with --over s3, from an S3 server in this \
program, as far away as asked for, whose processor time counts.")]
pub struct Stores {
    /// Stores on the server
    #[arg(long, value_name = "N", default_value = "9000", value_parser = count::<6, STORES_MAX>)]
    stores: usize,
    /// Chunks of the smallest store
    #[arg(long, value_name = "N", default_value = "20", value_parser = count::<1, CHUNKS_MAX>)]
    least: usize,
    /// Chunks of the largest store
    #[arg(long, value_name = "N", default_value = "2000", value_parser = count::<1, CHUNKS_MAX>)]
    most: usize,
    /// Requests that are under way at once
    #[arg(long, value_name = "N", default_value = "400", value_parser = count::<1, CLIENTS_MAX>)]
    pipeline: usize,
    /// Time without requests after which the server closes a store
    #[arg(long, value_name = "SPAN", default_value = "10s")]
    idle: String,
    /// Place that the server reads the stores from
    #[arg(long, value_enum, default_value = "file")]
    over: Over,
    #[command(flatten)]
    store: StoreArguments,
}

/// Kind of the stores' URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Over {
    File,
    S3,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    Alone,
    First,
    Second,
    Again,
    Pushed,
    Third,
}

const REQUESTS: Number = Number::count("requests", "requests");
const PER_S: Number = Number::new("per_s", "per s");
const P50_US: Number = Number::scaled("p50_us", "p50 ms", 1e-3);
const P99_US: Number = Number::scaled("p99_us", "p99 ms", 1e-3);
/// Requests to the store for each request of a client.
const STORE_REQUESTS: Number = Number::new("store_requests", "to store");
const RESIDENT: Number = Number::scaled("resident_bytes", "resident MiB", 1.0 / 1_048_576.0);
const CHUNK_BYTES: Number = Number::new("bytes_per_chunk", "B/chunk");
const LEFT_BYTES: Number = Number::new("left_bytes_per_store", "left B");
const THREADS: Number = Number::count("threads", "threads");

const LAYOUT: TableLayout<Step> = TableLayout {
    columns: &[
        label("step", "step", 6, name_of),
        shown(REQUESTS),
        shown(PER_S),
        shown(P50_US),
        shown(P99_US),
        shown(STORE_REQUESTS),
        shown(RESIDENT),
        shown(CHUNK_BYTES),
        shown(LEFT_BYTES),
        shown(THREADS),
        hidden(CPU_OTHERS),
    ],
    main: PER_S,
    ratios: |_, _| Vec::new(),
};

pub fn stores(arguments: &Stores) -> Result<()> {
    let Stores { stores: count, least, most, idle, store, over, .. } = arguments;
    if most < least {
        bail_usage!("--most is at least --least");
    }
    let bench = StoreBench::start(store, 1)?;
    store.served.processors.bind_load()?;
    let directory = bench.directory(PREFIX);
    let mut made = make(&directory, *count, *least, *most)?;
    let directory = directory.canonicalize().context("the directory of the stores")?;
    let url = match over {
        Over::File => format!("file://{}/{{name}}", directory.display()),
        Over::S3 => bench.remote.url(&format!("{PREFIX}/{{name}}")),
    };
    let mark = if url.contains('?') { '&' } else { '?' };
    let options = format!("disk=0&idle={idle}&stores_max={count}&queue_requests={CLIENTS_MAX}");
    let pattern = format!("*/*={url}{mark}{}", store.served.options(&options));
    let mut starter = bench.starter.clone();
    starter.arguments.extend(["--stores".to_owned(), pattern]);
    let server = starter.start(&bench.cleanup, &[])?;
    let about = bench.about(format!("{count} stores of {least} to {most} chunks"))?;
    let mut table = Table::open(&LAYOUT, Some(&store.out.join("stores.csv")), about)?;
    table.print_heading("Stores by pattern, opened by their first request");
    let third = count / 3;
    let addresses = made.iter().map(addresses_of).collect();
    let mut run = Run { made: addresses, server: &server, resident: 0.0 };
    run.resident = run.resident_bytes()?;
    let alone = DIFFERENT.min(third / 2);
    let pipeline = arguments.pipeline;
    let sample = run.ask(0..alone, 1)?;
    let first_us = sample.get(P50_US);
    table.add(Step::Alone, sample.with(CHUNK_BYTES, None))?;
    table.add(Step::First, run.ask(alone..third, pipeline)?)?;
    table.add(Step::Second, run.ask(third..2 * third, pipeline)?)?;
    let again = run.ask(0..2 * third, pipeline)?;
    table.add(Step::Again, again.with(CHUNK_BYTES, None))?;
    let pushed = run.push(&mut made[..alone])?;
    table.add(Step::Pushed, pushed.with(CHUNK_BYTES, None))?;
    run.wait_closed()?;
    run.resident = run.resident_bytes()?;
    let (before, sample) = (run.resident, run.ask(2 * third..*count, pipeline)?);
    run.wait_closed()?;
    let left = (run.resident_bytes()? - before) / float_of(count - 2 * third);
    table.add(Step::Third, sample.with(LEFT_BYTES, left))?;
    let of = |step, number| table.find(|case| *case == step)?.sample.get(number);
    print_targets(&[
        target("opened each second", Unit::Count, of(Step::Second, PER_S), Wanted::AtLeast(1e3)),
        target(
            "memory of a chunk",
            Unit::Bytes,
            of(Step::Second, CHUNK_BYTES),
            Wanted::AtMost(40.0),
        ),
        target(
            "left by a closed store",
            Unit::Bytes,
            of(Step::Third, LEFT_BYTES),
            Wanted::AtMost(1024.0),
        ),
        target(
            "from a push to its chunk",
            Unit::Seconds,
            of(Step::Pushed, P99_US).map(|us| us / 1e6),
            Wanted::AtMost(1.0),
        ),
    ]);
    if *over == Over::S3 && 0 < store.distance.first_byte {
        let round_trip_us = 1e3 * float(store.distance.first_byte);
        print_targets(&[target(
            "round trips of a first request, rounded down",
            Unit::Count,
            first_us.map(|us| (us / round_trip_us).floor()),
            Wanted::AtMost(3.0),
        )]);
    }
    server.stop()?;
    match table.failed().count() {
        0 => Ok(()),
        failed => bail!("{failed} requests were refused or answered wrongly; see the notes"),
    }
}

fn target(what: &str, unit: Unit, value: Option<f64>, wanted: Wanted) -> Target {
    Target::new(format!("stores by pattern: {what}"), unit, value, wanted)
}

/// Makes the stores, and returns the different ones.
fn make(directory: &Path, count: usize, least: usize, most: usize) -> Result<Vec<Store>> {
    let mut made = Vec::new();
    for number in 0..DIFFERENT.min(count) {
        let chunks = least + (most - least) * number / (DIFFERENT - 1);
        let mut store = Store::create(&directory.join(name(number)))?;
        store.add_file(FileKind::Classic, |push| {
            (0..chunks).try_for_each(|chunk| {
                let mut contents = format!("store {number} chunk {chunk}").into_bytes();
                let seed = u64::try_from(number * CHUNKS_MAX + chunk).unwrap_or_default();
                fill(&mut contents, seed, Filler::Random, CONTENTS_BYTES);
                push(&contents).map(drop)
            })
        })?;
        store.write_manifest(root_of(&store)?)?;
        made.push(store);
    }
    for number in DIFFERENT..count {
        let (from, to) = (directory.join(name(number % DIFFERENT)), directory.join(name(number)));
        fs::create_dir_all(&to).context("a store's directory")?;
        for entry in fs::read_dir(&from).context("a store's directory")? {
            let entry = entry.context("a store's directory")?;
            fs::hard_link(entry.path(), to.join(entry.file_name())).context("a hard link")?;
        }
    }
    Ok(made)
}

fn addresses_of(store: &Store) -> Vec<ChunkAddress> {
    store.chunks.iter().map(|chunk| chunk.address).collect()
}

fn root_of(store: &Store) -> Result<ChunkAddress> {
    Ok(store.chunks.last().context("a store without chunks")?.address)
}

fn name(number: usize) -> String {
    format!("org/{number}")
}

/// The server under measurement.
struct Run<'a> {
    /// Addresses of each different store.
    made: Vec<Vec<ChunkAddress>>,
    server: &'a Server,
    /// Resident memory after the step before, in bytes.
    resident: f64,
}

impl Run<'_> {
    /// Asks each of these stores for one chunk, as many at a time as `pipeline` says.
    fn ask(&mut self, stores: Range<usize>, pipeline: usize) -> Result<Sample> {
        let (mut latency, mut failed) = (new_histogram()?, Failed::default());
        let mut client = Client::connect(self.server.resp())?;
        let (count, asked) = (stores.len(), self.store_requests()?);
        let chunks: usize = stores.clone().map(|store| self.addresses(store).len()).sum();
        let (mark, began_ns) = (Mark::now(Watched::default()), now_ns());
        let mut numbers = stores.peekable();
        while numbers.peek().is_some() {
            let some: Vec<_> = numbers.by_ref().take(pipeline).collect();
            let wanted = some.iter().map(|store| {
                let addresses = self.addresses(*store);
                (*store, addresses[store % addresses.len()])
            });
            client.ask_all(wanted.collect(), |ns, failure| {
                record(&mut latency, ns);
                failure.into_iter().for_each(|failure| failed.add(failure));
            })?;
        }
        let seconds = float(now_ns() - began_ns) / 1e9;
        let usage = Usage::between(&mark, &Mark::now(Watched::default()));
        let resident = self.resident_bytes()?;
        let before = std::mem::replace(&mut self.resident, resident);
        let mut sample = Sample::default();
        sample.failed = failed;
        Ok(sample
            .with(REQUESTS, float_of(count))
            .with(PER_S, ratio(float_of(count), seconds))
            .with(P50_US, percentile_us(&latency, 50.0))
            .with(P99_US, percentile_us(&latency, 99.0))
            .with(STORE_REQUESTS, ratio(self.store_requests()? - asked, float_of(count)))
            .with(RESIDENT, self.resident)
            .with(CHUNK_BYTES, ratio(self.resident - before, float_of(chunks)))
            .with(THREADS, threads(self.server.pid()).map(float))
            .with(CPU_OTHERS, usage.others))
    }

    /// Pushes a chunk into each of these stores, the first ones, and asks for it at once.
    fn push(&mut self, stores: &mut [Store]) -> Result<Sample> {
        let mut latency = new_histogram()?;
        let mut client = Client::connect(self.server.resp())?;
        let (asked, mut requests) = (self.store_requests()?, 0.0);
        for (number, store) in stores.iter_mut().enumerate() {
            let contents = format!("pushed into store {number}");
            store.add_file(FileKind::Classic, |push| push(contents.as_bytes()).map(drop))?;
            let address = root_of(store)?;
            store.write_manifest(address)?;
            let written_ns = now_ns();
            let mut is_there = false;
            while !is_there {
                let mut failure = None;
                client.ask_all(vec![(number, address)], |_, is_other| failure = is_other)?;
                requests += 1.0;
                is_there = failure.is_none();
                if let Some(failure) =
                    failure.filter(|_| written_ns + duration_ns(SILENCE) < now_ns())
                {
                    bail!("what was pushed is not there: {failure:?}");
                }
            }
            record(&mut latency, now_ns() - written_ns);
        }
        let count = float_of(stores.len());
        Ok(Sample::default()
            .with(REQUESTS, requests)
            .with(P50_US, percentile_us(&latency, 50.0))
            .with(P99_US, percentile_us(&latency, 99.0))
            .with(STORE_REQUESTS, ratio(self.store_requests()? - asked, count))
            .with(RESIDENT, self.resident_bytes()?))
    }

    fn addresses(&self, store: usize) -> &[ChunkAddress] {
        &self.made[store % self.made.len()]
    }

    fn resident_bytes(&self) -> Result<f64> {
        resident_bytes(self.server.pid()).map(float).context("the server's memory")
    }

    fn store_requests(&self) -> Result<f64> {
        self.metric("busload_stores_store_requests_total")
    }

    fn metric(&self, name: &str) -> Result<f64> {
        let metrics = self.server.metrics()?;
        metrics.of_pattern(name, "*/*").with_context(|| format!("no metric {name}"))
    }

    /// Waits until the server has closed all stores, of which no event tells.
    fn wait_closed(&self) -> Result<()> {
        let until_ns = now_ns() + duration_ns(CHUNK_FILL);
        while self.metric("busload_stores_open")? != 0.0 {
            if until_ns < now_ns() {
                bail!("stores are open after {CHUNK_FILL:?} without requests");
            }
            pause(CHUNK_POLL);
        }
        Ok(())
    }
}

/// A connection to the server.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(address).context("connecting")?;
        socket.set_read_timeout(Some(SILENCE)).context("a socket's option")?;
        Ok(Self(BufReader::new(socket)))
    }

    /// Asks for these chunks at once. `handle` gets the time until each answer in nanoseconds, and
    /// what is wrong with it.
    fn ask_all(
        &mut self,
        wanted: Vec<(usize, ChunkAddress)>,
        mut handle: impl FnMut(u64, Option<Failure>),
    ) -> Result<()> {
        let mut requests = String::new();
        for (store, address) in &wanted {
            let key = format!("{}:{address}", name(*store));
            requests += &format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
        }
        let sent_ns = now_ns();
        self.0.get_mut().write_all(requests.as_bytes()).context("sending")?;
        for (store, address) in wanted {
            let failure = self.read_chunk(&address)?.map(|what| {
                let text = format!("chunk {address} of {}: {what}", name(store));
                if what.starts_with('-') { Failure::Refused(text) } else { Failure::Wrong(text) }
            });
            handle(now_ns() - sent_ns, failure);
        }
        Ok(())
    }

    /// Reads an answer; returns it if it is not the chunk.
    fn read_chunk(&mut self, address: &ChunkAddress) -> Result<Option<String>> {
        let mut line = String::new();
        self.0.read_line(&mut line).context("reading an answer")?;
        let length = line.trim_end().strip_prefix('$').and_then(|length| length.parse().ok());
        let Some(length) = length.filter(|length: &usize| *length <= CONTENTS_BYTES) else {
            return Ok(Some(line.trim_end().to_owned()));
        };
        let mut contents = vec![0; length + 2];
        self.0.read_exact(&mut contents).context("reading a chunk")?;
        contents.truncate(length);
        let is_right = ChunkAddress::of(&contents) == *address;
        Ok((!is_right).then(|| "other contents".to_owned()))
    }
}
