//! Arguments that the experiments on memory tables share, and the servers that they start.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;

use crate::{
    cleanup::Cleanup,
    clock::now_ns,
    harness::{
        Table, TableLayout,
        arguments::{count, keys},
    },
    limits::VALUE_BYTES_MAX,
    machine,
    measure::fill,
    requests::KeySpace,
    server::{
        Binary, Durability, Launch, Processors, Server, ServerKind, Starter, ask, busload_at,
    },
    stats::float,
};

/// Connections that write the records.
const WRITERS: usize = 16;

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
    /// The valkey-server binary
    #[arg(long, value_name = "PATH", default_value = "valkey-server")]
    pub valkey: PathBuf,
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
            self.servers.iter().map(move |&kind| Launch {
                kind,
                durability,
                net_threads,
                reply_bytes: 0,
                arguments: &[],
            })
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
            valkey: setup.valkey.clone(),
            ..setup.binary.starter(busload, cpus, directory)
        };
        let cleanup = Cleanup::install()?;
        setup.processors.bind_load()?;
        let programs = kinds.iter().filter_map(|kind| match kind {
            ServerKind::Busload => Some(starter.busload.as_path()),
            ServerKind::Redis => Some(starter.redis.as_path()),
            ServerKind::Valkey => Some(starter.valkey.as_path()),
            ServerKind::Null | ServerKind::Naive => None,
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

    /// Returns the keys and values of the command line.
    pub fn space(&self) -> KeySpace {
        self.setup.space(1)
    }

    /// Writes this many records, again and again to the same keys.
    pub fn write(&self, server: &Server, space: KeySpace, records: u64) -> Result<()> {
        let mut left = records;
        while 0 < left {
            let count = left.min(space.keys);
            fill(server.resp(), WRITERS, space, 0..count)?;
            left -= count;
        }
        Ok(())
    }

    /// Stops a server and starts it again on its directory. Returns it and the seconds that the
    /// stop took; fails if it comes back with another number of keys.
    pub fn restart(&self, server: Server, launch: &Launch, keys: u64) -> Result<(Server, f64)> {
        let began_ns = now_ns();
        let data = server.stop()?;
        let stop_s = float(now_ns() - began_ns) / 1e9;
        let server = self.starter.launch(&self.cleanup, data, launch, &[])?;
        let size = ask(server.resp(), "DBSIZE")?;
        if size != format!(":{keys}") {
            bail!("{keys} keys written; after the restart DBSIZE answers {size}");
        }
        Ok((server, stop_s))
    }

    /// Opens the table, and the file for the measurements if one was asked for.
    pub fn table<C: Copy>(&self, title: &str, layout: &'static TableLayout<C>) -> Result<Table<C>> {
        self.table_in(title, layout, self.setup.csv.as_deref())
    }

    /// Opens the table, and this file for the measurements.
    pub fn table_in<C: Copy>(
        &self,
        title: &str,
        layout: &'static TableLayout<C>,
        csv: Option<&Path>,
    ) -> Result<Table<C>> {
        let table = Table::open(layout, csv, &self.about)?;
        table.print_heading(title);
        Ok(table)
    }
}
