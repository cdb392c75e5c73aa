//! Server without sockets: the tests bring requests to tx as a net stage would, and the log runs on
//! a simulated disk.
//!
//! Transcripts are the form of most tests:
//!
//! ```text
//! SET k v      -> OK
//! GET k        -> 'v'
//! @ 1500                    time passes, in milliseconds
//! @ reopen                  the server stops and starts again from its log
//! @ resp3                   HELLO 3
//! ```
//!
//! Replies are shown as `OK` (status), `-ERR text`, `5` (integer), `'text'` (bulk), `nil`, `nil
//! array`, `[1, 'a']`, `{'f': 'v'}` (map), `~['a']` (set), `>['a']` (push), `,1.5` (double), `#t`,
//! `txt'text'`.
//!
//! With `BUSLOAD_TEST_REDIS=host:port` the tests also play each transcript without `@` lines to
//! that Redis (and flush its data), which shows whether the expected replies are Redis's.

pub mod redis;

use std::{sync::Arc, time::Duration};

use busload_io::{
    Address, ConnId, Peer, Rng,
    sim::{SimDisk, SimRng},
};
use busload_log::{LogStage, Lsn, Options, Progress, Step, ZeroHelper};
use busload_pipeline::{
    batch::{BatchBuffer, Control, DeferReason, ReplyRun, Request, RequestBatch, Run},
    command::lookup,
    gate::Gate,
    settings::Settings,
    stats::Stats,
    tx::{self, Now, Signals, Tx},
};
use busload_resp::{
    ArgRange, Parser, ParserLimits, Progress as Parsed,
    reply::{NullKind, Reply},
};
use bytes::Bytes;

/// Wall clock at the start of a server, long after the epoch.
pub const START_MS: i64 = 1_700_000_000_000;

/// Size from which on a request comes in a buffer of its own.
const COLLECTED_BYTES_MIN: usize = 32 * 1024;

/// Number of turns of the log that no request can need.
const LOG_STEPS_MAX: usize = 1_000_000;

/// Ordinal of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client(usize);

impl Client {
    /// The connection that is there from the start.
    pub const FIRST: Client = Client(0);
}

/// The stage tx with its log, driven by hand.
pub struct Server {
    pub tx: Tx,
    pub stats: Arc<Stats>,
    pub signals: Arc<Signals>,
    /// Connections that the replies so far said to close.
    pub closed: Vec<Client>,
    disk: SimDisk,
    settings: Settings,
    progress: Progress,
    stage: LogStage<SimDisk>,
    helper: ZeroHelper<SimDisk>,
    now: Now,
    /// Next sequence number of each connection.
    conns: Vec<u64>,
    batch: RequestBatch,
}

