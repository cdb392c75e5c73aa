//! Stock clients against a real server: programs of Debian's redis-tools, libraries in their own
//! languages, Dolt, the programs of `examples/`, and what the pages of five minutes tell people to
//! type.
//!
//! Everything they need lies in target/clients. A client that cannot be had is skipped and said so;
//! one that fails, fails.

mod dolt;
mod dolt_aws;
mod dolt_peers;
mod examples;
mod libraries;
mod quickstart;
mod server;
mod tools;

use std::{
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::steps::{Steps, root};
use server::{Profile, Server};

/// Clients to run, and how
#[derive(Args, Debug)]
pub struct Arguments {
    /// Only these; all when none is named
    #[arg(value_name = "CLIENT", value_parser = NAMES)]
    only: Vec<String>,
    /// Fail when a client cannot be had instead of skipping it
    #[arg(long)]
    require: bool,
    /// The server with debug assertions instead of the released one
    #[arg(long)]
    debug: bool,
    /// This executable of the server instead of one that is built first
    #[arg(long, value_name = "FILE", conflicts_with = "debug")]
    server: Option<PathBuf>,
}

const NAMES: [&str; 17] = [
    "redis-cli",
    "redis-benchmark",
    "python",
    "node",
    "go",
    "java",
    "dolt",
    "dolt-aws",
    "dolt-peers",
    "example-python",
    "example-go",
    "example-typescript",
    "example-java",
    "example-rust",
    "quickstart-memory",
    "quickstart-postgres",
    "quickstart-chunks",
];

/// Names of the clients that CI runs: those whose libraries are small.
const NAMES_OF_CI: [&str; 10] = [
    "redis-cli",
    "redis-benchmark",
    "python",
    "dolt",
    "dolt-aws",
    "dolt-peers",
    "example-python",
    "quickstart-memory",
    "quickstart-postgres",
    "quickstart-chunks",
];

impl Arguments {
    /// Returns the arguments of `cargo xtask ci`.
    pub fn for_ci() -> Self {
        let only = NAMES_OF_CI.map(str::to_owned).into();
        Self { only, require: false, debug: true, server: None }
    }
}

/// Outcome of a client's run.
pub enum Outcome {
    /// The client ran and found nothing wrong.
    Passed,
    /// The client cannot be had here.
    Missing(String),
}

/// Folders of one client: its scripts, and downloads that they need.
pub struct ClientFolders {
    scripts: PathBuf,
    downloads: PathBuf,
}

impl ClientFolders {
    fn new(client: &str) -> Result<Self> {
        let folders = Self {
            scripts: root().join("crates/server/tests/clients").join(client),
            downloads: root().join("target/clients").join(client),
        };
        std::fs::create_dir_all(&folders.downloads)?;
        Ok(folders)
    }

    fn script(&self, name: &str) -> PathBuf {
        self.scripts.join(name)
    }

    fn download(&self, name: impl AsRef<Path>) -> PathBuf {
        self.downloads.join(name)
    }
}

/// Begins to build the client that takes minutes, and to fetch DynamoDB, beside other steps. A
/// failure shows when [`run`] tries again.
pub fn prepare() -> JoinHandle<()> {
    thread::spawn(|| {
        let _ = ClientFolders::new("dolt-aws").and_then(|folders| dolt_aws::libraries(&folders));
        let _ = ClientFolders::new("dolt").and_then(|folders| dolt::install(&folders));
    })
}

/// Runs the clients, each against a fresh server.
pub fn run(arguments: &Arguments) -> Result<()> {
    let profile = if arguments.debug { Profile::Debug } else { Profile::Release };
    let binary = match &arguments.server {
        Some(binary) => binary.canonicalize().with_context(|| binary.display().to_string())?,
        None => server::build(profile)?,
    };
    let mut steps = Steps::default();
    let mut missing = Vec::new();
    let wanted =
        |name: &&str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    for name in NAMES.iter().copied().filter(wanted) {
        let mut tell = |outcome| match outcome {
            Outcome::Passed => println!("passed"),
            Outcome::Missing(why) => {
                println!("SKIPPED {name}: {why}");
                missing.push(name);
            }
        };
        let of_dolt = match name {
            "dolt" => Some(dolt::check as fn(&ClientFolders, &Path) -> Result<Outcome>),
            "dolt-aws" => Some(dolt_aws::check as _),
            "dolt-peers" => Some(dolt_peers::check as _),
            _ => None,
        };
        if let Some(check) = of_dolt {
            steps.step(name, || {
                ClientFolders::new(name).and_then(|folders| check(&folders, &binary)).map(&mut tell)
            });
            continue;
        }
        if examples::is_example(name) {
            steps.step(name, || examples::check(name, &binary).map(&mut tell));
            continue;
        }
        if quickstart::is_page(name) {
            steps.step(name, || quickstart::check(name, &binary).map(&mut tell));
            continue;
        }
        for net_threads in ["0", "1"] {
            steps.step(&format!("{name}, net threads {net_threads}"), || {
                let folders = ClientFolders::new(name)?;
                let server = Server::start(&binary, net_threads)?;
                let outcome = one(name, &folders, server.port())?;
                server.stop()?;
                tell(outcome);
                Ok(())
            });
        }
    }
    steps.finish()?;
    if arguments.require && !missing.is_empty() {
        bail!("skipped: {}", missing.join(", "));
    }
    Ok(())
}

fn one(name: &str, folders: &ClientFolders, port: u16) -> Result<Outcome> {
    match name {
        "redis-cli" => tools::redis_cli(port),
        "redis-benchmark" => tools::redis_benchmark(port),
        "python" => libraries::python(folders, port),
        "node" => libraries::node(folders, port),
        "go" => libraries::go(folders, port),
        "java" => libraries::java(folders, port),
        other => bail!("there is no client {other}"),
    }
}
