//! The experiments, each a file or a folder: arguments, cases, a layout, one measurement.
//!
//! Those on memory tables (`kv`, `connections`, `growth`, `recovery`) share what is in this file.

mod chunks;
mod connections;
mod disk;
mod dolt;
mod growth;
mod kv;
mod postgres;
mod recovery;
mod store_bench;

use std::path::Path;

use anyhow::Result;

pub use self::{
    chunks::{Chunks, chunks},
    connections::{Connections, connections},
    disk::{Disk, disk},
    dolt::{Dolt, dolt},
    growth::{Growth, growth},
    kv::{Kv, kv},
    postgres::{Postgres, postgres},
    recovery::{Recovery, recovery},
};
use crate::{
    cleanup::Cleanup,
    cli::Setup,
    harness::{Table, TableLayout},
    machine,
    server::{Durability, Launch, Server, ServerKind, Starter, busload_at, words},
};

/// Servers with memory tables, and where they run.
struct Bench<'a> {
    cleanup: Cleanup,
    starter: Starter,
    setup: &'a Setup,
    about: String,
}

impl<'a> Bench<'a> {
    /// Finds the programs, binds the load's thread and prints what is measured where.
    fn new(
        setup: &'a Setup,
        kinds: &[ServerKind],
        mut durabilities: impl Iterator<Item = Durability>,
        more: &str,
    ) -> Result<Self> {
        let directory = setup.dir.clone().unwrap_or_else(std::env::temp_dir);
        let needs_busload = kinds.contains(&ServerKind::Busload);
        let busload = if needs_busload {
            busload_at(setup.binary.busload.as_deref())?
        } else {
            "busload".into()
        };
        let cpus = Some(setup.processors.server_cpu.clone());
        let starter = Starter {
            redis: setup.redis.clone(),
            redis_arguments: words(&setup.redis_args),
            ..setup.binary.starter(busload, cpus, directory.clone())
        };
        let cleanup = Cleanup::install()?;
        setup.processors.bind_load()?;
        let is_durable = durabilities.any(|durability| durability != Durability::None);
        if is_durable && machine::is_memory_file_system(&directory)? {
            let directory = directory.display();
            eprintln!("warning: {directory} is in memory: durable cases mean nothing (--dir)");
        }
        let programs: Vec<&Path> = kinds
            .iter()
            .filter_map(|kind| match kind {
                ServerKind::Busload => Some(starter.busload.as_path()),
                ServerKind::Redis => Some(starter.redis.as_path()),
                ServerKind::Null => None,
            })
            .collect();
        let about = machine::about(&programs, [setup.processors.text(), more.to_owned()])?;
        println!("{about}");
        Ok(Self { cleanup, starter, setup, about })
    }

    /// Starts a server in a new directory.
    fn start(&self, launch: &Launch) -> Result<Server> {
        let data = self.cleanup.directory(&self.starter.directory)?;
        self.starter.launch(&self.cleanup, data, launch, &[])
    }

    /// Opens the table, and the file for the measurements if one was asked for.
    fn table<C: Copy>(&self, title: &str, layout: &'static TableLayout<C>) -> Result<Table<C>> {
        let table = Table::open(layout, self.setup.csv.as_deref(), &self.about)?;
        table.print_heading(title);
        Ok(table)
    }
}
