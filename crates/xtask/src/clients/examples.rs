//! The programs of `examples/`, each against a server with a table of every kind.
//!
//! ```text
//!  private Postgres cluster --+
//!  fixture of a Dolt store ---+--> busload <-- examples/LANGUAGE, as examples/README.md runs it
//! ```
//!
//! They are built in copies below target/clients, so that the source tree stays as it is.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use busload_cluster::{Cluster, ClusterError};

use super::{Outcome, server::Server};
use crate::{
    debian,
    steps::{output, root, run},
};

/// Dolt store whose chunks are read.
const STORE: &str = "crates/chunks/tests/fixtures/dolt/real-classic/store";
/// The published description of the gRPC service, from which two languages generate code.
const PROTO: &str = "crates/proto/proto/busload/v1/chunks.proto";
/// Relation behind the table `users`.
const RELATION: &str = "CREATE TABLE users (id bigint PRIMARY KEY, name text NOT NULL)";

/// One language's example. Its commands are those of `examples/README.md`, run in its folder; the
/// last one gets the address of a chunk as its last argument.
#[derive(Debug)]
struct Example {
    name: &'static str,
    folder: &'static str,
    /// Programs that must be there.
    tools: &'static [&'static str],
    /// Commands that download libraries: where one fails, the example cannot be had.
    install: &'static [&'static str],
    build: &'static [&'static str],
    run: &'static str,
}

const EXAMPLES: [Example; 5] = [
    Example {
        name: "example-python",
        folder: "python",
        tools: &["python3"],
        install: &[
            "python3 -m venv venv",
            "venv/bin/pip install --quiet --requirement requirements.txt",
        ],
        build: &[
            "venv/bin/python -m grpc_tools.protoc -I ../../crates/proto/proto --python_out=. \
             --grpc_python_out=. busload/v1/chunks.proto",
        ],
        run: "venv/bin/python tour.py",
    },
    Example {
        name: "example-go",
        folder: "go",
        tools: &["go", "protoc"],
        install: &["go mod download"],
        build: &["go generate"],
        run: "go run .",
    },
    Example {
        name: "example-typescript",
        folder: "typescript",
        tools: &["node", "npm"],
        install: &["npm install --no-audit --no-fund"],
        build: &["npm run build"],
        run: "node build/tour.js",
    },
    Example {
        name: "example-java",
        folder: "java",
        tools: &["java", "mvn"],
        install: &["mvn --quiet dependency:copy-dependencies -DoutputDirectory=libraries"],
        build: &[],
        run: "java -cp 'libraries/*' Tour.java",
    },
    Example {
        name: "example-rust",
        folder: "rust",
        tools: &["cargo"],
        install: &["cargo fetch"],
        build: &["cargo build"],
        run: "cargo run --quiet --",
    },
];

/// Returns whether this is the name of an example.
pub fn is_example(name: &str) -> bool {
    EXAMPLES.iter().any(|example| example.name == name)
}

/// Builds an example and runs it against a server of its own.
pub fn check(name: &str, busload: &Path) -> Result<Outcome> {
    let example =
        EXAMPLES.iter().find(|example| example.name == name).context("no such example")?;
    if let Some(tool) = example.tools.iter().find(|tool| !is_there(tool)) {
        return Ok(Outcome::Missing(format!("{tool} is not installed")));
    }
    let folder = copy(example)?;
    for words in example.install {
        if let Err(error) = output(&mut command(&folder, words)) {
            return Ok(Outcome::Missing(format!("its libraries cannot be installed: {error:#}")));
        }
    }
    for words in example.build {
        output(&mut command(&folder, words))?;
    }
    let cluster = match Cluster::builder().start() {
        Err(error @ ClusterError::NoPrograms { .. }) => {
            return Ok(Outcome::Missing(error.to_string()));
        }
        started => started?,
    };
    cluster.execute(RELATION)?;
    let server = serve(busload, &cluster)?;
    let http_port = server.http_port().context("no HTTP front")?;
    let mut program = command(&folder, example.run);
    program.env("BUSLOAD_RESP", format!("127.0.0.1:{}", server.port()));
    program.env("BUSLOAD_HTTP", format!("127.0.0.1:{http_port}"));
    run(program.arg(chunk_of_the_store()?))?;
    server.stop()?;
    Ok(Outcome::Passed)
}

