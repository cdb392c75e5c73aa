//! The table of all commands, one row each, in the order of the documentation.

use super::{
    Command, Flags, Group, Handler, Keys, LogReservation, SlicedBy, acl, bits, client, config,
    connection, expiry, hashes, info, introspection, keys, latency, memory, scan, server, slowlog,
    strings, transactions,
};

use crate::source::Operation;

const R: Flags = Flags::READONLY;
const RF: Flags = Flags::READONLY.and(Flags::FAST);
const W: Flags = Flags::WRITE;
const WF: Flags = Flags::WRITE.and(Flags::FAST);
const WM: Flags = Flags::WRITE.and(Flags::DENYOOM);
const WMF: Flags = WM.and(Flags::FAST);

/// Creates a row without its optional parts.
#[allow(clippy::too_many_arguments, reason = "a row of a table")]
const fn row(
    group: Group,
    name: &'static str,
    syntax: &'static str,
    arity: i16,
    flags: Flags,
    keys: Keys,
    handler: Handler,
    since: &'static str,
    summary: &'static str,
) -> Command {
    let (reservation, sliced, source) = (LogReservation::Args, SlicedBy::Never, None);
    Command {
        name,
        arity,
        flags,
        keys,
        reservation,
        sliced,
        source,
        group,
        syntax,
        summary,
        since,
        subcommands: &[],
        handler,
    }
}

impl Command {
    const fn reservation(mut self, reservation: LogReservation) -> Self {
        self.reservation = reservation;
        self
    }

    const fn sliced(mut self, by: SlicedBy) -> Self {
        self.sliced = by;
        self
    }

    const fn brief(mut self) -> Self {
        self.flags = self.flags.and(Flags::BRIEF);
        self
    }

    const fn source(mut self, operation: Operation) -> Self {
        self.source = Some(operation);
        self
    }

    const fn subcommands(mut self, subcommands: &'static [Command]) -> Self {
        self.subcommands = subcommands;
        self
    }
}

