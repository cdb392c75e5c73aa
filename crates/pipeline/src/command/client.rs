//! CLIENT: shows connections and changes their modes.

use std::fmt::Write;

use busload_io::Address;
use busload_resp::parse_i64;

use super::{Call, Command, connection, printable, refuse_many_names};
use crate::{
    args::Cursor,
    error::{CommandError, CommandResult},
    gauges::ConnectionGauges,
    limits::CLIENT_NAME_BYTES_MAX,
    session::{ReplyMode, Session, shown_address as address},
    tx::Tx,
};

pub(super) fn id(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    call.reply.integer(i64::try_from(call.session.id).unwrap_or(i64::MAX));
    Ok(())
}

pub(super) fn info(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let mut text = String::new();
    describe_own(tx, call, &mut text);
    call.reply.verbatim(text.as_bytes());
    Ok(())
}

pub(super) fn list(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    refuse_many_names(&call.args, 3)?;
    let filter = list_filter(call.args.cursor(2))?;
    let mut clients: Vec<&Session> = tx.other_sessions().chain([&*call.session]).collect();
    clients.sort_unstable_by_key(|client| client.id);
    let clients = match filter {
        ListFilter::All => clients,
        ListFilter::Nobody => Vec::new(),
        ListFilter::Ids(ids) => ids
            .iter()
            .filter_map(|id| Some(clients[clients.binary_search_by_key(id, |of| of.id).ok()?]))
            .collect(),
    };
    let mut text = String::new();
    for client in clients {
        if client.id == call.session.id {
            describe_own(tx, call, &mut text);
        } else {
            describe(tx, client, client.last_command, idle_ms(tx, client), &mut text);
        }
    }
    call.reply.verbatim(text.as_bytes());
    Ok(())
}

enum ListFilter {
    All,
    Nobody,
    Ids(Vec<u64>),
}

fn list_filter(mut cursor: Cursor<'_>) -> Result<ListFilter, CommandError> {
    match cursor.left() {
        0 => Ok(ListFilter::All),
        2 if cursor.take_word("type") => match is_normal(cursor.expect()?)? {
            true => Ok(ListFilter::All),
            false => Ok(ListFilter::Nobody),
        },
        2.. if cursor.take_word("id") => {
            let mut ids = Vec::with_capacity(cursor.left());
            while let Some(id) = cursor.next() {
                let id = parse_i64(id).ok_or(CommandError::text("ERR Invalid client ID"))?;
                ids.extend(u64::try_from(id));
            }
            Ok(ListFilter::Ids(ids))
        }
        _ => Err(CommandError::Syntax),
    }
}

/// Returns whether the type is `normal`, the type of all clients here.
fn is_normal(name: &[u8]) -> Result<bool, CommandError> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(true),
        b"master" | b"replica" | b"slave" | b"pubsub" => Ok(false),
        _ => Err(format!("ERR Unknown client type '{}'", printable(name, 128)).into()),
    }
}

fn idle_ms(tx: &Tx, session: &Session) -> i64 {
    (tx.now() - session.active_ms).max(0)
}

fn describe_own(tx: &Tx, call: &Call<'_>, text: &mut String) {
    describe(tx, call.session, Some(call.command), 0, text);
}

