//! The `dolt` program against chunk stores as remotes: what a person types, and that the data are
//! the same afterwards.
//!
//! ```text
//!  source --push--> remote (a folder) <--reads-- busload <--clone, fetch, pull, ...-- copies
//! ```
//!
//! It is built from its Go module, of a version that is pinned here.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, bail};

use super::{ClientFolders, Outcome, dolt_peers::RunningClone, server::Server};
use crate::steps::output;

/// Dolt 2.2.0, as the module proxy knows it.
const MODULE: &str = "github.com/dolthub/dolt/go/cmd/dolt@v0.40.5-0.20260715172757-a6690826d767";
/// Rows of the first push: more than 1,000 chunks, from where on Dolt compresses with a dictionary.
const ROWS: u64 = 40_000;
/// Rows that each later push adds.
const MORE_ROWS: u64 = 500;
/// Fetches until a push is seen: busload refreshes the manifest ten times a second, and a fetch
/// takes longer, but for one that finds busload without a processor.
const FETCHES_MAX: u32 = 200;

/// Runs all checks with `dolt`.
pub fn check(folders: &ClientFolders, busload: &Path) -> Result<Outcome> {
    let dolt = match install(folders) {
        Ok(dolt) => dolt,
        Err(error) => return Ok(Outcome::Missing(format!("dolt cannot be built: {error:#}"))),
    };
    let run = Run::new(folders, dolt)?;
    fs::create_dir(run.remote())?;
    let url = format!("file://{}", run.remote().display());
    let mut source = run.make_source(&Remote { url: &url, settings: &[] })?;
    for layout in ["records", "files"] {
        println!("dolt_layout = {layout}");
        let server = run.serve(busload, layout)?;
        run.check_reads(&server, &mut source)?;
        run.check_refusals(&server)?;
        server.stop()?;
    }
    fs::remove_dir_all(&run.work)?;
    Ok(Outcome::Passed)
}

/// Builds `dolt` unless it is there, beside whatever else runs: at the lowest priority.
pub fn install(folders: &ClientFolders) -> Result<PathBuf> {
    let binary = folders.download("dolt");
    if binary.exists() {
        return Ok(binary);
    }
    // Its regular expressions are ICU's. Where this fails ICU may be there all the same.
    let mut icu = Command::new("apt-get");
    let _ = output(icu.env("DEBIAN_FRONTEND", "noninteractive").args([
        "install",
        "--yes",
        "libicu-dev",
    ]));
    let mut go = Command::new("nice");
    // Not optimized: that takes two thirds of the time, and the checks move little.
    go.args(["-n", "19", "go", "install", "-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w"])
        .arg(MODULE)
        .env("GOBIN", folders.download("").canonicalize()?);
    output(go.env("GOTOOLCHAIN", "local").env("GOFLAGS", "-buildvcs=false"))?;
    Ok(binary)
}

/// The program and the folders it works in.
pub struct Run {
    dolt: PathBuf,
    work: PathBuf,
    home: PathBuf,
    environment: Vec<(&'static str, String)>,
}

/// Remote that a source pushes to, and the flags with which `dolt remote add` takes it.
pub struct Remote<'a> {
    pub url: &'a str,
    pub settings: &'a [&'a str],
}

/// Repository that pushes come from.
pub struct Source {
    folder: PathBuf,
    rows: u64,
}

impl Run {
    fn new(folders: &ClientFolders, dolt: PathBuf) -> Result<Self> {
        Self::with_environment(folders, dolt, Vec::new())
    }