/// All commands, one row each.
#[rustfmt::skip]
pub static COMMANDS: &[Command] = &[
    // Strings.
    row(Group::String, "get", "key", 2, RF, Keys::ONE, strings::get, "1.0.0",
        "Returns the string value of a key.").source(Operation::Get),
    row(Group::String, "set",
        "key value [NX|XX] [GET] [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT \
         unix-time-milliseconds|KEEPTTL]", -3, WM, Keys::ONE, strings::set, "1.0.0",
        "Sets the string value of a key, ignoring its type. The key is created if it does not \
         exist.").sliced(SlicedBy::Value).source(Operation::Set).brief(),
    row(Group::String, "setnx", "key value", 3, WMF, Keys::ONE, strings::setnx, "1.0.0",
        "Sets the string value of a key only when the key does not exist.").sliced(SlicedBy::Value),
    row(Group::String, "setex", "key seconds value", 4, WM, Keys::ONE, strings::setex, "2.0.0",
        "Sets the string value and the expiration of a key, in seconds.").sliced(SlicedBy::Value),
    row(Group::String, "psetex", "key milliseconds value", 4, WM, Keys::ONE, strings::psetex,
        "2.6.0",
        "Sets the string value and the expiration of a key, in milliseconds.")
        .sliced(SlicedBy::Value),
    row(Group::String, "getset", "key value", 3, WMF, Keys::ONE, strings::getset, "1.0.0",
        "Returns the old string value of a key after setting a new one.").sliced(SlicedBy::Value),
    row(Group::String, "getdel", "key", 2, WF, Keys::ONE, strings::getdel, "6.2.0",
        "Returns the string value of a key and deletes the key."),
    row(Group::String, "getex",
        "key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT \
         unix-time-milliseconds|PERSIST]", -2, WF, Keys::ONE, strings::getex, "6.2.0",
        "Returns the string value of a key and sets or removes its expiration."),
    row(Group::String, "mget", "key [key ...]", -2, RF, Keys::ALL, strings::mget, "1.0.0",
        "Returns the string values of several keys at once.").source(Operation::Get),
    row(Group::String, "mset", "key value [key value ...]", -3, WM, Keys::PAIRS, strings::mset,
        "1.0.1",
        "Sets the string values of several keys at once.").sliced(SlicedBy::Args)
        .source(Operation::Set),
    row(Group::String, "msetnx", "key value [key value ...]", -3, WM, Keys::PAIRS, strings::msetnx,
        "1.0.1",
        "Sets the string values of several keys at once, only when none of them exists.")
        .sliced(SlicedBy::Args),
    row(Group::String, "append", "key value", 3, WMF, Keys::ONE, strings::append, "2.0.0",
        "Appends a string to the value of a key. The key is created if it does not exist.")
        .sliced(SlicedBy::Patch),
    row(Group::String, "strlen", "key", 2, RF, Keys::ONE, strings::strlen, "2.2.0",
        "Returns the length of a string value.").source(Operation::Strlen),
    row(Group::String, "incr", "key", 2, WMF, Keys::ONE, strings::incr, "1.0.0",
        "Increments the integer value of a key by one. Uses 0 as initial value if the key does not \
         exist."),
    row(Group::String, "incrby", "key increment", 3, WMF, Keys::ONE, strings::incrby, "1.0.0",
        "Increments the integer value of a key by a number. Uses 0 as initial value if the key \
         does not exist."),
    row(Group::String, "decr", "key", 2, WMF, Keys::ONE, strings::decr, "1.0.0",
        "Decrements the integer value of a key by one. Uses 0 as initial value if the key does not \
         exist."),
    row(Group::String, "decrby", "key decrement", 3, WMF, Keys::ONE, strings::decrby, "1.0.0",
        "Decrements the integer value of a key by a number. Uses 0 as initial value if the key \
         does not exist."),
    row(Group::String, "incrbyfloat", "key increment", 3, WMF, Keys::ONE, strings::incrbyfloat,
        "2.6.0",
        "Increments the decimal value of a key by a number. Uses 0 as initial value if the key \
         does not exist.").reservation(LogReservation::Number),
    row(Group::String, "setrange", "key offset value", 4, WM, Keys::ONE, strings::setrange, "2.2.0",
        "Overwrites a part of a string value from an offset on. The key is created if it does not \
         exist.").sliced(SlicedBy::Patch),
    row(Group::String, "getrange", "key start end", 4, R, Keys::ONE, strings::getrange, "2.4.0",
        "Returns a part of a string value."),
    row(Group::String, "substr", "key start end", 4, R, Keys::ONE, strings::getrange, "1.0.0",
        "Returns a part of a string value; the old name of GETRANGE."),
    row(Group::String, "setbit", "key offset value", 4, WM, Keys::ONE, bits::setbit, "2.2.0",
        "Sets or clears the bit at an offset of a string value. The key is created if it does not \
         exist.").sliced(SlicedBy::Patch),
    row(Group::String, "getbit", "key offset", 3, RF, Keys::ONE, bits::getbit, "2.2.0",
        "Returns the bit at an offset of a string value."),
    row(Group::String, "bitcount", "key [start end [BYTE|BIT]]", -2, R, Keys::ONE, bits::bitcount,
        "2.6.0",
        "Counts the set bits of a string value or of a part of it."),

    // Hashes.
    row(Group::Hash, "hset", "key field value [field value ...]", -4, WMF, Keys::ONE, hashes::hset,
        "2.0.0",
        "Sets the values of fields of a hash. The key is created if it does not exist.")
        .sliced(SlicedBy::Args).source(Operation::HashSet),
    row(Group::Hash, "hsetnx", "key field value", 4, WMF, Keys::ONE, hashes::hsetnx, "2.0.0",
        "Sets the value of a field of a hash only when the field does not exist."),
    row(Group::Hash, "hmset", "key field value [field value ...]", -4, WMF, Keys::ONE,
        hashes::hmset, "2.0.0",
        "Sets the values of several fields of a hash.").sliced(SlicedBy::Args),
    row(Group::Hash, "hget", "key field", 3, RF, Keys::ONE, hashes::hget, "2.0.0",
        "Returns the value of a field of a hash.").source(Operation::HashGet),
    row(Group::Hash, "hmget", "key field [field ...]", -3, RF, Keys::ONE, hashes::hmget, "2.0.0",
        "Returns the values of several fields of a hash.").source(Operation::HashGetMany),
    row(Group::Hash, "hgetall", "key", 2, R, Keys::ONE, hashes::hgetall, "2.0.0",
        "Returns all fields of a hash with their values.").source(Operation::HashGetAll),
    row(Group::Hash, "hdel", "key field [field ...]", -3, WF, Keys::ONE, hashes::hdel, "2.0.0",
        "Deletes fields of a hash, and the hash when none remain.").sliced(SlicedBy::Args)
        .source(Operation::HashDelete),
    row(Group::Hash, "hlen", "key", 2, RF, Keys::ONE, hashes::hlen, "2.0.0",
        "Returns the number of fields of a hash.").source(Operation::HashLen),
    row(Group::Hash, "hexists", "key field", 3, RF, Keys::ONE, hashes::hexists, "2.0.0",
        "Tells whether a field of a hash exists.").source(Operation::HashExists),
    row(Group::Hash, "hkeys", "key", 2, R, Keys::ONE, hashes::hkeys, "2.0.0",
        "Returns the names of all fields of a hash.").source(Operation::HashKeys),
    row(Group::Hash, "hvals", "key", 2, R, Keys::ONE, hashes::hvals, "2.0.0",
        "Returns the values of all fields of a hash."),
    row(Group::Hash, "hincrby", "key field increment", 4, WMF, Keys::ONE, hashes::hincrby, "2.0.0",
        "Increments the integer value of a field of a hash. Uses 0 as initial value if the field \
         does not exist."),
    row(Group::Hash, "hincrbyfloat", "key field increment", 4, WMF, Keys::ONE, hashes::hincrbyfloat,
        "2.6.0",
        "Increments the decimal value of a field of a hash. Uses 0 as initial value if the field \
         does not exist.").reservation(LogReservation::Number),
    row(Group::Hash, "hstrlen", "key field", 3, RF, Keys::ONE, hashes::hstrlen, "3.2.0",
        "Returns the length of the value of a field of a hash."),
    row(Group::Hash, "hscan", "key cursor [MATCH pattern] [COUNT count] [NOVALUES]", -3, R,
        Keys::ONE, hashes::hscan, "2.8.0",
        "Iterates over the fields of a hash and, unless NOVALUES is said, their values."),
    row(Group::Hash, "hrandfield", "key [count [WITHVALUES]]", -2, R, Keys::ONE, hashes::hrandfield,
        "6.2.0",
        "Returns fields of a hash drawn by chance."),

    // Keys.
    row(Group::Generic, "del", "key [key ...]", -2, W, Keys::ALL, keys::del, "1.0.0",
        "Deletes one or more keys.").sliced(SlicedBy::Args).source(Operation::Delete),
    row(Group::Generic, "unlink", "key [key ...]", -2, WF, Keys::ALL, keys::del, "4.0.0",
        "Deletes one or more keys, the same as DEL: large values are freed in small steps either \
         way.").sliced(SlicedBy::Args).source(Operation::Delete),
    row(Group::Generic, "exists", "key [key ...]", -2, RF, Keys::ALL, keys::exists, "1.0.0",
        "Returns how many of the keys exist; one named twice counts twice.")
        .source(Operation::Exists),
    row(Group::Generic, "type", "key", 2, RF, Keys::ONE, keys::type_of, "1.0.0",
        "Returns the type of the value of a key: string, hash or none.").source(Operation::Type),
    row(Group::Generic, "touch", "key [key ...]", -2, RF, Keys::ALL, keys::exists, "3.2.1",
        "Returns how many of the keys exist. Last accesses are not recorded."),
    row(Group::Generic, "expire", "key seconds [NX|XX|GT|LT]", -3, WF, Keys::ONE, expiry::expire,
        "1.0.0",
        "Sets the expiration of a key, in seconds from now."),
    row(Group::Generic, "pexpire", "key milliseconds [NX|XX|GT|LT]", -3, WF, Keys::ONE,
        expiry::pexpire, "2.6.0",
        "Sets the expiration of a key, in milliseconds from now."),
    row(Group::Generic, "expireat", "key unix-time-seconds [NX|XX|GT|LT]", -3, WF, Keys::ONE,
        expiry::expireat, "1.2.0",
        "Sets the expiration of a key to a Unix time in seconds."),
    row(Group::Generic, "pexpireat", "key unix-time-milliseconds [NX|XX|GT|LT]", -3, WF, Keys::ONE,
        expiry::pexpireat, "2.6.0",
        "Sets the expiration of a key to a Unix time in milliseconds."),
    row(Group::Generic, "ttl", "key", 2, RF, Keys::ONE, expiry::ttl, "1.0.0",
        "Returns how long a key still lives, in seconds; -1 without expiration, -2 without key."),
    row(Group::Generic, "pttl", "key", 2, RF, Keys::ONE, expiry::pttl, "2.6.0",
        "Returns how long a key still lives, in milliseconds; -1 without expiration, -2 without \
         key."),
    row(Group::Generic, "expiretime", "key", 2, RF, Keys::ONE, expiry::expiretime, "7.0.0",
        "Returns when a key expires, as a Unix time in seconds; -1 without expiration, -2 without \
         key."),
    row(Group::Generic, "pexpiretime", "key", 2, RF, Keys::ONE, expiry::pexpiretime, "7.0.0",
        "Returns when a key expires, as a Unix time in milliseconds; -1 without expiration, -2 \
         without key."),
    row(Group::Generic, "persist", "key", 2, WF, Keys::ONE, expiry::persist, "2.2.0",
        "Removes the expiration of a key."),
    row(Group::Generic, "rename", "key newkey", 3, W, Keys::TWO, keys::rename, "1.0.0",
        "Renames a key and overwrites the destination.").sliced(SlicedBy::Source)
        .reservation(LogReservation::Values),
    row(Group::Generic, "renamenx", "key newkey", 3, WF, Keys::TWO, keys::renamenx, "1.0.0",
        "Renames a key only when the destination does not exist.").sliced(SlicedBy::Source)
        .reservation(LogReservation::Values),
    row(Group::Generic, "copy", "source destination [DB destination-db] [REPLACE]", -3, WM,
        Keys::TWO, keys::copy, "6.2.0",
        "Copies the value of a key, with its expiration, to another key.").sliced(SlicedBy::Source)
        .reservation(LogReservation::Values),
    row(Group::Generic, "keys", "pattern", 2, R.and(Flags::KEYSPACE), Keys::NONE, scan::keys,
        "1.0.0",
        "Returns all keys that match a pattern, at once. SCAN does it in steps."),
    row(Group::Generic, "scan", "cursor [MATCH pattern] [COUNT count] [TYPE type]", -2,
        R.and(Flags::KEYSPACE), Keys::NONE, scan::scan, "2.8.0",
        "Iterates over the keys. A key that stays from start to end is returned at least once."),
    row(Group::Generic, "randomkey", "", 1, R.and(Flags::KEYSPACE), Keys::NONE, keys::randomkey,
        "1.0.0",
        "Returns a random key."),
    row(Group::Generic, "object", "", -2, Flags::NONE, Keys::NONE, server::container, "2.2.3",
        "What is known about the value of a key.").subcommands(OBJECT),

    // Transactions.
    row(Group::Transactions, "multi", "", 1, Flags::FAST.and(Flags::NOT_QUEUED), Keys::NONE,
        transactions::multi, "1.2.0",
        "Starts a transaction."),
    row(Group::Transactions, "exec", "", 1, Flags::NOT_QUEUED, Keys::NONE, transactions::exec,
        "1.2.0",
        "Executes all commands in a transaction."),
    row(Group::Transactions, "discard", "", 1, Flags::FAST.and(Flags::NOT_QUEUED), Keys::NONE,
        transactions::discard, "2.0.0",
        "Discards a transaction."),
    row(Group::Transactions, "watch", "key [key ...]", -2, Flags::FAST.and(Flags::NOT_QUEUED),
        Keys::ALL, transactions::watch, "2.2.0",
        "Monitors changes to keys to determine the execution of a transaction."),
    row(Group::Transactions, "unwatch", "", 1, Flags::FAST, Keys::NONE, transactions::unwatch,
        "2.2.0",
        "Forgets about watched keys of a transaction."),

    // Connection.
    row(Group::Connection, "hello", "[protover [AUTH username password] [SETNAME clientname]]", -1,
        OPEN, Keys::NONE, connection::hello, "6.0.0",
        "Greets the server, chooses the protocol version, and can authenticate."),
    row(Group::Connection, "auth", "[username] password", -2, OPEN, Keys::NONE, connection::auth,
        "1.0.0",
        "Authenticates the connection as a user; without a name as default."),
    row(Group::Connection, "select", "index", 2, CF, Keys::NONE, connection::select, "1.0.0",
        "Selects one of the 16 spaces of keys."),
    row(Group::Connection, "ping", "[message]", -1, CF, Keys::NONE, connection::ping, "1.0.0",
        "Returns PONG or the message."),
    row(Group::Connection, "echo", "message", 2, CF, Keys::NONE, connection::echo, "1.0.0",
        "Returns the message."),
    row(Group::Connection, "quit", "", -1, OPEN.and(Flags::NOT_QUEUED), Keys::NONE,
        connection::quit, "1.0.0",
        "Closes the connection."),
    row(Group::Connection, "reset", "", 1, OPEN.and(Flags::NOT_QUEUED), Keys::NONE,
        connection::reset, "6.2.0",
        "Resets the connection as if it were new."),
    row(Group::Connection, "client", "", -2, Flags::NONE, Keys::NONE, server::container, "2.4.0",
        "What is known about connections, and what can be done to them.").subcommands(CLIENT),

    // Server.
    row(Group::Server, "dbsize", "", 1, RF.and(Flags::KEYSPACE), Keys::NONE, keys::dbsize, "1.0.0",
        "Returns how many keys there are."),
    row(Group::Server, "flushdb", "[ASYNC|SYNC]", -1, W.and(Flags::KEYSPACE), Keys::NONE,
        keys::flushdb, "1.0.0",
        "Removes all keys of the selected space; in space 0 also those of the named memory \
         tables."),
    row(Group::Server, "flushall", "[ASYNC|SYNC]", -1, W.and(Flags::KEYSPACE), Keys::NONE,
        keys::flushall, "1.0.0",
        "Removes all keys of all memory tables."),
    row(Group::Server, "info", "[section ...]", -1, Flags::NONE, Keys::NONE, info::info, "1.0.0",
        "Returns metrics of the server, its stages and its tables."),
    row(Group::Server, "acl", "", -2, Flags::NONE, Keys::NONE, server::container, "6.0.0",
        "Shows and changes users.").subcommands(ACL),
    row(Group::Server, "config", "", -2, Flags::NONE, Keys::NONE, server::container, "2.0.0",
        "Shows and changes settings.").subcommands(CONFIG),
    row(Group::Server, "command", "", -1, Flags::NONE, Keys::NONE, introspection::all, "2.8.13",
        "Describes all commands.").subcommands(COMMAND),
    row(Group::Server, "memory", "", -2, Flags::NONE, Keys::NONE, server::container, "4.0.0",
        "What values take in memory.").subcommands(MEMORY),
    row(Group::Server, "slowlog", "", -2, Flags::NONE, Keys::NONE, server::container, "2.2.12",
        "The last commands whose execution took long.").subcommands(SLOWLOG),
    row(Group::Server, "latency", "", -2, Flags::NONE, Keys::NONE, server::container, "2.8.13",
        "What took long, and when.").subcommands(LATENCY),
    row(Group::Server, "monitor", "", 1, Flags::ADMIN.and(Flags::NO_MULTI), Keys::NONE,
        server::monitor, "1.0.0",
        "Shows all commands that clients send from now on, but for passwords and the commands of \
         operators."),
    row(Group::Server, "function", "", -2, Flags::NONE, Keys::NONE, server::container, "7.0.0",
        "There are no functions.").subcommands(FUNCTION),
    row(Group::Server, "time", "", 1, Flags::FAST, Keys::NONE, server::time, "2.6.0",
        "Returns the time of the server: Unix seconds, and microseconds in them."),
    row(Group::Server, "bgsave", "[SCHEDULE]", -1, Flags::ADMIN.and(Flags::NO_MULTI), Keys::NONE,
        server::bgsave, "1.0.0",
        "Asks for a snapshot of everything that is durable; INFO shows its progress."),
    row(Group::Server, "bgrewriteaof", "", 1, Flags::ADMIN.and(Flags::NO_MULTI), Keys::NONE,
        server::bgrewriteaof, "1.0.0",
        "Does what BGSAVE does: the two newest snapshots and the log behind them are kept."),
    row(Group::Server, "save", "", 1, Flags::ADMIN.and(Flags::NO_MULTI), Keys::NONE,
        server::save, "1.0.0",
        "Asks for a snapshot and answers when it is made; other clients are served meanwhile."),
    row(Group::Server, "lastsave", "", 1, Flags::FAST.and(Flags::ADMIN), Keys::NONE,
        server::lastsave, "1.0.0",
        "Returns when the last snapshot was finished, as Unix seconds."),
    row(Group::Server, "shutdown", "[NOSAVE|SAVE] [NOW] [FORCE] [ABORT]", -1,
        Flags::ADMIN.and(Flags::NO_MULTI), Keys::NONE, server::shutdown, "1.0.0",
        "Syncs the log and ends the process."),
];

