//! Measures one row: sets up from where is read, lets the replay run, reads the clocks and the
//! proxy's log.

use anyhow::{Context, Result, anyhow};
use busload_bucket::Bucket;
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};

use super::{
    arguments::Dolt,
    cases::{Case, Layout, Section, Way},
    client::{Client, Counts, Direct, Points, Ranges, Report, Streams},
    sample::Sample,
    store::Store,
};
use crate::{
    busload::{Server, Starter, Table},
    cleanup::Cleanup,
    clock::{duration_ns, now_ns},
    failures::Failure,
    limits::DOLT_REPLAYS_MAX,
    presence::wait_local,
    remote::{Count, Remote},
    sample::{Answering, Cpu, Mark, Watched},
    traffic::Traffic,
};

/// The prefix of the store in the bucket.
pub const PREFIX: &str = "store";

/// The table in the server's own layout: whole files are the same in each.
const TABLE: &str = "db";

/// Everything that the measurements of rows share.
pub struct Harness<'a> {
    pub arguments: &'a Dolt,
    pub cleanup: Cleanup,
    pub starter: Starter,
    /// The object store, and the same at 0 ms.
    pub remotes: Remotes,
    pub store: Store,
    runtime: Runtime,
    warm: Option<Server>,
    near: Option<Server>,
}

/// One bucket at two distances.
#[derive(Debug)]
pub struct Remotes {
    pub far: Remote,
    pub near: Remote,
}

