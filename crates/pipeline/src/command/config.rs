//! CONFIG: the settings under Redis's names, and our own settings.
//!
//! Tools read them to learn what kind of server this is. CONFIG SET changes what can be changed
//! while the server runs, until the next start; for other settings it accepts only the present
//! value.

use std::time::Duration;

use busload_resp::parse_i64;

use super::{Call, printable, refuse_many_names};
use crate::{
    args::Args,
    error::{CommandError, CommandResult},
    glob::Pattern,
    limits::{
        CONFIG_REPLY_BYTES_MIN, CONFIG_REQUEST_BYTES_MAX, CONFIG_REQUEST_BYTES_MIN,
        CONFIG_VALUE_BYTES_MAX, PATTERN_BYTES_MAX, SPACE_COUNT,
    },
    settings::{Eviction, SyncMode},
    tx::{Locks, Slice, Step, Tx, Work},
};

/// Setting as clients see it.
struct Parameter {
    name: &'static str,
    kind: Kind,
    change: Change,
    value: fn(&Tx) -> String,
}

/// Syntax of a setting's values.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    YesNo,
    /// Integer from the first to the second.
    Integer(i64, i64),
    /// Number of bytes from the first to the second, with optional unit.
    Memory(u64, u64),
    OneOf(&'static [&'static str]),
}

#[derive(Clone, Copy)]
enum Change {
    /// Changed while the server runs, by this function, which gets the number.
    AtOnce(fn(&mut Tx, i64)),
    /// Fixed until the next start.
    AtStart,
    /// Never changed, it is constant.
    Never,
}

const fn at_start(name: &'static str, kind: Kind, value: fn(&Tx) -> String) -> Parameter {
    Parameter { name, kind, change: Change::AtStart, value }
}

/// Creates a setting that is changed while the server runs.
const fn at_once(
    name: &'static str,
    kind: Kind,
    change: fn(&mut Tx, i64),
    value: fn(&Tx) -> String,
) -> Parameter {
    Parameter { name, kind, change: Change::AtOnce(change), value }
}

const POLICIES: &[&str] = &[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
    S3_FIFO,
];
/// Policy of busload's own, under a name of Redis's kind.
const S3_FIFO: &str = "allkeys-s3-fifo";
/// Limit of the pending replies of one connection.
const CLIENT_REPLY_BYTES: &str = "client-reply-bytes";
/// Limit of the pending replies and unread requests of all connections.
const REPLY_BYTES_TOTAL: &str = "reply-bytes-total";
const MAX: i64 = i32::MAX as i64;
/// Any number of bytes.
const BYTES: Kind = Kind::Memory(0, i64::MAX as u64);