/// Writes one line in Redis's format. The net stage measures the buffers at the end of each turn in
/// which something happened on the connection. `obl` is 0: all pending replies are in the buffers
/// that `oll` and `omem` count; `rbs` and `rbp` are 0, too.
fn describe(
    tx: &Tx,
    session: &Session,
    command: Option<&Command>,
    idle_ms: i64,
    text: &mut String,
) {
    let age = (tx.now() - session.connected_ms).max(0) / 1_000;
    let idle = idle_ms / 1_000;
    let (queued, queue_bytes) = match &session.multi {
        Some(queue) => (i64::try_from(queue.len()).unwrap_or(i64::MAX), queue.memory_bytes()),
        None => (-1, 0),
    };
    let gauges = &session.gauges;
    let descriptor = gauges.descriptor.unwrap_or(-1);
    let memory_bytes = gauges.memory_bytes.get() + size_of::<Session>() as u64;
    let command = command.map_or("NULL", |command| command.name);
    let name = String::from_utf8_lossy(&session.name);
    let user = session.user.name();
    writeln!(
        text,
        "id={} addr={} laddr={} fd={descriptor} name={name} age={age} idle={idle} flags={} db={} \
         sub=0 psub=0 ssub=0 multi={queued} qbuf={} qbuf-free={} argv-mem={} \
         multi-mem={queue_bytes} rbs=0 rbp=0 obl=0 oll={} omem={} tot-mem={memory_bytes} \
         events={} cmd={command} user={user} redir=-1 resp={} lib-name={} lib-ver={}",
        session.id,
        address(&session.peer.remote),
        address(&session.peer.local),
        flags(tx, session),
        session.space,
        gauges.query_bytes.get(),
        gauges.query_free_bytes.get(),
        gauges.argument_bytes.get(),
        gauges.reply_chunks.get(),
        gauges.reply_bytes.get(),
        events(gauges.events.get()),
        connection::version_number(session.version),
        String::from_utf8_lossy(&session.library_name),
        String::from_utf8_lossy(&session.library_version),
    )
    .expect("writing to a string cannot fail");
}

/// Returns what the connection waits for, as Redis shows it.
fn events(set: u64) -> String {
    let of = |bit, letter| (set & bit != 0).then_some(letter);
    [of(ConnectionGauges::READABLE, 'r'), of(ConnectionGauges::WRITABLE, 'w')]
        .into_iter()
        .flatten()
        .collect()
}

fn flags(tx: &Tx, session: &Session) -> String {
    let flags = [
        ('O', session.monitors),
        ('x', session.multi.is_some()),
        ('b', session.blocked.is_some()),
        ('d', session.watching && tx.watches.changed(session.conn)),
        ('c', session.closing),
        ('U', matches!(session.peer.local, Address::Unix(_))),
        ('e', session.no_evict),
        ('T', session.no_touch),
    ];
    let set: String = flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| *flag).collect();
    if set.is_empty() { "N".to_owned() } else { set }
}

pub(super) fn kill(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    if call.args.len() == 3 {
        return kill_address(tx, call);
    }
    let filter = kill_filter(tx, call.args.cursor(2))?;
    let killed = kill_matching(tx, call, &filter);
    call.reply.count(killed);
    Ok(())
}

/// Executes the old form of CLIENT KILL, with one address, which may be the client's own.
fn kill_address(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let filter =
        KillFilter { remote: Some(call.args.at(2)), skip_own: false, ..KillFilter::default() };
    if kill_matching(tx, call, &filter) == 0 {
        return Err(CommandError::text("ERR No such client"));
    }
    call.reply.ok();
    Ok(())
}

fn kill_matching(tx: &mut Tx, call: &mut Call<'_>, filter: &KillFilter<'_>) -> usize {
    let now_ms = tx.now();
    let own = !filter.skip_own && filter.matches(call.session, now_ms);
    let others: Vec<_> = tx
        .other_sessions()
        .filter(|other| filter.matches(other, now_ms))
        .map(|other| other.conn)
        .collect();
    others.iter().for_each(|&conn| tx.kill(conn));
    // The client's own connection is closed behind the reply.
    call.session.closing |= own;
    others.len() + usize::from(own)
}

struct KillFilter<'a> {
    id: Option<u64>,
    remote: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    /// Seconds since when the client must be connected.
    age_min: Option<i64>,
    user: Option<&'a [u8]>,
    /// Says whether a type was given that no client has.
    nobody: bool,
    skip_own: bool,
}

impl Default for KillFilter<'_> {
    fn default() -> Self {
        Self {
            id: None,
            remote: None,
            local: None,
            age_min: None,
            user: None,
            nobody: false,
            skip_own: true,
        }
    }
}

impl KillFilter<'_> {
    fn matches(&self, session: &Session, now_ms: i64) -> bool {
        let age_s = (now_ms - session.connected_ms) / 1_000;
        let is_at = |wanted: Option<&[u8]>, of: &Address| {
            wanted.is_none_or(|wanted| wanted == address(of).as_bytes())
        };
        !self.nobody
            && !session.closing
            && self.id.is_none_or(|id| id == session.id)
            && self.user.is_none_or(|user| user == session.user.name().as_bytes())
            && self.age_min.is_none_or(|age| age <= age_s)
            && is_at(self.remote, &session.peer.remote)
            && is_at(self.local, &session.peer.local)
    }
}

