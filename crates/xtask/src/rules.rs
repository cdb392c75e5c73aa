//! Checks which crate may know which, and which module of the server: the invariants of
//! ARCHITECTURE.md, compared with what cargo resolves and with what the modules name.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, bail};

use crate::{
    steps::{cargo, output, root},
    words::collect,
};

/// Our crates begin with this.
const OURS: &str = "busload";

/// Packages that touch sockets, files or run futures.
const IO: [&str; 8] =
    ["axum", "hyper", "mio", "object_store", "rustix", "tokio", "tokio-postgres", "tonic"];
/// Packages that have no place on the memory path.
const ASYNC: [&str; 6] = ["axum", "hyper", "object_store", "tokio", "tokio-postgres", "tonic"];
/// Packages of [`IO`] without tokio.
const IO_BUT_TOKIO: [&str; 7] =
    ["axum", "hyper", "mio", "object_store", "rustix", "tokio-postgres", "tonic"];
/// Protocols and stores that are not Postgres.
const OTHER_PROTOCOLS: [&str; 4] = ["axum", "hyper", "object_store", "tonic"];
/// Configuration files are the server's.
const CONFIGURATION: [&str; 3] = ["clap", "serde", "toml"];
/// The same where formats of others are JSON, or a dependency brings serde for its own.
const CONFIGURATION_BUT_SERDE: [&str; 2] = ["clap", "toml"];
/// Protocols that are not the object store's.
const NO_STORE: [&str; 3] = ["axum", "tokio-postgres", "tonic"];
/// Packages that generated services need no part of.
const NO_SERVICE: [&str; 5] = ["axum", "hyper", "mio", "object_store", "tokio-postgres"];

/// Dependencies that a crate may and may not have, directly or not.
struct Rule {
    package: &'static str,
    /// Features beside the default ones.
    features: &'static [&'static str],
    /// The only crates of ours it may know.
    knows: &'static [&'static str],
    /// Packages it must not reach.
    never: &'static [&'static [&'static str]],
}

