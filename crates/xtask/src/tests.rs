//! All tests: one build, then as many test programs at a time as the machine has processors, then
//! the examples in docs.
//!
//! `cargo test` runs the programs one after the other, and many of them wait most of the time: for
//! deadlines, for servers that start, for the disk. What a program prints is shown when it fails.

use std::{
    collections::VecDeque,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::steps::{cargo, root, run};

/// Features that tests are built with. A release has none of them; the step of clippy checks that
/// the program can be built so.
pub const FEATURES: [&str; 2] = ["--features", "busload/otel"];
/// Time after which a program is ended: it hangs.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Time between two lines that name a program that runs long.
const NAMED_EVERY: Duration = Duration::from_secs(60);
/// Time between two looks whether a program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Programs that take longest, in that order: they begin first, so that none runs alone at the end.
const FIRST: [&str; 4] =
    ["server --test server", "log --test log", "dolt --test dolt", "objects --test objects"];
/// Tests of the first program that run at a time, beyond one for each processor: a third of its
/// time they wait for deadlines of servers.
const FIRST_EXTRA_THREADS: usize = 1;
/// Variable with the number of tests of a program that run at a time.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// Number of the slowest programs, and of the slowest tests, that the end names.
const SLOWEST_SHOWN: usize = 10;
/// Arguments with which a program prints the time of each test. The test harness of a stable
/// toolchain takes them if [`BOOTSTRAP`] is set.
const REPORT_TIMES: [&str; 2] = ["-Zunstable-options", "--report-time"];
const BOOTSTRAP: &str = "RUSTC_BOOTSTRAP";

/// A program of tests.
#[derive(Debug)]
struct Program {
    /// Package, and what of it is tested, as `cargo test` would be told.
    name: String,
    executable: PathBuf,
    /// Root of the package, in which the program runs.
    directory: PathBuf,
}

/// A program that has run.
#[derive(Debug)]
struct Ran {
    name: String,
    took: Duration,
    /// Its slowest tests, the slowest first.
    slowest: Vec<TimedTest>,
    /// Output of a program that failed.
    failure: Option<String>,
}

/// A test and how long it took.
#[derive(Clone, Debug, PartialEq)]
struct TimedTest {
    seconds: f64,
    name: String,
}

/// Builds and runs the tests of the workspace.
pub fn run_all() -> Result<()> {
    let mut programs = build()?;
    let order = |program: &Program| FIRST.iter().position(|name| *name == program.name);
    programs.sort_by_key(|program| order(program).unwrap_or(FIRST.len()));
    let mut ran = run_programs(programs);
    let docs = run(cargo().args([
        "test",
        "--workspace",
        FEATURES[0],
        FEATURES[1],
        "--doc",
        "--quiet",
        "--no-fail-fast",
    ]));
    ran.sort_by_key(|ran| std::cmp::Reverse(ran.took));
    println!("\nslowest:");
    for Ran { name, took, .. } in ran.iter().take(SLOWEST_SHOWN) {
        println!("{:>6.1} s  {name}", took.as_secs_f64());
    }
    println!("\nslowest tests:");
    let tests = ran.iter().flat_map(|ran| {
        ran.slowest.iter().map(|test| TimedTest {
            seconds: test.seconds,
            name: format!("{}: {}", ran.name, test.name),
        })
    });
    for TimedTest { seconds, name } in slowest(tests) {
        println!("{seconds:>6.1} s  {name}");
    }
    let failed: Vec<&str> =
        ran.iter().filter(|ran| ran.failure.is_some()).map(|ran| ran.name.as_str()).collect();
    if !failed.is_empty() {
        let docs = if docs.is_err() { ", and examples in docs" } else { "" };
        bail!("failed: {}{docs}", failed.join(", "));
    }
    docs
}

fn build() -> Result<Vec<Program>> {
    let mut build = cargo();
    build.args([
        "test",
        "--workspace",
        FEATURES[0],
        FEATURES[1],
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    let built = build.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    if !built.status.success() {
        // The compiler has said why; the messages for programs say nothing more to people.
        bail!("the tests cannot be built: {}", built.status);
    }
    let mut programs = Vec::new();
    for line in String::from_utf8(built.stdout)?.lines() {
        let message: Value = serde_json::from_str(line).context("cargo's messages are JSON")?;
        let Some(executable) = message["executable"].as_str() else { continue };
        if message["profile"]["test"] != true {
            continue;
        }
        let manifest = PathBuf::from(message["manifest_path"].as_str().unwrap_or_default());
        let directory = manifest.parent().context("a manifest lies in a directory")?.to_owned();
        let package = directory.file_name().unwrap_or_default().to_string_lossy();
        let target = message["target"]["name"].as_str().unwrap_or_default();
        let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
        let name = format!("{package} --{kind} {target}");
        programs.push(Program { name, executable: executable.into(), directory });
    }
    Ok(programs)
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn run_programs(programs: Vec<Program>) -> Vec<Ran> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let ran = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..processors() {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let program = run_program(program);
                    let mut ran = ran.lock().unwrap_or_else(PoisonError::into_inner);
                    program.print();
                    ran.push(program);
                }
            });
        }
    });
    ran.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[allow(clippy::disallowed_methods, reason = "people read these times")]
