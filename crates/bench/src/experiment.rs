//! The experiments, each a file: start, load, measure, report.

mod chunks;
mod connections;
mod disk;
mod dolt;
mod growth;
mod kv;
mod postgres;
mod recovery;
mod store_bench;

use std::{net::SocketAddr, path::Path};

use anyhow::{Context, Result};
use rustix::process::Pid;

pub use self::{
    chunks::{Chunks, chunks},
    connections::connections,
    disk::{Disk, disk},
    dolt::{Dolt, dolt},
    growth::growth,
    kv::kv,
    postgres::{Postgres, postgres},
    recovery::recovery,
};
use crate::{
    cleanup::{Cleanup, Directory},
    cli::{Setup, bail_usage},
    clock::utc_now,
    machine,
    measure::{Plan, Sample, fill, measure},
    random::Random,
    report::{Csv, Field},
    requests::{KeySpace, Operation},
    server::{Durability, Kind, Launch, Programs, Server},
};

/// State that the experiments on memory tables share.
struct Bench<'a> {
    cleanup: Cleanup,
    programs: Programs,
    setup: &'a Setup,
    about: String,
}

impl<'a> Bench<'a> {
    /// Finds the programs, binds the load's thread and prints what is measured where.
    fn new(setup: &'a Setup, kinds: &[Kind], durable: bool) -> Result<Self> {
        let programs = setup.programs(kinds)?;
        let cleanup = Cleanup::install()?;
        setup.processors.bind_load()?;
        if durable && machine::is_memory_file_system(&setup.directory())? {
            eprintln!(
                "warning: {} is in memory: durable measurements mean nothing there (--dir)",
                setup.directory().display()
            );
        }
        let about = about(setup, &programs, kinds)?;
        println!("{about}");
        Ok(Self { cleanup, programs, setup, about })
    }

    /// Starts a server in a new directory.
    fn start(
        &self,
        kind: Kind,
        durability: Durability,
        net_threads: u32,
        null: (Operation, usize),
    ) -> Result<Target> {
        let directory = self.cleanup.directory(&self.setup.directory())?;
        let server = self.start_in(directory.path(), kind, durability, net_threads, null)?;
        Ok(Target {
            name: kind.name(),
            address: server.address(),
            pid: Some(server.pid()),
            started: Some((server, directory)),
        })
    }

    /// Opens the file for the measurements, if one was asked for.
    fn csv<R>(&self, fields: &'static [Field<R>]) -> Result<Option<Csv<R>>> {
        let path = self.setup.csv.as_deref();
        path.map(|path| Csv::open(path, &self.about, fields)).transpose()
    }

    fn start_in(
        &self,
        directory: &Path,
        kind: Kind,
        durability: Durability,
        net_threads: u32,
        null_reply: (Operation, usize),
    ) -> Result<Server> {
        let launch = Launch { kind, durability, net_threads, directory, null_reply };
        self.programs.start(&self.cleanup, &launch)
    }
}

/// A server under measurement.
struct Target {
    name: &'static str,
    address: SocketAddr,
    pid: Option<Pid>,
    /// The directory goes after the server.
    started: Option<(Server, Directory)>,
}

impl Target {
    /// Writes out what it has written so far, so that the next measurement starts from a quiet
    /// disk.
    fn settle(&self) -> Result<()> {
        self.started.as_ref().map_or(Ok(()), |(_, directory)| machine::settle(directory.path()))
    }

    /// A plan for any server, for this one.
    fn plan<'a>(&self, plan: &Plan<'a>) -> Plan<'a> {
        Plan { address: self.address, pid: self.pid, ..*plan }
    }

    /// Ends a server whose data nobody needs any more.
    fn discard(self) {
        drop(self.started);
    }
}

/// Writes all keys to every server, over this many connections.
fn fill_all(targets: &[Target], clients: usize, space: KeySpace) -> Result<()> {
    targets.iter().try_for_each(|target| {
        fill(target.address, clients, space, 0..space.keys)
            .with_context(|| format!("filling {}", target.name))
    })
}

/// Measures servers in turns; their medians. The baseline, named last, goes first. Before each
/// measurement of a durable case the server's disk is settled.
fn medians(
    targets: &[Target],
    rounds: usize,
    seed: u64,
    durability: Durability,
    plan: &Plan<'_>,
) -> Result<Vec<Sample>> {
    let mut random = Random::new(seed);
    let mut samples = vec![Vec::new(); targets.len()];
    for _ in 0..rounds {
        let start = random.next() >> 8;
        for (target, samples) in targets.iter().zip(&mut samples).rev() {
            if durability != Durability::None {
                target.settle()?;
            }
            let plan = Plan { start, ..target.plan(plan) };
            samples.push(measure(&plan).with_context(|| format!("measuring {}", target.name))?);
        }
    }
    Ok(samples.iter().map(|samples| Sample::median(samples)).collect())
}

/// Date, machine and versions in one line.
fn about(setup: &Setup, programs: &Programs, kinds: &[Kind]) -> Result<String> {
    let mut parts = vec![utc_now(), machine::describe()];
    parts.push(setup.processors.text());
    for kind in kinds {
        match kind {
            Kind::Busload => parts.push(machine::program_version(&programs.busload)?),
            Kind::Redis => parts.push(machine::program_version(&programs.redis)?),
            Kind::Null => {}
        }
    }
    Ok(parts.join("; "))
}

/// Refuses a list with nothing in it.
fn require<T>(list: &[T], what: &str) -> Result<()> {
    if list.is_empty() {
        bail_usage!("{what} needs at least one value");
    }
    Ok(())
}

/// The reply of the null server where nobody cares.
fn null_reply(space: KeySpace) -> (Operation, usize) {
    (Operation::Set, space.value_bytes)
}
