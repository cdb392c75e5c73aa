//! Requests for the keys of a batch: one attempt after the other, until each key has an answer.

use std::sync::{Arc, Mutex, PoisonError};

use busload_batch::{EarlyAnswers, LoadedAll, LoadedOne, NoWrites, Service, StoredAll};
use busload_objects::AwsApi;
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::{
    Error, Item,
    backoff::Backoff,
    fault::{Fault, FaultKind},
    limits::{ANSWER_BYTES_MAX, ANSWER_TIMEOUT, BATCH_RETRIAL, SINGLE_READS_MAX},
    stats::{Counters, count},
    wire::{
        Answers, BATCH_GET_ITEM, GET_ITEM, KeyAnswer, batch_get_item, get_item,
        parse_batch_get_item, parse_get_item,
    },
};

/// Answer of DynamoDB about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRead {
    /// The item; none if there is none. An item whose attributes make no sense is an error.
    pub item: Result<Option<Arc<Item>>, String>,
    /// True if the answer had a checksum, which was right.
    pub is_verified: bool,
}

/// Reader of the items of one table.
#[derive(Debug)]
pub(crate) struct Items {
    api: AwsApi,
    table: String,
    pub(crate) counters: Counters,
    /// Time until which no batch is sent.
    no_batch_until: Mutex<Option<Instant>>,
}

/// Answers of one request; none for keys that were left unprocessed.
struct Answered {
    answers: Answers,
    is_verified: bool,
}

/// Keys of a batch that have no answer yet, with their index in the batch.
type Waiting = Vec<(usize, String)>;

impl Items {
    pub(crate) fn new(api: AwsApi, table: String) -> Self {
        Self { api, table, counters: Counters::default(), no_batch_until: Mutex::new(None) }
    }