/// Starts a server with the tables that the examples use: `sessions`, `users` and `db`.
fn serve(busload: &Path, cluster: &Cluster) -> Result<Server> {
    let users = format!(
        "users={}?relation=users&key=id&columns=name&writable=true&timeout=10s",
        cluster.url()
    );
    let db = format!("db=chunks+file://{}", root().join(STORE).display());
    let sessions = "sessions=memory:?sync=interval:100";
    let tables = ["--table", sessions, "--table", &users, "--table", &db];
    Server::start_with(busload, &[&["--http", "127.0.0.1:0"], &tables[..]].concat())
}

/// Returns the address of the store's root, which is a chunk: the fourth field of its manifest.
fn chunk_of_the_store() -> Result<String> {
    let manifest = fs::read_to_string(root().join(STORE).join("manifest"))?;
    Ok(manifest.split(':').nth(3).context("a manifest has a root")?.to_owned())
}

/// Copies the example's files, and the description of the service to where they expect it.
fn copy(example: &Example) -> Result<PathBuf> {
    let below = root().join("target/clients/examples");
    let folder = Path::new("examples").join(example.folder);
    copy_folder(&root().join(&folder), &below.join(&folder))?;
    let proto = below.join(PROTO);
    fs::create_dir_all(proto.parent().context("a file lies in a folder")?)?;
    fs::copy(root().join(PROTO), proto)?;
    Ok(below.join(folder))
}

/// Copies the files that git knows; what was built beside them is none of ours.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let ignored = fs::read_to_string(from.join(".gitignore")).unwrap_or_default();
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name();
        if ignored.lines().any(|line| name == line.trim_end_matches('/')) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to.join(name))?;
        } else {
            fs::copy(entry.path(), to.join(name))?;
        }
    }
    Ok(())
}

/// Makes a command of words between spaces, which run in the folder.
fn command(folder: &Path, words: &str) -> Command {
    let mut words = words.split_whitespace().map(|word| word.trim_matches('\''));
    let program = words.next().unwrap_or_default();
    // A program of the folder is named by its whole path: a relative one may be looked for in the
    // folder of this process.
    let is_local = program.contains('/');
    let mut command =
        Command::new(if is_local { folder.join(program) } else { PathBuf::from(program) });
    command.args(words).current_dir(folder).env_remove("CARGO_TARGET_DIR");
    command
}

/// Looks for a program, and tries to install protoc, which comes with no language.
fn is_there(tool: &str) -> bool {
    let argument = if tool == "go" { "version" } else { "--version" };
    let runs = || output(Command::new(tool).arg(argument)).is_ok();
    if tool == "protoc" && !runs() && debian::can_install() {
        // It stays missing where that fails.
        let _ = debian::install("protobuf-compiler");
    }
    runs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_of_the_examples_has_the_commands_that_run_here() {
        let readme = fs::read_to_string(root().join("examples/README.md")).expect("a README");
        let readme = readme.replace("\\\n", " ").replace('\'', "");
        let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
        for example in EXAMPLES {
            for words in example.install.iter().chain(example.build).chain([&example.run]) {
                assert!(
                    readme.contains(&words.replace("'", "")),
                    "examples/README.md lacks `{words}`"
                );
            }
            assert!(readme.contains(&format!("cd examples/{}", example.folder)));
        }
        assert!(readme.contains(RELATION));
    }

    #[test]
    fn pages_name_the_versions_of_clients_that_run_here() {
        let pinned = [
            ("python/requirements.txt", "redis==", "redis-py"),
            ("python/requirements.txt", "grpcio==", "grpcio"),
            ("go/go.mod", "github.com/redis/go-redis/v9 v", "go-redis"),
            ("go/go.mod", "google.golang.org/grpc v", "grpc-go"),
            ("typescript/package.json", "\"redis\": \"", "node-redis"),
            ("java/pom.xml", "<artifactId>jedis</artifactId>\n      <version>", "Jedis"),
            ("rust/Cargo.lock", "name = \"redis\"\nversion = \"", "redis-rs"),
        ];
        let read = |path: &str| fs::read_to_string(root().join(path)).expect("it is there");
        let readme = read("examples/README.md");
        for (file, before, client) in pinned {
            let text = read(&format!("examples/{file}"));
            let (_, behind) = text.split_once(before).expect("the version is pinned");
            let is_part = |c: char| c.is_ascii_digit() || c == '.';
            let version = behind.split(|c| !is_part(c)).next().unwrap_or_default();
            assert!(readme.contains(&format!("{client} {version}")), "{client} is at {version}");
        }
    }

    #[test]
    fn the_manifest_names_a_chunk() {
        let address = chunk_of_the_store().expect("the fixture has a manifest");
        assert_eq!(address.len(), 32, "{address}");
    }
}
