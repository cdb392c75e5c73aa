//! Tables that a source serves: slow, failing, refusing and answering in any order, as a seed
//! decides.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::world::{Client, World};
use busload_io::sim::SimRng;
use busload_pipeline::{
    settings::SyncMode,
    source::{
        Full, Operation, Source, SourceEvent, SourceInfo, SourceRequest, SourceValue, Ticket,
        Unsupported,
    },
};
use bytes::Bytes;

/// State that the test and the source share.
#[derive(Default)]
struct SourceState {
    rows: HashMap<Vec<u8>, Vec<u8>>,
    /// Open requests: per key in order, so that reads wait for earlier writes.
    lines: BTreeMap<Vec<u8>, VecDeque<Waiting>>,
    ready: Vec<SourceEvent>,
    queue_limit: usize,
    cancelled: Vec<Ticket>,
    failing: bool,
    flushes: usize,
}

struct Waiting {
    ticket: Ticket,
    operation: Operation,
    arguments: Vec<Vec<u8>>,
}

#[derive(Clone)]
pub struct SimSource(Arc<Mutex<SourceState>>);

impl SimSource {
    pub fn new() -> Self {
        SimSource(Arc::new(Mutex::new(SourceState { queue_limit: 1000, ..SourceState::default() })))
    }

    fn with<R>(&self, act: impl FnOnce(&mut SourceState) -> R) -> R {
        act(&mut self.0.lock().unwrap())
    }

    pub fn waiting(&self) -> usize {
        self.with(|shared| shared.lines.values().map(VecDeque::len).sum())
    }

    /// Answers the oldest request of the `choice`-th key.
    pub fn answer_one(&self, choice: u64) {
        self.with(|shared| {
            let keys: Vec<Vec<u8>> = shared.lines.keys().cloned().collect();
            let Some(key) = keys.get(choice as usize % keys.len().max(1)) else { return };
            let line = shared.lines.get_mut(key).unwrap();
            let waiting = line.pop_front().unwrap();
            if line.is_empty() {
                shared.lines.remove(key);
            }
            let outcome = match shared.failing {
                true => Err("ERR table objects: cannot connect".into()),
                false => Ok(execute(&mut shared.rows, key, &waiting)),
            };
            shared.ready.push(SourceEvent::Answer {
                ticket: waiting.ticket,
                outcome,
                cacheable_for: None,
            });
        });
    }

    pub fn answer_all(&self) {
        while self.waiting() != 0 {
            self.answer_one(0);
        }
    }
}

fn execute(rows: &mut HashMap<Vec<u8>, Vec<u8>>, key: &[u8], waiting: &Waiting) -> SourceValue {
    match waiting.operation {
        Operation::Get => match rows.get(key) {
            Some(value) => SourceValue::Bulk(Bytes::copy_from_slice(value)),
            None => SourceValue::Nil,
        },
        Operation::Exists => SourceValue::Integer(i64::from(rows.contains_key(key))),
        Operation::Set => {
            rows.insert(key.to_vec(), waiting.arguments[0].clone());
            SourceValue::Done
        }
        Operation::Delete => SourceValue::Integer(i64::from(rows.remove(key).is_some())),
        other => panic!("{other:?} was not announced as supported"),
    }
}

impl Source for SimSource {
    fn submit(&mut self, request: SourceRequest<'_>) -> Result<(), Full> {
        let waiting = self.waiting();
        self.with(|shared| {
            if shared.queue_limit <= waiting {
                return Err(Full);
            }
            shared.lines.entry(request.key.to_vec()).or_default().push_back(Waiting {
                ticket: request.ticket,
                operation: request.operation,
                arguments: request.arguments.iter().map(|bytes| bytes.to_vec()).collect(),
            });
            Ok(())
        })
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.with(|shared| shared.cancelled.push(ticket));
    }

    fn poll(&mut self, stream: &mut Vec<SourceEvent>) {
        self.with(|shared| stream.append(&mut shared.ready));
    }