impl Server {
    pub fn new() -> Self {
        Self::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Self {
        let now = Now { monotonic: Duration::ZERO, wall_ms: START_MS };
        Self::open(SimDisk::new(), settings, now)
    }

    /// Starts a server on a disk that may hold a log.
    pub fn on(disk: SimDisk) -> Self {
        let now = Now { monotonic: Duration::ZERO, wall_ms: START_MS };
        Self::open(disk, Settings::default(), now)
    }

    /// Returns the last record that is durable.
    pub fn durable(&self) -> Lsn {
        self.progress.durable()
    }

    fn open(disk: SimDisk, settings: Settings, now: Now) -> Self {
        let options =
            Options { segment_bytes: 1 << 20, first_segment_bytes: 1 << 18, ..Options::default() };
        let stats = Arc::new(Stats::default());
        let signals = Arc::new(Signals::default());
        let rng: Box<dyn Rng + Send> = Box::new(SimRng::new(7));
        let opened = tx::open(
            disk.clone(),
            options,
            settings.clone(),
            stats.clone(),
            signals.clone(),
            rng,
            now,
            &mut |_| {},
        );
        let tx::Opened { tx, progress, stage, helper, .. } = opened.expect("the log opens");
        let mut server = Self {
            tx,
            stats,
            signals,
            closed: Vec::new(),
            disk,
            settings,
            progress,
            stage,
            helper,
            now,
            conns: Vec::new(),
            batch: RequestBatch::default(),
        };
        server.connect();
        server
    }

    /// Stops the server and starts it again from its log.
    pub fn reopen(mut self) -> Self {
        self.tx.close_log();
        for _ in 0..LOG_STEPS_MAX {
            let ended = self.stage.step(self.now.monotonic) == Step::Ended;
            self.helper.step(self.now.monotonic);
            if ended {
                break;
            }
        }
        let Self { disk, settings, now, tx, stage, helper, .. } = self;
        drop((tx, stage, helper));
        Self::open(disk, settings, now)
    }

    /// Returns the bytes of frames written since the start.
    pub fn logged_bytes(&self) -> u64 {
        self.progress.stats().bytes
    }

    /// Opens another connection; the first is there from the start.
    pub fn connect(&mut self) -> Client {
        let address = Address::Unix("/sim".into());
        self.connect_as(Peer { remote: address.clone(), local: address })
    }

    /// Opens a connection from somewhere else.
    pub fn connect_as(&mut self, peer: Peer) -> Client {
        let client = Client(self.conns.len());
        self.conns.push(0);
        let mut batch = RequestBatch::default();
        let gauges = Arc::default();
        batch.control.push(Control::Opened { conn: conn_of(client), peer, gauges });
        self.tx.execute(&mut batch, self.now);
        client
    }

    /// Advances the monotonic and the wall clock.
    pub fn advance(&mut self, milliseconds: u64) {
        self.now.monotonic += Duration::from_millis(milliseconds);
        self.now.wall_ms += milliseconds as i64;
    }

    /// Sets the wall clock; tx itself never goes back.
    pub fn set_wall_ms(&mut self, wall_ms: i64) {
        self.now.wall_ms = wall_ms;
    }

    /// Does the work of tx between requests: expiry, garbage.
    pub fn housekeep(&mut self) {
        self.tx.housekeep(self.now);
        self.tx.end_turn();
        self.drive_log();
    }

    /// Executes a command, with words and quotes as in redis-cli, on the first connection. Returns
    /// the reply as text, see above.
    pub fn run(&mut self, line: impl AsRef<[u8]>) -> String {
        self.run_on(Client::FIRST, line)
    }

    /// Does what [`Server::run`] does on any connection.
    pub fn run_on(&mut self, client: Client, line: impl AsRef<[u8]>) -> String {
        let words = words(line.as_ref());
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        show_bytes(&self.send(client, &words))
    }

    /// Executes a command and returns the reply's bytes, once the log has reached its gate.
    pub fn send(&mut self, client: Client, words: &[&[u8]]) -> Vec<u8> {
        let request = encode(words);
        let ranges = parse(&request);
        let seq = self.conns[client.0];
        self.conns[client.0] += 1;
        for offered in 0..LOG_STEPS_MAX {
            self.fill_batch(client, seq, &request, &ranges, offered != 0);
            self.tx.execute(&mut self.batch, self.now);
            self.tx.end_turn();
            let [deferred, ..] = &self.batch.deferred[..] else {
                self.run_slices();
                return self.take_reply();
            };
            assert_eq!(deferred.reason, DeferReason::LogBehind);
            self.step_log();
        }
        panic!("the log never grants space for {:?}", words[0].escape_ascii().to_string());
    }

    fn fill_batch(
        &mut self,
        client: Client,
        seq: u64,
        bytes: &[u8],
        ranges: &[ArgRange],
        again: bool,
    ) {
        let batch = &mut self.batch;
        batch.clear();
        batch.buffers.clear();
        batch.buffers.push(match bytes.len() < COLLECTED_BYTES_MIN {
            true => BatchBuffer::Received(bytes.to_vec()),
            false => BatchBuffer::Collected(Bytes::copy_from_slice(bytes)),
        });
        batch.args.extend_from_slice(ranges);
        batch.requests.push(Request {
            command: lookup(ranges[0].of(bytes)),
            buffer: 0,
            start: 0,
            end: bytes.len() as u32,
            first_arg: 0,
            arg_count: ranges.len() as u32,
        });
        let conn = conn_of(client);
        let resubmitted = again;
        batch.runs.push(Run {
            conn,
            first_seq: seq,
            first_request: 0,
            request_count: 1,
            resubmitted,
            received: None,
            dated_requests: 0,
        });
    }

    /// Executes the remaining slices of a command.
    fn run_slices(&mut self) {
        while self.tx.has_jobs() {
            self.drive_log();
            let answers = self.tx.poll_answers(self.now);
            if let Some(answers) = answers.filter(|answers| !answers.replies.is_empty()) {
                self.batch = answers;
            }
        }
    }

    fn take_reply(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut gate = Gate::OPEN;
        for segment in &self.batch.replies {
            append_segment(&self.batch, segment, &mut bytes);
            self.closed.extend(segment.close.then_some(Client(segment.conn.index as usize)));
            gate = gate.join(segment.gate);
        }
        self.closed.extend(self.batch.closes.iter().map(|conn| Client(conn.index as usize)));
        self.drive_log_to(gate);
        bytes
    }

    /// Drives the log until it has nothing to do now.
    fn drive_log(&mut self) {
        for _ in 0..LOG_STEPS_MAX {
            if !matches!(self.step_log(), Turn::Worked) {
                return;
            }
        }
        panic!("the log never rests");
    }

    /// Drives the log, and advances time where it waits for that, until it has reached the gate.
    fn drive_log_to(&mut self, gate: Gate) {
        for _ in 0..LOG_STEPS_MAX {
            let reached =
                Gate { written: self.progress.written(), durable: self.progress.durable() };
            if gate.is_open(reached) {
                return;
            }
            let turn = self.step_log();
            assert_ne!(turn, Turn::Stuck, "{gate:?} {reached:?} {:?}", self.progress.failure());
        }
        panic!("the log never comes to {gate:?}");
    }

    fn step_log(&mut self) -> Turn {
        let steps = [self.stage.step(self.now.monotonic), self.helper.step(self.now.monotonic)];
        let due = steps.iter().filter_map(|step| match step {
            Step::IdleUntil(due) => Some(*due),
            _ => None,
        });
        if steps.iter().any(|step| matches!(step, Step::Worked | Step::Synced)) {
            return Turn::Worked;
        }
        match due.min() {
            Some(due) => {
                // The wall clock stays: no key expires because the log takes its time.
                self.now.monotonic = self.now.monotonic.max(due);
                Turn::Waited
            }
            None => Turn::Stuck,
        }
    }
}

/// Outcome of a step of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Worked,
    Waited,
    Stuck,
}

