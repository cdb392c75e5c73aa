//! Measures what a request at a source costs the stage tx, beside one that memory answers.
//!
//! `cargo run --release -p busload-pipeline --example source_requests [CONNECTIONS] [PIPELINE]`:
//! batches of `GET`s as a net stage would bring them, and a source that answers all of a turn in
//! another order.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use busload_io::{
    Address, ConnId, Peer,
    sim::{SimDisk, SimRng},
};
use busload_log::Options;
use busload_pipeline::{
    batch::{Batch, BatchBuffer, Control, Request, Run},
    command::lookup,
    settings::Settings,
    source::{
        Full, Operation, Source, SourceEvent, SourceInfo, SourceRequest, SourceValue, Ticket,
        Unsupported,
    },
    stats::Stats,
    tx::{self, Now, Signals, Tx},
};
use busload_resp::{ArgRange, Parser, ParserLimits};
use bytes::Bytes;

/// Number of turns that are measured.
const TURNS: usize = 20_000;

/// Source that answers the requests of the previous turn, every other one first.
struct Echo {
    asked: Vec<Ticket>,
    value: Bytes,
}

impl Source for Echo {
    fn submit(&mut self, request: SourceRequest<'_>) -> Result<(), Full> {
        self.asked.push(request.ticket);
        Ok(())
    }

    fn flush(&mut self) {}

    fn cancel(&mut self, _: Ticket) {}

    fn poll(&mut self, stream: &mut Vec<SourceEvent>) {
        let answer = |&ticket: &Ticket| {
            let outcome = Ok(SourceValue::Bulk(self.value.clone()));
            SourceEvent::Answer { ticket, outcome, cacheable_for: None }
        };
        stream.extend(self.asked.iter().step_by(2).map(answer));
        stream.extend(self.asked.iter().skip(1).step_by(2).map(answer));
        self.asked.clear();
    }

    fn kind(&self) -> &'static str {
        "echo"
    }

    fn supports(&self, _: Operation) -> Result<(), Unsupported> {
        Ok(())
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn info(&self) -> SourceInfo {
        SourceInfo::default()
    }
}

#[allow(clippy::disallowed_methods, reason = "this measures time")]
fn now() -> Instant {
    Instant::now()
}

fn conn(index: usize) -> ConnId {
    ConnId { index: index as u32, generation: 1 }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (connections, pipeline) = (arguments.next().unwrap_or(20), arguments.next().unwrap_or(15));
    for key in ["key:00000000000000000042", "objects:00000000000000000042"] {
        let per_request = measure(connections, pipeline, key);
        println!(
            "{connections} connections, pipeline {pipeline}, GET {key}: {per_request:.0} ns of tx \
             per request"
        );
    }
}

/// Returns the nanoseconds per request, without those for making the batches.
fn measure(connections: usize, pipeline: usize, key: &str) -> f64 {
    let settings = Settings::default();
    let disk = SimDisk::new();
    let start = Now { monotonic: Duration::ZERO, wall_ms: 1_700_000_000_000 };
    let (stats, signals) = (Arc::new(Stats::default()), Arc::new(Signals::default()));
    let opened = tx::open(
        disk,
        Options::default(),
        settings,
        stats,
        signals,
        Box::new(SimRng::new(1)),
        start,
    );
    let mut tx = opened.expect("a new log opens").tx;
    tx.add_source(
        "objects",
        Box::new(Echo { asked: Vec::new(), value: Bytes::from_static(&[b'v'; 35]) }),
    );
    let mut batch = Batch::default();
    for index in 0..connections {
        let peer = Peer {
            remote: Address::Tcp(([127, 0, 0, 1], 1).into()),
            local: Address::Tcp(([127, 0, 0, 1], 2).into()),
        };
        batch.control.push(Control::Opened { conn: conn(index), peer });
    }
    tx.execute(&mut batch, start);
    let (bytes, ranges) = request(key);
    let mut spent = Duration::ZERO;
    let mut recent = VecDeque::new();
    for turn in 0..TURNS {
        fill(&mut batch, &bytes, &ranges, turn, connections, pipeline);
        let turn_start = Now { monotonic: Duration::from_micros(turn as u64), ..start };
        let begun = now();
        let answered = one_turn(&mut tx, &mut batch, turn_start);
        spent += begun.elapsed();
        recent.push_back(answered);
        // Drop the replies here, outside the measured time.
        recent.truncate(1);
    }
    spent.as_nanos() as f64 / (TURNS * connections * pipeline) as f64
}

fn one_turn(tx: &mut Tx, batch: &mut Batch, now: Now) -> Option<Batch> {
    tx.execute(batch, now);
    tx.end_turn();
    tx.poll_answers(now)
}

fn request(key: &str) -> (Vec<u8>, Vec<ArgRange>) {
    let mut bytes = Vec::new();
    busload_resp::write_array(&mut bytes, 2);
    busload_resp::write_bulk(&mut bytes, b"GET");
    busload_resp::write_bulk(&mut bytes, key.as_bytes());
    let mut ranges = Vec::new();
    Parser::default().parse(&bytes, &ParserLimits::default(), &mut ranges).expect("a request");
    (bytes, ranges)
}

fn fill(
    batch: &mut Batch,
    bytes: &[u8],
    ranges: &[ArgRange],
    turn: usize,
    connections: usize,
    pipeline: usize,
) {
    batch.clear();
    batch.buffers.clear();
    batch.buffers.push(BatchBuffer::Received(bytes.to_vec()));
    let command = lookup(b"get");
    for index in 0..connections {
        let first_request = batch.requests.len() as u32;
        for _ in 0..pipeline {
            let first_arg = batch.args.len() as u32;
            batch.args.extend_from_slice(ranges);
            let (end, arg_count) = (bytes.len() as u32, ranges.len() as u32);
            batch.requests.push(Request {
                command,
                buffer: 0,
                start: 0,
                end,
                first_arg,
                arg_count,
            });
        }
        let first_seq = (turn * pipeline) as u64;
        let request_count = pipeline as u32;
        batch.runs.push(Run {
            conn: conn(index),
            first_seq,
            first_request,
            request_count,
            resubmitted: false,
        });
    }
}
