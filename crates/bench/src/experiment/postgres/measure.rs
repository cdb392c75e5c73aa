//! Measures one row: sets up what answers, lets the load run, reads the clocks and the counters.

use std::{future::Future, net::SocketAddr, thread, time::Duration};

use anyhow::{Context, Result, anyhow};
use rustix::process::Pid;

use super::{
    arguments::Postgres,
    cases::{Approach, Case, Operation},
    database::Database,
    direct::Pool,
    library::Library,
    load::{Plan, Request, Target, Tasks},
    resp::Resp,
    rows::{Sequence, VERSIONS, check, key, version_of},
    table::{BATCH, STATEMENTS_PER_S},
};
use crate::{
    cleanup::Cleanup,
    clock::{Window, duration_ns, now_ns, pause},
    counters::Counters,
    failures::Failure,
    harness::{Answering, Ends, Mark, Sample, Usage, Watched, sample::PER_S},
    server::{Server, Starter, Table},
    stats::float,
};

/// Versions of upserts are numbered from a multiple of this in every row, so that one can tell
/// whose they are.
const VERSIONS_OF_A_ROW: u64 = 1_000_000;

/// Name of the busload server's table over Postgres.
const TABLE: &str = "bench";

/// Text before a row's key in commands about that table.
const TABLE_PREFIX: &str = "bench:";

/// Everything that the measurements of rows share.
pub struct Bench<'a> {
    pub arguments: &'a Postgres,
    pub database: Database,
    pub cleanup: Cleanup,
    pub starter: Starter,
    pub server: Option<Server>,
    /// Number of measurements so far; each has versions of its own.
    pub measured: u64,
}