fn conn_of(client: Client) -> ConnId {
    ConnId { index: client.0 as u32, generation: 1 }
}

fn append_segment(batch: &RequestBatch, segment: &ReplyRun, bytes: &mut Vec<u8>) {
    let first = segment.first_shared as usize;
    let mut from = segment.start;
    for shared in &batch.shared[first..first + segment.shared_count as usize] {
        bytes.extend_from_slice(&batch.out[from..shared.at]);
        bytes.extend_from_slice(&shared.bytes);
        from = shared.at;
    }
    bytes.extend_from_slice(&batch.out[from..segment.end]);
}

/// Splits a line into words, unquoted as in redis-cli.
pub fn words(line: &[u8]) -> Vec<Vec<u8>> {
    let mut ranges = Vec::new();
    let line = [line, b"\r\n"].concat();
    match Parser::default()
        .parse(&line, &ParserLimits::default(), &mut ranges)
        .expect("a line of words")
    {
        Parsed::Inline { line, .. } => line,
        Parsed::Request { .. } => ranges.iter().map(|range| range.of(&line).to_vec()).collect(),
        other => panic!("no words in {:?}: {other:?}", line.escape_ascii().to_string()),
    }
}

/// Encodes a request as client libraries send it.
pub fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut request = Vec::new();
    busload_resp::write_array(&mut request, words.len());
    words.iter().for_each(|word| busload_resp::write_bulk(&mut request, word));
    request
}

fn parse(request: &[u8]) -> Vec<ArgRange> {
    let mut ranges = Vec::new();
    let parsed = Parser::default().parse(request, &ParserLimits::default(), &mut ranges);
    assert_eq!(parsed.expect("a request"), Parsed::Request { end: request.len() });
    ranges
}

