//! Every limit and wait of the bench, by name.

use std::time::Duration;

/// Bytes read from a socket by one call.
pub const RECEIVE_BYTES: usize = 256 * 1024;
/// Events taken from epoll by one call.
pub const EVENTS_PER_TURN: usize = 256;

/// Requests built ahead for a measurement; they are sent one after the other, then again from the
/// start.
pub const POOL_REQUESTS: usize = 1_000_000;
/// Memory the requests built ahead may take, unless a single pipeline needs more.
pub const POOL_BYTES: usize = 256 * 1024 * 1024;

/// Most measurements of a case.
pub const ROUNDS_MAX: usize = 1_000;
/// Most requests of one pipeline.
pub const PIPELINE_MAX: usize = 65_536;
/// Most connections of one measurement.
pub const CLIENTS_MAX: usize = 10_000;
pub const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most words of a request to the naive server, bytes of a line about them, and the stack of each
/// of its threads.
pub const NAIVE_WORDS_MAX: usize = 16;
pub const NAIVE_LINE_BYTES: u64 = 32;
pub const NAIVE_STACK_BYTES: usize = 128 << 10;
/// Most distinct keys: the digits of a key hold no more.
pub const KEYS_MAX: u64 = 1_000_000_000_000;
/// Fastest open-loop schedule, in requests per second.
pub const RATE_MAX: u64 = 100_000_000;

/// Requests of one pipeline while keys are loaded.
pub const FILL_PIPELINE: usize = 128;
/// Bytes of such a pipeline, unless one request is larger.
pub const FILL_PIPELINE_BYTES: usize = 1024 * 1024;

/// Time after which work that prepares a measurement shows its progress, and between two lines
/// where stderr is no terminal.
pub const PROGRESS_NS: u64 = 2_000_000_000;

/// A reply that takes longer is counted as slow.
pub const SLOW_REPLY_NS: u64 = 5_000_000;

/// Longest load beside a snapshot. One that takes longer is waited for without a load, so that the
/// log does not fill the disk.
pub const SNAPSHOT_LOAD: Duration = Duration::from_secs(60);
/// Time until a snapshot must have been made.
pub const SNAPSHOT: Duration = Duration::from_secs(600);
/// Between two looks at the memory of a server and at its snapshot.
pub const MEMORY_LOOK: Duration = Duration::from_millis(20);
/// Between two looks at the space that a server takes on disk.
pub const DISK_LOOK: Duration = Duration::from_millis(250);
/// Longest run of the experiment on write amplification.
pub const MINUTES_MAX: f64 = 60.0;
/// Most fields of the hash that one client writes beside a snapshot.
pub const HASH_FIELDS_MAX: u64 = 100_000_000;

/// Lines of a server's own output that are looked at.
pub const OUTPUT_LINES: usize = 200;
/// Time until a server must have answered a single question.
pub const ASK: Duration = Duration::from_secs(2);
/// Longest text of INFO that is read.
pub const INFO_BYTES_MAX: u64 = 1 << 20;
/// Longest page of metrics that is read.
pub const METRICS_BYTES_MAX: u64 = 4 << 20;
/// Longest time recorded by a histogram, in nanoseconds.
pub const LATENCY_NS_MAX: u64 = 600 * 1_000_000_000;

/// With this much time or less until the next request is due, the open loop polls instead of
/// sleeping: waking a sleeping virtual processor takes longer than the distance between two
/// requests.
pub const SPIN: Duration = Duration::from_micros(200);
/// Unanswered requests at which an open-loop run gives up adding more: the server is past its
/// limit.
pub const OPEN_LOOP_BACKLOG: usize = 2_000_000;
/// Unanswered requests at which an open loop of tasks or statements gives up.
pub const OPEN_LOOP_TASKS: usize = 50_000;
/// Time that an open-loop run waits for the last replies.
pub const OPEN_LOOP_DRAIN: Duration = Duration::from_secs(5);