    pub(crate) fn api(&self) -> &AwsApi {
        &self.api
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// Reads keys and gives each answer as soon as it is there.
    async fn read(&self, keys: Vec<String>, give: &impl Give) {
        let waiting: Waiting = keys.into_iter().enumerate().collect();
        if 1 < waiting.len() && self.may_send_batches() {
            self.read_batch(waiting, give).await;
        } else {
            self.read_singly(waiting, give).await;
        }
    }

    async fn read_batch(&self, mut waiting: Waiting, give: &impl Give) {
        let mut backoff = Backoff::default();
        loop {
            let before = waiting.len();
            let fault = match self.request(&waiting).await {
                Ok(answered) => {
                    waiting = answered.give(waiting, give);
                    if waiting.is_empty() {
                        return;
                    }
                    unprocessed(waiting.len())
                }
                Err(fault) if fault.kind == FaultKind::KeysRefused && 1 < waiting.len() => {
                    return self.read_refused(waiting, &fault, give).await;
                }
                Err(fault) => fault,
            };
            let is_last = backoff.is_exhausted(waiting.len() < before);
            if is_last || fault.is_final() {
                return self.fail(&waiting, fault, backoff.made(), give);
            }
            backoff.pause().await;
        }
    }

    /// Reads the keys of a batch that was refused, each by itself: one of them may be the reason,
    /// or the account may not read in batches.
    async fn read_refused(&self, waiting: Waiting, refusal: &Fault, give: &impl Give) {
        let are_all_answered = self.read_singly(waiting, give).await;
        if are_all_answered {
            let until = Instant::now() + BATCH_RETRIAL;
            let before = self.no_batch_until().replace(until);
            if before.is_none() {
                log::warn!(
                    "{}: items are read one by one, which takes more requests; allow \
                     dynamodb:BatchGetItem: {}",
                    self.described(),
                    refusal.text
                );
            }
        }
    }

    /// Reads each key by itself, several at once. Returns whether all of them have an answer.
    async fn read_singly(&self, waiting: Waiting, give: &impl Give) -> bool {
        let reads = waiting.into_iter().map(|one| self.read_one(one, give));
        let reads = stream::iter(reads).buffer_unordered(SINGLE_READS_MAX);
        reads.fold(true, |all, one| async move { all && one }).await
    }

    async fn read_one(&self, key: (usize, String), give: &impl Give) -> bool {
        let mut waiting = vec![key];
        let mut backoff = Backoff::default();
        loop {
            let fault = match self.request(&waiting).await {
                Ok(answered) => {
                    waiting = answered.give(waiting, give);
                    return waiting.is_empty();
                }
                Err(fault) => fault,
            };
            if backoff.is_exhausted(false) || fault.is_final() {
                self.fail(&waiting, fault, backoff.made(), give);
                return false;
            }
            backoff.pause().await;
        }
    }

    /// Sends one request, for one key or several.
    async fn request(&self, waiting: &[(usize, String)]) -> Result<Answered, Fault> {
        let keys: Vec<&str> = waiting.iter().map(|(_, key)| key.as_str()).collect();
        count(&self.counters.requests, 1);
        count(&self.counters.keys, keys.len());
        let answered = self.attempt(&keys).await;
        match &answered {
            Ok(Answered { answers, .. }) => {
                let is_item =
                    |answer: &&Option<KeyAnswer>| !matches!(answer, None | Some(Ok(None)));
                count(&self.counters.items, answers.iter().filter(is_item).count());
                let left = answers.iter().filter(|answer| answer.is_none()).count();
                count(&self.counters.unprocessed, left);
            }
            Err(fault) if fault.kind == FaultKind::Throttled => count(&self.counters.throttles, 1),
            Err(_) => count(&self.counters.failures, 1),
        }
        answered
    }

    async fn attempt(&self, keys: &[&str]) -> Result<Answered, Fault> {
        let (target, body) = match keys {
            [key] => (GET_ITEM, get_item(&self.table, key)),
            _ => (BATCH_GET_ITEM, batch_get_item(&self.table, keys)),
        };
        let answer = self.api.post(target, body, ANSWER_TIMEOUT, ANSWER_BYTES_MAX).await;
        let answer = answer.map_err(|error| Fault::of_call(&error))?;
        if answer.status != 200 {
            return Err(Fault::of_answer(&answer));
        }
        let answers = match keys {
            [key] => parse_get_item(&answer.body, key).map(|answer| vec![Some(answer)]),
            _ => parse_batch_get_item(&answer.body, &self.table, keys),
        };
        let answers = answers.map_err(|why| Fault::of_nonsense(&why))?;
        Ok(Answered { answers, is_verified: answer.is_verified })
    }

    fn fail(&self, waiting: &[(usize, String)], fault: Fault, attempts: u32, give: &impl Give) {
        let failed = |(index, key): &(usize, String)| {
            let what = format!("cannot read item {key:?} of {}", self.described());
            (*index, Err(fault.clone().into_error(&what, attempts)))
        };
        give.give(waiting.iter().map(failed).collect());
    }

    /// Names the table and its service, for people.
    pub(crate) fn described(&self) -> String {
        format!("DynamoDB table {} at {}", self.table, self.api.endpoint())
    }

    fn may_send_batches(&self) -> bool {
        let mut until = self.no_batch_until();
        if until.is_some_and(|until| until <= Instant::now()) {
            *until = None;
        }
        until.is_none()
    }

    fn no_batch_until(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.no_batch_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answered {
    /// Gives the answers and returns the keys that have none.
    fn give(self, waiting: Waiting, give: &impl Give) -> Waiting {
        let mut left = Vec::new();
        let mut given = Vec::with_capacity(waiting.len());
        for ((index, key), answer) in waiting.into_iter().zip(self.answers) {
            match answer {
                Some(answer) => {
                    let item = answer.map(|item| item.map(Arc::new));
                    given.push((index, Ok(Some(ItemRead { item, is_verified: self.is_verified }))));
                }
                None => left.push((index, key)),
            }
        }
        give.give(given);
        left
    }
}

fn unprocessed(count: usize) -> Fault {
    Fault {
        kind: FaultKind::Throttled,
        text: format!("DynamoDB left {count} keys of a batch unprocessed"),
    }
}

/// Taker of answers to the keys of a batch, by their index.
trait Give: Sync {
    fn give(&self, answers: Vec<(usize, LoadedOne<Items>)>);
}

impl Give for EarlyAnswers<'_, Items> {
    fn give(&self, mut answers: Vec<(usize, LoadedOne<Items>)>) {
        EarlyAnswers::give(self, &mut answers);
    }
}

/// Collects the answers of a batch.
#[derive(Default)]
struct Collected(Mutex<Vec<(usize, LoadedOne<Items>)>>);

impl Give for Collected {
    fn give(&self, answers: Vec<(usize, LoadedOne<Items>)>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(answers);
    }
}

impl Service for Items {
    type Key = String;
    type Value = ItemRead;
    type Write = NoWrites;
    type Outcome = ();
    type Error = Error;

    async fn load(&self, keys: Vec<String>) -> LoadedAll<Self> {
        let collected = Collected::default();
        self.read(keys, &collected).await;
        let mut answers = collected.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        answers.sort_by_key(|(index, _)| *index);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    async fn load_each(&self, keys: Vec<String>, early: EarlyAnswers<'_, Self>) -> LoadedAll<Self> {
        self.read(keys, &early).await;
        Ok(Vec::new())
    }

    fn drops_abandoned_loads(&self) -> bool {
        true
    }

    async fn store(&self, _entries: Vec<(String, NoWrites)>) -> StoredAll<Self> {
        Ok(Vec::new())
    }

    fn key_bytes(&self, key: &String) -> usize {
        key.len()
    }
}
