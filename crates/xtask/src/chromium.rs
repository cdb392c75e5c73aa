//! Chromium for the tests of the dashboard, which drive it through a pipe.
//!
//! On Debian and its kin it is installed when it is missing. Where it cannot be had, this says so,
//! and those tests skip themselves.

use std::process::Command;

use anyhow::Result;

use crate::debian;

/// Programs of Chromium, in the order in which the tests look for them.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Makes sure that there is one, where that is possible.
pub fn ensure() -> Result<()> {
    if version().is_none() && debian::can_install() {
        println!("no Chromium found: installing Debian's");
        if let Err(error) = debian::install("chromium") {
            println!("it cannot be installed: {error:#}");
        }
    }
    match version() {
        Some(version) => println!("{version}"),
        None => println!("SKIPPED: no Chromium, and the tests of the dashboard in it"),
    }
    Ok(())
}

fn version() -> Option<String> {
    let version = |program: &&str| {
        let output = Command::new(program).arg("--version").output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    PROGRAMS.iter().find_map(version)
}
