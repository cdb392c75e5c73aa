//! Tasks that CI and people run: `cargo xtask TASK`.
//!
//! ```text
//!  ci ------> format, words, rules, lints, docs, deny, tests, loom, clients
//!  test ----> a Postgres server's programs, Chromium, tests
//!  soak ----> a Postgres server's programs, tests that take long
//!  sim -----> seeds of the simulation, and planted bugs
//!  rules ---> rules
//!  words ---> words
//!  limits --> the table of docs/limits.md
//!  metrics -> docs/metrics.md, by a test of the server
//!  proto ---> crates/proto/src/generated, by a test of the crate
//!  clients -> a server of its own, and stock clients against it
//!  deny ----> licences, origins and known holes of dependencies, by cargo-deny
//!  package -> an archive of a release
//! ```
//!
//! Programs are started with argument vectors; no shell is involved.

#![forbid(unsafe_code)]

mod chromium;
mod ci;
mod clients;
mod debian;
mod deny;
#[cfg(test)]
mod guide;
mod limits;
mod package;
mod planted;
mod postgres;
mod rules;
mod sim;
mod steps;
mod tests;
mod words;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks that CI and people run
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
    /// On Debian and its kin the packages postgresql and chromium are installed when they are
    /// missing and this is root. Without Chromium the tests of the dashboard are skipped.
    Test,
    /// Tests that take long and find something rarely: many kills, faults of every operation on a
    /// file, experiments of the bench
    Soak,
    /// Run many seeds of the simulation of the memory tables
    ///
    /// A failure names its seed: `cargo run -p busload-sim -- --from SEED --seeds 1 --trace` shows
    /// what happened.
    Sim(sim::Arguments),
    /// Check which crate depends on which, as cargo resolves it
    Rules,
    /// Write the table of docs/limits.md from the constants of all limits.rs
    Limits,
    /// Write docs/metrics.md from the server's table of metrics
    Metrics,
    /// Write the code of the gRPC services from their .proto files
    Proto,
    /// Words that have a better one, lines that are too long, docs that say nothing
    Words,
    /// Run stock Redis clients against a freshly built server
    ///
    /// Libraries are downloaded into target/clients; what cannot be had is skipped and said so.
    Clients(clients::Arguments),
    /// Check licences, origins, duplicates and known holes of dependencies (deny.toml)
    Deny,
    /// Build the program and pack it with man pages, completions, docs and what is in deploy/
    Package(package::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Ci => ci::ci(),
        Task::Test => ci::test(),
        Task::Soak => ci::soak(),
        Task::Sim(arguments) => sim::simulate(&arguments),
        Task::Rules => rules::check(),
        Task::Limits => limits::run(limits::Mode::Write),
        Task::Metrics => ci::write_metrics_page(),
        Task::Proto => ci::write_proto_code(),
        Task::Words => words::check(),
        Task::Clients(arguments) => clients::run(&arguments),
        Task::Deny => deny::check(),
        Task::Package(arguments) => package::package(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
