//! Commands about the connection itself: authentication, protocol version, space, end.

use std::time::Duration;

use busload_acl::{Attempt, DEFAULT, Secret, Verification};
use busload_io::ConnId;
use busload_resp::{Version, parse_i64};

use super::{Call, keys, printable, transactions};
use crate::{
    args::Args,
    error::{CommandError, CommandResult},
    limits::{CLIENT_NAME_BYTES_MAX, VERIFICATION_TRIES},
    password_limiter::{ClientAddress, whole_seconds},
    reply::Reply,
    session::{ReplyMode, Session},
    tx::{Locks, Slice, Step, Tx, Work},
};

/// Version of Redis whose commands these are; clients choose features by it.
pub(super) const REDIS_VERSION: &str = "7.2.4";

pub(super) const NAME_TOO_LONG: CommandError =
    CommandError::text("ERR a name is longer than 4 KiB");

const _: () = assert!(CLIENT_NAME_BYTES_MAX == 4 * 1024, "the error text says so");

pub(super) fn hello(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let asked = hello_options(call)?;
    let greeting = Greeting { version: asked.version, name: asked.name.map(<[u8]>::to_vec) };
    if let Some((user, password)) = asked.credentials {
        return log_in(tx, call, (user, password), Answer::Hello(greeting));
    }
    if !call.session.authenticated {
        return Err(CommandError::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    Answer::Hello(greeting).write(call.session, &mut call.reply);
    Ok(())
}

/// Changes that HELLO makes to a connection.
struct Greeting {
    version: Option<Version>,
    name: Option<Vec<u8>>,
}

/// Answer to a client that has logged in.
enum Answer {
    /// Answer that AUTH gives.
    Ok,
    /// Answer that HELLO gives.
    Hello(Greeting),
}

impl Answer {
    fn write(self, session: &mut Session, reply: &mut Reply<'_>) {
        let Answer::Hello(Greeting { version, name }) = self else { return reply.ok() };
        if let Some(name) = name {
            session.name = name;
        }
        if let Some(version) = version {
            session.version = version;
            reply.set_version(version);
        }
        write_hello(session, reply);
    }
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

fn write_hello(session: &Session, reply: &mut Reply<'_>) {
    let id = i64::try_from(session.id).unwrap_or(i64::MAX);
    let version = version_number(session.version);
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
        2 if tx.users.default_user().needs_no_password() => {
            return Err(CommandError::text(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        2 => (DEFAULT.as_bytes(), call.args.at(1)),
        3 => (call.args.at(1), call.args.at(2)),
        _ => return Err(CommandError::Syntax),
    };
    log_in(tx, call, (user, password), Answer::Ok)
}

/// Checks user and password: at once if that is cheap, else a worker verifies the password, and the
/// requests behind on the connection wait. A connection that continues to guess while none of its
/// passwords are checked is closed behind the error: each further guess costs it a connection.
fn log_in(
    tx: &mut Tx,
    call: &mut Call<'_>,
    (user, password): (&[u8], &[u8]),
    answer: Answer,
) -> CommandResult {
    let client = ClientAddress::from(&call.session.peer.remote);
    // A client that has given the password of the user has nothing to guess.
    let is_known = call.session.authenticated && call.session.user.name().as_bytes() == user;
    let is_open = || tx.users.get(user).is_some_and(|user| user.is_open());
    if !is_known
        && !is_open()
        && let Some(wait) = tx.guesses.wait(client, tx.monotonic())
    {
        tx.stats.auth_refused_total.add(1);
        call.session.closing = true;
        return Err(too_many_guesses(wait));
    }
    match tx.users.begin(user, password) {
        Attempt::Right(user) => {
            call.session.log_in(user);
            answer.write(call.session, &mut call.reply);
            Ok(())
        }
        Attempt::Wrong => {
            tx.guesses.note_wrong(client, tx.monotonic());
            Err(wrong_password(tx))
        }
        Attempt::Slow(_) if call.in_exec => Err(CommandError::text(
            "ERR the password of this user must be verified outside of a transaction",
        )),
        Attempt::Slow(unverified) => {
            let verification = tx.users.verify(unverified).map_err(|_| TOO_MANY_WAIT)?;
            // Counted before it is known, so that many connections cannot guess at once.
            if verification.is_first {
                tx.guesses.note_wrong(client, tx.monotonic());
            }
            let log_in = LogIn {
                conn: call.session.conn,
                client,
                name: user.to_vec(),
                password: Secret(password.to_vec()),
                verification,
                answer: Some(answer),
                has_waited: false,
                tries_left: VERIFICATION_TRIES,
            };
            tx.run_sliced(call, log_in)
        }
    }
}

const TOO_MANY_WAIT: CommandError =
    CommandError::text("ERR too many passwords wait to be verified, try again later");

fn wrong_password(tx: &Tx) -> CommandError {
    tx.stats.auth_denied_total.add(1);
    CommandError::text("WRONGPASS invalid username-password pair or user is disabled.")
}

/// Work of AUTH and HELLO while a worker verifies the password.
struct LogIn {
    conn: ConnId,
    client: ClientAddress,
    name: Vec<u8>,
    password: Secret,
    verification: Verification,
    answer: Option<Answer>,
    has_waited: bool,
    /// Number of times that the password is verified again because the user has changed meanwhile.
    tries_left: u32,
}

impl Work for LogIn {
    fn step(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError> {
        // At first the session is in the hands of the caller.
        let is_first = !std::mem::replace(&mut self.has_waited, true);
        match self.verification.result.get() {
            None => return Ok(Step::Wait),
            Some(_) if is_first => return Ok(Step::Wait),
            Some(false) => return Err(wrong_password(tx)),
            Some(true) => {}
        }
        match tx.users.begin(&self.name, &self.password.0) {
            Attempt::Right(user) => {
                if self.verification.is_first {
                    tx.guesses.note_right(self.client);
                }
                if let (Some(session), Some(answer)) =
                    (tx.log_in(self.conn, user), self.answer.take())
                {
                    answer.write(session, &mut slice.reply);
                }
                Ok(Step::Done)
            }
            Attempt::Slow(unverified) if self.tries_left != 0 => {
                self.tries_left -= 1;
                let is_first = self.verification.is_first;
                self.verification = tx.users.verify(unverified).map_err(|_| TOO_MANY_WAIT)?;
                self.verification.is_first = is_first;
                Ok(Step::Wait)
            }
            Attempt::Slow(_) | Attempt::Wrong => Err(wrong_password(tx)),
        }
    }

    fn suspend(&mut self, _: &Tx, _: u16, _: &Args<'_>) {}

    fn locks(&self) -> Option<&Locks> {
        None
    }
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
    session.log_out(tx.users.default_user());
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