fn kill_filter<'a>(tx: &Tx, mut cursor: Cursor<'a>) -> Result<KillFilter<'a>, CommandError> {
    let mut filter = KillFilter::default();
    while let Some(option) = cursor.next() {
        let value = cursor.expect()?;
        match option.to_ascii_lowercase().as_slice() {
            b"id" => filter.id = Some(client_id(value)?),
            b"type" => filter.nobody |= !is_normal(value)?,
            b"addr" => filter.remote = Some(value),
            b"laddr" => filter.local = Some(value),
            b"user" if tx.users.get(value).is_some() => filter.user = Some(value),
            b"user" => return Err(format!("ERR No such user '{}'", printable(value, 128)).into()),
            b"skipme" => filter.skip_own = yes_or_no(value)?,
            b"maxage" => filter.age_min = Some(age(value)?),
            _ => return Err(CommandError::Syntax),
        }
    }
    Ok(filter)
}

fn client_id(arg: &[u8]) -> Result<u64, CommandError> {
    parse_i64(arg)
        .and_then(|id| u64::try_from(id).ok())
        .filter(|id| *id != 0)
        .ok_or(CommandError::text("ERR client-id should be greater than 0"))
}

fn age(arg: &[u8]) -> Result<i64, CommandError> {
    parse_i64(arg)
        .filter(|age| 0 < *age)
        .ok_or(CommandError::text("ERR maxage is not an integer or out of range"))
}

fn yes_or_no(arg: &[u8]) -> Result<bool, CommandError> {
    one_of(arg, "yes", "no")
}

/// Returns whether the argument is the first word rather than the second.
fn one_of(arg: &[u8], yes: &str, no: &str) -> Result<bool, CommandError> {
    if arg.eq_ignore_ascii_case(yes.as_bytes()) {
        Ok(true)
    } else if arg.eq_ignore_ascii_case(no.as_bytes()) {
        Ok(false)
    } else {
        Err(CommandError::Syntax)
    }
}

pub(super) fn setname(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    call.session.name = connection::client_name(call.args.at(2))?.to_vec();
    call.reply.ok();
    Ok(())
}

pub(super) fn getname(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let name = &call.session.name;
    call.reply.bulk_or_null((!name.is_empty()).then_some(name.as_slice()));
    Ok(())
}

pub(super) fn setinfo(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let (attribute, value) = (call.args.at(2), call.args.at(3));
    let place = match attribute.to_ascii_lowercase().as_slice() {
        b"lib-name" => &mut call.session.library_name,
        b"lib-ver" => &mut call.session.library_version,
        _ => return Err(format!("ERR Unrecognized option '{}'", printable(attribute, 128)).into()),
    };
    if CLIENT_NAME_BYTES_MAX < value.len() {
        return Err(connection::NAME_TOO_LONG);
    }
    if !connection::is_plain(value) {
        let attribute = printable(attribute, 128);
        return Err(format!(
            "ERR {attribute} cannot contain spaces, newlines or special characters."
        )
        .into());
    }
    *place = value.to_vec();
    call.reply.ok();
    Ok(())
}

/// Sets a flag for CLIENT LIST; net closes connections for their memory whatever it says.
pub(super) fn no_evict(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    call.session.no_evict = one_of(call.args.at(2), "on", "off")?;
    call.reply.ok();
    Ok(())
}

/// Decides whether reads of this client count when a cache chooses what to evict.
pub(super) fn no_touch(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    call.session.no_touch = one_of(call.args.at(2), "on", "off")?;
    tx.count_uses_of(call.session);
    call.reply.ok();
    Ok(())
}

pub(super) fn reply(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let mut cursor = call.args.cursor(2);
    let mode = &mut call.session.reply_mode;
    if cursor.take_word("on") {
        *mode = ReplyMode::On;
        call.reply.ok();
    } else if cursor.take_word("off") {
        *mode = ReplyMode::Off;
    } else if cursor.take_word("skip") {
        // SKIP changes nothing for a client that gets no replies.
        if *mode != ReplyMode::Off {
            *mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(CommandError::Syntax);
    }
    Ok(())
}