const RULES: [Rule; 26] = [
    rule("busload-acl", &[], &[&IO, &CONFIGURATION]),
    rule("busload-histogram", &[], &[&IO, &CONFIGURATION]),
    rule("busload-peers", &[], &[&IO, &CONFIGURATION]),
    rule("busload-resp", &[], &[&IO, &CONFIGURATION]),
    rule("busload-tables", &[], &[&IO, &CONFIGURATION]),
    rule("busload-batch", &["busload-histogram"], &[&IO, &CONFIGURATION]),
    Rule {
        features: &["tokio"],
        ..rule("busload-batch", &["busload-histogram"], &[&IO_BUT_TOKIO, &CONFIGURATION])
    },
    rule("busload-chunks", &[], &[&IO, &CONFIGURATION_BUT_SERDE]),
    rule("busload-io", &[], &[&ASYNC, &CONFIGURATION]),
    rule("busload-log", &["busload-histogram", "busload-io"], &[&ASYNC, &CONFIGURATION]),
    rule(
        "busload-pipeline",
        &[
            "busload-acl",
            "busload-histogram",
            "busload-io",
            "busload-log",
            "busload-resp",
            "busload-snapshot",
            "busload-tables",
        ],
        &[&ASYNC, &CONFIGURATION],
    ),
    rule(
        "busload-snapshot",
        &["busload-histogram", "busload-io", "busload-log", "busload-tables"],
        &[&ASYNC, &CONFIGURATION],
    ),
    rule(
        "busload-sim",
        &[
            "busload-acl",
            "busload-histogram",
            "busload-io",
            "busload-log",
            "busload-pipeline",
            "busload-resp",
            "busload-snapshot",
            "busload-tables",
        ],
        &[&ASYNC, &CONFIGURATION],
    ),
    rule(
        "busload-backup",
        &["busload-histogram", "busload-io", "busload-log", "busload-snapshot", "busload-tables"],
        &[&ASYNC, &CONFIGURATION],
    ),
    rule(
        "busload-postgres",
        &["busload-batch", "busload-histogram"],
        &[&OTHER_PROTOCOLS, &CONFIGURATION],
    ),
    rule("busload-objects", &[], &[&NO_STORE, &CONFIGURATION_BUT_SERDE]),
    rule(
        "busload-dynamo",
        &["busload-batch", "busload-histogram", "busload-objects"],
        &[&NO_STORE, &CONFIGURATION_BUT_SERDE],
    ),
    rule(
        "busload-dolt",
        &[
            "busload-batch",
            "busload-chunks",
            "busload-dynamo",
            "busload-histogram",
            "busload-objects",
        ],
        &[&NO_STORE, &CONFIGURATION_BUT_SERDE],
    ),
    rule("busload-proto", &[], &[&NO_SERVICE, &CONFIGURATION]),
    rule(
        "busload-calls",
        &[
            "busload-batch",
            "busload-chunks",
            "busload-dolt",
            "busload-dynamo",
            "busload-histogram",
            "busload-objects",
        ],
        &[&["axum", "tokio-postgres"], &CONFIGURATION_BUT_SERDE],
    ),
    rule(
        "busload-remotesapi",
        &[
            "busload-batch",
            "busload-calls",
            "busload-chunks",
            "busload-dolt",
            "busload-dynamo",
            "busload-histogram",
            "busload-objects",
            "busload-peers",
            "busload-proto",
        ],
        &[&["tokio-postgres"], &CONFIGURATION_BUT_SERDE],
    ),
    rule("busload-bucket", &[], &[&NO_STORE, &["object_store"], &CONFIGURATION_BUT_SERDE]),
    rule("busload-tls", &["busload-io"], &[&ASYNC, &CONFIGURATION]),
    rule("busload-cluster", &[], &[&ASYNC, &CONFIGURATION]),
    rule("busload-hostile", &[], &[&IO, &CONFIGURATION]),
    // Experiments run in process, too; a store and its S3 server are made there, and the price of
    // a lookup is that of the tables' own index, which does no IO.
    rule(
        "busload-bench",
        &[
            "busload-batch",
            "busload-bucket",
            "busload-chunks",
            "busload-cluster",
            "busload-histogram",
            "busload-postgres",
            "busload-proto",
            "busload-resp",
            "busload-tables",
        ],
        &[],
    ),
];

/// Modules of the server, and modules that they must not use.
const MODULES: [(&str, &[&str]); 5] = [
    ("access", &["grpc", "http", "status"]),
    ("grpc", &["http"]),
    ("peers", &["grpc", "http", "status"]),
    ("rights", &["grpc", "http", "status"]),
    ("status", &["grpc", "http"]),
];

/// Two that only the server brings together.
const APART: [&str; 2] = ["busload-pipeline", "busload-postgres"];
/// The server's package.
const SERVER: &str = "busload";

const fn rule(
    package: &'static str,
    knows: &'static [&'static str],
    never: &'static [&'static [&'static str]],
) -> Rule {
    Rule { package, features: &[], knows, never }
}

/// Checks every rule whose crate exists, and that all crates but one keep apart what is to be
/// apart.
pub fn check() -> Result<()> {
    let members = members()?;
    let mut broken = Vec::new();
    for rule in RULES.iter().filter(|rule| members.contains(rule.package)) {
        let reached = dependencies(rule.package, rule.features)?;
        let violations = violations(rule, &reached);
        let features =
            rule.features.iter().map(|feature| format!(" with {feature}")).collect::<String>();
        println!(
            "{}{features}: {} packages, {} violations",
            rule.package,
            reached.len(),
            violations.len()
        );
        broken.extend(
            violations.into_iter().map(|other| format!("{} must not know {other}", rule.package)),
        );
    }
    for member in members.iter().filter(|member| *member != SERVER) {
        if joins_what_is_apart(&dependencies(member, &[])?) {
            broken.push(format!("{member} must not know both of {}", APART.join(" and ")));
        }
    }
    broken.extend(broken_modules()?);
    if broken.is_empty() { Ok(()) } else { bail!("{}", broken.join("; ")) }
}