/// Formats a reply as text; the bytes must be exactly one.
pub fn show_bytes(bytes: &[u8]) -> String {
    match Reply::parse(bytes) {
        Ok(Some((reply, length))) if length == bytes.len() => show(&reply),
        Ok(None) if bytes.is_empty() => "no reply".into(),
        other => panic!("not one whole reply: {other:?} {:?}", bytes.escape_ascii().to_string()),
    }
}

/// Formats a reply as text.
pub fn show(reply: &Reply) -> String {
    let list = |of: &[Reply]| of.iter().map(show).collect::<Vec<_>>().join(", ");
    let pairs = |of: &[(Reply, Reply)]| {
        of.iter().map(|(a, b)| format!("{}: {}", show(a), show(b))).collect::<Vec<_>>().join(", ")
    };
    match reply {
        Reply::Simple(text) => text.escape_ascii().to_string(),
        Reply::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        Reply::Integer(number) => number.to_string(),
        Reply::Bulk(bytes) => format!("'{}'", bytes.escape_ascii()),
        Reply::Null(NullKind::Bulk | NullKind::Resp3) => "nil".into(),
        Reply::Null(NullKind::Array) => "nil array".into(),
        Reply::Array(elements) => format!("[{}]", list(elements)),
        Reply::Map(entries) => format!("{{{}}}", pairs(entries)),
        Reply::Set(members) => format!("~[{}]", list(members)),
        Reply::Push(elements) => format!(">[{}]", list(elements)),
        Reply::Attribute(entries, of) => format!("|{{{}}} {}", pairs(entries), show(of)),
        Reply::Double(text) => format!(",{}", text.escape_ascii()),
        Reply::Bool(true) => "#t".into(),
        Reply::Bool(false) => "#f".into(),
        Reply::Verbatim { format, text } => {
            format!("{}'{}'", format.escape_ascii(), text.escape_ascii())
        }
        Reply::BigNumber(digits) => format!("({}", digits.escape_ascii()),
    }
}

/// Plays a transcript to a fresh server and compares all replies.
#[track_caller]
pub fn check(transcript: &str) {
    check_on(Server::new(), transcript);
}

/// Does what [`check`] does with a given server.
#[track_caller]
pub fn check_on(mut server: Server, transcript: &str) -> Server {
    let mut differences = Vec::new();
    for step in steps(transcript) {
        match step {
            Line::Advance(milliseconds) => server.advance(milliseconds),
            Line::Reopen => server = server.reopen(),
            Line::Resp3 => _ = server.run("HELLO 3"),
            Line::Command { line, reply } => {
                compare("busload", line, reply, &server.run(line), &mut differences)
            }
        }
    }
    if let Some(mut redis) = redis::Redis::from_environment()
        && !transcript
            .lines()
            .any(|line| line.trim_start().starts_with("@ ") && !line.contains("resp3"))
    {
        redis.run("FLUSHALL");
        for step in steps(transcript) {
            match step {
                Line::Resp3 => _ = redis.run("HELLO 3"),
                Line::Command { line, reply } => {
                    compare("Redis", line, reply, &redis.run(line), &mut differences)
                }
                Line::Advance(_) | Line::Reopen => {}
            }
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
    server
}

fn compare(who: &str, line: &str, expected: &str, got: &str, differences: &mut Vec<String>) {
    if expected != got {
        differences.push(format!("{line}\n    expected {expected}\n    {who:8} {got}"));
    }
}

enum Line<'a> {
    Command { line: &'a str, reply: &'a str },
    Advance(u64),
    Reopen,
    Resp3,
}

fn steps(transcript: &str) -> impl Iterator<Item = Line<'_>> {
    let lines =
        transcript.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| match line.strip_prefix("@ ") {
        Some("reopen") => Line::Reopen,
        Some("resp3") => Line::Resp3,
        Some(milliseconds) => Line::Advance(milliseconds.parse().expect("milliseconds after @")),
        None => {
            let (line, reply) = line.rsplit_once(" -> ").expect("a command, an arrow, a reply");
            Line::Command { line: line.trim_end(), reply: reply.trim_start() }
        }
    })
}
