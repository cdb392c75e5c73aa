//! Writers and readers that remember their answers and check Postgres against them.
//!
//! Each writer has a key of its own and writes 1, 2, 3, ... one after the other. The number that a
//! reader finds under it:
//! * is no older than the last write that was acknowledged before the read was made,
//! * was requested, and its writer was not told that it had changed nothing.
//!
//! No caller waits longer than the table's timeout.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use busload_postgres::{Error, Table};
use tokio::{task::JoinSet, time::sleep};

use crate::failure::support::{SLACK, timed, until, value};

/// Pause of a client after a refusal.
const AGAIN: Duration = Duration::from_millis(5);

/// Pause that a reader makes now and then: else all of them would read at the same time, when a
/// batch is answered, and none while one is in flight.
const THINK: Duration = Duration::from_millis(1);

/// Answer that a writer got.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WriteAnswer {
    Pending,
    Done,
    Unknown,
    NotDone,
}

/// Answers about one key, by the number written; index 0 is number 1.
#[derive(Debug, Default)]
struct Key {
    answers: Mutex<Vec<WriteAnswer>>,
    acknowledged: AtomicU64,
}

/// A number that was read, and the lowest one allowed.
#[derive(Clone, Copy, Debug)]
struct Seen {
    key: usize,
    floor: u64,
    number: u64,
}

#[derive(Debug, Default)]
struct LoadState {
    keys: Vec<Key>,
    stop: AtomicBool,
    reads: AtomicU64,
    seen: Mutex<Vec<Seen>>,
    slowest: Mutex<Duration>,
    errors: Mutex<Vec<Error>>,
}

/// Writers and readers at work.
pub struct Load {
    shared: Arc<LoadState>,
    tasks: JoinSet<()>,
    limit: Duration,
}

impl Load {
    /// Starts writers, each with a key of its own, on the first table, and readers of all keys
    /// mostly on the last.
    pub fn start(tables: &[Table], writers: usize, readers: usize) -> Self {
        let keys = std::iter::repeat_with(Key::default).take(writers).collect();
        let shared = Arc::new(LoadState { keys, ..LoadState::default() });
        let mut tasks = JoinSet::new();
        for key in 0..writers {
            tasks.spawn(write(Arc::clone(&shared), tables[0].clone(), key));
        }
        for reader in 0..readers {
            let table = if reader % 8 == 0 { 0 } else { tables.len() - 1 };
            tasks.spawn(read(Arc::clone(&shared), tables[table].clone(), reader));
        }
        Self { shared, tasks, limit: tables[0].settings().timeout + SLACK }
    }

    /// Waits until every writer got some more acknowledgements and readers got answers.
    pub async fn progress(&self) {
        let reads = self.shared.reads.load(SeqCst);
        let before: Vec<u64> = self.acknowledged();
        until("everybody has gone on", async || {
            let moved =
                self.acknowledged().iter().zip(&before).all(|(now, before)| *now > before + 3);
            moved && self.shared.reads.load(SeqCst) > reads + 50
        })
        .await;
    }

    /// Waits until this many reads were answered, as long as there are always more.
    pub async fn reads(&self, count: u64) {
        for enough in (0..count).step_by(1000).chain([count]) {
            until("more was read", async || self.shared.reads.load(SeqCst) >= enough).await;
        }
    }

    /// Waits until some client got such an error.
    pub async fn saw_error(&self, is_it: impl Fn(&Error) -> bool) {
        until("a client gets the error", async || {
            self.shared.errors.lock().unwrap().iter().any(&is_it)
        })
        .await;
    }

    fn acknowledged(&self) -> Vec<u64> {
        self.shared.keys.iter().map(|key| key.acknowledged.load(SeqCst)).collect()
    }

    /// Ends the work and checks only how long everybody waited.
    pub async fn end(&mut self) -> Report {
        self.shared.stop.store(true, SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no writer and no reader fails");
        }
        let slowest = *self.shared.slowest.lock().unwrap();
        assert!(slowest < self.limit, "somebody waited for {slowest:?}");
        let errors = std::mem::take(&mut *self.shared.errors.lock().unwrap());
        let reads = self.shared.seen.lock().unwrap().len();
        Report { reads, writes: self.acknowledged().iter().sum(), errors }
    }

