//! One thing after the other, said before and summed up at the end.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// The root of the workspace.
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.ancestors().nth(2).expect("crates/xtask lies two levels below the root").to_owned()
}

/// The cargo that runs this.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command with its output shown.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", shown(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs a command and gives what it printed; its output is shown only when it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let Output { status, stdout, stderr } =
        command.output().with_context(|| format!("cannot run {}", shown(command)))?;
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    if !status.success() {
        bail!(
            "{} ended with {status}\n{stdout}{}",
            shown(command),
            String::from_utf8_lossy(&stderr)
        );
    }
    Ok(stdout)
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Steps that all run, whatever becomes of those before.
#[derive(Debug, Default)]
pub struct Steps {
    failed: Vec<String>,
    /// Name and duration of every step.
    took: Vec<(String, Duration)>,
}

impl Steps {
    /// Runs a step, and notes how long it took.
    #[allow(clippy::disallowed_methods, reason = "people read these times")]
    pub fn step(&mut self, name: &str, body: impl FnOnce() -> Result<()>) {
        println!("\n== {name}");
        let start = Instant::now();
        if let Err(error) = body() {
            println!("FAILED {name}: {error:#}");
            self.failed.push(name.to_owned());
        }
        self.took.push((name.to_owned(), start.elapsed()));
    }

    /// Prints how long each step took, and fails when one did.
    pub fn finish(self) -> Result<()> {
        println!();
        for (name, took) in &self.took {
            println!("{:>6.1} s  {name}", took.as_secs_f64());
        }
        if self.failed.is_empty() {
            println!("\nall passed");
            return Ok(());
        }
        bail!("failed: {}", self.failed.join(", "))
    }
}