/// Returns what is used against [`MODULES`].
fn broken_modules() -> Result<Vec<String>> {
    let source = root().join("crates/server/src");
    let mut broken = Vec::new();
    for (module, forbidden) in MODULES {
        let mut files = vec![source.join(format!("{module}.rs"))];
        let folder = source.join(module);
        if folder.is_dir() {
            collect(&folder, &mut files)?;
        }
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let found = used(&text);
            let wrong = forbidden.iter().filter(|name| found.contains(**name));
            broken.extend(wrong.map(|name| format!("{} must not use {name}", file.display())));
        }
    }
    println!("{} modules of the server, {} violations", MODULES.len(), broken.len());
    Ok(broken)
}

/// Returns the modules of its crate that a file uses, outside its inner module of tests.
fn used(text: &str) -> BTreeSet<&str> {
    let text = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    let is_name = |part: char| part.is_alphanumeric() || part == '_';
    let name_of = |path: &'_ str| path.find(|part| !is_name(part)).unwrap_or(path.len());
    let mut modules = BTreeSet::new();
    let code = text.match_indices("crate::").filter(|(at, _)| {
        let line = text[..*at].rfind('\n').map_or(0, |end| end + 1);
        !text[line..].trim_start().starts_with("//")
    });
    for (at, found) in code {
        let path = &text[at + found.len()..];
        let Some(list) = path.strip_prefix('{') else {
            modules.insert(&path[..name_of(path)]);
            continue;
        };
        let mut depth = 0;
        for part in list.split_inclusive([',', '{', '}']).take_while(|part| !part.contains(';')) {
            let name = part.trim_start();
            if depth == 0 && name.starts_with(is_name) {
                modules.insert(&name[..name_of(name)]);
            }
            depth += i32::from(part.ends_with('{')) - i32::from(part.ends_with('}'));
        }
    }
    modules
}

fn joins_what_is_apart(reached: &BTreeSet<String>) -> bool {
    APART.iter().all(|name| reached.contains(*name))
}

fn violations(rule: &Rule, reached: &BTreeSet<String>) -> Vec<String> {
    let forbidden = |name: &str| {
        let ours =
            name == OURS || name.strip_prefix(OURS).is_some_and(|rest| rest.starts_with('-'));
        let unknown = ours && name != rule.package && !rule.knows.contains(&name);
        unknown || rule.never.iter().any(|names| names.contains(&name))
    };
    reached.iter().filter(|name| forbidden(name)).cloned().collect()
}

/// The names of the workspace's packages.
fn members() -> Result<BTreeSet<String>> {
    let mut tree = cargo();
    tree.args(["tree", "--workspace", "--depth", "0", "--prefix", "none", "--format", "{p}"]);
    Ok(names(&output(&mut tree)?))
}

