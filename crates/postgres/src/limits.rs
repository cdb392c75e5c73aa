//! Limits and defaults of the crate, except the request queue's, with their reasons.

use std::time::Duration;

use busload_batch::limits::{BATCHES_IN_FLIGHT_MAX, REQUESTS_MAX};

/// Default of the maximum number of connections of one table: what a table needs whose server is
/// some milliseconds away. Near servers get by with few.
pub const CONNECTIONS_DEFAULT: usize = 32;
/// Number of connections that a table keeps open, if it may have that many; it opens further ones
/// when all of them are in use.
pub const CONNECTIONS_KEPT: usize = 4;
/// Number of further connections that may be opened at the same time.
pub const GROWING_MAX: usize = 4;
/// Time without use after which a further connection is closed; at most twice that.
pub const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(60);
/// Pause before a further connection is opened after an attempt has failed: the server may have
/// none to give.
pub const GROWTH_PAUSE: Duration = Duration::from_secs(5);
/// Time that opening a further connection usually takes at most. What the server can do is not
/// judged meanwhile.
pub const GROWTH_USUAL_MAX: Duration = Duration::from_millis(500);
/// Maximum number of connections of one table. More make smaller batches, and acquiring a session
/// looks at all of them.
pub const CONNECTIONS_MAX: usize = 128;

/// Default timeout of a request.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
/// Shortest timeout of a request that can be configured: the timer counts milliseconds.
pub const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Longest timeout of a request that can be configured. A client has long gone by then.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// Time that a statement may run beyond the request's timeout before the server ends it: the
/// client's own timeout comes first and tells more, yet an abandoned statement does not occupy its
/// backend for long.
pub const STATEMENT_TIMEOUT_MARGIN: Duration = Duration::from_millis(500);

/// Upper bound of the configurable batch size: the server plans and answers a batch in one piece.
pub const BATCH_MAX: usize = 16_384;

/// Smallest byte limit of the queue that makes sense: one request of some size.
pub const QUEUE_BYTES_MIN: u64 = 64 << 10;
/// Largest byte limit of the queue that can be configured.
pub const QUEUE_BYTES_MAX: u64 = 64 << 30;

/// Default separator between the parts of a composite key.
pub const SEPARATOR_DEFAULT: char = ':';

/// Maximum number of key columns: an index of Postgres has at most 32.
pub const KEY_COLUMNS_MAX: usize = 32;
/// Maximum number of value columns: a relation of Postgres has at most 1600 columns.
pub const VALUE_COLUMNS_MAX: usize = 1600;
/// Maximum bytes of a name. Postgres by default has 63; builds with longer names exist.
pub const IDENTIFIER_BYTES_MAX: usize = 255;
/// Maximum bytes of a table's URL: a long one names some hundred columns.
pub const URL_BYTES_MAX: usize = 64 << 10;

/// Default time for one attempt to connect to one address, TLS and authentication included. A
/// healthy server answers in milliseconds, a distant one in a second.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Longest time for one attempt that can be configured.
pub const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Maximum number of hosts in one URL.
pub const HOSTS_MAX: usize = 16;
/// Maximum number of addresses tried for one host name.
pub const ADDRESSES_PER_HOST_MAX: usize = 8;

/// Default port of a server.
pub const PORT_DEFAULT: u16 = 5432;

/// Default silence after which a connection is probed. The system's two hours would leave a table
/// hanging on a server that has lost its power.
pub const KEEPALIVE_IDLE_DEFAULT: Duration = Duration::from_secs(15);
/// Default time between probes.
pub const KEEPALIVE_INTERVAL_DEFAULT: Duration = Duration::from_secs(5);
/// Default number of unanswered probes that end a connection.
pub const KEEPALIVE_COUNT_DEFAULT: u32 = 3;
/// Largest number of probes: what the system's socket option accepts.
pub const KEEPALIVE_COUNT_MAX: usize = 127;
/// Default time that sent bytes may stay unacknowledged before the connection ends.
pub const TCP_USER_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Longest keepalive time that can be configured.
pub const KEEPALIVE_MAX: Duration = Duration::from_secs(24 * 3600);

