//! `postgres`: many clients' single-key reads and writes of one Postgres table, not batched, in
//! fixed windows, and by busload.
//!
//! ```text
//!   arguments --> cases --> Bench::measure: one case, once --> counters, usage --> Sample
//!                              |                                                    |
//!       database: given or <---+---> load: clients                                  v
//!       own, with the table           +--> direct, busload:      results: the table, ratios,
//!                                          what they ask         targets
//! ```
//!
//! Rows that are compared are measured in turns, round after round, and what is shown are medians.
//! Nothing is bound to a processor: the load, busload and Postgres share the machine, as a service
//! and its database on one machine do; what each uses is shown beside every row. Every reply is
//! checked against the key it was asked for.

mod arguments;
mod busload;
mod database;
mod direct;
mod load;
mod results;

use std::{
    future::Future,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::Pid;

use self::{
    arguments::{Case, Section, WINDOW_KEYS, Way, cases},
    busload::{Resp, open_library},
    database::{Database, LOADED, RELATION, key, upserted},
    direct::{Pool, Query},
    load::{Plan, Target},
    results::{BATCH, LAYOUT, fastest},
};
use crate::{
    cleanup::{Cleanup, directories},
    cli::{busload_at, name_of},
    clock::{Window, duration_ns, now_ns, pause},
    counters::Counters,
    failures::Failure,
    harness::{Answering, Ends, Mark, Sample, Table, Usage, Watched, print_targets, sample::PER_S},
    machine,
    server::{self, Server},
    stats::float,
};

pub use self::arguments::Postgres;

/// Time after which a window's batch leaves with fewer keys.
const WINDOW_WAIT: Duration = Duration::from_micros(500);

/// Options of a table that answers in windows.
const WINDOW_OPTIONS: &str = "connections=20";

pub fn postgres(arguments: &Postgres) -> Result<()> {
    // Looked for before anything takes time.
    let needs_server = arguments.case.iter().any(|approach| approach.way == Way::Resp);
    let busload = match needs_server {
        true => busload_at(arguments.binary.busload.as_deref())?,
        false => PathBuf::new(),
    };
    let cleanup = Cleanup::install()?;
    let directory = directories(&cleanup, &arguments.out, None)?;
    let database = Database::open(arguments)?;
    let programs: &[&Path] = if needs_server { &[&busload] } else { &[] };
    let load = format!("{} rows; load threads {}", arguments.rows, arguments.workers.max(1));
    let about = machine::about(programs, [database.describe()?, load])?;
    println!("{about}");
    let mut table = Table::open(&LAYOUT, Some(&arguments.out.join("statistics.csv")), &about)?;
    let mut bench = Bench { arguments, database, server: None };
    if needs_server {
        let starter = arguments.binary.starter(busload, None, directory.path().to_owned());
        let url = bench.table_url(arguments.table_options.as_deref());
        let server = starter.start(&cleanup, &[server::Table { name: "bench", url }])?;
        server.wait_for(&format!("GET bench:{}", key(0)), "$35")?;
        bench.server = Some(server);
    }
    for &section in &arguments.section {
        let best = fastest(&table.rows, |case| {
            case.section == Section::Readers && case.approach.way == Way::Window
        });
        let window = best.map(|row| row.case.approach.number);
        let cases = cases(arguments, section, window.unwrap_or(WINDOW_KEYS));
        let measure = |case: &_, round| bench.measure(case, round);
        table.group(&section.title(), &cases, arguments.rounds.rounds, measure)?;
        if section == Section::Upserts {
            // What follows finds the table as small and as visible as it can be.
            bench.database.execute(&format!("VACUUM (ANALYZE) {RELATION}"))?;
        }
    }
    if let Some(server) = bench.server {
        server.stop()?;
    }
    let is_of_readers = |case: &Case| case.section == Section::Readers;
    let way = |case: &Case| is_of_readers(case).then(|| name_of(&case.approach.way));
    table.draw(&arguments.out.join("batch-size.svg"), (BATCH, PER_S), way)?;
    let targets = results::targets(&table.rows);
    if targets.iter().any(|target| target.value.is_some()) {
        print_targets(&targets);
    }
    match table.failed().wrong.count {
        0 => Ok(()),
        // A fast wrong answer is none.
        wrong => bail!("{wrong} answers were wrong; see the notes of their rows"),
    }
}

/// Everything that the measurements of rows share.
struct Bench<'a> {
    arguments: &'a Postgres,
    database: Database,
    server: Option<Server>,
}

