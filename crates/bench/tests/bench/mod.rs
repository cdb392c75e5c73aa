//! The program as the tests of its experiments run it, and what it wrote.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Seconds of a row, one after the other until what takes its time was measured: on a slow machine,
/// or one with other work, nothing may be answered in the first of them.
#[allow(dead_code, reason = "one experiment replays and has no rows")]
pub const SECONDS: [&str; 4] = ["0.2", "0.5", "2", "5"];

/// Runs an experiment with arguments separated by spaces.
#[allow(dead_code, reason = "one experiment has no directory for its results")]
pub fn bench(experiment: &str, arguments: &str, out: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_busload-bench"))
        .arg(experiment)
        .args(arguments.split_ascii_whitespace())
        .arg("--out")
        .arg(out)
        .output()
        .unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns its output, having ended well.
pub fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// The server's binary belongs to another package: cargo builds it, if the build of the workspace
/// has not yet.
#[allow(dead_code, reason = "one experiment can do without it")]
pub fn busload() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_BIN_EXE_busload-bench"));
    let target = own.parent().and_then(Path::parent).unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "busload", "--target-dir"]).arg(target);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let built = build.output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    own.with_file_name("busload")
}

/// A record of a CSV file: fields by their names.
pub type Record = BTreeMap<String, String>;

/// The records of a CSV file without quoted fields.
pub fn records(out: &Path, file: &str) -> Vec<Record> {
    let content = std::fs::read_to_string(out.join(file)).unwrap();
    let mut lines =
        content.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(','));
    let names: Vec<_> = lines.next().unwrap().collect();
    let record = |fields: std::str::Split<'_, char>| {
        names
            .iter()
            .zip(fields)
            .map(|(name, value)| ((*name).to_owned(), value.to_owned()))
            .collect()
    };
    lines.map(record).collect()
}

pub fn number(record: &Record, name: &str) -> f64 {
    record[name].parse().unwrap_or_else(|_| panic!("{name} of {record:?}"))
}
