//! `dolt`: what Dolt's own client does with a remote, replayed against a store some milliseconds
//! away: directly, and through busload cold and warm.
//!
//! ```text
//!   arguments --> cases: rows, layout, targets --> Runner --> store_bench: servers of busload, an
//!                                                   |   |     S3 server, proxies with a log
//!      tree: a store as pushes of Dolt make it <----+   |
//!                                                       +--> client: clone, scan, point, fetch
//!         remotesapi: calls as Dolt's client makes them <--+--> downloads: GETs of ranges
//! ```
//!
//! Rows that are compared are measured in turns, round after round, and what is shown are medians.
//! Every chunk is checked against its address, every file against what was written.

mod arguments;
mod cases;
mod client;
mod downloads;
mod remotesapi;
mod tree;

use anyhow::{Context, Result, anyhow, bail};
use busload_bucket::Bucket;
use clap::ValueEnum;
use futures_util::future::join_all;
use tokio::time::timeout;

pub use self::arguments::Dolt;
use self::{
    arguments::{Layout, Section},
    cases::{Case, LAYOUT, Way},
    client::Client,
    downloads::{Counts, Meter},
    tree::TreeStore,
};
use super::store_bench::{PREFIX, StoreBench, wait_local};
use crate::{
    bytes::bytes_text,
    cli::name_of,
    clock::{duration_ns, now_ns},
    failures::Failed,
    harness::{
        Answering, Mark, Sample, Table, Usage, Watched, print_targets,
        sample::{CPU_LOAD, CPU_OTHERS, SECONDS},
    },
    limits::{CHUNK_FILL, DOLT_REPLAYS_MAX},
    remote::{Distance, Remote},
    server::Server,
    stats::{float, float_of, new_histogram, percentile_us, record},
    store::Traffic,
};

pub fn dolt(arguments: &Dolt) -> Result<()> {
    arguments.check()?;
    let Dolt { design, store, clients, chains, .. } = arguments;
    let bench = StoreBench::start(store, design.seed)?;
    let near = bench.remote.beside(Distance::ZERO, design.seed)?;
    store.served.processors.bind_load()?;
    let tree = TreeStore::make(&bench.directory(PREFIX), design)?;
    let text = format!("{}, {} of them in the current version", tree.store.text(), tree.current);
    let about = bench.about(text)?;
    let mut table = Table::open(&LAYOUT, Some(&store.out.join("statistics.csv")), about)?;
    let (ms, bytes) = (store.distance.first_byte, bytes_text(tree.store.bytes()));
    let (current, leaves_bytes) = (tree.current, bytes_text(tree.leaves_bytes));
    let mut runner = Runner { arguments, warm: [None, None], near, tree, bench };
    let sections = Section::value_variants().iter();
    for section in sections.filter(|section| arguments.section.contains(section)) {
        let title = match section {
            Section::Clone => format!("A clone of {bytes}, store {ms} ms away"),
            Section::Clones => format!("{clients} clones at once of {bytes}"),
            Section::Scan => format!("A scan of {current} chunks; plain: {leaves_bytes} of leaves"),
            Section::Point => format!("{chains} rows by key, a chain of chunks each"),
            Section::Fetch => format!("A fetch of the last of {} pushes", design.pushes),
            Section::Query => format!(
                "DoltHub's query: {} rows by key, one after the other, by each of many clients",
                arguments.query_chains
            ),
        };
        let cases = cases::of(*section, arguments);
        table.group(&title, &cases, arguments.rounds, |case, round| runner.measure(case, round))?;
    }
    for server in runner.warm.into_iter().flatten() {
        server.stop()?;
    }
    print_targets(&cases::targets(&table));
    // A fast wrong answer is none, nor is a refusal.
    match table.failed().count() {
        0 => Ok(()),
        failed => bail!("{failed} replays were refused or answered wrongly; see the notes"),
    }
}

/// Everything that the measurements of rows share.
struct Runner<'a> {
    arguments: &'a Dolt,
    /// Servers with everything on their disks: over the far store, and over that at 0 ms.
    warm: [Option<Server>; 2],
    /// The same object store at 0 ms.
    near: Remote,
    tree: TreeStore,
    bench: StoreBench<'a>,
}

