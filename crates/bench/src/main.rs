//! `busload-bench`: experiments against busload and its peers, over the protocols they speak.
//!
//! ```text
//!   cli --> experiment::{kv, growth, recovery, connections, postgres, chunks, dolt, disk}
//!              |            |               |                 |         |      |     |
//!              |            |               |                 |         |      |     +--> threads that read a file
//!              |            |               |                 |         |      +--> a client as Dolt's is, tables, a plot
//!              |            |               |                 |         +--> clients over gRPC, RESP and S3, tables, plots
//!              |            |               |                 +--> clients in process and over RESP, tables, plots
//!              |            |               +--> report: table, CSV
//!              |            +--> measure --> load: one thread, one epoll, requests built ahead
//!              +--> server: started, pinned, stopped (cleanup: whatever happens)
//! ```
//!
//! The server is measured from outside, as its peers are; only `postgres` also uses busload's
//! library for Postgres tables, in this process, where `chunks` and `dolt` run the S3 server that
//! busload reads from. It runs on Linux only: processes are pinned, and the open loop needs
//! `epoll_pwait2`. Elsewhere it builds and says so.

#![forbid(unsafe_code)]

/// As the server has it, for every way of asking.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(target_os = "linux")]
mod busload;
#[cfg(target_os = "linux")]
mod bytes;
#[cfg(target_os = "linux")]
mod case;
#[cfg(target_os = "linux")]
mod chart;
#[cfg(target_os = "linux")]
mod cleanup;
#[cfg(target_os = "linux")]
mod cli;
#[cfg(target_os = "linux")]
mod clock;
#[cfg(target_os = "linux")]
mod counters;
#[cfg(target_os = "linux")]
mod experiment;
#[cfg(target_os = "linux")]
mod failures;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod load;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod measure;
#[cfg(target_os = "linux")]
mod null_server;
#[cfg(target_os = "linux")]
mod presence;
#[cfg(target_os = "linux")]
mod random;
#[cfg(target_os = "linux")]
mod remote;
#[cfg(target_os = "linux")]
mod replies;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod requests;
#[cfg(target_os = "linux")]
mod sample;
#[cfg(target_os = "linux")]
mod schedule;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod sockets;
#[cfg(target_os = "linux")]
mod stats;
#[cfg(target_os = "linux")]
mod strace;
#[cfg(target_os = "linux")]
mod tables;
#[cfg(target_os = "linux")]
mod targets;
#[cfg(target_os = "linux")]
mod traffic;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
use clap::Parser;

#[cfg(target_os = "linux")]
use crate::cli::{Cli, Command, UsageError};

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("busload-bench: runs on Linux only: it pins processes and needs epoll_pwait2");
    ExitCode::FAILURE
}

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Kv(arguments) => experiment::kv(arguments),
        Command::Growth(arguments) => experiment::growth(arguments),
        Command::Recovery(arguments) => experiment::recovery(arguments),
        Command::Connections(arguments) => experiment::connections(arguments),
        Command::Postgres(arguments) => experiment::postgres(arguments),
        Command::Chunks(arguments) => experiment::chunks(arguments),
        Command::Dolt(arguments) => experiment::dolt(arguments),
        Command::Disk(arguments) => experiment::disk(arguments),
        Command::NullServer(arguments) => null_server::run(arguments.listen, arguments.reply_bytes),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("busload-bench: {error:#}");
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}
