//! `cargo xtask package`: an archive of a release for one system.
//!
//! ```text
//!  busload-VERSION-TARGET.tar.gz
//!    busload                      the program
//!    busload.example.toml, LICENSE-*, README.md, CHANGELOG.md, docs/
//!    man/man1/*.1, completions/   as the program prints them
//!    deploy/                      units, manifests, alerts, a dashboard
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::steps::{cargo, output, root, run};

/// System to build for, and the archive's directory
#[derive(Args, Debug)]
pub struct Arguments {
    /// System to build for, as rustc names it [default: this one]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// Profile of cargo
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Directory for the archive
    #[arg(long, value_name = "DIR", default_value = "target/package")]
    to: PathBuf,
}

/// Files and folders of the repository that are in the archive.
const FILES: [&str; 7] = [
    "busload.example.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "CHANGELOG.md",
    "docs",
    "deploy",
];
/// Shells, and where their completions lie.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "busload.bash"), ("fish", "busload.fish"), ("zsh", "_busload")];

/// Builds the program and packs it with what belongs to it.
pub fn package(arguments: &Arguments) -> Result<()> {
    let target = &match &arguments.target {
        Some(target) => target.clone(),
        None => host()?,
    };
    let built = build(target, &arguments.profile)?;
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("busload-{version}-{target}");
    let to = root().join(&arguments.to);
    let folder = to.join(&name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(folder.join("completions"))?;
    let program = folder.join("busload");
    fs::copy(&built, &program).with_context(|| built.display().to_string())?;
    // Only the program knows its commands.
    if !runs(&program) {
        bail!("a program for {target} does not run here; expected a system on which it does");
    }
    run(Command::new(&program).arg("man").arg(folder.join("man/man1")))?;
    for (shell, file) in COMPLETIONS {
        let script = output(Command::new(&program).args(["completions", shell]))?;
        fs::write(folder.join("completions").join(file), script)?;
    }
    for file in FILES {
        copy(&root().join(file), &folder.join(file))?;
    }
    let archive = format!("{name}.tar.gz");
    run(Command::new("tar").current_dir(&to).args(["-czf", &archive, &name]))?;
    fs::remove_dir_all(&folder)?;
    let bytes = fs::metadata(to.join(&archive))?.len();
    println!("{} ({bytes} bytes)", to.join(&archive).display());
    Ok(())
}

/// Returns the system that this runs on, as rustc names it.
fn host() -> Result<String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names its host")
}

fn build(target: &str, profile: &str) -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--locked", "--package", "busload", "--profile", profile]);
    run(build.args(["--target", target]))?;
    let folder =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let profile = if profile == "dev" { "debug" } else { profile };
    Ok(folder.join(target).join(profile).join("busload"))
}

fn runs(program: &Path) -> bool {
    output(Command::new(program).arg("--version")).is_ok()
}

/// Copies a file, or a folder with everything in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        fs::copy(from, to).with_context(|| from.display().to_string())?;
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