impl Bench<'_> {
    /// Measures a row once.
    pub fn measure(&mut self, case: &Case, round: usize) -> Result<Sample> {
        self.measured += 1;
        let plan = Plan {
            case: *case,
            rows: self.arguments.source.rows,
            seed: self.arguments.rounds.seed_of(round),
            window: Window { from_ns: 0, until_ns: 0 },
            first_version: self.measured * VERSIONS_OF_A_ROW % VERSIONS,
        };
        let (config, relation) = (self.database.config.clone(), self.database.relation.clone());
        match case.approach {
            Approach::Plain(connections) => {
                self.run(plan, None, Pool::open(&config, &relation, connections, None))
            }
            Approach::Ceiling(connections) => {
                let further = Sequence::of_clients(case.keys, plan.rows, plan.seed ^ 1).next();
                self.run(plan, None, Pool::open(&config, &relation, connections, further))
            }
            Approach::Window(keys) => {
                let window = (keys, Duration::from_micros(self.arguments.window_wait_us));
                self.run(plan, None, Library::open(self.table_url(true), Some(window)))
            }
            Approach::Library => self.run(plan, None, Library::open(self.table_url(false), None)),
            Approach::Resp(connections) => {
                let (address, pid) = self.running_server()?;
                let connections = connections.min(case.clients);
                self.run(plan, Some(pid), Resp::open(address, connections, TABLE_PREFIX))
            }
            Approach::Memory => {
                let (address, pid) = self.running_server()?;
                let written = async {
                    let resp = Resp::open(address, 1, "").await?;
                    let write = Request { client: 0, row: 0, version: Some(0) };
                    resp.ask(write).await.map_err(|failure| anyhow!("SET: {failure:?}"))?;
                    Ok(resp)
                };
                self.run(Plan { rows: 1, ..plan }, Some(pid), written)
            }
        }
    }

    /// Runs a load of what `opened` gives, answered by the busload server or by this program.
    fn run<T: Target>(
        &mut self,
        mut plan: Plan,
        server: Option<Pid>,
        opened: impl Future<Output = Result<T>>,
    ) -> Result<Sample> {
        let (arguments, case, first_version) = (self.arguments, plan.case, plan.first_version);
        let tasks = Tasks::new(if server.is_some() { 0 } else { arguments.workers })?;
        let target = tasks.block_on(opened)?;
        let before = self.database.statements()?;
        let answering = server.map_or(Answering::Nobody, Answering::Process);
        let watched = Watched { answering, postgres: self.database.pid()? };
        let from_ns = now_ns() + duration_ns(arguments.rounds.warm_up);
        let window = Window { from_ns, until_ns: from_ns + duration_ns(arguments.rounds.seconds) };
        plan.window = window;
        let (mut counters, usage) = watch(watched, window, || tasks.run(target, plan))?;
        // Connections end with it.
        drop(tasks);
        if server.is_some() && !self.database.counts_statements {
            self.stop_server()?;
        }
        self.database.wait_for_counters()?;
        let statements = self.database.statements()?.saturating_sub(before);
        if case.operation == Operation::Upsert {
            self.verify(&mut counters, first_version)?;
        }
        let sample = Sample::of(&counters, window, Ends::WithWindow).with_program(&usage);
        // The warm-up is part of both, so that statements need not be counted at the very ends of
        // the window.
        let is_counted = 0 < statements && 0 < counters.answered_ever;
        let is_counted = is_counted && case.approach != Approach::Memory;
        let batch = is_counted.then(|| float(counters.answered_ever) / float(statements));
        let statements_per_s = batch.map(|batch| sample.or_zero(PER_S) / batch);
        Ok(sample.with(BATCH, batch).with(STATEMENTS_PER_S, statements_per_s))
    }

    /// Returns the table as a URL, for the library and for the server's flag.
    fn table_url(&self, is_window: bool) -> String {
        let (arguments, Database { url, relation, .. }) = (self.arguments, &self.database);
        let join = if url.contains('?') { '&' } else { '?' };
        let mut url =
            format!("{url}{join}relation={relation}&key=pk&columns=payload&writable=true");
        let window_connections = is_window.then_some(arguments.window_connections);
        if let Some(connections) = window_connections.or(arguments.busload_connections) {
            url.push_str(&format!("&connections={connections}"));
        }
        if let (false, Some(options)) = (is_window, &arguments.table_options) {
            url.push_str(&format!("&{options}"));
        }
        url
    }

    /// Starts the busload server if there is none, and waits until it answers from Postgres.
    fn running_server(&mut self) -> Result<(SocketAddr, Pid)> {
        if self.server.is_none() {
            let table = Table { name: TABLE, url: self.table_url(false) };
            let server = self.starter.start(&self.cleanup, &[table])?;
            server.wait_for(&format!("GET {TABLE_PREFIX}{}", key(0)), "$35")?;
            self.server = Some(server);
        }
        let server = self.server.as_ref().context("no busload server")?;
        Ok((server.resp(), server.pid()))
    }

    /// Ends the busload server, as before a restart of Postgres.
    pub fn stop_server(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), |server| server.stop().map(drop))
    }

    /// Checks that rows whose upsert was acknowledged hold what this measurement has written.
    fn verify(&mut self, counters: &mut Counters, first_version: u64) -> Result<()> {
        let keys: Vec<_> = counters.acknowledged.iter().map(|row| key(*row)).collect();
        let sql = format!("SELECT pk, payload FROM {} WHERE pk = ANY($1)", self.database.relation);
        for row in self.database.query(&sql, &[&keys]).context("cannot verify upserts")? {
            let (key, payload): (&str, &str) = (row.get(0), row.get(1));
            let is_ours = version_of(payload.as_bytes()).is_some_and(|version| {
                (version + VERSIONS - first_version) % VERSIONS < counters.versions
            });
            let is_whole = check(key.parse().unwrap_or(u64::MAX), Some(payload.as_bytes())).is_ok();
            if !is_ours || !is_whole {
                let why = format!("{key} was acknowledged and holds `{payload}`");
                counters.failed.add(Failure::Wrong(why));
            }
        }
        Ok(())
    }
}

/// Runs a load, with the clocks read at both ends of its window by a thread of its own: looking at
/// three hundred sessions takes milliseconds in which no client should have to wait.
fn watch(
    watched: Watched,
    window: Window,
    load: impl FnOnce() -> Result<Counters>,
) -> Result<(Counters, Usage)> {
    let until = |ns: u64| pause(Duration::from_nanos(ns.saturating_sub(now_ns())));
    thread::scope(|scope| {
        let clocks = thread::Builder::new().name("clocks".to_owned()).spawn_scoped(scope, || {
            until(window.from_ns);
            let start = Mark::now(watched);
            until(window.until_ns);
            Usage::between(&start, &Mark::now(watched))
        });
        let clocks = clocks.context("a thread for clocks")?;
        let counters = load()?;
        let usage = clocks.join().map_err(|_| anyhow!("the thread for clocks panicked"))?;
        Ok((counters, usage))
    })
}
