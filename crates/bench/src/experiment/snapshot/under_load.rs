//! Load beside a snapshot, and the same load without one.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context, Result, anyhow};

use super::{
    Snapshot, Work,
    saving::{Saved, Way},
};
use crate::{
    cli::name_of,
    clock::pause,
    experiment::memory_tables::Bench,
    harness::{
        Number, Sample, Table, TableLayout, Target, Unit,
        Wanted::{AtLeast, AtMost},
        hidden, label,
        sample::{
            CPU_LOAD, CPU_SERVER, LATE_P99_US, LOST_SHARE, MAX_US, P50_US, P99_US, P999_US, PER_S,
            SECONDS,
        },
        shown,
    },
    limits::{MEMORY_LOOK, SNAPSHOT_LOAD},
    machine::{resident_bytes, settle},
    measure::{Pace, Plan, SERVER_US, SLOW_PER_S, fill, fill_by, measure},
    random::Random,
    requests::{KeySpace, Operation, Pool, Pools, letters, write_hset},
    server::{Launch, Server, ServerKind},
    stats::{float, ratio},
};

/// A load, and the snapshot beside it if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    launch: Launch,
    work: Work,
    pace: Pace,
    saving: Option<Way>,
}

const RATIO: Number = Number::new("ratio", "ratio");
const P99_RATIO: Number = Number::new("p99_ratio", "p99x");
const RESIDENT: Number = Number::scaled("resident_bytes", "resident MiB", 1.0 / 1_048_576.0);
const RESIDENT_BASE: Number = Number::new("resident_base_bytes", "");
const MEMORY_RATIO: Number = Number::new("memory_ratio", "mem x");
const SAVE_S: Number = Number::new("save_s", "snap s");

const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("server", "server", 8, |case| name_of(&case.launch.kind)),
        label("durability", "durable", 6, |case| name_of(&case.launch.durability)),
        label("net_threads", "", 3, |case| case.launch.net_threads.to_string()),
        label("work", "work", 4, |case| name_of(&case.work)),
        label("pace", "pipe", 6, |case| case.pace.name()),
        label("snapshot", "snapshot", 7, |case| {
            case.saving.map_or_else(|| "before".to_owned(), |way| name_of(&way))
        }),
        shown(PER_S),
        shown(RATIO),
        shown(P50_US),
        shown(P99_US),
        shown(P999_US),
        shown(MAX_US),
        shown(P99_RATIO),
        shown(SLOW_PER_S),
        shown(RESIDENT),
        shown(MEMORY_RATIO),
        shown(SAVE_S),
        shown(CPU_LOAD),
        shown(CPU_SERVER),
        hidden(SERVER_US),
        hidden(SECONDS),
        hidden(RESIDENT_BASE),
        hidden(LOST_SHARE),
        hidden(LATE_P99_US),
    ],
    main: PER_S,
    ratios: |row, rows| {
        let before = Case { saving: None, ..row.case };
        let before = rows.iter().find(|row| row.case == before);
        let beside = |number| ratio(row.sample.or_zero(number), before?.sample.or_zero(number));
        let is_before = row.case.saving.is_none();
        let beside = |number| beside(number).filter(|_| !is_before);
        vec![(RATIO, beside(PER_S)), (P99_RATIO, beside(P99_US))]
    },
};

pub fn measure_all(
    arguments: &Snapshot,
    bench: &Bench<'_>,
    csv: Option<&Path>,
) -> Result<Vec<Target>> {
    let mut table = bench.table_in("Load beside a snapshot", &LAYOUT, csv)?;
    let (space, seed) = (arguments.setup.space(arguments.rounds.seed), arguments.rounds.seed);
    let keys = Pool::build(Operation::Set, space, arguments.pipeline);
    let value = letters(&mut Random::new(seed), space.value_bytes);
    let mut random = Random::new(seed);
    let fields =
        Pool::of(keys.len(), |out| write_hset(out, random.below(arguments.fields), &value));
    for launch in arguments.setup.launches() {
        let launch = launch.without_snapshots();
        let server = bench.start(&launch)?;
        let mut subject = Subject { arguments, server, keys: &keys, fields: &fields, base: 0.0 };
        subject.prepare(space, launch)?;
        for &work in &arguments.work {
            let closed = Pace::Pipeline(arguments.pipeline);
            let limit = subject.group(&mut table, launch, work, closed)?;
            let open = match arguments.open_rate {
                Some(rate) => rate,
                None => subject.half_of_open_limit(launch, work, limit)?,
            };
            subject.group(&mut table, launch, work, Pace::Rate(open))?;
        }
    }
    Ok(targets(&table))
}

