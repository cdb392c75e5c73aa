//! Commands about the server (time, snapshots, shutdown), and the help texts of commands with
//! subcommands.

use busload_log::Lsn;

use super::{COMMANDS, Call, Command};
use crate::{
    args::Args,
    error::{CommandError, CommandResult},
    limits::MONITORS_MAX,
    session::ReplyMode,
    tx::{Locks, Slice, Step, Tx, Work},
};

pub(super) fn time(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let now_ms = tx.now();
    let (seconds, microseconds) = (now_ms.div_euclid(1_000), now_ms.rem_euclid(1_000) * 1_000);
    call.reply.array(2);
    for part in [seconds, microseconds] {
        call.reply.bulk(itoa::Buffer::new().format(part).as_bytes());
    }
    Ok(())
}

/// Asks for a snapshot. The log is durable without one; a snapshot lets older parts of it go.
pub(super) fn bgsave(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let mut cursor = call.args.cursor(1);
    let _scheduled = cursor.take_word("schedule");
    if cursor.left() != 0 {
        return Err(CommandError::Syntax);
    }
    tx.request_snapshot();
    call.reply.simple("Background saving started");
    Ok(())
}

/// Does what BGSAVE does: the log has no other form to be rewritten into.
pub(super) fn bgrewriteaof(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    tx.request_snapshot();
    call.reply.simple("Background append only file rewriting started");
    Ok(())
}

/// Returns when the last snapshot was finished; without one since the start, when that was.
pub(super) fn lastsave(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let finished_ms = tx.snapshots.status().finished_ms.unwrap_or(tx.started.wall_ms);
    call.reply.integer(finished_ms.div_euclid(1_000));
    Ok(())
}

/// Asks for a snapshot and answers when it is made. Other clients are served meanwhile.
pub(super) fn save(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    tx.run_sliced(call, Save { lsn: tx.last_lsn(), request: None })
}

/// Work of SAVE, which waits for its snapshot.
struct Save {
    /// Last record to be covered.
    lsn: Lsn,
    /// Number of the request for the snapshot, once it was made.
    request: Option<u64>,
}

impl Work for Save {
    fn step(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError> {
        let request = *self.request.get_or_insert_with(|| tx.request_snapshot());
        let status = tx.snapshots.status();
        if status.answered < request {
            return Ok(Step::Wait);
        }
        match status.error {
            None if status.lsn < self.lsn => Err(CommandError::Text(
                format!(
                    "ERR the snapshot ends with LSN {}, before {}: what is behind it is not \
                     synced yet, or part of a write in progress",
                    status.lsn, self.lsn
                )
                .into(),
            )),
            None => {
                slice.reply.ok();
                Ok(Step::Done)
            }
            Some(error) => {
                Err(CommandError::Text(format!("ERR no snapshot was made: {error}").into()))
            }
        }
    }

    fn suspend(&mut self, _: &Tx, _: u16, _: &Args<'_>) {}

    fn locks(&self) -> Option<&Locks> {
        None
    }
}

/// Starts a clean shutdown, as SIGTERM does. With the log there is no difference between SAVE and
/// NOSAVE, NOW and FORCE.
///
/// The command has no reply: the connection ends with the process, which tells the client that the
/// shutdown is done.
pub(super) fn shutdown(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let asked = shutdown_options(call)?;
    if asked.abort {
        return Err(CommandError::text("ERR No shutdown in progress."));
    }
    log::info!("stopping: client {} sent SHUTDOWN", call.session.id);
    tx.signals.stop();
    call.session.reply_mode = ReplyMode::Off;
    Ok(())
}

#[derive(Default)]
struct ShutdownOptions {
    abort: bool,
    save: bool,
    no_save: bool,
    any_other: bool,
}

fn shutdown_options(call: &Call<'_>) -> Result<ShutdownOptions, CommandError> {
    let mut asked = ShutdownOptions::default();
    let mut cursor = call.args.cursor(1);
    while cursor.left() != 0 {
        let option = if cursor.take_word("abort") {
            &mut asked.abort
        } else if cursor.take_word("save") {
            &mut asked.save
        } else if cursor.take_word("nosave") {
            &mut asked.no_save
        } else if cursor.take_word("now") || cursor.take_word("force") {
            &mut asked.any_other
        } else {
            return Err(CommandError::Syntax);
        };
        *option = true;
    }
    let contradiction = asked.save && asked.no_save;
    let more_than_abort = asked.abort && (asked.save || asked.no_save || asked.any_other);
    if contradiction || more_than_abort { Err(CommandError::Syntax) } else { Ok(asked) }
}

/// Answers OK: there are no functions to flush.
pub(super) fn function_flush(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let mut cursor = call.args.cursor(2);
    if 1 < cursor.left() {
        return Err(CommandError::text(
            "ERR unknown subcommand or wrong number of arguments for 'FLUSH'. Try FUNCTION HELP.",
        ));
    }
    let _mode = cursor.take_word("async") || cursor.take_word("sync");
    if cursor.left() != 0 {
        return Err(CommandError::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    call.reply.ok();
    Ok(())
}

/// Shows the client all commands from now on.
pub(super) fn monitor(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    if !tx.monitors.add(call.session.conn) {
        return Err(
            format!("ERR max number of clients in MONITOR mode reached, {MONITORS_MAX}").into()
        );
    }
    call.session.monitors = true;
    call.reply.ok();
    Ok(())
}

/// Answers HELP of any command with subcommands, from the table.
pub(super) fn help(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let container = call.command.name.split('|').next().unwrap_or_default();
    let subcommands = COMMANDS
        .iter()
        .find(|command| command.name == container)
        .map_or(&[][..], |c| c.subcommands);
    let title = format!(
        "{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        container.to_uppercase()
    );
    call.reply.array(1 + 2 * subcommands.len());
    call.reply.simple(&title);
    for subcommand in subcommands {
        call.reply.simple(&usage(subcommand));
        call.reply.simple(&format!("    {}", subcommand.summary));
    }
    Ok(())
}

fn usage(subcommand: &Command) -> String {
    let name = subcommand.name.rsplit('|').next().unwrap_or_default().to_uppercase();
    let separator = if subcommand.syntax.is_empty() { "" } else { " " };
    format!("{name}{separator}{}", subcommand.syntax)
}

/// Handler of a command that only has subcommands; dispatch resolves them before it calls a
/// handler.
pub(super) fn container(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    Err(CommandError::Arity(call.command.name))
}
