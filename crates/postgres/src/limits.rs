//! Every limit and default of the crate that is not the waiting line's, with its reason.

use std::time::Duration;

use busload_batch::limits::{BATCHES_IN_FLIGHT_MAX, LANES_MAX, REQUESTS_MAX};

/// Connections by default: a batch keeps one backend busy, and few machines have many idle cores
/// for one table.
pub const CONNECTIONS_DEFAULT: usize = 4;
/// Most connections of one table. More make smaller batches, and taking a session looks at all of
/// them.
pub const CONNECTIONS_MAX: usize = 128;

/// A request's time by default.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
/// The shortest time a request can be given: a millisecond is the timer's step.
pub const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// The longest time a request can be given. Behind it a client has long gone.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// So much longer than a request's time a statement may run before the server ends it: the client's
/// own timeout comes first and tells more, yet an abandoned statement does not hold its backend for
/// long.
pub const STATEMENT_TIMEOUT_MARGIN: Duration = Duration::from_millis(500);

/// Largest cap of one batch that can be configured: what the server plans and sends back in one
/// piece.
pub const BATCH_MAX: usize = 16_384;

/// The least that makes sense: one request of some size.
pub const LINE_BYTES_MIN: u64 = 64 << 10;
/// Most bytes that may be allowed to wait.
pub const LINE_BYTES_MAX: u64 = 64 << 30;

/// Between the parts of a composite key by default.
pub const SEPARATOR_DEFAULT: char = ':';

/// Columns of a key: an index of Postgres has at most 32.
pub const KEY_COLUMNS_MAX: usize = 32;
/// Value columns: a relation of Postgres has at most 1600 columns.
pub const VALUE_COLUMNS_MAX: usize = 1600;
/// Bytes of a name in Postgres by default are 63; builds with longer names exist.
pub const IDENTIFIER_BYTES_MAX: usize = 255;
/// Bytes of a table's URL: a long one has some hundred columns.
pub const URL_BYTES_MAX: usize = 64 << 10;

/// One attempt to connect to one address, TLS and authentication included. A healthy server answers
/// in milliseconds, a far one in a second.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Longest time of one attempt that can be configured.
pub const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Hosts of one URL.
pub const HOSTS_MAX: usize = 16;
/// Addresses tried of one host name.
pub const ADDRESSES_PER_HOST_MAX: usize = 8;

/// Port when none is given.
pub const PORT_DEFAULT: u16 = 5432;

/// A connection that is silent for so long is probed. The system's two hours would leave a table
/// hanging on a server that has lost its power.
pub const KEEPALIVE_IDLE_DEFAULT: Duration = Duration::from_secs(15);
/// Time between probes.
pub const KEEPALIVE_INTERVAL_DEFAULT: Duration = Duration::from_secs(5);
/// Probes without an answer that end a connection.
pub const KEEPALIVE_COUNT_DEFAULT: u32 = 3;
/// Most of them: what the system's socket option takes.
pub const KEEPALIVE_COUNT_MAX: usize = 127;
/// Sent bytes that nobody acknowledges for so long end a connection.
pub const TCP_USER_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Longest of these times that can be configured.
pub const KEEPALIVE_MAX: Duration = Duration::from_secs(24 * 3600);

/// First pause between attempts to open a connection.
pub const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest pause: so long a server that is back may go unnoticed.
pub const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Between an error on a connection and the news that it has ended: both come from the same task.
pub const LOSS_NOTICED_MAX: Duration = Duration::from_millis(500);

/// A connection nobody needs any more may say good-bye for so long before its socket is closed.
pub const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// Between two log lines about one table that cannot reach its server although some connection
/// still could before.
pub const LOG_QUIET: Duration = Duration::from_secs(10);

/// Different warnings given about one table. They repeat with every connection; each is given once.
pub const WARNINGS_MAX: usize = 16;

/// Bytes of a password file and of a file of passwords that are read.
pub const PASSWORD_FILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a file with certificates or a key that are read: the bundle of a system has some 200
/// KiB.
pub const CERTIFICATE_FILE_BYTES_MAX: u64 = 16 << 20;

/// Edits that make one name of another which was perhaps meant.
pub const NEAR_NAME_EDITS_MAX: usize = 3;
/// Names that an error lists.
pub const NAMES_SHOWN_MAX: usize = 20;

/// Statements that one session keeps prepared, besides the read: a client that writes ever other
/// sets of columns must not fill the server's memory.
pub const WRITE_STATEMENTS_MAX: usize = 64;
/// Times a batch is sent again that lost against another transaction.
pub const CONFLICT_RETRIES_MAX: u32 = 5;
/// Pause before it is sent again the first time; doubles, with jitter.
pub const CONFLICT_BACKOFF_MIN: Duration = Duration::from_millis(2);
/// Times columns are set again of a row that others inserted meanwhile.
pub const MISSED_ROW_RETRIES_MAX: u32 = 3;
/// Entries sent one by one that are under way on a connection: enough to hide the way to the
/// server.
pub const ALONE_IN_FLIGHT_MAX: usize = 64;
/// A session that found its relation changed is opened anew, but not one that is younger than this:
/// an error that only looks like a change would cost a connection for each request.
pub const REOPEN_AGE_MIN: Duration = Duration::from_secs(1);
/// A session that has seen a value refused is opened anew when it is older than this: writes name
/// the types of columns as they were when it was opened.
pub const DOUBT_AGE_MIN: Duration = Duration::from_secs(5);
/// So much longer than a statement may run a batch waits for its answer. Behind that the connection
/// is given up: the server, or the way to it, hangs.
pub const TRIP_MARGIN: Duration = Duration::from_secs(1);

const _: () = {
    assert!(1 <= CONNECTIONS_DEFAULT && CONNECTIONS_DEFAULT <= CONNECTIONS_MAX);
    // As many batches may be in flight as there are connections, and by default there are half as
    // many lanes.
    assert!(CONNECTIONS_MAX <= BATCHES_IN_FLIGHT_MAX && CONNECTIONS_MAX <= LANES_MAX);
    assert!(BATCH_MAX <= REQUESTS_MAX);
    assert!(LINE_BYTES_MIN < LINE_BYTES_MAX);
    assert!(BACKOFF_MIN.as_millis() < BACKOFF_MAX.as_millis());
};