impl<'a> Harness<'a> {
    /// Makes a harness over a store in the object store's directory.
    pub fn new(
        arguments: &'a Dolt,
        cleanup: Cleanup,
        starter: Starter,
        remotes: Remotes,
        store: Store,
    ) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().context("a runtime")?;
        Ok(Self { arguments, cleanup, starter, remotes, store, runtime, warm: None, near: None })
    }

    /// Measures a row once.
    pub fn measure(&mut self, case: &Case, round: usize) -> Result<Sample> {
        let seed = self.arguments.seed.wrapping_add(u64::try_from(round).unwrap_or(0) << 32);
        match case.way {
            Way::Download | Way::Downloads | Way::Direct => self.direct(case, seed),
            Way::Cold => self.cold(case, seed),
            Way::Warm | Way::Near => self.standing(case, seed),
        }
    }

    /// Ends the servers that stand.
    pub fn stop(&mut self) -> Result<()> {
        [self.warm.take(), self.near.take()]
            .into_iter()
            .flatten()
            .try_for_each(|server| server.stop().map(drop))
    }

    fn direct(&self, case: &Case, seed: u64) -> Result<Sample> {
        let direct = Direct::new(self.remotes.far.address(), Bucket::NAME, PREFIX, &self.store);
        self.remotes.far.forget();
        let start = Mark::now(Watched::default());
        let read = self.runtime.block_on(async {
            match (case.way, case.section) {
                (Way::Download, _) => direct.download(&self.ranges(case, 1)).await,
                (Way::Downloads, _) => {
                    direct.download(&self.ranges(case, self.arguments.ranges)).await
                }
                (_, Section::Scan) => direct.scan().await,
                (_, Section::Point) => direct.point(&self.points(seed)).await,
                (_, Section::Fetch) => direct.fetch(self.had()).await,
                (_, Section::Clone | Section::Clones) => Err(Failure::Refused(
                    "whole files are downloaded, not read directly".to_owned(),
                )),
            }
        });
        let cpu = Cpu::between(&start, &Mark::now(Watched::default()));
        Ok(self.sample(vec![read], cpu, &self.remotes.far))
    }

    /// Returns ranges of as many bytes as the compared row reads: all files, or as long as the
    /// leaves.
    fn ranges(&self, case: &Case, at_once: usize) -> Ranges {
        let bytes_max =
            if case.section == Section::Scan { self.leaves_bytes() } else { self.store.bytes() };
        Ranges { at_once, bytes_max }
    }

    /// Bytes of all leaves of the current version as they are in the files.
    pub fn leaves_bytes(&self) -> u64 {
        let entries = self.store.leaves.iter().filter_map(|leaf| self.store.find(leaf));
        entries.map(|entry| u64::from(entry.location.span.length)).sum()
    }

    fn points(&self, seed: u64) -> Points {
        Points { chains: self.arguments.chains, readers: 1, seed }
    }

    /// Pushes that the client of a fetch has.
    fn had(&self) -> usize {
        self.arguments.pushes - self.arguments.new
    }

    /// Every measurement has a server of its own whose cache is empty.
    fn cold(&self, case: &Case, seed: u64) -> Result<Sample> {
        let server = self.start(&self.remotes.far, &[case.layout])?;
        self.remotes.far.forget();
        let sample = self.replay(case, seed, &server, &self.remotes.far)?;
        server.stop()?;
        Ok(sample)
    }

    /// Measures with one server for all rows, with everything on its disk.
    fn standing(&mut self, case: &Case, seed: u64) -> Result<Sample> {
        let is_near = case.way == Way::Near;
        let standing = if is_near { self.near.take() } else { self.warm.take() };
        let remote = if is_near { &self.remotes.near } else { &self.remotes.far };
        let server = match standing {
            Some(server) => server,
            None => self.start_warm(remote)?,
        };
        remote.forget();
        let sample = self.replay(case, seed, &server, remote);
        *if is_near { &mut self.near } else { &mut self.warm } = Some(server);
        sample
    }

    /// Starts a server with a table for each layout and waits until their stores are open.
    fn start(&self, remote: &Remote, layouts: &[Option<Layout>]) -> Result<Server> {
        let tables: Vec<_> = layouts.iter().map(|layout| self.table(remote, *layout)).collect();
        let server = self.starter.start(&self.cleanup, &tables)?;
        for table in &tables {
            server.wait_for(&format!("EXISTS {}:{}", table.name, self.store.root), ":1")?;
        }
        Ok(server)
    }

    fn table(&self, remote: &Remote, layout: Option<Layout>) -> Table {
        let own = match layout {
            Some(layout) => format!("fill=whole&dolt_layout={}", layout.name()),
            None => "fill=whole".to_owned(),
        };
        Table::of_chunks(
            table_name(layout),
            &remote.url(PREFIX),
            &self.arguments.served.options(&own),
        )
    }

    fn start_warm(&self, remote: &Remote) -> Result<Server> {
        let own = [None];
        let layouts: Vec<_> =
            own.into_iter().chain(self.arguments.layout.iter().copied().map(Some)).collect();
        let server = self.start(remote, &layouts)?;
        let leaves: Vec<u8> = self.store.leaves.iter().flat_map(|leaf| leaf.0).collect();
        for layout in layouts {
            let name = table_name(layout);
            self.runtime.block_on(async {
                let client = connect(&server, name, Streams::New).await?;
                client
                    .scan(&self.store)
                    .await
                    .map_err(|failure| anyhow!("warming up {name}: {failure:?}"))?;
                // What is read brings its whole file.
                wait_local(server.http(), name, &leaves).await
            })?;
        }
        Ok(server)
    }

    /// Once when the cache is cold, else again and again for a while.
    fn replay(&self, case: &Case, seed: u64, server: &Server, remote: &Remote) -> Result<Sample> {
        let name = table_name(case.layout);
        self.runtime.block_on(async {
            let mut clients = Vec::with_capacity(case.clients);
            for _ in 0..case.clients {
                clients.push(connect(server, name, case.streams).await?);
            }
            let answering = Answering::Process(server.pid());
            let watched = Watched { answering, postgres: None };
            let start = Mark::now(watched);
            let until_ns = now_ns() + duration_ns(self.arguments.repeat());
            let mut reports = Vec::new();
            loop {
                reports.push(self.once(case, seed, &clients).await);
                let is_last =
                    reports.last().is_none_or(Result::is_err) || DOLT_REPLAYS_MAX <= reports.len();
                if case.way == Way::Cold || is_last || until_ns <= now_ns() {
                    break;
                }
            }
            let cpu = Cpu::between(&start, &Mark::now(watched));
            Ok(self.sample(reports, cpu, remote))
        })
    }

    /// Runs all clients at once; what they did is one report.
    async fn once(&self, case: &Case, seed: u64, clients: &[Client]) -> Result<Report, Failure> {
        let began_ns = now_ns();
        let reports = join_all(clients.iter().map(|client| self.by_one(case, seed, client))).await;
        let elapsed_ns = now_ns().saturating_sub(began_ns);
        let mut whole = Report { elapsed_ns, parts_ns: Vec::new(), counts: Counts::default() };
        for report in reports {
            let report = report?;
            whole.parts_ns.extend(report.parts_ns);
            whole.counts.merge(&report.counts);
        }
        Ok(whole)
    }

    async fn by_one(&self, case: &Case, seed: u64, client: &Client) -> Result<Report, Failure> {
        match case.section {
            Section::Clone | Section::Clones => client.clone_files(&self.store).await,
            Section::Scan => client.scan(&self.store).await,
            Section::Point => client.point(&self.store, &self.points(seed)).await,
            Section::Fetch => client.fetch(&self.store, self.had()).await,
        }
    }

    /// At most the last has failed.
    fn sample(&self, reports: Vec<Result<Report, Failure>>, cpu: Cpu, remote: &Remote) -> Sample {
        let mut failure = None;
        let mut ended = Vec::with_capacity(reports.len());
        for report in reports {
            match report {
                Ok(report) => ended.push(report),
                Err(failed) => failure = Some(failed),
            }
        }
        Sample::new(&ended, failure, cpu, self.asked(remote))
    }

    /// Counts the requests for table files since the log was emptied.
    fn asked(&self, remote: &Remote) -> Count {
        Traffic::of(&remote.seen(), &self.store.files).of_files()
    }
}

fn table_name(layout: Option<Layout>) -> &'static str {
    layout.map_or(TABLE, Layout::name)
}

async fn connect(server: &Server, table: &str, streams: Streams) -> Result<Client> {
    let connected = Client::connect(server.http(), table, streams).await;
    connected.map_err(|failure| anyhow!("no connection to the busload server: {failure:?}"))
}