/// Flags of connection commands that are allowed before AUTH.
const OPEN: Flags = CF.and(Flags::NO_AUTH);
const CF: Flags = Flags::CONNECTION.and(Flags::FAST);
const C: Flags = Flags::CONNECTION;
const CA: Flags = Flags::CONNECTION.and(Flags::ADMIN);

const fn help(group: Group, name: &'static str, since: &'static str) -> Command {
    row(group, name, "", 2, Flags::NONE, Keys::NONE, server::help, since, "Prints the subcommands.")
}

/// Position of the key in `OBJECT x key`.
const SECOND: Keys = Keys { first: 2, last: 2, step: 1 };

#[rustfmt::skip]
const OBJECT: &[Command] = &[
    row(Group::Generic, "object|encoding", "key", 3, R, SECOND, keys::object_encoding, "2.2.3",
        "Returns how Redis would keep the value."),
    row(Group::Generic, "object|freq", "key", 3, R, SECOND, keys::object_freq, "4.0.0",
        "Returns an error: access frequencies are not recorded."),
    row(Group::Generic, "object|idletime", "key", 3, R, SECOND, keys::object_idletime, "2.2.3",
        "Returns 0: last accesses are not recorded."),
    row(Group::Generic, "object|refcount", "key", 3, R, SECOND, keys::object_refcount, "2.2.3",
        "Returns 1 for a key that exists."),
    help(Group::Generic, "object|help", "6.2.0"),
];