/// The names of all packages that a build of this one uses, on any platform. Tests may use more.
fn dependencies(package: &str, features: &[&str]) -> Result<BTreeSet<String>> {
    let mut tree = cargo();
    tree.args(["tree", "--package", package, "--edges", "normal,build", "--target", "all"]);
    tree.args(["--prefix", "none", "--format", "{p}"]);
    tree.args(features.iter().flat_map(|feature| ["--features", feature]));
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
        broken_with(&[], package, tree)
    }

    fn broken_with(features: &[&str], package: &str, tree: &str) -> Vec<String> {
        let matches = |rule: &&Rule| rule.package == package && rule.features == features;
        violations(RULES.iter().find(matches).expect("there is a rule"), &names(tree))
    }

    #[test]
    fn what_is_allowed_passes() {
        let tree =
            "busload-log v0.1.0 (/x)\nbusload-io v0.1.0 (/y)\nmio v1.0.0\nrustix v1.0.0 (*)\n";
        assert!(broken("busload-log", tree).is_empty());
    }

    #[test]
    fn used_modules_are_found_in_every_shape() {
        let text = "//! See [`crate::docs`].\nuse axum::http::HeaderMap;\n\
                    use crate::rights::may_read;\nuse crate::{\n    \
                    chunk_sets::{NotServed, http::Inner},\n    grpc,\n    status::Status,\n};\n\
                    fn start(front: &crate::front::Front) {}\n\
                    #[cfg(test)]\nmod tests {\n    use crate::http::Front;\n}\n";
        let found: Vec<&str> = used(text).into_iter().collect();
        assert_eq!(found, ["chunk_sets", "front", "grpc", "rights", "status"]);
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        assert_eq!(broken("busload-resp", "busload-resp v0\nmio v1\nmemchr v2"), ["mio"]);
        assert_eq!(
            broken("busload-log", "busload-log v0\nbusload-tables v0\ntokio v1"),
            ["busload-tables", "tokio"]
        );
        assert_eq!(
            broken("busload-bench", "busload-bench v0\nbusload v0\nbusload-resp v0"),
            ["busload"]
        );
    }

    #[test]
    fn a_rule_may_differ_with_a_feature() {
        let tree = "busload-batch v0\ntokio v1\nmio v1";
        assert_eq!(broken("busload-batch", tree), ["mio", "tokio"]);
        assert_eq!(broken_with(&["tokio"], "busload-batch", tree), ["mio"]);
    }

    #[test]
    fn postgres_tables_know_batches_and_no_other_protocol() {
        let allowed = "busload-postgres v0\nbusload-batch v0\ntokio v1\nmio v1\ntokio-postgres v0";
        assert!(broken("busload-postgres", allowed).is_empty());
        let tree = "busload-postgres v0\nbusload-resp v0\nhyper v1\nserde v1";
        assert_eq!(broken("busload-postgres", tree), ["busload-resp", "hyper", "serde"]);
        assert_eq!(
            broken("busload-cluster", "busload-cluster v0\nbusload-batch v0"),
            ["busload-batch"]
        );
    }

    #[test]
    fn objects_know_neither_chunks_nor_fronts() {
        let allowed = "busload-objects v0\nobject_store v0\ntokio v1\nhyper v1\nserde v1";
        assert!(broken("busload-objects", allowed).is_empty());
        let tree = "busload-objects v0\nbusload-chunks v0\ntonic v0\naxum v0\ntoml v1";
        assert_eq!(broken("busload-objects", tree), ["axum", "busload-chunks", "toml", "tonic"]);
    }

    #[test]
    fn a_store_brings_objects_and_chunks_together() {
        let allowed = "busload-dolt v0\nbusload-chunks v0\nbusload-objects v0\nobject_store v0";
        assert!(broken("busload-dolt", allowed).is_empty());
        assert_eq!(
            broken("busload-dolt", "busload-dolt v0\nbusload-proto v0\ntonic v0"),
            ["busload-proto", "tonic"]
        );
        assert_eq!(
            broken("busload-chunks", "busload-chunks v0\nbusload-objects v0\ntokio v1"),
            ["busload-objects", "tokio"]
        );
        assert_eq!(broken("busload-proto", "busload-proto v0\ntonic v0\nhyper v1"), ["hyper"]);
        assert_eq!(
            broken("busload-bucket", "busload-bucket v0\nobject_store v0\nhyper v1"),
            ["object_store"]
        );
        assert_eq!(
            broken("busload-bench", "busload-bench v0\nbusload-dolt v0\ntonic v0"),
            ["busload-dolt"]
        );
    }

    #[test]
    fn dolts_protocol_knows_stores_and_nothing_of_the_server() {
        let allowed = "busload-remotesapi v0\nbusload-calls v0\nbusload-dolt v0\naxum v0\ntonic v0";
        assert!(broken("busload-remotesapi", allowed).is_empty());
        let tree =
            "busload-remotesapi v0\nbusload v0\nbusload-pipeline v0\nbusload-resp v0\ntoml v1";
        assert_eq!(
            broken("busload-remotesapi", tree),
            ["busload", "busload-pipeline", "busload-resp", "toml"]
        );
        assert_eq!(
            broken("busload-calls", "busload-calls v0\nbusload-dolt v0\nbusload-proto v0\naxum v0"),
            ["axum", "busload-proto"]
        );
    }

    #[test]
    fn only_both_together_are_refused() {
        assert!(joins_what_is_apart(&names("x v0\nbusload-pipeline v0\nbusload-postgres v0")));
        assert!(!joins_what_is_apart(&names("x v0\nbusload-pipeline v0")));
        assert!(!joins_what_is_apart(&names("x v0\nbusload-postgres v0")));
    }
}
