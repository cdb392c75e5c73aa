//! The server that clients run against.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    steps::{cargo, output, root, run},
    tests::FEATURES,
};

/// Cargo profile that the server is built with.
#[derive(Clone, Copy, Debug)]
pub enum Profile {
    /// The profile that tests are built with.
    Debug,
    /// Profile of a release build.
    Release,
}

/// Builds it and says where it is.
pub fn build(profile: Profile) -> Result<PathBuf> {
    let (arguments, folder): (&[&str], _) = match profile {
        // The binary that the tests use: another selection of packages would have other features
        // of dependencies, which would be built again.
        Profile::Debug => {
            (&["test", "--workspace", FEATURES[0], FEATURES[1], "--no-run", "--quiet"], "debug")
        }
        Profile::Release => (&["build", "--package", "busload", "--release"], "release"),
    };
    run(cargo().args(arguments))?;
    Ok(target().join(folder).join("busload"))
}

/// Returns the folder into which cargo builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A server on a port of its own with data that nobody needs afterwards.
#[derive(Debug)]
pub struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    port: u16,
    http_port: Option<u16>,
}

impl Server {
    /// Starts it and waits until it is ready.
    pub fn start(binary: &Path, net_threads: &str) -> Result<Self> {
        Self::start_with(binary, &["--http", "none", "--net-threads", net_threads])
    }

    /// The same with arguments.
    pub fn start_with(binary: &Path, arguments: &[&str]) -> Result<Self> {
        let mut command = Self::command(binary)?;
        command.args(arguments);
        Self::start_by(command)
    }

    /// Makes the command of a server without data, on a port of its own.
    pub fn command(binary: &Path) -> Result<Command> {
        let data = root().join("target/clients/data");
        if data.exists() {
            std::fs::remove_dir_all(&data)?;
        }
        let mut command = Command::new(binary);
        command.env_remove("BUSLOAD_PASSWORD").arg("serve").arg("--data").arg(&data);
        command.args(["--resp", "127.0.0.1:0"]);
        Ok(command)
    }

    /// Starts it by a command and waits until it is ready.
    pub fn start_by(mut command: Command) -> Result<Self> {
        let mut child = command.stderr(Stdio::piped()).spawn().context("cannot start busload")?;
        let stderr = child.stderr.take().context("no stderr")?;
        let mut server = Self { child, stderr: BufReader::new(stderr), port: 0, http_port: None };
        let mut line = String::new();
        while server.stderr.read_line(&mut line)? != 0 {
            if let Some(ready) = line.lines().last().filter(|line| line.starts_with("ready ")) {
                server.port = port(ready, "resp")?.context("no address in the ready line")?;
                server.http_port = port(ready, "http")?;
                return Ok(server);
            }
        }
        bail!("busload did not start: {line}")
    }

    /// Returns the server's port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the port of the HTTP front, if the server has one.
    pub fn http_port(&self) -> Option<u16> {
        self.http_port
    }

    /// Ends it in order; that it does not end well is a failure.
    pub fn stop(mut self) -> Result<()> {
        output(Command::new("kill").args(["-TERM", &self.child.id().to_string()]))?;
        let status = self.child.wait()?;
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.stderr, &mut said)?;
        if !status.success() {
            bail!("busload ended with {status}: {said}");
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be over already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the port of a front that the ready line names.
fn port(ready: &str, front: &str) -> Result<Option<u16>> {
    let prefix = format!("{front}=127.0.0.1:");
    let port = ready.split(' ').find_map(|pair| pair.strip_prefix(prefix.as_str()));
    Ok(port.map(|port| port.trim().parse()).transpose()?)
}
