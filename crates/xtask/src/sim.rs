//! `cargo xtask sim`: many seeds of the simulation, and bugs planted to show that it finds them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    planted::{BUGS, Bug},
    steps::{cargo, root, run},
};

/// Arguments of `cargo xtask sim`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// First seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Number of seeds
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Plant one bug after the other in a copy of the source, and check that the seeds find each
    #[arg(long)]
    planted: bool,
}

/// Seeds within which each planted bug must be found.
const PLANTED_SEEDS: u64 = 1_000;

impl Arguments {
    /// Arguments of the soak.
    pub fn for_soak(planted: bool) -> Self {
        Self { from: 0, seeds: if planted { PLANTED_SEEDS } else { 10_000 }, planted }
    }
}

/// Runs seeds of the simulation.
pub fn simulate(arguments: &Arguments) -> Result<()> {
    if arguments.planted {
        return find_planted(arguments.seeds.min(PLANTED_SEEDS));
    }
    let mut sim = cargo();
    sim.args(["run", "--release", "--quiet", "--package", "busload-sim", "--"]);
    run(sim.args(seeds(arguments.from, arguments.seeds)))
}

fn seeds(from: u64, count: u64) -> [String; 4] {
    ["--from".into(), from.to_string(), "--seeds".into(), count.to_string()]
}

/// Plants each bug in a copy of the workspace, and runs seeds until one shows it.
fn find_planted(count: u64) -> Result<()> {
    let target = root().join("target/planted");
    let source = target.join("source");
    let _ = fs::remove_dir_all(&source);
    copy_tree(&root().join("crates"), &source.join("crates"))?;
    for name in ["Cargo.toml", "Cargo.lock"] {
        fs::copy(root().join(name), source.join(name)).with_context(|| name.to_owned())?;
    }
    let mut missed = Vec::new();
    for bug in BUGS {
        let originals = plant(&source, bug)?;
        let built =
            run(cargo_of(&source, &target).args(["build", "--quiet", "--package", "busload-sim"]));
        built.with_context(|| format!("the bug `{}` does not compile", bug.name))?;
        let output = Command::new(target.join("debug/busload-sim"))
            .args(seeds(0, count))
            .output()
            .context("the simulation does not start")?;
        if output.status.success() {
            println!("{}: NOT FOUND in {count} seeds", bug.name);
            missed.push(bug.name);
        } else {
            let text = String::from_utf8_lossy(&output.stderr);
            let failure = text.lines().find(|line| line.starts_with("seed "));
            println!("{}: {}", bug.name, failure.unwrap_or("found, without a word"));
        }
        for (path, text) in originals {
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
    }
    if missed.is_empty() { Ok(()) } else { bail!("not found: {}", missed.join(", ")) }
}

fn cargo_of(source: &Path, target: &Path) -> Command {
    let mut command = cargo();
    command.current_dir(source).env("CARGO_TARGET_DIR", target);
    command
}

/// Changes the source. Returns the files as they were.
fn plant(source: &Path, bug: &Bug) -> Result<Vec<(PathBuf, String)>> {
    let mut originals = Vec::new();
    for edit in bug.edits {
        let path = source.join(edit.file);
        let text = fs::read_to_string(&path).with_context(|| edit.file.to_owned())?;
        fs::write(&path, text.replacen(edit.find, edit.replace, 1))?;
        originals.push((path, text));
    }
    // The first of several edits of one file holds what was there before all.
    originals.reverse();
    Ok(originals)
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_tree(&entry.path(), &to)?,
            false => _ = fs::copy(entry.path(), to)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_planted_bug_has_its_place_in_the_source() {
        for bug in BUGS {
            for edit in bug.edits {
                let text = fs::read_to_string(root().join(edit.file)).expect(edit.file);
                let count = text.matches(edit.find).count();
                assert_eq!(count, 1, "{}: `{}` in {}", bug.name, edit.find, edit.file);
            }
        }
    }
}
