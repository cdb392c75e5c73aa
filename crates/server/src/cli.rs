//! The command line: everything that runs without serving, and the dispatch to `serve`.
//!
//! ```text
//!  arguments --> check: a start on a copy-on-write disk ------------> what it would do
//!          |---> log_tools: `log verify|dump` on the same disk -----> stdout
//!          |---> log_repair: `log repair`, from the same disk ------> a new directory
//!          |---> snapshot_tools: `snapshot verify|dump` ------------> stdout
//!          |       `--> resp_client: `snapshot`, asks the server ---> a snapshot
//!          |---> backup_tools: `backup`, beside a running server ---> a directory of copies
//!          |       `--> `restore`, from there ----------------------> a new directory
//!          |---> cache_tools: `cache list|warm|verify|drop` --------> the cache, or the server
//!          |       `--> http_client, if a server has the cache open   that has it open
//!          |---> top: GET /api/stats of a server, each second ---> the terminal
//!          |---> reload: CONFIG RELOAD of a server ------------> what has changed
//!          |---> health: GET /readyz of a server ---------------> the exit code
//!          |---> generated: `config`, `man`, `completions` -----> what is printed or written
//!          |---> chunks_tools: `chunks ls|cat|verify` --------------> a store, without a cache
//!          |---> user_tools: `user add|list|remove|passwd` -------> the file of users
//!          |---> token_tools: `token add` ------------------------> the file of tokens
//!          `---> crate::serve
//! ```
//!
//! No command but `serve` writes to an existing log or answers a client. Reports go to stdout,
//! progress and warnings to stderr.

mod arguments;
mod backup_tools;
mod cache_tools;
mod check;
mod chunks_tools;
mod copy_on_write_disk;
mod generated;
mod health;
mod http_client;
mod log_repair;
mod log_tools;
pub mod progress;
mod read_meter;
mod reload;
mod resp_client;
mod settings_page;
mod snapshot_tools;
mod target;
mod tls_stream;
mod token_tools;
mod top;
mod user_tools;

use std::{ffi::OsString, io::Write};

use arguments::{
    BackupCommand, Command, LogCommand, Request, ServeArgs, SnapshotCommand, TokenCommand,
};

use crate::{config::Config, failure::Failure, machine::Machine, serve};

/// Executes the command that these arguments name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Failure> {
    match arguments::parse(arguments)? {
        Request::Print(text) => {
            print(&text);
            Ok(())
        }
        Request::Do(command) => execute(*command),
    }
}

fn execute(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(arguments) => serve::serve(load(arguments)?),
        Command::Check(arguments) => check::check(&load(arguments)?),
        Command::Log(LogCommand::Verify(log)) => log_tools::verify(log.data.as_deref()),
        Command::Log(LogCommand::Dump(dump)) => {
            log_tools::dump(dump.log.data.as_deref(), dump.from)
        }
        Command::Log(LogCommand::Repair(repair)) => {
            log_repair::repair(repair.log.data.as_deref(), &repair.to)
        }
        Command::Snapshot(arguments) => match arguments.command {
            Some(SnapshotCommand::Verify(log)) => snapshot_tools::verify(log.data.as_deref()),
            Some(SnapshotCommand::Dump(log)) => snapshot_tools::dump(log.data.as_deref()),
            Some(SnapshotCommand::Make(configuration)) => {
                snapshot_tools::make(&configuration.load()?)
            }
            None => snapshot_tools::make(&arguments.configuration.load()?),
        },
        Command::Backup(mut arguments) => match (arguments.command.take(), arguments.to.take()) {
            (Some(BackupCommand::Verify(backup)), _) => backup_tools::verify(&backup.from),
            (None, Some(to)) => backup_tools::backup(&to, arguments),
            (None, None) => Err(Failure::usage("expected a directory for the backup")),
        },
        Command::Restore(arguments) => backup_tools::restore(&arguments),
        Command::Cache(mut command) => {
            let config = command.take_configuration().load()?;
            cache_tools::run(&command, &config)
        }
        Command::Top(mut arguments) => {
            let config = arguments.take_configuration().load()?;
            top::top(&arguments, &config)
        }
        Command::Health(mut arguments) => {
            let config = arguments.take_configuration().load()?;
            health::health(&arguments, &config)
        }
        Command::Reload(configuration) => reload::reload(&configuration.load()?),
        Command::Config(command) => {
            generated::config(&command);
            Ok(())
        }
        Command::Man(arguments) => generated::man(&arguments.directory),
        Command::Completions(arguments) => {
            generated::completions(arguments.shell);
            Ok(())
        }
        Command::User(command) => user_tools::run(&command),
        Command::Token(TokenCommand::Add(arguments)) => token_tools::add(&arguments),
        Command::Chunks(command) => chunks_tools::run(&command),
    }
}

/// Prints a text to standard output. That it is closed is no failure.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn load(arguments: ServeArgs) -> Result<Config, Failure> {
    let changes = arguments.table_changes();
    Config::load(arguments.config.as_deref(), arguments.options, changes, &Machine::this())
}