#[rustfmt::skip]
const PARAMETERS: &[Parameter] = &[
    at_once("maxmemory", BYTES, |tx, bytes| tx.settings.memory_max = bytes.unsigned_abs(),
        |tx| tx.settings.memory_max.to_string()),
    at_start("maxmemory-policy", Kind::OneOf(POLICIES), |tx| maxmemory_policy(tx).into()),
    at_start("save", Kind::Text, |_| String::new()),
    at_start("appendonly", Kind::YesNo,
        |tx| if default_sync(tx) == SyncMode::Off { "no" } else { "yes" }.into()),
    at_start("appendfsync", Kind::OneOf(&["everysec", "always", "no"]),
        |tx| match default_sync(tx) {
            SyncMode::Always => "always",
            SyncMode::Interval(_) => "everysec",
            SyncMode::Os | SyncMode::Off => "no",
        }.into()),
    Parameter { name: "databases", kind: Kind::Integer(0, MAX), change: Change::Never,
        value: |_| SPACE_COUNT.to_string() },
    at_once("maxclients", Kind::Integer(1, MAX),
        |tx, clients| {
            tx.settings.clients_max = u32::try_from(clients).unwrap_or(u32::MAX);
            tx.change_net_limits();
        },
        |tx| tx.settings.clients_max.to_string()),
    at_once("timeout", Kind::Integer(0, MAX),
        |tx, seconds| tx.settings.idle_timeout_s = u32::try_from(seconds).unwrap_or(u32::MAX),
        |tx| tx.settings.idle_timeout_s.to_string()),
    // The value that the socket driver sets.
    at_start("tcp-keepalive", Kind::Integer(0, MAX), |_| "300".into()),
    at_start("proto-max-bulk-len", BYTES,
        |_| busload_tables::limits::STRING_BYTES_MAX.to_string()),
    at_once("client-query-buffer-limit",
        Kind::Memory(CONFIG_REQUEST_BYTES_MIN, CONFIG_REQUEST_BYTES_MAX),
        |tx, bytes| {
            tx.settings.request_bytes = size(bytes);
            tx.change_net_limits();
        },
        |tx| tx.settings.request_bytes.to_string()),
    at_once(CLIENT_REPLY_BYTES, Kind::Memory(CONFIG_REPLY_BYTES_MIN, i64::MAX as u64),
        |tx, bytes| {
            tx.settings.client_reply_bytes = size(bytes);
            tx.change_net_limits();
        },
        |tx| tx.settings.client_reply_bytes.to_string()),
    at_once(REPLY_BYTES_TOTAL, Kind::Memory(CONFIG_REPLY_BYTES_MIN, i64::MAX as u64),
        |tx, bytes| {
            tx.settings.reply_bytes_total = size(bytes);
            tx.change_net_limits();
        },
        |tx| tx.settings.reply_bytes_total.to_string()),
    at_once("slowlog-log-slower-than", Kind::Integer(-1, i64::MAX),
        |tx, us| tx.set_slow_threshold(u64::try_from(us).ok().map(Duration::from_micros)),
        |tx| tx.slow_threshold().map_or("-1".into(), |slow| slow.as_micros().to_string())),
    at_once("slowlog-max-len", Kind::Integer(0, i64::MAX),
        |tx, len| tx.stats.slow_log.set_len_max(size(len)),
        |tx| tx.stats.slow_log.len_max().to_string()),
    at_once("latency-monitor-threshold", Kind::Integer(0, i64::MAX),
        |tx, ms| tx.set_spike_threshold(
            u64::try_from(ms).ok().filter(|ms| *ms != 0).map(Duration::from_millis)),
        |tx| tx.spike_threshold().map_or("0".into(), |spike| spike.as_millis().to_string())),
    at_start("bind", Kind::Text, |tx| tx.settings.about.bind.clone()),
    at_start("port", Kind::Integer(0, u16::MAX as i64), |tx| tx.settings.about.port.to_string()),
    at_start("dir", Kind::Text, |tx| tx.settings.about.data_directory.display().to_string()),
    Parameter { name: "requirepass", kind: Kind::Text, change: Change::Never,
        value: |tx| if tx.users.default_user().needs_no_password() { "" } else { "***" }.into() },
    at_start("loglevel", Kind::OneOf(&["debug", "verbose", "notice", "warning", "nothing"]),
        |_| "notice".into()),
    at_start("notify-keyspace-events", Kind::Text, |_| String::new()),
    at_start("cluster-enabled", Kind::YesNo, |_| "no".into()),
    at_start("replica-read-only", Kind::YesNo, |_| "yes".into()),
    at_start("slave-read-only", Kind::YesNo, |_| "yes".into()),
    at_start("lazyfree-lazy-user-del", Kind::YesNo, |_| "yes".into()),
    at_start("lazyfree-lazy-user-flush", Kind::YesNo, |_| "yes".into()),
];

/// Returns what the table `default` does at the limit of memory, as a policy of Redis.
pub(super) fn maxmemory_policy(tx: &Tx) -> &'static str {
    match tx.catalog.memory(busload_tables::TableId(0)).map(|table| table.settings.evict) {
        Some(Eviction::S3Fifo) => S3_FIFO,
        _ => "noeviction",
    }
}

fn default_sync(tx: &Tx) -> SyncMode {
    tx.catalog.memory(busload_tables::TableId(0)).map_or(SyncMode::Off, |table| table.settings.sync)
}