#[rustfmt::skip]
const CLIENT: &[Command] = &[
    row(Group::Connection, "client|getname", "", 2, C, Keys::NONE, client::getname, "2.6.9",
        "Returns the name of the connection."),
    row(Group::Connection, "client|id", "", 2, C, Keys::NONE, client::id, "5.0.0",
        "Returns the id of the connection, which is never used again."),
    row(Group::Connection, "client|info", "", 2, C, Keys::NONE, client::info, "6.2.0",
        "Returns what is known about the connection."),
    row(Group::Connection, "client|kill",
        "ip:port|[ID client-id] [TYPE NORMAL|MASTER|REPLICA|PUBSUB] [USER username] [ADDR ip:port] \
         [LADDR ip:port] [SKIPME YES|NO] [MAXAGE maxage]", -3, CA, Keys::NONE, client::kill,
        "2.4.0",
        "Closes connections."),
    row(Group::Connection, "client|list",
        "[TYPE NORMAL|MASTER|REPLICA|PUBSUB] [ID client-id [client-id ...]]", -2, CA, Keys::NONE,
        client::list, "2.4.0",
        "Returns what is known about all connections."),
    row(Group::Connection, "client|no-evict", "ON|OFF", 3, CA, Keys::NONE, client::no_evict,
        "7.0.0",
        "Is noted in CLIENT LIST and has no other effect."),
    row(Group::Connection, "client|no-touch", "ON|OFF", 3, C, Keys::NONE, client::no_touch, "7.2.0",
        "Decides whether reads of this client count when a cache chooses what to evict."),
    row(Group::Connection, "client|reply", "ON|OFF|SKIP", 3, C, Keys::NONE, client::reply, "3.2.0",
        "Turns replies to the connection off and on."),
    row(Group::Connection, "client|setinfo", "LIB-NAME libname|LIB-VER libver", 4, C, Keys::NONE,
        client::setinfo, "7.2.0",
        "Names the library that the client uses."),
    row(Group::Connection, "client|setname", "connection-name", 3, C, Keys::NONE, client::setname,
        "2.6.9",
        "Names the connection."),
    help(Group::Connection, "client|help", "5.0.0"),
];

