//! Documentation page of the commands, written from the table.

use std::fmt::Write;

use super::{COMMANDS, Command, Flags, Group};

/// Returns the page of all commands, as committed in `docs/commands.md`.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Commands\n\nWritten from the command table (`BUSLOAD_WRITE_DOCS=1 cargo test -p \
         busload-pipeline --test pipeline\ndocs` writes it anew). Values, errors and number \
         formats are those of Redis 7; what differs is said\nhere. The last column says which \
         work on tables in Postgres (docs/postgres.md): *w* only where the\ntable is writable.\n",
    );
    let groups = [
        Group::String,
        Group::Hash,
        Group::Generic,
        Group::Transactions,
        Group::Connection,
        Group::Server,
    ];
    for group in groups {
        write!(
            page,
            "\n## {}\n\n| command | what it does | since | Postgres |\n|---|---|---|---|\n",
            group.name()
        )
        .expect("writing to a string cannot fail");
        for command in COMMANDS.iter().filter(|command| command.group == group) {
            // Most commands with subcommands do nothing without one.
            if command.subcommands.is_empty() || command.accepts(1) {
                row(&mut page, command);
            }
            command.subcommands.iter().for_each(|subcommand| row(&mut page, subcommand));
        }
    }
    page
}

fn row(page: &mut String, command: &Command) {
    let name = command.name.replace('|', " ").to_uppercase();
    let space = if command.syntax.is_empty() { "" } else { " " };
    let syntax = command.syntax.replace('|', "\\|");
    let admin = if command.flags.has(Flags::ADMIN) { " (for operators)" } else { "" };
    let postgres = match command.source {
        None => "",
        Some(operation) if operation.is_write() => "w",
        Some(_) => "yes",
    };
    writeln!(
        page,
        "| `{name}{space}{syntax}` | {}{admin} | {} | {postgres} |",
        command.summary, command.since
    )
    .expect("writing to a string cannot fail");
}
