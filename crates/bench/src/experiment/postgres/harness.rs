//! Measures one row: sets up what answers, lets the load run, reads the clocks and the counters.

use std::sync::Arc;

use anyhow::{Context, Result, bail};

use super::{
    approach::{Approach, Case, Pace},
    arguments::Postgres,
    ceiling,
    database::{Counts, Database},
    library::{Library, Rule},
    plain::Plain,
    rows::{Key, Sequences, VERSIONS, version_of},
    server,
    tasks::{self, Operation, Requests, Tasks},
    watch::Watch,
    wire::{self, Prefix},
};
use crate::{
    busload::{Server, Starter},
    cleanup::Cleanup,
    clock::{Window, duration_ns, now_ns},
    counters::Counters,
    failures::Failure,
    sample::{Answering, Cpu, Ends, Sample, Watched},
};

/// Versions of upserts are numbered from a multiple of this in every row, so that one can tell
/// whose they are.
const VERSIONS_OF_A_ROW: u64 = 1_000_000;

/// Everything that the measurements of rows share.
pub struct Harness<'a> {
    pub arguments: &'a Postgres,
    pub database: Database,
    cleanup: Cleanup,
    starter: Starter,
    server: Option<Server>,
    measured: u64,
}

/// Result of a load, before Postgres is asked how many statements it took.
struct Outcome {
    counters: Counters,
    window: Window,
    cpu: Cpu,
}

impl<'a> Harness<'a> {
    /// A Postgres with its table, and how busload is started.
    pub fn new(
        arguments: &'a Postgres,
        database: Database,
        cleanup: Cleanup,
        starter: Starter,
    ) -> Self {
        Self { arguments, database, cleanup, starter, server: None, measured: 0 }
    }

    /// Measures a row once.
    pub fn measure(&mut self, case: &Case, round: usize) -> Result<Sample> {
        self.measured += 1;
        let seed = u64::try_from(round).unwrap_or(0).wrapping_add(self.arguments.seed << 8);
        let sequences = Sequences::new(case.keys, self.arguments.source.rows, seed);
        let (mut outcome, statements) = match case.approach {
            Approach::Ceiling { connections } => self.ceiling(case, connections, sequences)?,
            Approach::Plain { connections } => self.plain(case, connections, sequences)?,
            Approach::Window { keys } => {
                let wait = std::time::Duration::from_micros(self.arguments.window_wait_us);
                self.library(case, Rule::Window { keys, wait }, sequences)?
            }
            Approach::Library => self.library(case, Rule::Own, sequences)?,
            Approach::Resp { connections } => self.resp(case, connections, sequences)?,
            Approach::Memory => self.memory(seed)?,
        };
        if case.operation == Operation::Upsert {
            self.verify(&mut outcome.counters)?;
        }
        let Outcome { counters, window, cpu } = &outcome;
        let sample = Sample::new(counters, *window, Ends::WithWindow).with_program(*cpu);
        Ok(sample.with_statements(counters, statements))
    }