/// Flags of a command for operators that waits for a worker, which a transaction cannot.
const AW: Flags = Flags::ADMIN.and(Flags::NO_MULTI);

#[rustfmt::skip]
const ACL: &[Command] = &[
    row(Group::Server, "acl|cat", "[category]", -2, Flags::NONE, Keys::NONE, acl::cat, "6.0.0",
        "Returns the categories of commands, or the commands of one."),
    row(Group::Server, "acl|deluser", "username [username ...]", -3, Flags::ADMIN, Keys::NONE,
        acl::deluser, "6.0.0",
        "Removes users and closes their connections."),
    row(Group::Server, "acl|dryrun", "username command [arg ...]", -4, Flags::ADMIN, Keys::NONE,
        acl::dryrun, "7.0.0",
        "Tells whether a user may run a command, without running it."),
    row(Group::Server, "acl|getuser", "username", 3, Flags::ADMIN, Keys::NONE, acl::getuser,
        "6.0.0",
        "Returns what a user is and may."),
    row(Group::Server, "acl|list", "", 2, Flags::ADMIN, Keys::NONE, acl::list, "6.0.0",
        "Returns the lines of all users as in the file."),
    row(Group::Server, "acl|load", "", 2, AW, Keys::NONE, acl::load, "6.0.0",
        "Replaces the users by those of the file, unless it has a mistake."),
    row(Group::Server, "acl|save", "", 2, AW, Keys::NONE, acl::save, "6.0.0",
        "Writes the users to the file."),
    row(Group::Server, "acl|setuser", "username [rule [rule ...]]", -3, AW, Keys::NONE,
        acl::setuser, "6.0.0",
        "Makes or changes a user, in memory; key patterns are ~PREFIX*, passwords are kept as \
         argon2id."),
    row(Group::Server, "acl|users", "", 2, Flags::ADMIN, Keys::NONE, acl::users, "6.0.0",
        "Returns the names of all users."),
    row(Group::Server, "acl|whoami", "", 2, Flags::NONE, Keys::NONE, acl::whoami, "6.0.0",
        "Returns the name of the user that the connection is."),
    help(Group::Server, "acl|help", "6.0.0"),
];

