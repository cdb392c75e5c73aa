//! `cargo xtask ci` and `cargo xtask test`.

use anyhow::Result;

use crate::{
    chromium, clients, deny, limits, postgres, rules, sim,
    steps::{Steps, cargo, run},
    tests, words,
};

/// Everything a change must pass.
pub fn ci() -> Result<()> {
    let mut steps = Steps::default();
    steps.step("format", || run(cargo().args(["fmt", "--all", "--check"])));
    steps.step("words", words::check);
    steps.step("limits page", || limits::run(limits::Mode::Check));
    steps.step("dependency rules", rules::check);
    steps.step("clippy", || {
        clippy("busload-bench/soak,busload/otel")?;
        // As it is released.
        clippy("busload-bench/soak")
    });
    steps.step("docs", || {
        let mut doc = cargo();
        doc.env("RUSTDOCFLAGS", "-D warnings");
        run(doc.args(["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"]))
    });
    steps.step("dependencies", deny::check);
    steps.step("Postgres server", postgres::ensure);
    steps.step("Chromium", chromium::ensure);
    let client = clients::prepare();
    steps.step("tests", tests::run_all);
    steps.step("loom", loom);
    steps.step("clients", || {
        // If the build has failed, the check of this client tries again and reports why.
        let _ = client.join();
        clients::run(&clients::Arguments::for_ci())
    });
    steps.finish()
}

fn clippy(features: &str) -> Result<()> {
    let mut clippy = cargo();
    clippy.args(["clippy", "--workspace", "--all-targets", "--features", features, "--quiet"]);
    run(clippy.args(["--", "-D", "warnings"]))
}

/// Runs all tests, as the README says.
pub fn test() -> Result<()> {
    let mut steps = Steps::default();
    steps.step("Postgres server", postgres::ensure);
    steps.step("Chromium", chromium::ensure);
    steps.step("tests", tests::run_all);
    steps.finish()
}

/// Number of times that the server is killed while clients write and snapshots are made.
const SOAK_KILL_ROUNDS: &str = "200";

/// Tests that take long and find something rarely: many kills, a fault of every operation on a
/// file, whole experiments of the bench.
pub fn soak() -> Result<()> {
    let mut steps = Steps::default();
    steps.step("Postgres server", postgres::ensure);
    steps.step("kills", || {
        let mut test = cargo();
        test.env("BUSLOAD_KILL_ROUNDS", SOAK_KILL_ROUNDS);
        run(test.args(["test", "--package", "busload", "--test", "server", "kill::"]))
    });
    steps.step("simulation", || sim::simulate(&sim::Arguments::for_soak(false)));
    steps.step("planted bugs", || sim::simulate(&sim::Arguments::for_soak(true)));
    steps.step("faults of files", || {
        let mut test = cargo();
        test.env("BUSLOAD_FAULTS", "all");
        run(test.args(["test", "--package", "busload", "--test", "server", "faults::any"]))
    });
    steps.step("every crash of the log and of snapshots", || {
        let mut test = cargo();
        test.env("BUSLOAD_SOAK", "1");
        run(test.args(["test", "--package", "busload-log", "--package", "busload-snapshot"]))
    });
    steps.step("slow links and long timeouts", || {
        let mut test = cargo();
        test.args(["test", "--package", "busload", "--test", "server", "--", "--ignored"]);
        run(&mut test)
    });
    steps.step("experiments of the bench", || {
        let mut test = cargo();
        test.args(["test", "--package", "busload-bench", "--features", "soak", "--no-fail-fast"]);
        run(&mut test)
    });
    steps.finish()
}

/// Writes the page of metrics. Only the server's own test can read the table: the server is a
/// binary, and xtask depends on none of our crates.
pub fn write_metrics_page() -> Result<()> {
    let mut test = cargo();
    test.env("BUSLOAD_WRITE_DOCS", "1");
    run(test.args(["test", "--package", "busload", "--bins", "the_page_of_metrics_is_up_to_date"]))
}

/// Writes the code of the gRPC services anew, by the test that compares it.
pub fn write_proto_code() -> Result<()> {
    let mut test = cargo();
    test.env("BUSLOAD_WRITE_GENERATED", "1");
    run(test.args(["test", "--package", "busload-proto", "--test", "generated"]))
}

/// The hand-over between threads in every interleaving. Other flags mean other artifacts: they lie
/// apart.
fn loom() -> Result<()> {
    let mut test = cargo();
    test.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", "target/loom");
    run(test.args(["test", "--release", "--package", "busload-io", "--lib", "handover"]))
}