    /// Ends the busload server, as before a restart of Postgres.
    pub fn stop_server(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), |server| server.stop().map(drop))
    }

    fn ceiling(
        &mut self,
        case: &Case,
        connections: usize,
        sequences: Sequences,
    ) -> Result<(Outcome, Option<u64>)> {
        let tasks = Tasks::new(self.arguments.workers)?;
        let before = self.database.statements()?;
        let outcome = self.watched(None, |window| {
            let plan = self.plan(case, sequences, window);
            ceiling::run(&tasks, &self.database.config, &self.database.relation, connections, &plan)
        })?;
        drop(tasks);
        Ok((outcome, self.statements_since(before)?))
    }

    fn plain(
        &mut self,
        case: &Case,
        connections: usize,
        sequences: Sequences,
    ) -> Result<(Outcome, Option<u64>)> {
        let tasks = Tasks::new(self.arguments.workers)?;
        let opened = Plain::open(&self.database.config, &self.database.relation, connections);
        let plain = Arc::new(tasks.block_on(opened)?);
        let before = self.database.statements()?;
        let outcome = self.run(case, &tasks, &plain, sequences)?;
        drop((plain, tasks));
        Ok((outcome, self.statements_since(before)?))
    }

    fn library(
        &mut self,
        case: &Case,
        rule: Rule,
        sequences: Sequences,
    ) -> Result<(Outcome, Option<u64>)> {
        let tasks = Tasks::new(self.arguments.workers)?;
        let opened = Library::open(self.arguments, &self.database, rule);
        let library = Arc::new(tasks.block_on(opened)?);
        let before = self.database.statements()?;
        let outcome = self.run(case, &tasks, &library, sequences);
        tasks.block_on(library.close());
        drop((library, tasks));
        Ok((outcome?, self.statements_since(before)?))
    }

    fn resp(
        &mut self,
        case: &Case,
        connections: usize,
        sequences: Sequences,
    ) -> Result<(Outcome, Option<u64>)> {
        let server = self.running_server()?;
        let (address, pid) = (server.resp(), server.pid());
        let before = self.database.statements()?;
        let outcome = self.watched(Some(pid), |window| {
            let plan = wire::Plan {
                address,
                connections: connections.min(case.clients),
                operation: case.operation,
                prefix: Prefix::of_table(server::TABLE),
                sequences,
                window,
                first_version: self.first_version(),
            };
            match case.pace {
                Pace::Closed => wire::run_closed(plan, case.clients),
                Pace::Rate(rate) => wire::run_open(plan, rate),
            }
        })?;
        if self.database.counts() == Counts::Transactions {
            self.stop_server()?;
        }
        Ok((outcome, self.statements_since(before)?))
    }

    /// Measures a memory table with one key: it does not care which one that is.
    fn memory(&mut self, seed: u64) -> Result<(Outcome, Option<u64>)> {
        let server = self.running_server()?;
        let (address, pid) = (server.resp(), server.pid());
        let plan = |operation, window| wire::Plan {
            address,
            connections: 1,
            operation,
            prefix: Prefix::none(),
            sequences: Sequences::new(super::rows::Distribution::Uniform, 1, seed),
            window,
            first_version: 0,
        };
        let now_ns = now_ns();
        wire::run_closed(
            plan(Operation::Upsert, Window { from_ns: now_ns, until_ns: now_ns + 1 }),
            1,
        )?;
        let outcome =
            self.watched(Some(pid), |window| wire::run_closed(plan(Operation::Read, window), 1))?;
        Ok((outcome, None))
    }

    fn run<R: Requests>(
        &self,
        case: &Case,
        tasks: &Tasks,
        requests: &Arc<R>,
        sequences: Sequences,
    ) -> Result<Outcome> {
        self.watched(None, |window| {
            let plan = self.plan(case, sequences, window);
            match case.pace {
                Pace::Closed => tasks.run_closed(requests, &plan, case.clients),
                Pace::Rate(rate) => tasks.run_open(requests, &plan, rate),
            }
        })
    }

    fn plan(&self, case: &Case, sequences: Sequences, window: Window) -> tasks::Plan {
        tasks::Plan {
            operation: case.operation,
            sequences,
            window,
            first_version: self.first_version(),
        }
    }

    fn first_version(&self) -> u64 {
        self.measured * VERSIONS_OF_A_ROW % VERSIONS
    }

    /// Runs a load with the clocks read at both ends of its window, which begins now.
    fn watched(
        &self,
        busload: Option<rustix::process::Pid>,
        load: impl FnOnce(Window) -> Result<Counters>,
    ) -> Result<Outcome> {
        let (warm_up, seconds) = self.arguments.times()?;
        let from_ns = now_ns() + duration_ns(warm_up);
        let window = Window { from_ns, until_ns: from_ns + duration_ns(seconds) };
        let answering = busload.map_or(Answering::Nobody, Answering::Process);
        let watched = Watched { answering, postgres: self.database.pid() };
        let watch = Watch::start(watched, window)?;
        let counters = load(window)?;
        Ok(Outcome { counters, window, cpu: watch.finish()? })
    }

    /// Statements since an earlier count, the connections of the load being closed.
    fn statements_since(&mut self, before: u64) -> Result<Option<u64>> {
        self.database.wait_for_counters()?;
        Ok(Some(self.database.statements()?.saturating_sub(before)))
    }

    /// Whether rows whose upsert was acknowledged hold what this measurement has written.
    fn verify(&mut self, counters: &mut Counters) -> Result<()> {
        let first = self.first_version();
        let keys: Vec<Key> = counters.acknowledged.iter().map(|row| Key::of(*row)).collect();
        let keys: Vec<&str> = keys.iter().map(Key::text).collect();
        let sql = format!("SELECT pk, payload FROM {} WHERE pk = ANY($1)", self.database.relation);
        for row in self.database.query(&sql, &[&keys]).context("cannot verify upserts")? {
            let (key, payload): (&str, &str) = (row.get(0), row.get(1));
            let version = version_of(payload.as_bytes());
            let is_ours = version
                .is_some_and(|version| (version + VERSIONS - first) % VERSIONS < counters.versions);
            if !is_ours {
                counters
                    .failed
                    .add(Failure::Wrong(format!("{key} was acknowledged and holds `{payload}`")));
            }
        }
        Ok(())
    }

    fn running_server(&mut self) -> Result<&Server> {
        if self.server.is_none() {
            let server =
                server::start(&self.starter, &self.cleanup, self.arguments, &self.database)?;
            self.server = Some(server);
        }
        match &self.server {
            Some(server) => Ok(server),
            None => bail!("no busload server"),
        }
    }
}
