//! Measures one row: sets up from where is read, lets the replay run, reads the clocks and the
//! proxy's log.

use anyhow::{Result, anyhow};
use busload_bucket::Bucket;
use futures_util::future::join_all;

use super::{
    arguments::{Dolt, Layout, Section},
    cases::{
        CALLS, CLIENT_BYTES, CONTENTS_BYTES, Case, DICTIONARY_GETS, GETS, MIB_PER_S, P50_MS,
        P99_MS, READ_BYTES, READ_GETS, REPLAYS, SERVER_S, STORE_BYTES, Way,
    },
    client::{Client, Direct, Ranges, Report, Streams, Work},
    tree::TreeStore,
};
use crate::{
    clock::{duration_ns, now_ns},
    experiment::store_bench::{PREFIX, StoreBench, name_of, wait_local},
    failures::Failure,
    harness::{
        Answering, Mark, Sample, Usage, Watched,
        sample::{CPU_LOAD, CPU_OTHERS, SECONDS},
    },
    limits::DOLT_REPLAYS_MAX,
    remote::Remote,
    server::{Server, Table},
    stats::{float, float_of, mebibytes, median, new_histogram, percentile_us, ratio, record},
    store::Traffic,
};

/// Everything that the measurements of rows share.
pub struct Runner<'a> {
    arguments: &'a Dolt,
    /// Servers with everything on their disks: over the far store, and over that at 0 ms.
    warm: [Option<Server>; 2],
    /// The same object store at 0 ms.
    near: Remote,
    tree: TreeStore,
    bench: StoreBench<'a>,
}

impl<'a> Runner<'a> {
    pub fn new(arguments: &'a Dolt, bench: StoreBench<'a>, near: Remote, tree: TreeStore) -> Self {
        Self { arguments, warm: [None, None], near, tree, bench }
    }

    /// Measures a row once.
    pub fn measure(&mut self, case: &Case, round: usize) -> Result<Sample> {
        let seed = self.arguments.seed.wrapping_add(u64::try_from(round).unwrap_or(0) << 32);
        match case.way {
            Way::Download | Way::Downloads | Way::Direct => self.direct(case, seed),
            Way::Cold => {
                // Every measurement has a server of its own whose cache is empty.
                let server = self.start(&self.bench.remote, &[case.layout])?;
                let sample = self.replay(case, seed, &server, &self.bench.remote)?;
                server.stop()?;
                Ok(sample)
            }
            Way::Warm | Way::Near => {
                let is_near = case.way == Way::Near;
                let standing = self.warm[usize::from(is_near)].take();
                let remote = if is_near { &self.near } else { &self.bench.remote };
                let server = match standing {
                    Some(server) => server,
                    None => self.start_warm(remote)?,
                };
                let sample = self.replay(case, seed, &server, remote);
                self.warm[usize::from(is_near)] = Some(server);
                sample
            }
        }
    }

    /// Ends the servers that stand.
    pub fn stop(&mut self) -> Result<()> {
        self.warm.iter_mut().filter_map(Option::take).try_for_each(|server| server.stop().map(drop))
    }

    fn direct(&self, case: &Case, seed: u64) -> Result<Sample> {
        let remote = &self.bench.remote;
        let url = format!("http://{}/{}/{PREFIX}", remote.address(), Bucket::NAME);
        let direct = Direct::new(&url, &self.tree);
        remote.forget();
        let start = Mark::now(Watched::default());
        // As many bytes as the compared row reads: all files, or as long as the leaves.
        let bytes_max = match case.section {
            Section::Scan => self.tree.leaves_bytes(),
            _ => self.tree.store.bytes(),
        };
        let report = self.bench.runtime.block_on(async {
            let at_once = match case.way {
                Way::Download => 1,
                Way::Downloads => self.arguments.ranges,
                _ => return direct.replay(self.work(case, seed)).await,
            };
            direct.download(Ranges { at_once, bytes_max }).await
        });
        let usage = Usage::between(&start, &Mark::now(Watched::default()));
        Ok(self.sample(vec![report], &usage, remote))
    }

    fn work(&self, case: &Case, seed: u64) -> Work {
        match case.section {
            Section::Clone | Section::Clones => Work::Clone,
            Section::Scan => Work::Scan,
            Section::Point => Work::Point { chains: self.arguments.chains, seed },
            Section::Fetch => Work::Fetch { had: self.arguments.pushes - self.arguments.new },
        }
    }

    /// Starts a server with a table for each layout and waits until their stores are open.
    fn start(&self, remote: &Remote, layouts: &[Option<Layout>]) -> Result<Server> {
        let table = |layout: &Option<Layout>| -> Table {
            let own = match layout {
                Some(layout) => format!("fill=whole&dolt_layout={}", name_of(layout)),
                None => "fill=whole".to_owned(),
            };
            self.bench.table(table_name(*layout), &remote.url(PREFIX), &own)
        };
        let tables: Vec<_> = layouts.iter().map(table).collect();
        self.bench.serve(&tables, &self.tree.root)
    }

