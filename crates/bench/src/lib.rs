//! Experiments against busload and its peers, over the protocols they speak.
//!
//! ```text
//!   cli --> experiment::{kv, growth, evict, recovery, snapshot, connections, postgres, lakefs,
//!              |          chunks, dolt, stores, disk, costs, report}
//!              |
//!              +--> harness: cases in rounds, medians, ratios, table, CSV, targets, charts
//!              +--> server: programs, started, pinned, stopped by cleanup in any case
//!              +--> delay_proxy: a distance to a server
//!              +--> remote, store: an S3 server in this process, as far away as asked for
//!              +--> measure --> load: one thread, one epoll, requests built ahead
//!              +--> progress: of loading, on stderr
//!              +--> counters: what a load saw; failures: what was refused or wrong
//! ```
//!
//! The server is measured from outside, as its peers are; only `postgres` and `lakefs` also use
//! busload's library for Postgres tables, in this process, where `chunks` and `dolt` run the S3
//! server that busload reads from. The bench runs on Linux only: it pins processes, and the open
//! loop needs `epoll_pwait2`. Elsewhere this library is empty.

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod bytes;
mod cleanup;
mod cli;
mod clock;
mod counters;
mod delay_proxy;
mod experiment;
mod failures;
mod harness;
mod limits;
mod load;
mod machine;
mod measure;
mod naive_server;
mod null_server;
mod progress;
mod random;
mod remote;
mod requests;
mod schedule;
mod server;
mod stats;
mod store;
mod system_calls;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

/// Does what the command line says. Wrong arguments end with 2, everything else that fails with 1.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Kv(arguments) => experiment::kv(arguments),
        Command::Evict(arguments) => experiment::evict(arguments),
        Command::Growth(arguments) => experiment::growth(arguments),
        Command::Recovery(arguments) => experiment::recovery(arguments),
        Command::Snapshot(arguments) => experiment::snapshot(arguments),
        Command::Connections(arguments) => experiment::connections(arguments),
        Command::Postgres(arguments) => experiment::postgres(arguments),
        Command::Lakefs(arguments) => experiment::lakefs(arguments),
        Command::Chunks(arguments) => experiment::chunks(arguments),
        Command::Dolt(arguments) => experiment::dolt(arguments),
        Command::Stores(arguments) => experiment::stores(arguments),
        Command::Disk(arguments) => experiment::disk(arguments),
        Command::Costs(arguments) => experiment::costs(arguments),
        Command::Report(arguments) => experiment::report(arguments),
        Command::NullServer { listen, reply_bytes } => null_server::run(*listen, *reply_bytes),
        Command::NaiveServer { listen, durability, log } => {
            naive_server::run(*listen, *durability, log)
        }
    };
    let Err(error) = result else { return ExitCode::SUCCESS };
    match error.downcast::<clap::Error>() {
        Ok(usage) => usage.exit(),
        Err(error) => eprintln!("busload-bench: {error:#}"),
    }
    ExitCode::FAILURE
}
