//! redis-cli and redis-benchmark.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use super::Outcome;
use crate::steps::output;

/// Requests of each benchmark; enough to fill pipelines, done in a second.
const BENCHMARK_REQUESTS: &str = "100000";

/// Calls and what redis-cli prints for them.
const CALLS: [(&[&str], &str); 16] = [
    (&["ping"], "PONG"),
    (&["set", "k", "v", "EX", "100"], "OK"),
    (&["get", "k"], "v"),
    (&["incr", "n"], "1"),
    (&["incrbyfloat", "n", "0.1"], "1.1"),
    (&["hset", "h", "a", "1", "b", "2"], "2"),
    (&["hgetall", "h"], "a\n1\nb\n2"),
    (&["-3", "hget", "h", "b"], "2"),
    (&["-n", "3", "set", "other", "x"], "OK"),
    (&["-n", "3", "dbsize"], "1"),
    (&["mget", "k", "none"], "v\n"),
    (&["type", "h"], "hash"),
    (&["--scan", "--pattern", "k*"], "k"),
    (
        &["eval", "return 1", "0"],
        "ERR unknown command 'eval', with args beginning with: 'return 1' '0' ",
    ),
    (&["del", "k", "h", "none"], "2"),
    (&["exists", "k"], "0"),
];

/// Modes of redis-cli, and what each prints in any case.
const MODES: [(&[&str], &str); 5] = [
    (&["--bigkeys"], "-------- summary -------"),
    (&["--memkeys"], "-------- summary -------"),
    (&["--latency", "-i", "1"], "."),
    (&["latency", "doctor"], "100 ms or longer"),
    (&["memory", "doctor"], "nothing to find"),
];

/// Calls of each kind, in both protocols.
pub fn redis_cli(port: u16) -> Result<Outcome> {
    if let Some(why) = find("redis-cli") {
        return Ok(Outcome::Missing(why));
    }
    for (words, expected) in CALLS {
        let printed =
            output(Command::new("redis-cli").args(["-p", &port.to_string()]).args(words))?;
        if printed.trim_end_matches('\n') != expected.trim_end_matches('\n') {
            bail!("redis-cli {}: {printed:?} instead of {expected:?}", words.join(" "));
        }
    }
    for (words, part) in MODES {
        let printed =
            output(Command::new("redis-cli").args(["-p", &port.to_string()]).args(words))?;
        if !printed.contains(part) {
            bail!("redis-cli {}: no {part:?} in {printed}", words.join(" "));
        }
    }
    let info = output(Command::new("redis-cli").args(["-p", &port.to_string(), "info"]))?;
    for section in ["# Server", "# Clients", "# Memory", "# Stats"] {
        if !info.contains(section) {
            bail!("INFO has no section {section}: {info}");
        }
    }
    Ok(Outcome::Passed)
}

/// Runs redis-benchmark's usual tests, pipelined.
pub fn redis_benchmark(port: u16) -> Result<Outcome> {
    if let Some(why) = find("redis-benchmark") {
        return Ok(Outcome::Missing(why));
    }
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port.to_string(), "-q", "-n", BENCHMARK_REQUESTS, "-P", "16"]);
    let printed = output(command.args(["-t", "ping,get,set,incr,hset,mset"]))?;
    let last_of_each = printed.lines().map(|line| line.rsplit('\r').next().unwrap_or(line));
    let rates: Vec<&str> =
        last_of_each.filter(|line| line.contains("requests per second")).collect();
    rates.iter().for_each(|line| println!("{}", line.trim()));
    if rates.len() != 7 || printed.to_lowercase().contains("error") {
        bail!("redis-benchmark printed {printed}");
    }
    Ok(Outcome::Passed)
}

/// Looks for a program of redis-tools. Returns why it cannot be had, if it cannot.
pub fn find(program: &str) -> Option<String> {
    let runs = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if runs(program) {
        return None;
    }
    let mut install = Command::new("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive");
    // Fails where there is no apt-get or no right to install: then it is missing.
    match output(install.args(["install", "--yes", "--no-install-recommends", "redis-tools"])) {
        Ok(_) if runs(program) => None,
        _ => Some(format!(
            "{program} is not installed; Debian: apt-get install redis-tools, \
             macOS: brew install redis"
        )),
    }
}
