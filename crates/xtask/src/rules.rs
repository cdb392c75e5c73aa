//! Which crate may know which: the invariants of ARCHITECTURE.md, checked against what cargo resolves.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::steps::{cargo, output, root};

/// Our crates begin with this.
const OURS: &str = "busload";

/// What touches sockets, files or runs futures.
const IO: [&str; 8] = ["axum", "hyper", "mio", "object_store", "rustix", "tokio", "tokio-postgres", "tonic"];
/// What has no place on the memory path.
const ASYNC: [&str; 6] = ["axum", "hyper", "object_store", "tokio", "tokio-postgres", "tonic"];
/// Configuration files are the server's.
const CONFIGURATION: [&str; 3] = ["clap", "serde", "toml"];

/// What a crate may and may not depend on, directly or not.
struct Rule {
    package: &'static str,
    /// The only crates of ours it may know.
    knows: &'static [&'static str],
    /// Packages it must not reach.
    never: &'static [&'static [&'static str]],
}

const RULES: [Rule; 8] = [
    Rule { package: "busload-resp", knows: &[], never: &[&IO, &CONFIGURATION] },
    Rule { package: "busload-tables", knows: &[], never: &[&IO, &CONFIGURATION] },
    Rule { package: "busload-batch", knows: &[], never: &[&IO, &CONFIGURATION] },
    Rule { package: "busload-chunks", knows: &[], never: &[&IO, &CONFIGURATION] },
    Rule { package: "busload-io", knows: &[], never: &[&ASYNC, &CONFIGURATION] },
    Rule { package: "busload-log", knows: &["busload-io"], never: &[&ASYNC, &CONFIGURATION] },
    Rule {
        package: "busload-pipeline",
        knows: &["busload-io", "busload-log", "busload-resp", "busload-tables"],
        never: &[&ASYNC, &CONFIGURATION],
    },
    Rule {
        package: "busload-bench",
        knows: &["busload-batch", "busload-cluster", "busload-postgres", "busload-resp"],
        never: &[],
    },
];

/// Checks every rule whose crate exists.
pub fn check() -> Result<()> {
    let mut broken = Vec::new();
    for rule in &RULES {
        let directory = root().join("crates").join(rule.package.trim_start_matches("busload-"));
        if !directory.is_dir() {
            continue;
        }
        let reached = dependencies(rule.package)?;
        let violations = violations(rule, &reached);
        println!("{}: {} packages, {} violations", rule.package, reached.len(), violations.len());
        broken.extend(violations.into_iter().map(|other| format!("{} must not know {other}", rule.package)));
    }
    if broken.is_empty() { Ok(()) } else { bail!("{}", broken.join("; ")) }
}

fn violations(rule: &Rule, reached: &BTreeSet<String>) -> Vec<String> {
    let forbidden = |name: &str| {
        let ours = name == OURS || name.strip_prefix(OURS).is_some_and(|rest| rest.starts_with('-'));
        let unknown = ours && name != rule.package && !rule.knows.contains(&name);
        unknown || rule.never.iter().any(|names| names.contains(&name))
    };
    reached.iter().filter(|name| forbidden(name)).cloned().collect()
}

/// The names of all packages that a build of this one uses, on any platform. Tests may use more.
fn dependencies(package: &str) -> Result<BTreeSet<String>> {
    let mut tree = cargo();
    tree.args(["tree", "--package", package, "--edges", "normal,build", "--target", "all"]);
    tree.args(["--prefix", "none", "--format", "{p}"]);
    Ok(names(&output(&mut tree)?))
}

/// Lines are `name v1.2.3 (path)`.
fn names(tree: &str) -> BTreeSet<String> {
    tree.lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(package: &str, tree: &str) -> Vec<String> {
        let rule = RULES.iter().find(|rule| rule.package == package).expect("there is a rule");
        violations(rule, &names(tree))
    }

    #[test]
    fn what_is_allowed_passes() {
        let tree = "busload-log v0.1.0 (/x)\nbusload-io v0.1.0 (/y)\nmio v1.0.0\nrustix v1.0.0 (*)\n";
        assert!(broken("busload-log", tree).is_empty());
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        assert_eq!(broken("busload-resp", "busload-resp v0\nmio v1\nmemchr v2"), ["mio"]);
        assert_eq!(
            broken("busload-log", "busload-log v0\nbusload-tables v0\ntokio v1"),
            ["busload-tables", "tokio"]
        );
        assert_eq!(broken("busload-bench", "busload-bench v0\nbusload v0\nbusload-resp v0"), ["busload"]);
    }
}