    fn kind(&self) -> &'static str {
        "simulated"
    }

    fn supports(&self, operation: Operation) -> Result<(), Unsupported> {
        match operation {
            Operation::Get | Operation::Exists | Operation::Set | Operation::Delete => Ok(()),
            Operation::HashSet => Err(Unsupported::Table("the table has no fields".into())),
            _ => Err(Unsupported::Kind),
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn flush(&mut self) {
        self.with(|shared| shared.flushes += 1);
    }

    fn info(&self) -> SourceInfo {
        SourceInfo::default()
    }
}

fn world() -> (World, SimSource, Client) {
    let mut world = World::new(SyncMode::Off);
    let source = SimSource::new();
    world.add_source("objects", Box::new(source.clone()));
    let client = world.connect();
    (world, source, client)
}

#[test]
fn replies_keep_their_order_whoever_answers_first() {
    let (mut world, source, mut client) = world();
    world.send(&client, "SET objects:a 1\nSET m 2\nGET m\nGET objects:b\nGET objects:a\nGET m");
    world.turns();
    assert_eq!(source.waiting(), 3);
    assert!(world.replies(&mut client).is_empty(), "nothing overtakes the first");
    source.answer_one(1);
    world.turns();
    assert!(world.replies(&mut client).is_empty(), "b was answered, a comes first");
    source.answer_one(0);
    world.turns();
    assert_eq!(world.replies(&mut client), ["OK", "OK", "2", "nil"]);
    source.answer_all();
    world.turns();
    assert_eq!(world.replies(&mut client), ["1", "2"]);
}

#[test]
fn a_slow_source_holds_up_only_its_own_client() {
    let (mut world, source, mut slow) = world();
    let mut other = world.connect();
    world.send(&slow, "GET objects:a");
    world.turns();
    assert_eq!(world.run(&mut other, "SET m 1\nGET m"), ["OK", "1"]);
    source.answer_all();
    world.turns();
    assert_eq!(world.replies(&mut slow), ["nil"]);
}

#[test]
fn commands_over_several_keys_gather_their_parts() {
    let (mut world, source, mut client) = world();
    source.with(|shared| _ = shared.rows.insert(b"a".to_vec(), b"1".to_vec()));
    world.send(
        &client,
        "SET m 2\nMGET objects:a m objects:none nothing\nEXISTS objects:a m objects:none\nDEL \
         objects:a objects:b",
    );
    world.turns();
    for choice in [2, 0, 1, 3, 0, 1, 0, 0] {
        source.answer_one(choice);
        world.turns();
    }
    assert_eq!(world.replies(&mut client), ["OK", "[1 2 nil nil]", ":2", ":1"]);
}

#[test]
fn what_a_kind_or_a_table_does_not_support_says_so_and_does_nothing() {
    let (mut world, source, mut client) = world();
    assert_eq!(
        world.run(
            &mut client,
            "INCR objects:a\nMSET objects:a 1 m 2\nGET m\nSET objects:a 1 EX 5\nHLEN \
             objects:a\nHSET objects:a f v"
        ),
        [
            "-ERR table objects: INCR is not supported on a simulated table",
            "-ERR keys of more than one kind of table in one write command; nothing was executed",
            "nil",
            "-ERR SET takes no options on this kind of table",
            "-ERR table objects: HLEN is not supported on a simulated table",
            "-ERR table objects: HSET is not possible: the table has no fields",
        ]
    );
    let replies = world.run(&mut client, "MULTI\nGET objects:a\nSET m 1\nEXEC\nGET m");
    assert!(replies[1].starts_with("-ERR table objects: GET cannot be queued"), "{replies:?}");
    assert_eq!(
        replies[3..],
        ["-EXECABORT Transaction discarded because of previous errors.", "nil"]
    );
    assert_eq!(source.waiting(), 0);
}

#[test]
fn commands_over_several_tables_of_one_kind_gather_their_parts() {
    let (mut world, source, mut client) = world();
    let other = SimSource::new();
    world.add_source("others", Box::new(other.clone()));
    world.send(
        &client,
        "MSET objects:a 1 others:a 2\nMGET others:a objects:a\nDEL objects:a others:a",
    );
    world.turns();
    assert_eq!((source.waiting(), other.waiting()), (3, 3));
    other.answer_all();
    world.turns();
    assert!(world.replies(&mut client).is_empty());
    source.answer_all();
    world.turns();
    assert_eq!(world.replies(&mut client), ["OK", "[2 1]", ":2"]);
}

#[test]
fn a_failing_source_and_a_full_line_are_errors_of_that_request_only() {
    let (mut world, source, mut client) = world();
    source.with(|shared| shared.failing = true);
    world.send(&client, "GET objects:a\nSET m 1");
    world.turns();
    source.answer_all();
    world.turns();
    assert_eq!(world.replies(&mut client), ["-ERR table objects: cannot connect", "OK"]);
    source.with(|shared| shared.queue_limit = 1);
    world.send(&client, "GET objects:a\nGET objects:b\nGET m");
    world.turns();
    source.with(|shared| shared.failing = false);
    source.answer_all();
    world.turns();
    let full = "-ERR table objects: too many requests are waiting, try again later";
    assert_eq!(world.replies(&mut client), ["nil", full, "1"]);
}

#[test]
fn a_request_that_is_never_answered_ends_at_its_deadline() {
    let (mut world, source, mut client) = world();
    world.send(&client, "GET objects:a\nSET objects:b 1\nPING");
    world.turns();
    assert!(world.replies(&mut client).is_empty());
    world.clock.advance(Duration::from_millis(1001));
    world.turns();
    let read = "-ERR table objects: no answer in time";
    let write = "-ERR table objects: outcome unknown, no answer in time";
    assert_eq!(world.replies(&mut client), [read, write, "PONG"]);
    assert_eq!(source.with(|shared| shared.cancelled.len()), 2);
    // tx ignores the late answers.
    source.answer_all();
    assert_eq!(world.run(&mut client, "PING"), ["PONG"]);
}

#[test]
fn a_write_of_several_keys_that_fails_says_how_many_were_written() {
    let (mut world, source, mut client) = world();
    world.send(&client, "MSET objects:a 1 objects:b 2 objects:c 3\nDEL objects:a objects:b");
    world.turns();
    source.answer_one(1);
    source.with(|shared| shared.failing = true);
    source.answer_one(0);
    source.answer_one(2);
    world.turns();
    assert_eq!(
        world.replies(&mut client),
        ["-ERR table objects: cannot connect (1 of 3 keys were written)"],
        "DEL is still open"
    );
    world.clock.advance(Duration::from_millis(1001));
    world.turns();
    let unknown =
        "-ERR table objects: outcome unknown, no answer in time (0 of 2 keys were deleted)";
    assert_eq!(world.replies(&mut client), [unknown]);
    // The request queue is full at the second key; the first is submitted already, so the client
    // learns of both.
    source.answer_all();
    source.with(|shared| (shared.failing, shared.queue_limit) = (false, 1));
    world.send(&client, "MSET objects:a 1 objects:b 2\nMGET objects:a objects:b");
    world.turns();
    source.answer_all();
    world.turns();
    let full = "-ERR table objects: too many requests are waiting, try again later";
    assert_eq!(
        world.replies(&mut client),
        [format!("{full} (1 of 2 keys were written)"), full.into()]
    );
    assert!(!world.tx.has_open_tickets());
}

#[test]
fn a_source_hears_of_the_end_of_every_turn_in_which_it_was_asked() {
    let (mut world, source, client) = world();
    world.send(&client, "GET objects:a\nGET objects:b");
    while source.waiting() == 0 {
        source.with(|shared| shared.flushes = 0);
        world.turn();
    }
    assert!(0 < source.with(|shared| shared.flushes));
}

#[test]
fn a_client_that_wants_no_replies_gets_none_from_sources_either() {
    let (mut world, source, mut client) = world();
    world.send(
        &client,
        "CLIENT REPLY SKIP\nGET objects:a\nGET objects:b\nCLIENT REPLY OFF\nMGET objects:a m",
    );
    world.send(&client, "SET objects:a 1\nCLIENT REPLY ON\nGET objects:a");
    world.turns();
    source.answer_all();
    world.turns();
    assert_eq!(world.replies(&mut client), ["nil", "OK", "1"]);
}

#[test]
fn more_replies_than_one_batch_takes_come_in_the_next_at_once() {
    const ROWS: usize = 100;
    let (mut world, source, mut client) = world();
    // Slightly too small to be sent by reference.
    let value = vec![b'v'; 31 * 1024];
    source.with(|shared| _ = shared.rows.insert(b"a".to_vec(), value));
    let keys = " objects:a".repeat(ROWS);
    (0..ROWS).for_each(|_| world.send(&client, &format!("MGET{keys}")));
    while source.waiting() < ROWS * ROWS {
        world.turn();
        source.with(|shared| shared.queue_limit = usize::MAX);
        assert_eq!(world.replies(&mut client), Vec::<String>::new());
    }
    source.answer_all();
    let now = crate::world::read(&world.clock);
    let mut replies = 0;
    let mut batches = 0;
    while let Some(batch) = world.tx.poll_answers(now) {
        assert!(batch.out.len() < 80 << 20, "bounded");
        replies += batch.replies.iter().map(|run| run.seq_count).sum::<u32>() as usize;
        batches += 1;
        let is_last = replies == ROWS;
        assert_eq!(world.tx.next_deadline(), (!is_last).then_some(Duration::ZERO));
    }
    assert!(replies == ROWS && 3 < batches, "{replies} in {batches}");
}

#[test]
fn replies_of_one_connection_leave_in_one_piece_whatever_order_they_came_in() {
    let (mut world, source, client) = world();
    let gets: Vec<String> = (0..20).map(|key| format!("GET objects:{key:02}")).collect();
    world.send(&client, &gets.join("\n"));
    while source.waiting() < 20 {
        world.turn();
    }
    (0..20).for_each(|step| source.answer_one(step * 7));
    let batch = world.tx.poll_answers(crate::world::read(&world.clock)).expect("answers");
    assert_eq!(batch.replies.iter().map(|run| run.seq_count).collect::<Vec<_>>(), [20]);
}

#[test]
fn a_client_that_leaves_cancels_what_it_asked_for() {
    let (mut world, source, client) = world();
    world.send(&client, "GET objects:a\nGET objects:b");
    world.turns();
    world.clients.reset(client.id);
    world.turns();
    assert_eq!(source.with(|shared| shared.cancelled.len()), 2);
    source.answer_all();
    let mut next = world.connect();
    assert_eq!(world.run(&mut next, "PING"), ["PONG"], "late answers reach nobody");
    assert!(!world.tx.has_open_tickets());
}

/// Client, the contents of its keys, and the replies that it must get.
struct Modelled {
    client: Client,
    model: HashMap<String, String>,
    expected: Vec<String>,
}

/// Compares random pipelines over memory and source keys with a plain map; the seed decides the
/// order of the answers.
#[test]
fn any_interleaving_gives_each_client_what_it_would_get_alone() {
    for seed in 0..40 {
        let (mut world, source, _) = world();
        let mut rng = SimRng::new(seed);
        let mut clients: Vec<Modelled> = (0..3)
            .map(|_| Modelled {
                client: world.connect(),
                model: HashMap::new(),
                expected: Vec::new(),
            })
            .collect();
        for number in 0..200 {
            let who = rng.index(clients.len());
            let Modelled { client, model, expected } = &mut clients[who];
            let table = if rng.chance(1, 2) { "objects:" } else { "" };
            let key = format!("{table}client{who}-{}", rng.below(3));
            match rng.below(3) {
                0 => {
                    world.send(client, &format!("SET {key} {number}"));
                    model.insert(key, number.to_string());
                    expected.push("OK".into());
                }
                1 => {
                    world.send(client, &format!("GET {key}"));
                    expected.push(model.get(&key).cloned().unwrap_or("nil".into()));
                }
                _ => {
                    world.send(client, &format!("DEL {key}"));
                    expected.push(format!(":{}", u8::from(model.remove(&key).is_some())));
                }
            }
            for _ in 0..rng.below(3) {
                world.turn();
                source.answer_one(rng.below(100));
            }
        }
        for _ in 0..2000 {
            source.answer_one(rng.below(100));
            world.turn();
        }
        for Modelled { client, expected, .. } in &mut clients {
            assert_eq!(world.replies(client), *expected, "seed {seed}");
        }
    }
}

#[test]
fn a_request_that_a_source_answers_late_is_in_the_slow_log() {
    let mut world = World::new(SyncMode::Os);
    world.tx.set_clock(Box::new(world.clock.clone()));
    let source = SimSource::new();
    world.add_source("objects", Box::new(source.clone()));
    let mut client = world.connect();
    let key = "k".repeat(60);
    world
        .send(&client, &format!("GET objects:fast\nGET objects:{key}\nMGET objects:a objects:b k"));
    world.turn();
    source.answer_one(2);
    world.turns();
    world.clock.advance(Duration::from_millis(250));
    source.answer_all();
    world.turns();
    assert_eq!(world.replies(&mut client).len(), 3);
    let slow = world.stats.slow_log.newest(10);
    let shown: Vec<(u128, String)> = slow
        .iter()
        .map(|slow| {
            let args: Vec<_> = slow.args.iter().map(|arg| String::from_utf8_lossy(arg)).collect();
            (slow.took.as_millis(), args.join(" "))
        })
        .collect();
    let trimmed = format!("get objects:{}... (24 more bytes)", "k".repeat(36));
    let both = "mget objects:a ... (2 more arguments)".to_owned();
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown.contains(&(250, trimmed)) && shown.contains(&(250, both)), "{shown:?}");
    assert!(slow.iter().all(|slow| !slow.client.is_empty()));
    let latest = world.run(&mut client, "LATENCY LATEST");
    assert!(latest[0].starts_with("[[source "), "{latest:?}");
}