fn run_program(program: Program) -> Ran {
    let start = Instant::now();
    let (output, failure) = match watch(&program, start) {
        Ok(Ended::Well(output)) => (output, None),
        Ok(Ended::Badly(why)) => (why.clone(), Some(why)),
        Err(error) => (String::new(), Some(format!("cannot run it: {error:#}"))),
    };
    let slowest = slowest(output.lines().filter_map(timed));
    Ran { name: program.name, took: start.elapsed(), slowest, failure }
}

/// Returns the slowest tests, the slowest first.
fn slowest(tests: impl Iterator<Item = TimedTest>) -> Vec<TimedTest> {
    let mut tests: Vec<_> = tests.collect();
    tests.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    tests.truncate(SLOWEST_SHOWN);
    tests
}

/// Returns the test that a line of output names, as `test NAME ... ok <1.234s>`.
fn timed(line: &str) -> Option<TimedTest> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (_, time) = outcome.strip_suffix("s>")?.rsplit_once('<')?;
    Some(TimedTest { seconds: time.parse().ok()?, name: name.to_owned() })
}

enum Ended {
    /// Output of a program that succeeded.
    Well(String),
    /// Output, and how it ended.
    Badly(String),
}

/// Runs a program, with its output in a file: a process that it left behind would keep a pipe open.
/// Names it every minute, and ends it after [`PROGRAM_TIMEOUT`].
#[allow(clippy::disallowed_methods, reason = "a program that ended is found soon enough")]
fn watch(program: &Program, start: Instant) -> Result<Ended> {
    let Program { name, executable, directory } = program;
    let file_name = executable.file_name().context("an executable has a name")?;
    let directory_of_output = root().join("target/test-output");
    fs::create_dir_all(&directory_of_output)?;
    let path = directory_of_output.join(file_name).with_extension("txt");
    let file = fs::File::create(&path)?;
    let mut command = Command::new(executable);
    for (variable, _) in std::env::vars_os() {
        // Those of this program; cargo sets others for each package.
        if variable.to_string_lossy().starts_with("CARGO_PKG_") {
            command.env_remove(variable);
        }
    }
    command.args(REPORT_TIMES).env(BOOTSTRAP, "1");
    command.env("CARGO_MANIFEST_DIR", directory).current_dir(directory);
    if *name == FIRST[0] && std::env::var_os(TEST_THREADS).is_none() {
        command.env(TEST_THREADS, (processors() + FIRST_EXTRA_THREADS).to_string());
    }
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn()?;
    let mut named = Duration::ZERO;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status.to_string();
        }
        let took = start.elapsed();
        if PROGRAM_TIMEOUT < took {
            child.kill()?;
            child.wait()?;
            break format!("it ran for {} s and was ended", took.as_secs());
        }
        if named + NAMED_EVERY < took {
            named = took;
            println!("{:>6.1} s  runs  {name}", took.as_secs_f64());
        }
        thread::sleep(POLL_INTERVAL);
    };
    let output = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    if child.try_wait()?.is_some_and(|status| status.success()) {
        return Ok(Ended::Well(output));
    }
    Ok(Ended::Badly(format!("{output}{status}")))
}

impl Ran {
    fn print(&self) {
        let Self { name, took, failure, .. } = self;
        let outcome = if failure.is_some() { "FAILED" } else { "ok" };
        println!("{:>6.1} s  {outcome}  {name}", took.as_secs_f64());
        if let Some(failure) = failure {
            println!("{failure}");
        }
    }
}

#[cfg(test)]
mod times {
    use super::*;

    #[test]
    fn times_of_tests_are_read_from_the_output() {
        let output = "running 4 tests\n\
                      test a::quick ... ok <0.001s>\n\
                      test a::slow - should panic ... ok <12.300s>\n\
                      test b::broken ... FAILED <2.000s>\n\
                      test c::left_out ... ignored, runs in the soak\n\
                      test result: ok. 3 passed <1s>\n";
        let found = slowest(output.lines().filter_map(timed));
        let found: Vec<_> = found.iter().map(|test| (test.seconds, &*test.name)).collect();
        assert_eq!(
            found,
            [(12.3, "a::slow - should panic"), (2.0, "b::broken"), (0.001, "a::quick")]
        );
    }
}
