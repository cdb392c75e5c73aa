//! Runs SQL through the program psql, which needs no async runtime and no driver.

use std::{
    io::Write,
    path::Path,
    process::{Output, Stdio},
};

use crate::{error::ClusterError, programs::Programs};

/// Server, user and database to run SQL in.
#[derive(Debug)]
pub struct Target<'a> {
    pub sockets: &'a Path,
    pub port: u16,
    pub database: &'a str,
    pub password: Option<&'a str>,
}

/// Runs SQL statement by statement up to the first error, and returns the rows: values separated by
/// `|`, one line each.
pub fn run(programs: &Programs, target: &Target<'_>, sql: &str) -> Result<String, ClusterError> {
    let mut psql = programs.client("psql");
    psql.args([
        "--no-psqlrc",
        "--quiet",
        "--tuples-only",
        "--no-align",
        "--set=ON_ERROR_STOP=1",
        "--file=-",
    ]);
    psql.arg("--host").arg(target.sockets).args(["--port", &target.port.to_string()]);
    psql.args(["--username", "busload", "--no-password", "--dbname", target.database]);
    psql.env("PGAPPNAME", "busload-cluster")
        .envs(target.password.map(|password| ("PGPASSWORD", password)));
    psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = feed(psql, sql).map_err(ClusterError::io("run psql"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ClusterError::Program {
        program: "psql",
        status: output.status.to_string(),
        output: errors,
    })
}

fn feed(mut command: std::process::Command, input: &str) -> std::io::Result<Output> {
    let mut child = command.spawn()?;
    let mut pipe = child.stdin.take().expect("it was asked for");
    // Serves both ends at once, so that neither blocks the other when there is much data.
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // psql may have ended with an error before it read all; its status tells.
            let _ = pipe.write_all(input.as_bytes());
        });
        child.wait_with_output()
    })
}
