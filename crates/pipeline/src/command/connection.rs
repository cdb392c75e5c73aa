//! Commands about the connection itself: authentication, protocol version, space, end.

use std::time::Duration;

use busload_resp::{Version, parse_i64};

use super::{Call, keys, printable, transactions};
use crate::{
    error::{CommandError, CommandResult},
    limits::CLIENT_NAME_BYTES_MAX,
    password_limiter::{ClientAddress, whole_seconds},
    secret::is_secret,
    session::{ReplyMode, Session},
    tx::Tx,
};

/// Version of Redis whose commands these are; clients choose features by it.
pub(super) const REDIS_VERSION: &str = "7.2.4";

pub(super) const NAME_TOO_LONG: CommandError =
    CommandError::text("ERR a name is longer than 4 KiB");

const _: () = assert!(CLIENT_NAME_BYTES_MAX == 4 * 1024, "the error text says so");

/// Name of the only user.
pub(super) const USER: &[u8] = b"default";

pub(super) fn hello(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let asked = hello_options(call)?;
    if let Some((user, password)) = asked.credentials {
        authenticate(tx, call.session, user, password)?;
    }
    if !call.session.authenticated {
        return Err(CommandError::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = asked.name {
        call.session.name = name.to_vec();
    }
    if let Some(version) = asked.version {
        set_version(call, version);
    }
    write_hello(call);
    Ok(())
}

#[derive(Default)]
struct HelloOptions<'a> {
    version: Option<Version>,
    credentials: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

fn hello_options<'a>(call: &Call<'a>) -> Result<HelloOptions<'a>, CommandError> {
    let mut asked = HelloOptions::default();
    let mut cursor = call.args.cursor(1);
    if let Some(version) = cursor.next() {
        asked.version = Some(protocol_version(version)?);
    }
    while let Some(option) = cursor.peek() {
        let left = cursor.left();
        if 3 <= left && cursor.take_word("auth") {
            asked.credentials = Some((cursor.expect()?, cursor.expect()?));
        } else if 2 <= left && cursor.take_word("setname") {
            asked.name = Some(client_name(cursor.expect()?)?);
        } else {
            return Err(
                format!("ERR Syntax error in HELLO option '{}'", printable(option, 128)).into()
            );
        }
    }
    Ok(asked)
}

fn protocol_version(arg: &[u8]) -> Result<Version, CommandError> {
    match parse_i64(arg) {
        Some(2) => Ok(Version::Resp2),
        Some(3) => Ok(Version::Resp3),
        Some(_) => Err(CommandError::text("NOPROTO unsupported protocol version")),
        None => Err(CommandError::text("ERR Protocol version is not an integer or out of range")),
    }
}

fn set_version(call: &mut Call<'_>, version: Version) {
    call.session.version = version;
    call.reply.set_version(version);
}

/// Returns the number by which a client names the version.
pub(super) fn version_number(version: Version) -> i64 {
    match version {
        Version::Resp2 => 2,
        Version::Resp3 => 3,
    }
}

fn write_hello(call: &mut Call<'_>) {
    let id = i64::try_from(call.session.id).unwrap_or(i64::MAX);
    let version = version_number(call.session.version);
    let reply = &mut call.reply;
    reply.map(7);
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    for (field, value) in [("proto", version), ("id", id)] {
        reply.bulk(field.as_bytes());
        reply.integer(value);
    }
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}

pub(super) fn auth(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let (user, password) = match call.args.len() {
        2 if tx.settings.password.is_none() => {
            return Err(CommandError::text(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        2 => (USER, call.args.at(1)),
        3 => (call.args.at(1), call.args.at(2)),
        _ => return Err(CommandError::Syntax),
    };
    authenticate(tx, call.session, user, password)?;
    call.reply.ok();
    Ok(())
}

/// Checks user and password. A connection that continues to guess while none of its passwords are
/// checked is closed behind the error: each further guess costs it a connection.
fn authenticate(tx: &mut Tx, session: &mut Session, user: &[u8], password: &[u8]) -> CommandResult {
    let (client, now) = (ClientAddress::from(&session.peer.remote), tx.monotonic());
    let right = match &tx.settings.password {
        Some(expected) => {
            // A client that has given the password has nothing to guess.
            let wait = if session.authenticated { None } else { tx.guesses.wait(client, now) };
            if let Some(wait) = wait {
                tx.stats.auth_refused_total.add(1);
                session.closing = true;
                return Err(too_many_guesses(wait));
            }
            is_secret(password, expected)
        }
        None => true,
    };
    if user != USER || !right {
        tx.stats.auth_denied_total.add(1);
        tx.guesses.note_wrong(client, now);
        return Err(CommandError::text(
            "WRONGPASS invalid username-password pair or user is disabled.",
        ));
    }
    session.authenticated = true;
    Ok(())
}

fn too_many_guesses(wait: Duration) -> CommandError {
    let seconds = whole_seconds(wait);
    format!(
        "ERR too many wrong passwords came from this address, so none is looked at now; try again \
         in {seconds} s"
    )
    .into()
}

pub(super) fn select(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    call.session.space = keys::space_number(call.args.at(1))?;
    call.reply.ok();
    Ok(())
}

pub(super) fn ping(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    match call.args.len() {
        1 => call.reply.simple("PONG"),
        2 => reply_with_argument(call),
        _ => return Err(CommandError::Arity(call.command.name)),
    }
    Ok(())
}

pub(super) fn echo(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    reply_with_argument(call);
    Ok(())
}

fn reply_with_argument(call: &mut Call<'_>) {
    match call.args.shared(1) {
        Some(bytes) => call.reply.bulk_bytes(bytes),
        None => call.reply.bulk(call.args.at(1)),
    }
}

pub(super) fn quit(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    call.session.closing = true;
    call.reply.ok();
    Ok(())
}

/// Resets the connection to the state of a new one, except for its id.
pub(super) fn reset(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    transactions::unwatch_all(tx, call.session);
    let session = &mut *call.session;
    session.multi = None;
    session.space = 0;
    session.authenticated = tx.settings.password.is_none();
    session.name.clear();
    session.reply_mode = ReplyMode::On;
    session.no_evict = false;
    session.no_touch = false;
    session.monitors = false;
    tx.monitors.remove(session.conn);
    set_version(call, Version::Resp2);
    call.reply.simple("RESET");
    Ok(())
}

/// Checks a name, which CLIENT LIST must be able to show unambiguously; empty removes the name.
pub(super) fn client_name(name: &[u8]) -> Result<&[u8], CommandError> {
    if CLIENT_NAME_BYTES_MAX < name.len() {
        return Err(NAME_TOO_LONG);
    }
    if is_plain(name) {
        return Ok(name);
    }
    Err(CommandError::text(
        "ERR Client names cannot contain spaces, newlines or special characters.",
    ))
}

/// Returns whether the text consists of printable ASCII characters other than the space.
pub(super) fn is_plain(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}
