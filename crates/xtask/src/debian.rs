//! Packages of Debian and its kin that tests need.

use std::{os::unix::fs::MetadataExt, process::Command};

use anyhow::Result;

use crate::steps::run;

/// Returns whether packages can be installed: there is apt-get, and this is root.
pub fn can_install() -> bool {
    is_debian() && is_root()
}

/// Installs a package without those that it only recommends.
pub fn install(package: &str) -> Result<()> {
    run(apt_get().arg("update"))?;
    run(apt_get().args(["install", "--yes", "--no-install-recommends", package]))
}

fn is_debian() -> bool {
    Command::new("apt-get").arg("--version").output().is_ok_and(|apt| apt.status.success())
}

/// The owner of a process is that of its directory in /proc, which every Debian has.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn apt_get() -> Command {
    let mut apt_get = Command::new("apt-get");
    apt_get.env("DEBIAN_FRONTEND", "noninteractive");
    // A mirror may fail once, and the system may be installing something of its own.
    apt_get.args(["-o", "Acquire::Retries=5", "-o", "DPkg::Lock::Timeout=300"]);
    apt_get
}
