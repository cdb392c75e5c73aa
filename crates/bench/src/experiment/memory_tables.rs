//! Arguments that the experiments on memory tables share, and the servers that they start.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use crate::{
    cleanup::Cleanup,
    harness::{
        Table, TableLayout,
        arguments::{count, keys},
    },
    limits::VALUE_BYTES_MAX,
    machine,
    requests::KeySpace,
    server::{Binary, Durability, Launch, Processors, Server, ServerKind, Starter, busload_at},
};

/// Arguments about servers with memory tables and the machine.
#[derive(Debug, Args)]
#[command(next_help_heading = "Servers and machine")]
pub struct Setup {
    /// Servers to measure; the last one is the baseline of ratios
    #[arg(long, value_enum, value_delimiter = ',', default_value = "busload,redis")]
    pub servers: Vec<ServerKind>,
    /// Durabilities
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none")]
    pub durability: Vec<Durability>,
    /// Wirings of busload: its --net-threads
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    pub net_threads: Vec<u32>,
    /// Distinct keys
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = keys)]
    pub keys: u64,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value = "32", value_parser = count::<0, VALUE_BYTES_MAX>)]
    pub value_bytes: usize,
    #[command(flatten)]
    pub binary: Binary,
    /// The redis-server binary
    #[arg(long, value_name = "PATH", default_value = "redis-server")]
    pub redis: PathBuf,
    #[command(flatten)]
    pub processors: Processors,
    /// Directory for the servers' temporary ones; must be on a disk for durable cases
    /// [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Append the measurements to this file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}

impl Setup {
    /// Returns the keys and values; the seed decides which.
    pub fn space(&self, seed: u64) -> KeySpace {
        KeySpace { keys: self.keys, value_bytes: self.value_bytes, seed }
    }

    /// Returns every durability with every wiring.
    pub fn settings(&self) -> impl Iterator<Item = (Durability, u32)> {
        let wirings = move |&durability| self.net_threads.iter().map(move |&net| (durability, net));
        self.durability.iter().flat_map(wirings)
    }

    /// Returns every server in every durability and wiring.
    pub fn launches(&self) -> impl Iterator<Item = Launch> {
        self.settings().flat_map(move |(durability, net_threads)| {
            let launch = move |&kind| Launch { kind, durability, net_threads, reply_bytes: 0 };
            self.servers.iter().map(launch)
        })
    }
}

/// Servers with memory tables, and where they run.
pub struct Bench<'a> {
    pub cleanup: Cleanup,
    pub starter: Starter,
    setup: &'a Setup,
    about: String,
}

impl<'a> Bench<'a> {
    /// Finds the programs, binds the load's thread and prints what is measured where.
    pub fn new(setup: &'a Setup, kinds: &[ServerKind], more: &str) -> Result<Self> {
        let directory = setup.dir.clone().unwrap_or_else(std::env::temp_dir);
        let busload = match kinds.contains(&ServerKind::Busload) {
            true => busload_at(setup.binary.busload.as_deref())?,
            false => PathBuf::new(),
        };
        let place = machine::directory_text(&directory)?;
        let cpus = Some(setup.processors.server_cpu.clone());
        let starter = Starter {
            redis: setup.redis.clone(),
            ..setup.binary.starter(busload, cpus, directory)
        };
        let cleanup = Cleanup::install()?;
        setup.processors.bind_load()?;
        let programs = kinds.iter().filter_map(|kind| match kind {
            ServerKind::Busload => Some(starter.busload.as_path()),
            ServerKind::Redis => Some(starter.redis.as_path()),
            ServerKind::Null => None,
        });
        let sizes = format!("{} keys, {}-byte values", setup.keys, setup.value_bytes);
        let more = [setup.processors.text(), place, sizes, more.to_owned()];
        let about = machine::about(&programs.collect::<Vec<&Path>>(), more)?;
        println!("{about}");
        Ok(Self { cleanup, starter, setup, about })
    }

    /// Starts a server in a new directory.
    pub fn start(&self, launch: &Launch) -> Result<Server> {
        let data = self.cleanup.directory(&self.starter.directory)?;
        self.starter.launch(&self.cleanup, data, launch, &[])
    }

    /// Opens the table, and the file for the measurements if one was asked for.
    pub fn table<C: Copy>(&self, title: &str, layout: &'static TableLayout<C>) -> Result<Table<C>> {
        let table = Table::open(layout, self.setup.csv.as_deref(), &self.about)?;
        table.print_heading(title);
        Ok(table)
    }
}
