//! Texts about the program, from the program: an example of the configuration, the page of all
//! settings, man pages, completions for shells.

use std::{fs, path::Path};

use clap::CommandFactory;
use clap_complete::Shell;

use super::{
    arguments::{Cli, ConfigCommand},
    print, settings_page,
};
use crate::failure::Failure;

/// The example of a configuration file.
const EXAMPLE: &str = include_str!("../../../../busload.example.toml");
/// Name of the program for completions.
const PROGRAM: &str = "busload";

/// Prints the example, or the page.
pub fn config(command: &ConfigCommand) {
    match command {
        ConfigCommand::Example => print(EXAMPLE),
        ConfigCommand::Docs => print(&settings_page::page()),
    }
}

/// Writes a man page for each command to a directory, which is created when it is missing.
pub fn man(directory: &Path) -> Result<(), Failure> {
    let written = fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    written.map_err(|error| {
        Failure::run(format!("cannot write man pages to {}: {error}", directory.display()))
    })
}

/// Prints a script that completes commands and flags.
pub fn completions(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut script);
    print(&String::from_utf8_lossy(&script));
}