#[rustfmt::skip]
const CONFIG: &[Command] = &[
    row(Group::Server, "config|get", "pattern [pattern ...]", -3, Flags::ADMIN, Keys::NONE,
        config::get, "2.0.0",
        "Returns the settings whose names match."),
    row(Group::Server, "config|reload", "", 2, AW, Keys::NONE, config::reload, "2.0.0",
        "Has the server read its configuration again; answers what was changed, or as an error \
         what was not."),
    row(Group::Server, "config|resetstat", "", 2, Flags::ADMIN, Keys::NONE, config::resetstat,
        "2.0.0",
        "Lets the counters of INFO start again."),
    row(Group::Server, "config|set", "parameter value [parameter value ...]", -4, Flags::ADMIN,
        Keys::NONE, config::set, "2.0.0",
        "Changes settings until the next start; those that need one are accepted unchanged."),
    help(Group::Server, "config|help", "5.0.0"),
];

#[rustfmt::skip]
const COMMAND: &[Command] = &[
    row(Group::Server, "command|count", "", 2, Flags::NONE, Keys::NONE, introspection::count,
        "2.8.13",
        "Returns how many commands there are."),
    row(Group::Server, "command|docs", "[command-name ...]", -2, Flags::NONE, Keys::NONE,
        introspection::docs, "7.0.0",
        "Returns documentation about commands."),
    row(Group::Server, "command|getkeys", "command [argument ...]", -4, Flags::NONE, Keys::NONE,
        introspection::getkeys, "2.8.13",
        "Returns the keys among the arguments of a command."),
    row(Group::Server, "command|info", "[command-name ...]", -2, Flags::NONE, Keys::NONE,
        introspection::info, "2.8.13",
        "Describes commands."),
    row(Group::Server, "command|list",
        "[FILTERBY MODULE module-name|ACLCAT category|PATTERN pattern]", -2, Flags::NONE,
        Keys::NONE, introspection::list, "7.0.0",
        "Returns the names of commands."),
    help(Group::Server, "command|help", "5.0.0"),
];