/// A server that sends nothing for this long has failed.
pub const SILENCE: Duration = Duration::from_secs(30);
/// Time until a server must be ready; recovery of a big log is slow on some servers.
pub const READY: Duration = Duration::from_secs(600);
/// Time until the busload server must have reached what its tables are over.
pub const READY_SOURCE: Duration = Duration::from_secs(30);
/// Time until a server must have stopped by itself.
pub const STOP: Duration = Duration::from_secs(120);
/// Between two looks at something that gives no event.
pub const POLL: Duration = Duration::from_millis(2);

/// Bytes that the proxy between busload and Postgres holds in one direction of a connection.
pub const DELAY_BUFFER_BYTES: usize = 4 << 20;
/// Time before something is due from which on that proxy polls instead of sleeping: waking up takes
/// about as long, so that this costs hardly any processor time.
pub const DELAY_SPIN: Duration = Duration::from_micros(20);
/// Longest round trip time that is added.
pub const DISTANCE_MAX: Duration = Duration::from_secs(1);

/// Most statements that measure what the proxy adds, and the longest time of their distances.
pub const PINGS: u128 = 300;
pub const PINGS_TIME: Duration = Duration::from_secs(1);

/// Rows of the Postgres experiment that are loaded in one transaction: what an interrupted load
/// does again.
pub const LOAD_TRANSACTION_ROWS: u64 = 500_000;
/// Rows of one message of COPY.
pub const LOAD_PIECE_ROWS: usize = 1_000;
/// Bytes of a row of the Postgres experiment and its place in the index, with some room:
/// shared_buffers by default.
pub const TABLE_BYTES_PER_ROW: u64 = 200;

/// Most threads that read or write the file of the disk experiment.
pub const DISK_JOBS_MAX: usize = 1_024;

/// Time for which operations of one batch are made, without a pause.
pub const COSTS_TIME_NS: u64 = 100_000_000;
/// Most keys of the index in memory: about 80 bytes each.
pub const COSTS_KEYS_MAX: usize = 100_000_000;
/// Bytes of a file that is written, read or fetched, and rows of the table of statements.
pub const COSTS_FILE_BYTES: u64 = 64 << 20;
pub const COSTS_ROWS: u64 = 100_000;

/// Longest CSV file that a report reads.
pub const REPORT_BYTES_MAX: u64 = 64 << 20;

/// Longest chunk that is made.
pub const CHUNK_BYTES_MAX: u64 = 16 << 20;
/// Most stores of a server.
pub const STORES_MAX: usize = 100_000;
/// Most chunks of a store that is made.
pub const CHUNKS_MAX: usize = 64 << 20;
/// Most bytes of such a store.
pub const STORE_BYTES_MAX: u64 = 256 << 30;
/// Most addresses of a call, which is what the server takes; also requests of a pipeline.
pub const CHUNK_BATCH_MAX: usize = 16_384;
/// Failed requests at which a load of chunks gives up.
pub const CHUNK_FAILURES_MAX: u64 = 100;
/// Longest time of a load that reads a list.
pub const CHUNK_LIST: Duration = Duration::from_secs(600);
/// Time until files must be on local disk.
pub const CHUNK_FILL: Duration = Duration::from_secs(600);
/// Between two looks at how far they are.
pub const CHUNK_POLL: Duration = Duration::from_millis(20);
/// Most pushes of a store as Dolt writes it.
pub const DOLT_PUSHES_MAX: usize = 4_096;
/// Most repetitions of a warm replay.
pub const DOLT_REPLAYS_MAX: usize = 10_000;
/// Longest message of a `GetChunks` stream: a chunk may be alone in one.
pub const GRPC_MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Bytes that may be under way to one call; a connection has four times as many.
pub const GRPC_WINDOW_BYTES: u32 = 4 << 20;

const _: () = assert!(FILL_PIPELINE <= PIPELINE_MAX && CHUNK_BATCH_MAX <= PIPELINE_MAX);
