//! The busload server: command line, configuration, and the HTTP and gRPC fronts.
//!
//! ```text
//!  cli --> config --> serve --> pipeline (main thread, or net and tx) --> threads log, zero-ahead
//!   |         |         +--> threads logger, signals, http; under a service manager, watchdog
//!   |         |         +--> Postgres tables: on the main thread, or with net a thread for each
//!   |         |         +--> chunk stores: threads `chunks`
//!   |         +----> check: the same start on a copy-on-write disk
//!   +----> tools: log, cache, chunks
//! ```
//!
//! A panic in any thread aborts the process: half a pipeline would answer nothing, and a restart
//! recovers from the log.

#![forbid(unsafe_code)]

mod access;
mod cache_work;
mod chunk_sets;
mod chunk_stores;
mod cli;
mod config;
mod failure;
mod grpc;
mod http;
mod latencies;
mod logger;
mod machine;
mod open_files;
mod peers;
mod recovery;
mod reload;
mod rights;
mod savings;
mod serve;
mod service_manager;
mod shown;
mod signals;
mod sources;
mod status;
mod tokens;
mod traces;
mod users_file;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let code = match cli::run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            logger::say_failure(&format!("busload: {failure}"));
            failure.exit_code()
        }
    };
    logger::flush();
    code
}