/// A server under load.
struct Subject<'a> {
    arguments: &'a Snapshot,
    server: Server,
    keys: &'a Pool,
    fields: &'a Pool,
    /// Resident memory before any snapshot.
    base: f64,
}

impl Subject<'_> {
    /// Writes the keys and the hash, and looks at the memory when connections have their buffers.
    fn prepare(&mut self, space: KeySpace, launch: Launch) -> Result<()> {
        let (address, clients) = (self.server.resp(), self.arguments.clients);
        fill(address, clients, space, 0..space.keys)?;
        if self.arguments.work.contains(&Work::Hset) {
            fill_by(write_hset, address, 1, space, 0..self.arguments.fields)?;
        }
        let pace = Pace::Pipeline(self.arguments.pipeline);
        let case = Case { launch, work: Work::Set, pace, saving: None };
        self.base = self.measure(&case, 0)?.or_zero(RESIDENT);
        Ok(())
    }

    /// Returns half the throughput of an open loop, whose requests come one by one and cost more
    /// than the pipelines that reach `limit`.
    fn half_of_open_limit(&self, launch: Launch, work: Work, limit: u64) -> Result<u64> {
        let case = Case { launch, work, pace: Pace::Rate(limit), saving: None };
        let limit = whole(self.measure(&case, 0)?.or_zero(PER_S));
        // In whole thousands, so that columns are short.
        Ok((limit / 2_000 * 1_000).max(1_000))
    }

    /// Measures a load without and with every kind of snapshot; returns its throughput without.
    fn group(
        &self,
        table: &mut Table<Case>,
        launch: Launch,
        work: Work,
        pace: Pace,
    ) -> Result<u64> {
        let ways = Way::of(launch.kind).iter().copied().map(Some);
        let case = |saving| Case { launch, work, pace, saving };
        let cases: Vec<_> = [None].into_iter().chain(ways).map(case).collect();
        let rounds = self.arguments.rounds.rounds;
        let rows = table.group("", &cases, rounds, |case, round| self.measure(case, round))?;
        let per_s = rows.first().context("a row without a snapshot")?.sample.or_zero(PER_S);
        Ok(whole(per_s))
    }

    fn measure(&self, case: &Case, round: usize) -> Result<Sample> {
        if let Some(way) = case.saving {
            way.save(&self.server, || ())?;
        }
        settle(self.server.directory())?;
        let (rounds, stop) = (&self.arguments.rounds, AtomicBool::new(false));
        let plan = Plan {
            address: self.server.resp(),
            pid: Some(self.server.pid()),
            clients: self.arguments.clients,
            pace: case.pace,
            pools: Pools {
                all: self.keys,
                first: (case.work == Work::Hset).then_some(self.fields),
            },
            start: Random::new(rounds.seed_of(round)).next() >> 8,
            warm_up: rounds.warm_up,
            window: if case.saving.is_some() { SNAPSHOT_LOAD } else { rounds.seconds },
            stop: Some(&stop),
        };
        let (sample, watched) = thread::scope(|scope| {
            let watching = scope.spawn(|| self.watch(case, &stop));
            let sample = measure(&plan);
            let is_first = !stop.swap(true, Ordering::Relaxed);
            let watched = watching.join().map_err(|_| anyhow!("the watching thread panicked"))?;
            let unfinished = is_first && case.saving.is_some();
            anyhow::Ok((sample?.flag("unfinished", unfinished), watched?))
        })?;
        let Watched { resident, saved } = watched;
        let resident = resident + saved.map_or(0.0, |saved| saved.copied_bytes);
        Ok(sample
            .with(RESIDENT, resident)
            .with(RESIDENT_BASE, self.base)
            .with(MEMORY_RATIO, ratio(resident, self.base))
            .with(SAVE_S, saved.map(|saved| saved.seconds)))
    }

    /// Looks at the memory until the load stops, or makes a snapshot, which stops the load.
    fn watch(&self, case: &Case, stop: &AtomicBool) -> Result<Watched> {
        let mut highest = 0;
        let mut look = || highest = highest.max(resident_bytes(self.server.pid()).unwrap_or(0));
        let saved = match case.saving {
            None => {
                while !stop.load(Ordering::Relaxed) {
                    look();
                    pause(MEMORY_LOOK);
                }
                None
            }
            Some(way) => {
                pause(self.arguments.rounds.warm_up);
                let saved = way.save(&self.server, &mut look);
                stop.store(true, Ordering::Relaxed);
                Some(saved?)
            }
        };
        look();
        Ok(Watched { resident: float(highest), saved })
    }
}