impl Runner<'_> {
    /// Measures a row once.
    fn measure(&mut self, case: &Case, round: usize) -> Result<Sample> {
        let remote = if case.way == Way::Near { &self.near } else { &self.bench.remote };
        match case.way {
            Way::Download | Way::Downloads | Way::Direct => self.replay(case, round, None, remote),
            Way::Cold => {
                // Every measurement has a server of its own whose cache is empty.
                let server = self.start(remote, &[case.layout])?;
                let sample = self.replay(case, round, Some(&server), remote)?;
                server.stop()?;
                Ok(sample)
            }
            Way::Warm | Way::Near => {
                let standing = usize::from(case.way == Way::Near);
                if self.warm[standing].is_none() {
                    self.warm[standing] = Some(self.start_warm(remote)?);
                }
                self.replay(case, round, self.warm[standing].as_ref(), remote)
            }
        }
    }

    /// Starts a server with a table for each layout and waits until their stores are open.
    fn start(&self, remote: &Remote, layouts: &[Option<Layout>]) -> Result<Server> {
        let table = |layout: &Option<Layout>| {
            let layout_option = layout.map(|layout| format!("&dolt_layout={}", name_of(&layout)));
            let own = format!("fill=whole{}", layout_option.unwrap_or_default());
            self.bench.table(table_name(*layout), &remote.url(PREFIX), &own)
        };
        let tables: Vec<_> = layouts.iter().map(table).collect();
        self.bench.serve(&tables, &self.tree.root)
    }

    /// Starts a server and reads everything, so that all files are on its disk.
    fn start_warm(&self, remote: &Remote) -> Result<Server> {
        let mut layouts = vec![None];
        layouts.extend(self.arguments.layout.iter().copied().map(Some));
        let server = self.start(remote, &layouts)?;
        let leaves: Vec<u8> = self.tree.leaves.iter().flat_map(|leaf| leaf.0).collect();
        for name in layouts.into_iter().map(table_name) {
            self.bench.runtime.block_on(async {
                let (http, meter) = (server.http(), Meter::default());
                let client = Client::of_busload(http, name, &self.tree, &meter).await?;
                let scan = client.replay(Section::Scan, Way::Warm, 0, 0);
                let scanned = timeout(CHUNK_FILL, scan).await.context("warming up does not end")?;
                scanned.map_err(|failure| anyhow!("warming up {name}: {failure:?}"))?;
                // What is read brings its whole file.
                wait_local(http, name, &leaves).await
            })?;
        }
        Ok(server)
    }

    /// Replays again and again for a while when the cache is warm, else once. Without a server it
    /// reads the object store itself. What the object store saw meanwhile is part of the sample.
    fn replay(
        &self,
        case: &Case,
        round: usize,
        server: Option<&Server>,
        remote: &Remote,
    ) -> Result<Sample> {
        let (tree, meter) = (&self.tree, Meter::default());
        let Dolt { design, seconds, .. } = self.arguments;
        let Case { section, way, layout, clients: count } = *case;
        let chains = match section {
            Section::Query => self.arguments.query_chains,
            _ => self.arguments.chains,
        };
        let seed = design.seed.wrapping_add(u64::try_from(round)? << 32);
        let url = format!("http://{}/{}/{PREFIX}", remote.address(), Bucket::NAME);
        let (mut samples, mut parts) = (Vec::new(), new_histogram()?);
        let mut failed = Failed::default();
        remote.forget();
        let usage = self.bench.runtime.block_on(async {
            let mut clients = Vec::with_capacity(count);
            for _ in 0..count {
                clients.push(match server {
                    None => Client::of_store(&url, tree, &meter),
                    Some(server) => {
                        let table = table_name(layout);
                        Client::of_busload(server.http(), table, tree, &meter).await?
                    }
                });
            }
            let pid = server.map(Server::pid);
            let answering = pid.map_or(Answering::Nobody, Answering::Process);
            let watched = Watched { answering, ..Watched::default() };
            let start = Mark::now(watched);
            let until_ns = now_ns() + duration_ns(*seconds);
            let is_repeated = matches!(way, Way::Warm | Way::Near);
            loop {
                let began_ns = now_ns();
                // What all clients do at once is one replay.
                let replays = clients.iter().zip(seed..);
                let replays = replays.map(|(one, seed)| one.replay(section, way, chains, seed));
                let replays = timeout(CHUNK_FILL, join_all(replays)).await;
                let replays = replays.with_context(|| format!("no end after {CHUNK_FILL:?}"))?;
                let seconds = float(now_ns().saturating_sub(began_ns)) / 1e9;
                let counts = meter.take();
                for replay in replays {
                    match replay {
                        Ok(parts_ns) => parts_ns.iter().for_each(|ns| record(&mut parts, *ns)),
                        Err(failure) => failed.add(failure),
                    }
                }
                let has_failed = 0 < failed.count();
                if !has_failed {
                    samples.push(sample(seconds, &counts));
                }
                let is_over = until_ns <= now_ns() || DOLT_REPLAYS_MAX <= samples.len();
                if has_failed || is_over || !is_repeated {
                    break anyhow::Ok(Usage::between(&start, &Mark::now(watched)));
                }
            }
        })?;
        let part_ms = |percent| (!parts.is_empty()).then(|| percentile_us(&parts, percent) / 1e3);
        let replays = float_of(samples.len());
        let server_s = usage.server.map(|server| server * usage.wall_s / replays.max(1.0));
        let read = Traffic::of(&remote.seen(), &tree.store.files).of_files();
        // Replays of the same differ in what was merged.
        let mut sample = Sample::median(&samples);
        sample.failed = failed;
        Ok(sample
            .with(cases::STORE_BYTES, float(tree.store.bytes()))
            .with(cases::REPLAYS, replays)
            .with(cases::P50_MS, part_ms(50.0))
            .with(cases::P99_MS, part_ms(99.0))
            .with(cases::READ_GETS, float(read.requests))
            .with(cases::READ_BYTES, float(read.bytes))
            .with(cases::SERVER_S, server_s)
            .with(CPU_LOAD, usage.thread)
            .with(CPU_OTHERS, usage.others))
    }
}

/// Makes a sample of a replay in which nothing failed.
fn sample(seconds: f64, counts: &Counts) -> Sample {
    let calls = counts.calls.iter().map(|(method, count)| format!("{count} {method}"));
    let mut sample = Sample::default();
    sample.remark = calls.collect::<Vec<_>>().join(" + ");
    sample
        .with(SECONDS, seconds)
        .with(cases::CALLS, float(counts.calls.values().sum()))
        .with(cases::GETS, float(counts.gets))
        .with(cases::DICTIONARY_GETS, float(counts.dictionary_gets))
        .with(cases::CLIENT_BYTES, float(counts.body_bytes))
}

/// Returns the name of the table in a layout; whole files are the same in each.
fn table_name(layout: Option<Layout>) -> &'static str {
    match layout {
        None => "db",
        Some(Layout::Files) => "files",
        Some(Layout::Records) => "records",
    }
}