impl Bench<'_> {
    /// Measures a row once.
    fn measure(&self, case: &Case, round: usize) -> Result<Sample> {
        let (arguments, config) = (self.arguments, self.database.config.clone());
        // Of every measurement another: they take more than a millisecond.
        let stamp = now_ns() / 1_000_000;
        let plan = Plan {
            clients: case.clients,
            rate: case.rate,
            rows: arguments.rows,
            stamp: (case.section == Section::Upserts).then_some(stamp),
            seed: arguments.rounds.seed_of(round),
        };
        let number = case.approach.number;
        match case.approach.way {
            Way::Plain => {
                let query = plan.stamp.map_or(Query::Read, Query::Upsert);
                self.run(plan, None, Pool::open(config, number, query))
            }
            Way::Ceiling => {
                let query = Query::Ceiling(plan.rows);
                self.run(plan, None, Pool::open(config, number, query))
            }
            Way::Window => {
                let url = self.table_url(Some(WINDOW_OPTIONS));
                self.run(plan, None, open_library(url, Some((number, WINDOW_WAIT))))
            }
            Way::InProcess => {
                let url = self.table_url(arguments.table_options.as_deref());
                self.run(plan, None, open_library(url, None))
            }
            Way::Resp => {
                let server = self.server.as_ref().context("no busload server")?;
                let connections = number.min(case.clients);
                self.run(plan, Some(server.pid()), Resp::open(server.resp(), connections))
            }
        }
    }

    /// Runs a load of what `opened` gives, answered by the busload server or by this program.
    fn run<T: Target>(
        &self,
        plan: Plan,
        server: Option<Pid>,
        opened: impl Future<Output = Result<T>>,
    ) -> Result<Sample> {
        let (rounds, database) = (&self.arguments.rounds, &self.database);
        let runtime = load::runtime(self.arguments.workers)?;
        let target = runtime.block_on(opened)?;
        let before = database.statements()?;
        let answering = server.map_or(Answering::Nobody, Answering::Process);
        let watched = Watched { answering, postgres: database.pid()? };
        let from_ns = now_ns() + duration_ns(rounds.warm_up);
        let window = Window { from_ns, until_ns: from_ns + duration_ns(rounds.seconds) };
        let (mut counters, usage) = thread::scope(|scope| {
            let clocks = scope.spawn(|| usage(watched, window));
            let counters = load::run(&runtime, target, plan, window)?;
            let usage = clocks.join().map_err(|_| anyhow!("the thread for clocks panicked"))?;
            anyhow::Ok((counters, usage))
        })?;
        let statements = database.statements()?;
        let statements = statements.zip(before).map(|(after, before)| after.saturating_sub(before));
        if let Some(stamp) = plan.stamp {
            self.verify(&mut counters, stamp)?;
        }
        let sample = Sample::of(&counters, window, Ends::WithWindow).with_program(&usage);
        // The warm-up is part of both, so that statements need not be counted at the very ends of
        // the window.
        let statements = statements.filter(|count| 0 < *count && 0 < counters.answered_ever);
        let batch = statements.map(|count| float(counters.answered_ever) / float(count));
        Ok(sample.with(BATCH, batch))
    }

    /// Returns the table as a URL, for the library and for the server's flag.
    fn table_url(&self, options: Option<&str>) -> String {
        let url = &self.database.url;
        let join = if url.contains('?') { '&' } else { '?' };
        let table = format!("{url}{join}relation={RELATION}&key=pk&columns=payload&writable=true");
        options.map_or_else(|| table.clone(), |options| format!("{table}&{options}"))
    }

    /// Checks that rows whose upsert was acknowledged hold what this measurement has written.
    fn verify(&self, counters: &mut Counters, stamp: u64) -> Result<()> {
        let keys: Vec<_> = counters.acknowledged.iter().map(|row| key(*row)).collect();
        let sql = format!(
            "SELECT format('%s was acknowledged and holds `%s`', key, payload) \
             FROM unnest($1::text[]) key LEFT JOIN {RELATION} ON pk = key \
             WHERE payload IS DISTINCT FROM $2 || key"
        );
        let prefix = &upserted(0, stamp)[..LOADED.len()];
        let lost = self.database.query(&sql, &[&keys, &prefix]);
        for row in lost.context("cannot verify upserts")? {
            counters.failed.add(Failure::Wrong(row.get(0)));
        }
        Ok(())
    }
}

/// Reads the clocks at both ends of a window, on a thread of its own: looking at three hundred
/// sessions takes milliseconds in which no client should have to wait.
fn usage(watched: Watched, window: Window) -> Usage {
    let until = |ns: u64| pause(Duration::from_nanos(ns.saturating_sub(now_ns())));
    until(window.from_ns);
    let start = Mark::now(watched);
    until(window.until_ns);
    Usage::between(&start, &Mark::now(watched))
}