    /// Starts a server and reads everything, so that all files are on its disk.
    fn start_warm(&self, remote: &Remote) -> Result<Server> {
        let layouts = self.arguments.layout.iter().copied().map(Some);
        let layouts: Vec<_> = std::iter::once(None).chain(layouts).collect();
        let server = self.start(remote, &layouts)?;
        let leaves: Vec<u8> = self.tree.leaves.iter().flat_map(|leaf| leaf.0).collect();
        for name in layouts.into_iter().map(table_name) {
            self.bench.runtime.block_on(async {
                let client = connect(&server, name, Streams::New).await?;
                let scanned = client.replay(&self.tree, Work::Scan).await;
                scanned.map_err(|failure| anyhow!("warming up {name}: {failure:?}"))?;
                // What is read brings its whole file.
                wait_local(server.http(), name, &leaves).await
            })?;
        }
        Ok(server)
    }

    /// Replays once when the cache is cold, else again and again for a while.
    fn replay(&self, case: &Case, seed: u64, server: &Server, remote: &Remote) -> Result<Sample> {
        let (name, work) = (table_name(case.layout), self.work(case, seed));
        remote.forget();
        self.bench.runtime.block_on(async {
            let mut clients = Vec::with_capacity(case.clients);
            for _ in 0..case.clients {
                clients.push(connect(server, name, case.streams).await?);
            }
            let answering = Answering::Process(server.pid());
            let watched = Watched { answering, postgres: None };
            let start = Mark::now(watched);
            let until_ns = now_ns() + duration_ns(self.arguments.seconds);
            let mut reports = Vec::new();
            loop {
                reports.push(self.once(work, &clients).await);
                let is_last =
                    reports.last().is_none_or(Result::is_err) || DOLT_REPLAYS_MAX <= reports.len();
                if case.way == Way::Cold || is_last || until_ns <= now_ns() {
                    break;
                }
            }
            let usage = Usage::between(&start, &Mark::now(watched));
            Ok(self.sample(reports, &usage, remote))
        })
    }

    /// Runs all clients at once; what they did is one report.
    async fn once(&self, work: Work, clients: &[Client]) -> Result<Report, Failure> {
        let began_ns = now_ns();
        let replays = clients.iter().map(|client| client.replay(&self.tree, work));
        let reports = join_all(replays).await;
        let elapsed_ns = now_ns().saturating_sub(began_ns);
        let mut whole = Report { elapsed_ns, ..Report::default() };
        for report in reports {
            let report = report?;
            whole.parts_ns.extend(report.parts_ns);
            whole.counts.merge(&report.counts);
        }
        Ok(whole)
    }

    /// Makes a sample of replays of the same, of which the last may have failed, with what the
    /// object store saw meanwhile.
    fn sample(
        &self,
        replays: Vec<Result<Report, Failure>>,
        usage: &Usage,
        remote: &Remote,
    ) -> Sample {
        let mut sample = Sample::default();
        let mut reports = Vec::with_capacity(replays.len());
        for replay in replays {
            match replay {
                Ok(report) => reports.push(report),
                Err(failure) => sample.failed.add(failure),
            }
        }
        let mut parts = new_histogram().expect("the bounds of a histogram are right");
        reports.iter().flat_map(|report| &report.parts_ns).for_each(|ns| record(&mut parts, *ns));
        let part_ms = |percent| (!parts.is_empty()).then(|| percentile_us(&parts, percent) / 1e3);
        // Replays of the same differ in what was merged.
        let of = |count: fn(&Report) -> u64| {
            median(reports.iter().map(|report| float(count(report)))).unwrap_or_default()
        };
        let (seconds, body_bytes) =
            (of(|report| report.elapsed_ns) / 1e9, of(|report| report.counts.body_bytes));
        let calls = reports.last().into_iter().flat_map(|report| &report.counts.calls);
        let calls: Vec<_> = calls.map(|(method, count)| format!("{count} {method}")).collect();
        sample.remark = calls.join(" + ");
        let replays = float_of(reports.len());
        let server_s = usage.server.map(|server| server * usage.wall_s / replays.max(1.0));
        let read = Traffic::of(&remote.seen(), &self.tree.store.files).of_files();
        sample
            .with(STORE_BYTES, float(self.tree.store.bytes()))
            .with(REPLAYS, replays)
            .with(SECONDS, seconds)
            .with(MIB_PER_S, ratio(mebibytes(body_bytes), seconds))
            .with(P50_MS, part_ms(50.0))
            .with(P99_MS, part_ms(99.0))
            .with(CALLS, of(|report| report.counts.calls.values().sum()))
            .with(GETS, of(|report| report.counts.gets))
            .with(DICTIONARY_GETS, of(|report| report.counts.dictionary_gets))
            .with(CONTENTS_BYTES, of(|report| report.counts.contents_bytes))
            .with(CLIENT_BYTES, body_bytes)
            .with(READ_GETS, float(read.requests))
            .with(READ_BYTES, float(read.bytes))
            .with(SERVER_S, server_s)
            .with(CPU_LOAD, usage.thread)
            .with(CPU_OTHERS, usage.others)
    }
}

/// Returns the name of the table in a layout; whole files are the same in each.
fn table_name(layout: Option<Layout>) -> &'static str {
    match layout {
        None => "db",
        Some(Layout::Files) => "files",
        Some(Layout::Records) => "records",
    }
}

async fn connect(server: &Server, table: &str, streams: Streams) -> Result<Client> {
    let connected = Client::connect(server.http(), table, streams).await;
    connected.map_err(|failure| anyhow!("no connection to the busload server: {failure:?}"))
}