pub(super) fn get(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    refuse_many_names(&call.args, 2)?;
    if PATTERN_BYTES_MAX < call.args.request_bytes() {
        return Err(CommandError::text("ERR patterns are longer than 1 MiB"));
    }
    let mut asked = [false; PARAMETERS.len()];
    for pattern in call.args.iter_from(2) {
        let pattern = Pattern::compile_caseless(pattern)?;
        for (asked, parameter) in asked.iter_mut().zip(PARAMETERS) {
            *asked = *asked || pattern.matches(parameter.name.as_bytes());
        }
    }
    let of_asked = PARAMETERS.iter().zip(asked).filter(|(_, asked)| *asked);
    let found: Vec<&Parameter> = of_asked.map(|(parameter, _)| parameter).collect();
    call.reply.map(found.len());
    for parameter in found {
        call.reply.bulk(parameter.name.as_bytes());
        call.reply.bulk((parameter.value)(tx).as_bytes());
    }
    Ok(())
}

/// Has the server read its configuration again, and answers when that has ended. Other clients are
/// served meanwhile.
pub(super) fn reload(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    tx.run_sliced(call, Reload { request: None })
}

/// Work of CONFIG RELOAD, which waits for the thread that reloads.
struct Reload {
    /// Number of the request, once it was made.
    request: Option<u64>,
}

impl Work for Reload {
    fn step(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError> {
        let reloads = &tx.signals.reloads;
        let request = match self.request {
            Some(request) => request,
            None => reloads.request().ok_or_else(|| {
                CommandError::text("ERR this server cannot reload its configuration")
            })?,
        };
        self.request = Some(request);
        match reloads.outcome(request) {
            None => Ok(Step::Wait),
            Some(Ok(said)) => {
                slice.reply.bulk(said.as_bytes());
                Ok(Step::Done)
            }
            Some(Err(said)) => Err(CommandError::from(format!("ERR {said}"))),
        }
    }

    fn suspend(&mut self, _: &Tx, _: u16, _: &Args<'_>) {}

    fn locks(&self) -> Option<&Locks> {
        None
    }
}

/// Changes all given settings or none.
pub(super) fn set(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    refuse_many_names(&call.args, 2)?;
    let pairs: Vec<&[u8]> = call.args.iter_from(2).collect();
    if !pairs.len().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    let named = named_parameters(&pairs)?;
    for (parameter, value) in &named {
        check(tx, parameter, value)?;
    }
    check_reply_limits(tx, &named)?;
    for (parameter, value) in &named {
        if let (Change::AtOnce(apply), Some(number)) = (parameter.change, number(value)) {
            apply(tx, number);
        }
    }
    call.reply.ok();
    Ok(())
}

type Named<'a> = (&'static Parameter, &'a [u8]);

fn named_parameters<'a>(pairs: &[&'a [u8]]) -> Result<Vec<Named<'a>>, CommandError> {
    let mut named: Vec<Named<'a>> = Vec::with_capacity(pairs.len() / 2);
    let mut refused = None;
    for pair in pairs.chunks_exact(2) {
        let found = PARAMETERS
            .iter()
            .find(|parameter| parameter.name.as_bytes().eq_ignore_ascii_case(pair[0]));
        let parameter = found.ok_or_else(|| {
            let name = printable(pair[0], 128);
            CommandError::from(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            ))
        })?;
        if matches!(parameter.change, Change::Never) {
            refused.get_or_insert((parameter, "can't set immutable config"));
        } else if named.iter().any(|(earlier, _)| earlier.name == parameter.name) {
            refused.get_or_insert((parameter, "duplicate parameter"));
        }
        named.push((parameter, pair[1]));
    }
    match refused {
        Some((parameter, why)) => Err(failed(parameter, why)),
        None => Ok(named),
    }
}

fn failed(parameter: &Parameter, why: &str) -> CommandError {
    format!("ERR CONFIG SET failed (possibly related to argument '{}') - {why}", parameter.name)
        .into()
}

/// Checks that the value is valid and, for a setting that only a start can change, equal to the
/// present one.
fn check(tx: &Tx, parameter: &Parameter, value: &[u8]) -> Result<(), CommandError> {
    if CONFIG_VALUE_BYTES_MAX < value.len() {
        return Err(failed(parameter, "argument is too long"));
    }
    let text = normal_form(parameter.kind, value).map_err(|why| failed(parameter, &why))?;
    let clients_max = i64::from(tx.clients_max_at_start);
    if parameter.name == "maxclients" && number(value).is_none_or(|clients| clients_max < clients) {
        let why = format!(
            "at most {clients_max}, the number that the server was started with; more need a start"
        );
        return Err(failed(parameter, &why));
    }
    if matches!(parameter.change, Change::AtOnce(_)) || text == (parameter.value)(tx) {
        return Ok(());
    }
    let why = "it can be changed only in the configuration file, for the next start";
    Err(failed(parameter, why))
}