    /// Makes folders for a program that gets these variables.
    pub fn with_environment(
        folders: &ClientFolders,
        dolt: PathBuf,
        environment: Vec<(&'static str, String)>,
    ) -> Result<Self> {
        let work = folders.download("work");
        if work.exists() {
            fs::remove_dir_all(&work)?;
        }
        fs::create_dir_all(&work)?;
        let (dolt, work) = (dolt.canonicalize()?, work.canonicalize()?);
        let run = Self { dolt, home: work.join("home"), work, environment };
        run.begin_home()?;
        Ok(run)
    }

    /// The same program for another person, with a home of their own and further variables.
    pub fn of_person(&self, name: &str, variables: &[(&'static str, String)]) -> Result<Self> {
        let run = Self {
            dolt: self.dolt.clone(),
            work: self.work.clone(),
            home: self.work.join(name),
            environment: [&self.environment, variables].concat(),
        };
        run.begin_home()?;
        Ok(run)
    }

    fn begin_home(&self) -> Result<()> {
        if self.home.exists() {
            return Ok(());
        }
        fs::create_dir(&self.home)?;
        for (key, value) in [("user.name", "busload"), ("user.email", "busload@example.com")] {
            self.dolt(&self.work, &["config", "--global", "--add", key, value])?;
        }
        Ok(())
    }

    /// Folder of all that the run makes.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Folder of the person, for their clones.
    pub fn home(&self) -> &Path {
        &self.home
    }

    fn command(&self, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.dolt);
        command.args(arguments).current_dir(folder).env("HOME", &self.home);
        command.env("DOLT_DISABLE_EVENT_FLUSH", "1").env("NO_COLOR", "1");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command in a folder and returns what it prints.
    pub fn dolt(&self, folder: &Path, arguments: &[&str]) -> Result<String> {
        output(&mut self.command(folder, arguments))
    }

    /// Runs a command that has to fail. Returns what it prints.
    fn refusal(&self, folder: &Path, arguments: &[&str]) -> Result<String> {
        let Output { status, stdout, stderr } = self.command(folder, arguments).output()?;
        if status.success() {
            bail!("dolt {} succeeded", arguments.join(" "));
        }
        Ok(format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
    }

    /// Makes a repository and pushes it.
    pub fn make_source(&self, remote: &Remote<'_>) -> Result<Source> {
        self.make_named_source("source", remote, ROWS)
    }

    /// Makes a repository with some rows in a folder of this name, and pushes it.
    pub fn make_named_source(&self, name: &str, remote: &Remote<'_>, rows: u64) -> Result<Source> {
        let folder = self.work.join(name);
        fs::create_dir(&folder)?;
        self.dolt(&folder, &["init"])?;
        let create =
            "CREATE TABLE t (id BIGINT PRIMARY KEY, a VARCHAR(64), b VARCHAR(255), INDEX (a))";
        self.dolt(&folder, &["sql", "--query", create])?;
        let add = ["remote", "add", "origin", remote.url];
        self.dolt(&folder, &[&add, remote.settings].concat())?;
        let mut source = Source { folder, rows: 0 };
        self.push(&mut source, rows)?;
        Ok(source)
    }

    fn remote(&self) -> PathBuf {
        self.work.join("remote")
    }

    /// Makes the folder to push to.
    pub fn make_remote(&self) -> Result<PathBuf> {
        let remote = self.remote();
        fs::create_dir(&remote)?;
        Ok(remote)
    }

    /// Makes the folder for clones.
    pub fn make_copies(&self) -> Result<PathBuf> {
        let copies = self.work.join("copies");
        fs::create_dir(&copies)?;
        Ok(copies)
    }

    /// Starts a clone from a URL.
    pub fn clone_from(&self, url: &str, copies: &Path, name: &str) -> Result<RunningClone> {
        RunningClone::start(self.command(copies, &["clone", url, name]))
    }

    /// Pushes a row at a time, by one process.
    pub fn push_often(&self, source: &mut Source, pushes: u64) -> Result<()> {
        let mut statements = String::new();
        for number in 0..pushes {
            statements += &format!(
                "INSERT INTO t VALUES (-{}, 'a', 'b'); CALL DOLT_COMMIT('-am', 'more'); \
                 CALL DOLT_PUSH('origin', 'main');\n",
                number + 1
            );
        }
        source.rows += pushes;
        self.dolt(&source.folder, &["sql", "--query", &statements]).map(drop)
    }

    /// Removes all folders of this run.
    pub fn remove(self) -> Result<()> {
        Ok(fs::remove_dir_all(&self.work)?)
    }

    /// Adds a folder as a further remote.
    pub fn add_folder(&self, source: &Source) -> Result<PathBuf> {
        let remote = self.remote();
        fs::create_dir(&remote)?;
        let url = format!("file://{}", remote.display());
        self.dolt(&source.folder, &["remote", "add", "folder", &url])?;
        Ok(remote)
    }

    /// Pushes to that folder.
    pub fn push_to_folder(&self, source: &Source) -> Result<()> {
        self.dolt(&source.folder, &["push", "folder", "main"]).map(drop)
    }

    /// Adds rows to a source and pushes them.
    pub fn push(&self, source: &mut Source, rows: u64) -> Result<()> {
        let range = source.rows..source.rows + rows;
        source.rows = range.end;
        let mut csv = String::from("id,a,b\n");
        // Spread over the keys, so that old chunks change.
        range.for_each(|row| {
            let key = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
            csv += &format!(
                "{key},a{:x},{:x}{:x}{row}\n",
                key % 9973,
                key.wrapping_mul(key),
                key ^ row
            );
        });
        let file = self.work.join("rows.csv");
        fs::write(&file, csv)?;
        let file = file.to_str().context("a path that is no text")?;
        self.dolt(&source.folder, &["table", "import", "--update-table", "t", file])?;
        self.dolt(&source.folder, &["add", "."])?;
        self.dolt(&source.folder, &["commit", "--message", &format!("{} rows", source.rows)])?;
        self.dolt(&source.folder, &["push", "origin", "main"])?;
        Ok(())
    }

    /// `db`, by its name and as `org/repo`; and `local`, whose latest chunks are in a journal.
    fn serve(&self, busload: &Path, layout: &str) -> Result<Server> {
        // No poll comes in time: clients that fetch have to see the push before it.
        let table = |name: &str, folder: &Path, query: &str| {
            format!("{name}=chunks+file://{}?poll=10m&{query}", folder.display())
        };
        let db = table("db", &self.remote(), &format!("dolt_paths=org/repo&dolt_layout={layout}"));
        let local = table("local", &self.work.join("source/.dolt/noms"), "disk=0");
        let server = Server::start_with(
            busload,
            &["--http", "127.0.0.1:0", "--table", &db, "--table", &local],
        )?;
        Ok(server)
    }

    fn url(&self, server: &Server, path: &str) -> Result<String> {
        let port = server.http_port().context("no HTTP front")?;
        Ok(format!("http://127.0.0.1:{port}/{path}"))
    }

    /// The same for the same data.
    fn contents(&self, folder: &Path) -> Result<String> {
        let sums = "SELECT count(*), sum(id), sum(crc32(a)), sum(crc32(b)), min(a), max(b) FROM t";
        let by_index = "SELECT count(*), sum(id) FROM t WHERE a LIKE 'a1%'";
        let query = |query| self.dolt(folder, &["sql", "--result-format", "csv", "--query", query]);
        Ok(query(sums)? + &query(by_index)?)
    }

    /// Fails unless a copy has the rows of its source.
    pub fn expect_same(&self, source: &Source, copy: &Path, what: &str) -> Result<()> {
        let (ours, theirs) = (self.contents(copy)?, self.contents(&source.folder)?);
        if ours != theirs {
            bail!("{what}: {ours} instead of {theirs}");
        }
        println!("{what}: the same {} rows", source.rows);
        Ok(())
    }

    /// Clones, fetches and pulls from a server that serves the remote as `db` and `org/repo`.
    pub fn check_reads(&self, server: &Server, source: &mut Source) -> Result<()> {
        let copies = self.work.join("copies");
        if copies.exists() {
            fs::remove_dir_all(&copies)?;
        }
        fs::create_dir(&copies)?;
        let (db, repository) = (self.url(server, "db")?, self.url(server, "org/repo")?);

        self.dolt(&copies, &["clone", &db, "whole"])?;
        let whole = copies.join("whole");
        self.expect_same(source, &whole, "clone")?;
        self.dolt(&whole, &["fsck"])?;

        self.push(source, MORE_ROWS)?;
        self.fetch_until_new(source, &whole)?;
        self.dolt(&whole, &["merge", "origin/main"])?;
        self.expect_same(source, &whole, "fetch")?;

        self.push(source, MORE_ROWS)?;
        self.fetch_until_new(source, &whole)?;
        self.dolt(&whole, &["pull", "origin", "main"])?;
        self.expect_same(source, &whole, "pull")?;

        self.dolt(&copies, &["clone", "--depth", "1", &repository, "shallow"])?;
        self.expect_same(source, &copies.join("shallow"), "clone --depth 1")?;

        self.dolt(&copies, &["read-tables", "--dir", "tables", &repository, "main", "t"])?;
        self.expect_same(source, &copies.join("tables"), "read-tables")
    }

    /// A push is seen by the first fetch after busload's next refresh of the manifest.
    pub fn fetch_until_new(&self, source: &Source, copy: &Path) -> Result<()> {
        let head =
            |folder: &Path, branch| self.dolt(folder, &["log", "--oneline", "-n", "1", branch]);
        let newest = commit_of(&head(&source.folder, "main")?);
        for _ in 0..FETCHES_MAX {
            self.dolt(copy, &["fetch", "origin"])?;
            if commit_of(&head(copy, "remotes/origin/main")?) == newest {
                return Ok(());
            }
        }
        bail!("after {FETCHES_MAX} fetches commit {newest} was not seen")
    }

    fn check_refusals(&self, server: &Server) -> Result<()> {
        let whole = self.work.join("copies/whole");
        self.dolt(&whole, &["sql", "--query", "INSERT INTO t VALUES (-1, 'a', 'b')"])?;
        self.dolt(&whole, &["commit", "--all", "--message", "not to be pushed"])?;
        self.expect_said(&whole, &["push", "origin", "main"], "for reading only")?;
        self.expect_said(&self.work, &["clone", &self.url(server, "nobody")?, "none"], "nobody")?;
        self.expect_said(&self.work, &["clone", &self.url(server, "local")?, "none"], "journal")
    }

    /// Runs a command that has to fail and to say this.
    pub fn expect_said(&self, folder: &Path, arguments: &[&str], expected: &str) -> Result<()> {
        let said = self.refusal(folder, arguments)?;
        if !said.contains(expected) {
            bail!("dolt {}: expected it to say {expected:?}, got {said}", arguments.join(" "));
        }
        println!("dolt {}: {}", arguments.first().unwrap_or(&""), said.trim().replace('\n', " | "));
        Ok(())
    }
}

/// Returns the commit that a line of the log begins with.
fn commit_of(line: &str) -> String {
    line.split_whitespace().next().unwrap_or_default().to_owned()
}