/// Facts about a server that were seen beside a load.
struct Watched {
    /// Highest resident memory in bytes.
    resident: f64,
    saved: Option<Saved>,
}

/// Returns the whole part of a number of requests.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are positive")]
fn whole(per_s: f64) -> u64 {
    per_s as u64
}

fn targets(table: &Table<Case>) -> Vec<Target> {
    let mut targets = Vec::new();
    let is_ours = |case: &Case| case.launch.kind == ServerKind::Busload;
    for row in table.rows.iter().filter(|row| is_ours(&row.case)) {
        let Case { work, pace, saving: Some(_), .. } = row.case else { continue };
        let mut add = |what: &str, unit, number, wanted| {
            let what = format!("{}, {}: {what}", name_of(&work), pace.name());
            targets.push(Target::new(what, unit, row.sample.get(number), wanted));
        };
        if matches!(pace, Pace::Pipeline(_)) {
            add("throughput beside a snapshot", Unit::Percent, RATIO, AtLeast(0.9));
        }
        add("p99 beside a snapshot", Unit::Times, P99_RATIO, AtMost(1.2));
        add("memory beside a snapshot", Unit::Times, MEMORY_RATIO, AtMost(1.05));
        let before = table.find(|case| *case == Case { saving: None, ..row.case });
        let slow = before.map_or(0.0, |row| row.sample.or_zero(SLOW_PER_S));
        add("replies above 5 ms a second", Unit::Count, SLOW_PER_S, AtMost(slow));
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Durability;

    #[test]
    fn a_row_is_compared_with_the_same_load_without_a_snapshot() {
        let (kind, durability) = (ServerKind::Busload, Durability::Always);
        let launch = Launch { kind, durability, net_threads: 0, reply_bytes: 0, arguments: &[] };
        let mut table = Table::open(&LAYOUT, None, "").unwrap();
        let mut add = |pace, saving, per_s: f64, p99_us: f64| {
            let sample = Sample::default().with(PER_S, per_s).with(P99_US, p99_us);
            let sample = sample.with(SLOW_PER_S, p99_us / 1_000.0).with(MEMORY_RATIO, 1.04);
            table.add(Case { launch, work: Work::Set, pace, saving }, sample).unwrap();
        };
        let (closed, open) = (Pace::Pipeline(64), Pace::Rate(1_000));
        add(closed, None, 100.0, 1_000.0);
        add(closed, Some(Way::Bgsave), 95.0, 1_500.0);
        add(open, None, 50.0, 200.0);
        add(open, Some(Way::Bgsave), 50.0, 200.0);
        let ratios = |index: usize| {
            let sample = &table.rows[index].sample;
            (sample.get(RATIO), sample.get(P99_RATIO))
        };
        assert_eq!(
            [0, 1, 3].map(ratios),
            [(None, None), (Some(0.95), Some(1.5)), (Some(1.0), Some(1.0))]
        );
        let shown: Vec<_> = targets(&table).iter().map(Target::shown).collect();
        assert_eq!(shown.len(), 4 + 3);
        assert_eq!(
            shown[0],
            "set, 64: throughput beside a snapshot | 95.0% | at least 90.0% | reached"
        );
        assert_eq!(
            shown[1],
            "set, 64: p99 beside a snapshot | 1.50x | at most 1.20x | NOT REACHED"
        );
        assert_eq!(
            shown[6],
            "set, 1k/s: replies above 5 ms a second | 0.20 | at most 0.20 | reached"
        );
    }
}
