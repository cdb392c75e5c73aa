//! The busload server: command line, configuration, and the HTTP and gRPC fronts.
//!
//! ```text
//!  cli --> config --> serve --> pipeline (main thread, or net and tx) --> threads log, zero-ahead
//!             |         +--> threads signals, http
//!             |         +--> sources: a thread for each Postgres table
//!             |         +--> chunk stores: threads `chunks`
//!             +----> check: the same start on a copy-on-write disk
//!             +----> tools: log, cache, chunks
//! ```
//!
//! A panic in any thread aborts the process: half a pipeline would answer nothing, and a restart
//! recovers from the log.

#![forbid(unsafe_code)]

mod cache_tools;
mod cache_work;
mod check;
mod chunk_stores;
mod chunks_tools;
mod cli;
mod config;
mod failure;
mod grpc;
mod http;
mod http_client;
mod log_tools;
mod logger;
mod machine;
mod open_files;
mod overlay;
mod progress;
mod serve;
mod shown;
mod signals;
mod sources;
mod status;

use std::{io::Write, process::ExitCode};

use cli::{Command, LogCommand, Request, ServeArgs};
use config::{Config, TableChanges};
use failure::Failure;
use machine::Machine;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            logger::say(&format!("busload: {failure}"));
            failure.exit_code()
        }
    }
}

fn run() -> Result<(), Failure> {
    match cli::parse(std::env::args_os())? {
        Request::Print(text) => {
            // A closed standard output is no failure.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Ok(())
        }
        Request::Do(command) => match *command {
            Command::Serve(arguments) => serve::serve(load(arguments)?),
            Command::Check(arguments) => check::check(&load(arguments)?),
            Command::Log(LogCommand::Verify(log)) => log_tools::verify(log.data.as_deref()),
            Command::Log(LogCommand::Dump(dump)) => {
                log_tools::dump(dump.log.data.as_deref(), dump.from)
            }
            Command::Cache(mut command) => {
                let (file, options) = command.take_configuration();
                let config = Config::load(
                    file.as_deref(),
                    options,
                    TableChanges::default(),
                    &Machine::this(),
                )?;
                cache_tools::run(&command, &config)
            }
            Command::Chunks(command) => chunks_tools::run(&command),
        },
    }
}

fn load(arguments: ServeArgs) -> Result<Config, Failure> {
    let changes = arguments.table_changes();
    Config::load(arguments.config.as_deref(), arguments.options, changes, &Machine::this())
}
