//! One measurement of a row: the database at a distance, a target, a load, the clocks.

use std::{
    future::Future,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use rustix::process::Pid;

use super::{
    arguments::{Approach, Case, Common, Section, Way},
    busload::{Resp, open_library},
    database::{Database, LOADED, RELATION, key, upserted},
    direct::{Pipelines, Pool, Query},
    load::{self, Plan, Target},
    results::with_database,
    route::Route,
};
use crate::{
    cleanup::{Cleanup, Directory, directories},
    cli::busload_at,
    clock::{Window, duration_ns, now_ns, pause},
    counters::Counters,
    failures::Failure,
    harness::{Answering, Ends, Mark, Sample, Usage, Watched},
    machine,
    server::{self, Server},
    stats::float,
};

/// Time after which a window's batch leaves with fewer keys.
const WINDOW_WAIT: Duration = Duration::from_micros(500);

/// Everything that the measurements of rows share.
pub struct Bench<'a> {
    arguments: &'a Common,
    /// Connections of a table that answers in windows.
    window_connections: usize,
    database: Database,
    routes: Vec<Route>,
    /// Index of the route to the database that is measured now.
    route: usize,
    /// The busload server's program, if a case needs it, and the one that runs.
    busload: Option<PathBuf>,
    server: Option<Server>,
    directory: Directory,
    cleanup: Cleanup,
}

impl<'a> Bench<'a> {
    /// Makes everything that does not depend on the distance, and prints and returns what the run
    /// is about.
    pub fn open(
        arguments: &'a Common,
        ways: &[Approach],
        window_connections: usize,
    ) -> Result<(Self, String)> {
        // Looked for before anything takes time.
        let needs_server = ways.iter().any(|approach| approach.way == Way::Resp);
        let named = arguments.binary.busload.as_deref();
        let busload = needs_server.then(|| busload_at(named)).transpose()?;
        let cleanup = Cleanup::install()?;
        let directory = directories(&cleanup, &arguments.out, None)?;
        let connections = ways.iter().map(|way| way.number).max().unwrap_or_default();
        let database = Database::open(arguments, connections)?;
        let programs: Vec<&Path> = busload.iter().map(PathBuf::as_path).collect();
        let load = format!("{} rows; load threads {}", arguments.rows, arguments.workers.max(1));
        let mut about = vec![database.describe()?, load];
        let mut routes = Vec::with_capacity(arguments.distance.len());
        for distance in &arguments.distance {
            let route = Route::open(&database, *distance)?;
            about.extend(route.measure(&database)?);
            routes.push(route);
        }
        let about = machine::about(&programs, about)?;
        println!("{about}");
        let (route, server) = (0, None);
        let bench = Self {
            arguments,
            window_connections,
            database,
            routes,
            route,
            busload,
            server,
            directory,
            cleanup,
        };
        Ok((bench, about))
    }

    /// Measures at another distance, one of the arguments', from now on.
    pub fn go_to(&mut self, distance: Duration) -> Result<()> {
        self.close()?;
        let route = self.routes.iter().position(|route| route.distance == distance);
        self.route = route.context("a distance without a route")?;
        if let Some(busload) = self.busload.clone() {
            let directory = self.directory.path().to_owned();
            let starter = self.arguments.binary.starter(busload, None, directory);
            let url = self.table_url(self.arguments.table_options.as_deref());
            let server = starter.start(&self.cleanup, &[server::Table { name: "bench", url }])?;
            server.wait_for(&format!("GET bench:{}", key(0)), "$35")?;
            self.server = Some(server);
        }
        Ok(())
    }

    /// Ends the busload server.
    pub fn close(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), |server| server.stop().map(drop))
    }

    /// Makes the table as small and as visible as it can be after writes.
    pub fn vacuum(&self) -> Result<()> {
        self.database.execute(&format!("VACUUM (ANALYZE) {RELATION}"))
    }

    /// Measures a row once.
    pub fn measure(&self, case: &Case, round: usize) -> Result<Sample> {
        let (arguments, config) = (self.arguments, self.routes[self.route].config.clone());
        // Of every measurement another: they take more than a millisecond.
        let stamp = now_ns() / 1_000_000;
        let plan = Plan {
            clients: case.clients,
            rate: case.rate,
            rows: arguments.rows,
            stamp: (case.section == Section::Upserts).then_some(stamp),
            locality: case.locality,
            seed: arguments.rounds.seed_of(round),
        };
        let (number, query) = (case.approach.number, plan.stamp.map_or(Query::Read, Query::Upsert));
        match case.approach.way {
            Way::Plain => self.run(plan, None, Pool::open(config, number, query)),
            Way::Pipelined => self.run(plan, None, Pipelines::open(config, number, query)),
            Way::Ceiling => {
                let query = Query::Ceiling(plan.rows);
                self.run(plan, None, Pool::open(config, number, query))
            }
            Way::Window => {
                let options = format!("connections={}", self.window_connections);
                let url = self.table_url(Some(&options));
                self.run(plan, None, open_library(url, Some((number, WINDOW_WAIT))))
            }
            Way::InProcess => {
                let url = self.table_url(arguments.table_options.as_deref());
                self.run(plan, None, open_library(url, None))
            }
            Way::Resp => {
                let server = self.server.as_ref().context("no busload server")?;
                self.run(plan, Some(server.pid()), Resp::open(server.resp(), number))
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
        let proxy = self.routes[self.route].proxy();
        let watched = Watched { answering, postgres: database.pid()?, proxy };
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
        Ok(with_database(sample, batch))
    }

    /// Returns the table as a URL, for the library and for the server's flag.
    fn table_url(&self, options: Option<&str>) -> String {
        let route = &self.routes[self.route];
        let join = if route.url.contains('?') { '&' } else { '?' };
        let own = format!("relation={RELATION}&key=pk&columns=payload&writable=true");
        let has_timeout = options.is_some_and(|options| options.contains("timeout="));
        let timeout = route.timeout().filter(|_| !has_timeout);
        let options = [Some(own.as_str()), timeout, options];
        let options: Vec<_> = options.into_iter().flatten().collect();
        format!("{}{join}{}", route.url, options.join("&"))
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