/// First pause between attempts to open a connection.
pub const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest pause: a server that is back may go unnoticed for this long.
pub const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Longest time between an error on a connection and the news of its end: one task reports both.
pub const LOSS_NOTICED_MAX: Duration = Duration::from_millis(500);

/// Time that an unused connection has for its Terminate message before its socket is closed.
pub const TERMINATE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after the log line about a first lost connection before a second line may say that the last
/// connection is lost, too.
pub const LOG_PAUSE_MIN: Duration = Duration::from_secs(10);

/// Maximum number of different warnings about one table. Each repeats with every connection, but is
/// logged once.
pub const WARNINGS_MAX: usize = 16;

/// Maximum bytes read from a password file or a `.pgpass` file.
pub const PASSWORD_FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum bytes read from a file with certificates or a key: the bundle of a system has some 200
/// KiB.
pub const CERTIFICATE_FILE_BYTES_MAX: u64 = 16 << 20;

/// Maximum number of edits between an unknown name and the one that an error suggests.
pub const NEAR_NAME_EDITS_MAX: usize = 3;
/// Maximum number of names that an error lists.
pub const NAMES_SHOWN_MAX: usize = 20;

/// Maximum number of write statements that one session keeps prepared: a client that keeps writing
/// new sets of columns must not fill the server's memory.
pub const WRITE_STATEMENTS_MAX: usize = 64;
/// Maximum number of retries of a batch that lost against another transaction.
pub const CONFLICT_RETRIES_MAX: u32 = 5;
/// Pause before the first such retry; it doubles, with jitter.
pub const CONFLICT_BACKOFF_MIN: Duration = Duration::from_millis(2);
/// Maximum number of retries for columns of a row that others inserted meanwhile.
pub const MISSED_ROW_RETRIES_MAX: u32 = 3;
/// Number of single-entry statements in flight on a connection: enough to hide the network's
/// latency.
pub const ALONE_IN_FLIGHT_MAX: usize = 64;
/// Minimum age of a session to be reopened because its server no longer accepts writes: if all
/// servers are standbys, each write would otherwise cost a connection.
pub const REOPEN_AGE_MIN: Duration = Duration::from_secs(1);
/// Pause between checks of the relation while there are requests, and while the relation is
/// refused: a change is followed within twice this time even if no statement fails for it. A check
/// is three queries of the system catalogue.
pub const RELATION_CHECK_INTERVAL: Duration = Duration::from_millis(400);
/// Maximum number of looks of one check at the relation, two of which must agree on what is wrong.
pub const RELATION_LOOKS_MAX: u32 = 4;
/// Maximum number of times that a batch is sent again because the relation has changed, within its
/// timeout: a migration may change a column several times, a few milliseconds apart.
pub const CHANGE_RETRIES_MAX: u32 = 16;
/// Time for which a session does not prepare refused statements anew after that was no help: a
/// trigger can raise an error that only looks like a change with every request.
pub const PREPARE_PAUSE: Duration = Duration::from_secs(1);
/// Age of a check that still tells whether a value was refused because the relation has changed:
/// a client that writes bad values does not cause a check with each.
pub const VALUE_CHECK_AGE: Duration = Duration::from_millis(100);
/// Time that a batch waits for an answer beyond its statement's timeout. After it the connection is
/// given up: the server, or the network, hangs.
pub const BATCH_MARGIN: Duration = Duration::from_secs(1);

/// Returns how long a batch waits for the answer to a statement of requests with this timeout.
pub(crate) fn answer_limit(timeout: Duration) -> Duration {
    timeout + STATEMENT_TIMEOUT_MARGIN + BATCH_MARGIN
}

const _: () = {
    assert!(1 <= CONNECTIONS_DEFAULT && CONNECTIONS_DEFAULT <= CONNECTIONS_MAX);
    // As many batches may be in flight as there are connections.
    assert!(CONNECTIONS_MAX <= BATCHES_IN_FLIGHT_MAX);
    assert!(BATCH_MAX <= REQUESTS_MAX);
    assert!(QUEUE_BYTES_MIN < QUEUE_BYTES_MAX);
    assert!(BACKOFF_MIN.as_millis() < BACKOFF_MAX.as_millis());
};
