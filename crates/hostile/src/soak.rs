//! Tests whose rounds CI cuts short.

/// Returns the number of rounds that a test runs: `usual`, or `all` where the variable
/// `BUSLOAD_SOAK` is set, as `cargo xtask soak` does.
pub fn rounds(usual: u64, all: u64) -> u64 {
    if std::env::var_os("BUSLOAD_SOAK").is_some() { all } else { usual }
}
