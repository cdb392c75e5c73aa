//! `busload-bench`: experiments against busload and its peers.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// The allocator of the server, for every way of asking.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    busload_bench::run()
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("busload-bench: runs on Linux only: it pins processes and needs epoll_pwait2");
    ExitCode::FAILURE
}
