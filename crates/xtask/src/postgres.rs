//! A Postgres server for the tests that need one.
//!
//! Its programs are enough: tests start clusters of their own. On Debian and its kin they are
//! installed when missing; the cluster that the package makes and starts along with that is stopped
//! again.

use std::{collections::BTreeSet, process::Command};

use anyhow::{Result, bail};
use busload_cluster::{ClusterError, find_programs};

use crate::{
    debian,
    steps::{output, run},
};

/// Makes sure that there is one.
pub fn ensure() -> Result<()> {
    let found = match find_programs() {
        Err(ClusterError::NoPrograms { .. }) if debian::can_install() => {
            install()?;
            find_programs()
        }
        other => other,
    };
    println!("{}", found?.directory().display());
    Ok(())
}

fn install() -> Result<()> {
    println!("no Postgres server found: installing Debian's");
    let before = running();
    debian::install("postgresql")?;
    for cluster in running().difference(&before) {
        stop(cluster)?;
    }
    Ok(())
}

/// Version and name of a cluster that Debian's tools know.
type DebianCluster = (String, String);

/// Those that run. None where the tools are not there yet.
fn running() -> BTreeSet<DebianCluster> {
    let listed = output(Command::new("pg_lsclusters").arg("--no-header")).unwrap_or_default();
    online(&listed)
}

/// Lines are `VERSION NAME PORT STATUS OWNER DATA LOG`; the status may have more words after a
/// comma.
fn online(listed: &str) -> BTreeSet<DebianCluster> {
    let cluster = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [version, name, _port, status, ..] = fields[..] else { return None };
        status.starts_with("online").then(|| (version.to_owned(), name.to_owned()))
    };
    listed.lines().filter_map(cluster).collect()
}

fn stop((version, name): &DebianCluster) -> Result<()> {
    println!("stopping the cluster {version}/{name}, which came with the package");
    if let Err(error) = run(Command::new("pg_ctlcluster").args([version, name, "stop"])) {
        bail!("the cluster {version}/{name} that came with the package still runs: {error:#}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clusters_that_run_are_listed() {
        let listed = "13 main 5432 down postgres /var/lib/postgresql/13/main /var/log/a.log\n\
            15  main    5433 online,recovery postgres /var/lib/postgresql/15/main /var/log/b.log\n\
            15  other   5434 online postgres /data /log\n";
        let expected =
            [("15", "main"), ("15", "other")].map(|(version, name)| (version.into(), name.into()));
        assert_eq!(online(listed), BTreeSet::from(expected));
        assert!(online("").is_empty());
    }
}
