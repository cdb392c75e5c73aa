//! `busload-bench`: experiments against busload and its peers, over the protocols they speak.
//!
//! ```text
//!   cli --> experiment::{kv, growth, recovery, connections}
//!              |            |               |
//!              |            |               +--> report: table, CSV
//!              |            +--> measure --> load: one thread, one epoll, requests built ahead
//!              +--> server: started, pinned, stopped (cleanup: whatever happens)
//! ```
//!
//! Nothing here knows busload's crates: it is measured from outside, as its peers are.

#![forbid(unsafe_code)]

mod cell;
mod cleanup;
mod cli;
mod clock;
mod experiment;
mod limits;
mod load;
mod machine;
mod measure;
mod null_server;
mod random;
mod replies;
mod report;
mod requests;
mod schedule;
mod server;
mod stats;
mod strace;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, UsageError};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Kv(arguments) => experiment::kv(arguments),
        Command::Growth(arguments) => experiment::growth(arguments),
        Command::Recovery(arguments) => experiment::recovery(arguments),
        Command::Connections(arguments) => experiment::connections(arguments),
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