    /// Ends the work and checks every answer against the others, and against the final values.
    pub async fn check(mut self, table: &Table) -> Report {
        let report = self.end().await;
        for key in 0..self.shared.keys.len() {
            let floor = self.shared.keys[key].acknowledged.load(SeqCst);
            let number = number(last(table, &name(key)).await);
            self.shared.seen.lock().unwrap().push(Seen { key, floor, number });
        }
        let seen = self.shared.seen.lock().unwrap();
        seen.iter().for_each(|seen| self.check_one(seen));
        drop(seen);
        report
    }

    fn check_one(&self, seen: &Seen) {
        assert!(seen.floor <= seen.number, "older than an acknowledged one: {seen:?}");
        if seen.number == 0 {
            return;
        }
        let answers = self.shared.keys[seen.key].answers.lock().unwrap();
        let index = usize::try_from(seen.number).unwrap() - 1;
        let answer = answers.get(index).copied().expect("it was asked for");
        assert!(
            matches!(answer, WriteAnswer::Done | WriteAnswer::Unknown),
            "{seen:?} was answered with {answer:?}"
        );
    }
}

/// Summary of a load.
#[derive(Debug)]
pub struct Report {
    pub reads: usize,
    pub writes: u64,
    pub errors: Vec<Error>,
}

impl Report {
    pub fn has_error(&self, is_it: impl Fn(&Error) -> bool) -> bool {
        self.errors.iter().any(is_it)
    }
}

fn name(key: usize) -> String {
    format!("key {key}")
}

/// Reads the final value. A connection may have been lost that was not used since.
async fn last(table: &Table, key: &str) -> Option<String> {
    let mut found = None;
    until("the last read succeeds", async || {
        found = value(table, key).await.ok();
        found.is_some()
    })
    .await;
    found.flatten()
}

/// Parses a number; 0 is no row.
fn number(value: Option<String>) -> u64 {
    value.map_or(0, |value| value.parse().expect("a number"))
}

async fn write(shared: Arc<LoadState>, table: Table, index: usize) {
    let key = &shared.keys[index];
    for number in 1_u64.. {
        if shared.stop.load(SeqCst) {
            return;
        }
        key.answers.lock().unwrap().push(WriteAnswer::Pending);
        let (answer, took) = timed(table.set(name(index).as_bytes(), number.to_string())).await;
        shared.took(took);
        let outcome = match &answer {
            Ok(()) => WriteAnswer::Done,
            Err(Error::OutcomeUnknown(_)) => WriteAnswer::Unknown,
            Err(_) => WriteAnswer::NotDone,
        };
        *key.answers.lock().unwrap().last_mut().expect("just pushed") = outcome;
        match answer {
            Ok(()) => key.acknowledged.store(number, SeqCst),
            Err(error) => shared.failed(error).await,
        }
    }
}

async fn read(shared: Arc<LoadState>, table: Table, reader: usize) {
    for turn in reader.. {
        if shared.stop.load(SeqCst) {
            return;
        }
        let key = turn % shared.keys.len();
        let floor = shared.keys[key].acknowledged.load(SeqCst);
        let (answer, took) = timed(value(&table, &name(key))).await;
        shared.took(took);
        match answer {
            Ok(found) => {
                shared.reads.fetch_add(1, SeqCst);
                shared.seen.lock().unwrap().push(Seen { key, floor, number: number(found) });
                if turn % 4 == 0 {
                    sleep(THINK).await;
                }
            }
            Err(error) => shared.failed(error).await,
        }
    }
}

impl LoadState {
    fn took(&self, took: Duration) {
        let mut slowest = self.slowest.lock().unwrap();
        *slowest = took.max(*slowest);
    }

    async fn failed(&self, error: Error) {
        self.errors.lock().unwrap().push(error);
        sleep(AGAIN).await;
    }
}
