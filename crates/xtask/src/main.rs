//! What CI and people run: `cargo xtask ci | test | rules | clients`.
//!
//! ```text
//!  ci ------> format, rules, lints, docs, tests, loom, clients
//!  test ----> a Postgres server's programs, tests
//!  rules ---> rules
//!  clients -> a server of its own, and stock clients against it
//! ```
//!
//! Programs are started with argument vectors; no shell is involved.

#![forbid(unsafe_code)]

mod ci;
mod clients;
mod postgres;
mod rules;
mod steps;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What CI and people run
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Everything a change must pass: format, lints, docs, dependency rules, all tests, loom, stock
    /// clients
    Ci,
    /// All tests. Needs Rust and the programs of a Postgres server
    ///
    /// On Debian and its kin the package postgresql is installed when it is missing and this is
    /// root.
    Test,
    /// Which crate may know which: checked against what cargo resolves
    Rules,
    /// Run stock Redis clients against a freshly built server
    ///
    /// Libraries are downloaded into target/clients; what cannot be had is skipped and said so.
    Clients(clients::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Ci => ci::ci(),
        Task::Test => ci::test(),
        Task::Rules => rules::check(),
        Task::Clients(arguments) => clients::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
