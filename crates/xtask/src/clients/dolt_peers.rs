//! `dolt` against three servers that are peers of each other: each table file is on the disk of
//! one of them, and a clone survives that one of them is killed.
//!
//! ```text
//!  source --push, many times--> remote (a folder) <--reads-- three servers <--clone-- copies
//! ```

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use super::{
    ClientFolders, Outcome,
    dolt::{Remote, Run, Source},
    server::Server,
};

const PEERS: usize = 3;
/// Pushes after the first one. Each makes a table file, so that every peer owns some, and so that a
/// clone takes long enough to be interrupted.
const PUSHES: u64 = 40;
/// Clones until one was under way when the peer was killed.
const CLONES_MAX: usize = 5;
/// Polls of a condition, and the pause between two.
const POLLS_MAX: usize = 30_000;
const POLL_PAUSE: Duration = Duration::from_millis(1);

/// Runs all checks with `dolt`.
pub fn check(folders: &ClientFolders, busload: &Path) -> Result<Outcome> {
    let dolt = match ClientFolders::new("dolt").and_then(|folders| super::dolt::install(&folders)) {
        Ok(dolt) => dolt,
        Err(error) => return Ok(Outcome::Missing(format!("dolt cannot be built: {error:#}"))),
    };
    let run = Run::with_environment(folders, dolt, Vec::new())?;
    let remote = run.make_remote()?;
    let url = format!("file://{}", remote.display());
    let mut source = run.make_source(&Remote { url: &url, settings: &[] })?;
    run.push_often(&mut source, PUSHES)?;
    let copies = run.make_copies()?;
    let mut peers = Peers::start(folders, busload, &remote)?;

    run.clone_from(&peers.url(0), &copies, "whole")?.finish()?;
    run.expect_same(&source, &copies.join("whole"), "clone from three peers")?;
    peers.expect_each_file_on_one_disk()?;
    check_kill(&run, &source, &copies, &mut peers)?;
    run.remove()?;
    Ok(Outcome::Passed)
}

/// Kills a peer while a clone is under way, which has to end well.
fn check_kill(run: &Run, source: &Source, copies: &Path, peers: &mut Peers) -> Result<()> {
    for number in 0..CLONES_MAX {
        let name = format!("interrupted-{number}");
        let before = [0, 1, 2].map(|index| peers.downloads(index));
        let [first, second, third] = before;
        let before = first? + second? + third?;
        let of_victim = peers.downloads(PEERS - 1)?;
        let clone = run.clone_from(&peers.url(0), copies, &name)?;
        until("the clone downloads from the peer", || Ok(of_victim < peers.downloads(PEERS - 1)?))?;
        peers.kill(PEERS - 1);
        let rest: u64 = peers.downloads(0)? + peers.downloads(1)?;
        clone.finish()?;
        run.expect_same(source, &copies.join(&name), "clone whose peer was killed")?;
        let after: u64 = peers.downloads(0)? + peers.downloads(1)?;
        println!(
            "{} downloads by the others after the kill, of {} files",
            after - rest,
            peers.files
        );
        if rest < after {
            return Ok(());
        }
        println!("the clone had ended ({before} downloads before it): once more");
        peers.restart(PEERS - 1)?;
    }
    bail!("no clone was under way when its peer was killed, of {CLONES_MAX}")
}

/// A clone that runs.
pub struct RunningClone(Child);

impl RunningClone {
    /// Starts the command of a clone.
    pub fn start(mut command: Command) -> Result<Self> {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Ok(Self(child.context("cannot start dolt")?))
    }

    /// Waits for its end, which has to be good.
    fn finish(self) -> Result<()> {
        let ended = self.0.wait_with_output()?;
        if !ended.status.success() {
            bail!(
                "dolt clone ended with {}: {}",
                ended.status,
                String::from_utf8_lossy(&ended.stderr)
            );
        }
        Ok(())
    }
}

