//! Texts about the program, from the program: an example of the configuration, the page of all
//! settings, man pages, completions for shells.

use std::{fs, io, path::Path};

use clap::CommandFactory;
use clap_complete::Shell;

use super::{
    arguments::{Cli, ConfigCommand},
    print, settings_page,
};
use crate::failure::Failure;

/// The example of a configuration file.
const EXAMPLE: &str = include_str!("../../../../busload.example.toml");
/// Head of the section in which clap_mangen puts the manual.
const EXTRA: &str = "\n.SH EXTRA\n";
/// Name of the program.
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
    write_pages(directory).map_err(|error| {
        Failure::run(format!("cannot write man pages to {}: {error}", directory.display()))
    })
}

fn write_pages(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Cli::command(), directory)?;
    for page in fs::read_dir(directory)? {
        let path = page?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // The directory may hold pages of other programs.
        if name.starts_with(PROGRAM) && name.ends_with(".1") {
            let page = fs::read_to_string(&path)?;
            fs::write(&path, with_manual_as_it_is(&page))?;
        }
    }
    Ok(())
}

/// Keeps the lines of the manual, which has lists and examples, as they are.
fn with_manual_as_it_is(page: &str) -> String {
    let Some((before, manual)) = page.split_once(EXTRA) else { return page.to_owned() };
    let (manual, after) = manual.split_once("\n.SH ").unwrap_or((manual, ""));
    format!("{before}\n.SH MANUAL\n.nf\n{manual}\n.fi\n.SH {after}")
}

/// Prints a script that completes commands and flags.
pub fn completions(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut script);
    print(&String::from_utf8_lossy(&script));
}