#[rustfmt::skip]
const MEMORY: &[Command] = &[
    row(Group::Server, "memory|usage", "key [SAMPLES count]", -3, R, SECOND, keys::memory_usage,
        "4.0.0",
        "Estimates the memory of a key and its value."),
    row(Group::Server, "memory|doctor", "", 2, Flags::NONE, Keys::NONE, memory::doctor, "4.0.0",
        "Explains what takes memory."),
    row(Group::Server, "memory|malloc-stats", "", 2, Flags::NONE, Keys::NONE,
        memory::malloc_stats, "4.0.0",
        "Says that the allocator has no statistics."),
    row(Group::Server, "memory|purge", "", 2, Flags::NONE, Keys::NONE, memory::purge, "4.0.0",
        "Frees some of what was deleted and is freed in small steps otherwise."),
    row(Group::Server, "memory|stats", "", 2, Flags::NONE, Keys::NONE, memory::stats, "4.0.0",
        "Returns what takes memory."),
    help(Group::Server, "memory|help", "4.0.0"),
];

#[rustfmt::skip]
const SLOWLOG: &[Command] = &[
    row(Group::Server, "slowlog|get", "[count]", -2, Flags::ADMIN, Keys::NONE, slowlog::get,
        "2.2.12",
        "Returns the newest entries: id, Unix time, microseconds, arguments, client, its name."),
    row(Group::Server, "slowlog|len", "", 2, Flags::ADMIN, Keys::NONE, slowlog::len, "2.2.12",
        "Returns how many entries there are."),
    row(Group::Server, "slowlog|reset", "", 2, Flags::ADMIN, Keys::NONE, slowlog::reset, "2.2.12",
        "Removes all entries."),
    help(Group::Server, "slowlog|help", "6.2.0"),
];