/// Servers that are each other's peers, over one store.
struct Peers {
    busload: PathBuf,
    data: PathBuf,
    table: String,
    ports: Vec<u16>,
    /// None: it was killed.
    servers: Vec<Option<Server>>,
    /// Number of table files of the store.
    files: u64,
}

impl Peers {
    fn start(folders: &ClientFolders, busload: &Path, remote: &Path) -> Result<Self> {
        let data = folders.download("data");
        if data.exists() {
            fs::remove_dir_all(&data)?;
        }
        // All at once, so that no port comes twice.
        let listeners = [(); PEERS].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let ports = listeners.into_iter().map(|listener| Ok(listener?.local_addr()?.port()));
        let mut peers = Self {
            busload: busload.to_owned(),
            data,
            table: format!("db=chunks+file://{}", remote.display()),
            ports: ports.collect::<Result<_>>()?,
            servers: Vec::new(),
            files: 0,
        };
        for index in 0..PEERS {
            peers.servers.push(None);
            peers.restart(index)?;
        }
        peers.files = peers.metric(0, "busload_chunks_files{table=\"db\"}")?;
        Ok(peers)
    }

    /// Starts a server that does not run, and waits until all that run know it.
    fn restart(&mut self, index: usize) -> Result<()> {
        let url = |port: &u16| format!("http://127.0.0.1:{port}");
        let list = self.ports.iter().map(url).collect::<Vec<_>>().join(",");
        let mut command = Command::new(&self.busload);
        command.env_remove("BUSLOAD_PASSWORD").arg("serve").arg("--data");
        command.arg(self.data.join(index.to_string())).args(["--resp", "127.0.0.1:0", "--http"]);
        command.arg(format!("127.0.0.1:{}", self.ports[index])).args(["--table", &self.table]);
        command.args(["--peers", &list, "--peer-self", &self.url_of(index)]);
        self.servers[index] = Some(Server::start_by(command)?);
        let running = self.servers.iter().flatten().count() as u64;
        for (other, server) in self.servers.iter().enumerate() {
            if server.is_some() {
                until("the peers know each other", || {
                    Ok(self.metric(other, "busload_peers{state=\"alive\"}")? == running - 1)
                })?;
            }
        }
        Ok(())
    }

    fn kill(&mut self, index: usize) {
        // Dropping it kills the process.
        self.servers[index] = None;
    }

    fn url_of(&self, index: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[index])
    }

    /// URL of the store at one of the servers.
    fn url(&self, index: usize) -> String {
        format!("{}/db", self.url_of(index))
    }

    /// Downloads that a server has answered.
    fn downloads(&self, index: usize) -> Result<u64> {
        self.metric(index, "busload_dolt_downloads_total{kind=\"file\"}")
    }

    fn expect_each_file_on_one_disk(&self) -> Result<()> {
        let of_all = |name: &str| -> Result<Vec<u64>> {
            let name = format!("busload_chunks_disk_{name}{{table=\"db\"}}");
            (0..PEERS).map(|index| self.metric(index, &name)).collect()
        };
        until("the files are on the disks", || {
            Ok(of_all("objects")?.iter().sum::<u64>() == self.files)
        })?;
        let (objects, bytes) = (of_all("objects")?, of_all("bytes")?);
        println!("{} files: {objects:?} on the disks, {bytes:?} bytes", self.files);
        if objects.contains(&0) {
            bail!("expected some files on each disk");
        }
        Ok(())
    }

    fn metric(&self, index: usize, name: &str) -> Result<u64> {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports[index]))?;
        connection
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.with_context(|| format!("no metric {name}"))?.parse()?)
    }
}

/// Polls a condition until it holds.
#[allow(clippy::disallowed_methods, reason = "metrics are no events")]
fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    for _ in 0..POLLS_MAX {
        if is_so()? {
            return Ok(());
        }
        thread::sleep(POLL_PAUSE);
    }
    bail!("not in time: {what}")
}