/// Checks the limits of pending replies that would result, as a start does.
fn check_reply_limits(tx: &Tx, named: &[Named<'_>]) -> Result<(), CommandError> {
    let change = |name: &str| named.iter().find(|(parameter, _)| parameter.name == name);
    let (client, total) = (change(CLIENT_REPLY_BYTES), change(REPLY_BYTES_TOTAL));
    let Some((parameter, _)) = client.or(total) else { return Ok(()) };
    let or = |change: Option<&Named<'_>>, now: usize| {
        change.and_then(|(_, value)| number(value)).map_or(now, size)
    };
    let client_bytes = or(client, tx.settings.client_reply_bytes);
    let total_bytes = or(total, tx.settings.reply_bytes_total);
    if client_bytes <= total_bytes {
        return Ok(());
    }
    let why = format!(
        "{REPLY_BYTES_TOTAL} ({total_bytes}) would be less than {CLIENT_REPLY_BYTES} \
         ({client_bytes}); expected at least as much"
    );
    Err(failed(parameter, &why))
}

/// Returns the value in the form that CONFIG GET shows, or Redis's message about what is wrong with
/// it.
fn normal_form(kind: Kind, value: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(value);
    let lower = text.to_ascii_lowercase();
    match kind {
        Kind::Text => Ok(text.into_owned()),
        Kind::YesNo if ["yes", "no"].contains(&lower.as_str()) => Ok(lower),
        Kind::YesNo => Err("argument must be 'yes' or 'no'".into()),
        Kind::Integer(min, max) => match parse_i64(value) {
            Some(number) if (min..=max).contains(&number) => Ok(number.to_string()),
            Some(_) => Err(format!("argument must be between {min} and {max} inclusive")),
            None => Err("argument couldn't be parsed into an integer".into()),
        },
        Kind::Memory(min, max) => match memory_bytes(value) {
            Some(bytes) if (min..=max).contains(&bytes) => Ok(bytes.to_string()),
            Some(_) => Err(format!("argument must be between {min} and {max} inclusive")),
            None => Err("argument must be a memory value".into()),
        },
        Kind::OneOf(words) if words.contains(&lower.as_str()) => Ok(lower),
        Kind::OneOf(words) => {
            Err(format!("argument(s) must be one of the following: {}", words.join(", ")))
        }
    }
}

/// Returns the number that a valid value stands for; only numbers can be changed.
fn number(value: &[u8]) -> Option<i64> {
    parse_i64(value).or_else(|| i64::try_from(memory_bytes(value)?).ok())
}

/// Returns a checked number, which is not negative, as a size.
fn size(number: i64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Parses a number of bytes: `1gb` is 1024 MiB, `1g` is 1000 MB, as in Redis.
fn memory_bytes(value: &[u8]) -> Option<u64> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = value.split_at(digits);
    let factor: u64 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1_000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    std::str::from_utf8(number).ok()?.parse::<u64>().ok()?.checked_mul(factor)
}

pub(super) fn resetstat(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    tx.stats.reset();
    call.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_with_redis_units() {
        let cases: &[(&str, Option<u64>)] = &[
            ("0", Some(0)),
            ("100", Some(100)),
            ("1k", Some(1_000)),
            ("1KB", Some(1_024)),
            ("2mb", Some(2 << 20)),
            ("1Gb", Some(1 << 30)),
            ("3g", Some(3_000_000_000)),
            ("7b", Some(7)),
            ("", None),
            ("gb", None),
            ("-1", None),
            ("1kib", None),
            ("1.5gb", None),
            ("18446744073709551616", None),
            ("99999999999999gb", None),
        ];
        for (text, expected) in cases {
            assert_eq!(memory_bytes(text.as_bytes()), *expected, "{text}");
        }
    }
}