#[rustfmt::skip]
const LATENCY: &[Command] = &[
    row(Group::Server, "latency|doctor", "", 2, Flags::ADMIN, Keys::NONE, latency::doctor, "2.8.13",
        "Explains what took long, and what can be done."),
    row(Group::Server, "latency|graph", "event", 3, Flags::ADMIN, Keys::NONE, latency::graph,
        "2.8.13",
        "Draws when an event took long, and how long, as columns of characters."),
    row(Group::Server, "latency|histogram", "[command ...]", -2, Flags::ADMIN, Keys::NONE,
        latency::histogram, "7.0.0",
        "Returns how many requests of each command were answered in less than which time."),
    row(Group::Server, "latency|history", "event", 3, Flags::ADMIN, Keys::NONE, latency::history,
        "2.8.13",
        "Returns when an event took long: Unix times and milliseconds."),
    row(Group::Server, "latency|latest", "", 2, Flags::ADMIN, Keys::NONE, latency::latest,
        "2.8.13",
        "Returns what took long: event, Unix time and milliseconds of the last, the longest."),
    row(Group::Server, "latency|reset", "[event ...]", -2, Flags::ADMIN, Keys::NONE,
        latency::reset, "2.8.13",
        "Forgets what took long; returns of how many events."),
    help(Group::Server, "latency|help", "2.8.13"),
];

#[rustfmt::skip]
const FUNCTION: &[Command] = &[
    row(Group::Server, "function|flush", "[ASYNC|SYNC]", -2, Flags::NONE, Keys::NONE,
        server::function_flush, "7.0.0",
        "Removes all functions, of which there are none."),
    help(Group::Server, "function|help", "7.0.0"),
];
