//! SLOWLOG: the last commands whose execution took long.

use busload_resp::parse_i64;

use super::{Call, printable};
use crate::{
    error::{CommandError, CommandResult},
    tx::Tx,
};

/// Number of entries that SLOWLOG GET returns unless another one is asked for, as in Redis.
const COUNT_DEFAULT: usize = 10;

const BAD_COUNT: CommandError =
    CommandError::text("ERR count should be greater than or equal to -1");

pub(super) fn get(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let count = match (call.args.get(2), call.args.len()) {
        (None, _) => COUNT_DEFAULT,
        (Some(count), 3) => match parse_i64(count) {
            Some(-1) => usize::MAX,
            Some(count) => usize::try_from(count).map_err(|_| BAD_COUNT)?,
            None => return Err(BAD_COUNT),
        },
        _ => {
            let word = printable(call.args.at(1), 128);
            return Err(format!(
                "ERR unknown subcommand or wrong number of arguments for '{word}'. Try SLOWLOG \
                 HELP."
            )
            .into());
        }
    };
    let commands = tx.stats.slow_log.newest(count);
    call.reply.array(commands.len());
    for command in commands {
        call.reply.array(6);
        call.reply.integer(i64::try_from(command.id).unwrap_or(i64::MAX));
        call.reply.integer(command.unix_s);
        call.reply.integer(i64::try_from(command.took.as_micros()).unwrap_or(i64::MAX));
        call.reply.bulks(command.args.iter().map(Vec::as_slice));
        call.reply.bulk(command.client.as_bytes());
        call.reply.bulk(&command.client_name);
    }
    Ok(())
}

pub(super) fn len(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    call.reply.count(tx.stats.slow_log.len());
    Ok(())
}

pub(super) fn reset(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    tx.stats.slow_log.reset();
    call.reply.ok();
    Ok(())
}
