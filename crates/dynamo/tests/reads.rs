//! Reads of items from a server that answers wrongly, late or not at all.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use busload_bucket::{Dynamo, DynamoFault};
use busload_dynamo::{
    Attribute, Error, ItemRead, ItemReader, Tables,
    limits::{ATTEMPTS_MAX, BATCH_KEYS_MAX},
};
use busload_objects::{Environment, Remote, RemoteOptions};
use futures_util::future::join_all;
use serde_json::json;
use tokio::{runtime::Handle, time::timeout};

/// Time within which anything awaited happens on a busy machine.
const LONG: Duration = Duration::from_secs(60);
const TABLE: &str = "dolt-manifests";

struct Harness {
    server: Dynamo,
    tables: Tables,
    /// A reader that keeps the table and its counters.
    kept: Option<ItemReader>,
}

fn environment() -> Environment {
    Arc::new(|name| {
        let value = match name {
            "AWS_ACCESS_KEY_ID" => "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY" => "hush",
            "AWS_REGION" => "eu-west-1",
            _ => return None,
        };
        Some(value.to_owned())
    })
}

impl Harness {
    /// Starts a server with this many items.
    fn with_items(count: usize) -> Self {
        let server = Dynamo::start(TABLE).unwrap();
        (0..count).for_each(|number| server.put(TABLE, item(&key(number))));
        let mut harness = Self { server, tables: Tables::default(), kept: None };
        harness.kept = Some(harness.reader("kept"));
        harness
    }

    fn remote_of(&self, table: &str, key: &str) -> Arc<Remote> {
        let url = format!(
            "aws://[{table}:bucket]/{key}?dynamodb-endpoint=http://{}",
            self.server.address()
        );
        let options = RemoteOptions {
            environment: environment(),
            runtime: Handle::current(),
            requests_max: 8,
            stall_timeout: LONG,
            attempts_max: 1,
            hedge: false,
        };
        Remote::new(&url, options).unwrap()
    }

    fn reader_of(&self, table: &str, key: &str) -> ItemReader {
        let remote = self.remote_of(table, key);
        self.tables.reader(remote.item().unwrap(), &Handle::current())
    }

    fn reader(&self, key: &str) -> ItemReader {
        self.reader_of(TABLE, key)
    }

    /// Reads keys at the same time.
    async fn read_together(&self, keys: &[String]) -> Vec<Result<ItemRead, Error>> {
        let readers: Vec<_> = keys.iter().map(|key| self.reader(key)).collect();
        timeout(LONG, join_all(readers.iter().map(ItemReader::read))).await.unwrap()
    }
}

fn key(number: usize) -> String {
    format!("org/repo-{number}")
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(key).collect()
}

fn item(key: &str) -> serde_json::Value {
    json!({"db": {"S": key}, "root": {"B": "AAEC"}, "nbsVers": {"S": "4"}})
}

fn is_item_of(read: &Result<ItemRead, Error>, key: &str) -> bool {
    let item = read.as_ref().unwrap().item.as_ref().unwrap().as_ref().unwrap();
    item.get("db") == Some(&Attribute::Text(key.to_owned()))
}

fn all_are_found(keys: &[String], reads: &[Result<ItemRead, Error>]) -> bool {
    keys.iter().zip(reads).all(|(key, read)| is_item_of(read, key))
}

#[tokio::test]
async fn one_item_is_read_consistently_by_a_signed_get_item() {
    let harness = Harness::with_items(1);
    let read = harness.reader(&key(0)).read().await.unwrap();
    assert!(read.is_verified);
    let item = read.item.unwrap().unwrap();
    assert_eq!(item.get("root"), Some(&Attribute::Bytes(vec![0, 1, 2])));
    let seen = harness.server.take_seen();
    let [request] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!((request.operation.as_str(), request.is_consistent), ("GetItem", true));
    assert_eq!((request.table.as_str(), &*request.keys), (TABLE, &[key(0)][..]));
    let signed = &request.authorization;
    assert!(signed.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), "{signed}");
    assert!(signed.contains("/eu-west-1/dynamodb/aws4_request"), "{signed}");
    assert!(signed.contains("x-amz-target"), "{signed}");
    assert!(!signed.contains("hush"));
}

#[tokio::test]
async fn an_item_that_is_not_there_is_none() {
    let harness = Harness::with_items(1);
    let read = harness.reader("nobody").read().await.unwrap();
    assert_eq!(read, ItemRead { item: Ok(None), is_verified: true });
    let reads = harness.read_together(&[key(0), "nobody".to_owned(), "x".to_owned()]).await;
    assert!(is_item_of(&reads[0], &key(0)));
    assert_eq!(reads[1].as_ref().unwrap().item, Ok(None));
    assert_eq!(reads[2].as_ref().unwrap().item, Ok(None));
}

/// Stores of a pattern `aws://[table:bucket]/{name}` are at other paths of one remote.
#[tokio::test]
async fn stores_of_a_pattern_read_the_items_of_their_own_names_in_shared_requests() {
    let harness = Harness::with_items(3);
    let sample = harness.remote_of(TABLE, "x/x");
    let reader = |path: &str| {
        let remote = sample.at_path(("", path), Arc::default()).unwrap();
        harness.tables.reader(remote.item().unwrap(), &Handle::current())
    };
    let names = [key(0), key(2), "org/absent".to_owned()];
    let readers = names.each_ref().map(|name| reader(name));
    let reads = timeout(LONG, join_all(readers.iter().map(ItemReader::read))).await.unwrap();
    assert!(all_are_found(&names[..2], &reads[..2]));
    assert_eq!(reads[2].as_ref().unwrap().item, Ok(None));
    let seen = harness.server.take_seen();
    let asked: BTreeSet<&String> = seen.iter().flat_map(|request| &request.keys).collect();
    assert_eq!(asked, names.iter().collect(), "the sample is not asked for");
    assert!(seen.len() < names.len(), "{seen:?}");
}

/// N stores that ask at once cost N / 100 requests, and two more at most for those that found a
/// free slot before the others had asked.
#[tokio::test]
async fn reads_at_the_same_time_share_requests_of_a_hundred_keys() {
    for count in [2, 100, 250, 1000] {
        let harness = Harness::with_items(count);
        let reads = harness.read_together(&keys(count)).await;
        assert!(all_are_found(&keys(count), &reads));
        let seen = harness.server.take_seen();
        assert!(seen.iter().all(|request| request.is_consistent));
        let asked: Vec<&String> = seen.iter().flat_map(|request| &request.keys).collect();
        assert_eq!(asked.len(), count, "each key once");
        assert_eq!(asked.iter().collect::<BTreeSet<_>>().len(), count);
        println!("{count} stores: {} requests", seen.len());
        assert!(seen.len() <= count.div_ceil(BATCH_KEYS_MAX) + 2, "{count}: {}", seen.len());
        let stats = harness.tables.stats().remove(0);
        assert_eq!(stats.requests, seen.len() as u64);
        assert_eq!((stats.keys, stats.items), (count as u64, count as u64));
        assert_eq!((stats.throttles, stats.unprocessed, stats.failures), (0, 0, 0));
        let endpoint = format!("http://{}", harness.server.address());
        assert_eq!((stats.table.as_str(), stats.endpoint), (TABLE, endpoint));
    }
}

/// A read must see what was written before it was asked for, so it never joins a request that may
/// have been answered by then.
#[tokio::test]
async fn a_read_does_not_join_a_request_that_was_sent_before() {
    let harness = Harness::with_items(1);
    harness.server.hold(true);
    let first = tokio::spawn({
        let reader = harness.reader(&key(0));
        async move { reader.read().await }
    });
    while harness.server.take_seen().is_empty() {
        tokio::task::yield_now().await;
    }
    let reader = harness.reader(&key(0));
    let mut second = Box::pin(reader.read());
    assert!(futures_util::poll!(&mut second).is_pending());
    harness.server.hold(false);
    assert!(is_item_of(&first.await.unwrap(), &key(0)));
    assert!(is_item_of(&second.await, &key(0)));
    assert_eq!(harness.server.take_seen().len(), 1, "a request of its own");
}

#[tokio::test]
async fn keys_that_are_left_unprocessed_are_asked_for_again() {
    let harness = Harness::with_items(50);
    harness.server.next([DynamoFault::Unprocessed(30), DynamoFault::Unprocessed(10)]);
    let reads = harness.read_together(&keys(50)).await;
    assert!(all_are_found(&keys(50), &reads));
    let stats = &harness.tables.stats()[0];
    assert!((20..=40).contains(&stats.unprocessed), "{stats:?}");
    assert_eq!(stats.items, 50);
}

/// Even DynamoDB that answers one key of each request ends.
#[tokio::test]
async fn a_batch_of_which_nothing_is_processed_fails_after_some_attempts() {
    let harness = Harness::with_items(3);
    harness.server.always(Some(DynamoFault::Unprocessed(BATCH_KEYS_MAX)));
    let reads = harness.read_together(&keys(3)).await;
    for (read, key) in reads.iter().zip(keys(3)) {
        let Err(Error::Unreachable(text)) = read else { panic!("{read:?}") };
        assert!(text.contains(TABLE) && text.contains(&key), "{text}");
        assert!(text.contains("unprocessed") && text.contains("6 attempts"), "{text}");
    }
    assert_eq!(harness.server.take_seen().len(), ATTEMPTS_MAX as usize);
}

#[tokio::test]
async fn throttling_internal_errors_and_broken_connections_are_tried_again() {
    for (fault, throttles) in [
        (DynamoFault::Refuse(400, "ProvisionedThroughputExceededException"), 2),
        (DynamoFault::Refuse(400, "ThrottlingException"), 2),
        (DynamoFault::Refuse(503, "SlowDown"), 2),
        (DynamoFault::Refuse(503, "ServiceUnavailable"), 0),
        (DynamoFault::Refuse(500, "InternalServerError"), 0),
        (DynamoFault::NoAnswer, 0),
        (DynamoFault::Flip, 0),
        (DynamoFault::Body("<html>".to_owned()), 0),
        (DynamoFault::Body(r#"{"Item": {"db": {"S": "another"}}}"#.to_owned()), 0),
    ] {
        let harness = Harness::with_items(1);
        harness.server.next([fault.clone(), fault.clone()]);
        assert!(is_item_of(&harness.reader(&key(0)).read().await, &key(0)), "{fault:?}");
        let stats = &harness.tables.stats()[0];
        assert_eq!((stats.throttles, stats.failures), (throttles, 2 - throttles), "{fault:?}");
    }
}

#[tokio::test]
async fn throttling_without_end_fails_after_some_attempts() {
    let harness = Harness::with_items(1);
    harness.server.always(Some(DynamoFault::Refuse(400, "ThrottlingException")));
    let read = harness.reader(&key(0)).read().await;
    let Err(Error::Unreachable(text)) = read else { panic!("{read:?}") };
    assert!(text.contains("ThrottlingException") && text.contains("6 attempts"), "{text}");
    assert_eq!(harness.server.take_seen().len(), ATTEMPTS_MAX as usize);
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_given_up_and_asked_for_again() {
    let harness = Harness::with_items(1);
    harness.server.next([DynamoFault::Silence]);
    assert!(is_item_of(&harness.reader(&key(0)).read().await, &key(0)));
    assert_eq!(harness.server.take_seen().len(), 2);
}

#[tokio::test]
async fn a_table_that_does_not_exist_is_named_and_not_asked_for_key_by_key() {
    let harness = Harness::with_items(0);
    let readers: Vec<_> =
        (0..10).map(|number| harness.reader_of("nowhere", &key(number))).collect();
    let reads = join_all(readers.iter().map(ItemReader::read)).await;
    for read in reads {
        let Err(Error::Denied(text)) = read else { panic!("{read:?}") };
        assert!(text.contains("DynamoDB table nowhere at http://"), "{text}");
        assert!(text.contains("ResourceNotFoundException"), "{text}");
    }
    assert!(harness.server.take_seen().len() <= 3);
}

/// An account that may read single items is enough: Dolt itself needs no more.
#[tokio::test]
async fn items_are_read_one_by_one_where_batches_are_denied() {
    let harness = Harness::with_items(20);
    harness.server.always(Some(DynamoFault::RefuseBatch("AccessDeniedException")));
    let all = keys(20);
    let readers: Vec<_> = all.iter().map(|key| harness.reader(key)).collect();
    for _ in 0..2 {
        let reads = join_all(readers.iter().map(ItemReader::read)).await;
        assert!(all_are_found(&all, &reads));
    }
    let operations: Vec<_> =
        harness.server.take_seen().into_iter().map(|request| request.operation).collect();
    let batches = operations.iter().filter(|operation| *operation == "BatchGetItem").count();
    assert!((1..=2).contains(&batches), "no batch is tried again soon: {operations:?}");
    assert_eq!(operations.len() - batches, 40);
}

#[tokio::test]
async fn one_malformed_item_fails_alone() {
    let harness = Harness::with_items(3);
    harness.server.put(TABLE, json!({"db": {"S": key(1)}, "root": {"B": "?"}}));
    let reads = harness.read_together(&keys(3)).await;
    assert!(is_item_of(&reads[0], &key(0)) && is_item_of(&reads[2], &key(2)));
    let item = reads[1].as_ref().unwrap().item.as_ref();
    assert!(item.unwrap_err().contains("\"root\": expected bytes in base64"));
}

#[tokio::test]
async fn an_answer_without_a_checksum_is_not_verified() {
    let harness = Harness::with_items(1);
    harness.server.next([DynamoFault::NoChecksum]);
    assert!(!harness.reader(&key(0)).read().await.unwrap().is_verified);
}

#[tokio::test]
async fn a_read_that_is_dropped_holds_up_no_other() {
    let harness = Harness::with_items(4);
    harness.server.next([DynamoFault::Silence, DynamoFault::Silence]);
    for number in 0..2 {
        let reader = harness.reader(&key(number));
        let read = tokio::spawn(async move { reader.read().await });
        while harness.server.take_seen().is_empty() {
            tokio::task::yield_now().await;
        }
        read.abort();
        assert!(read.await.unwrap_err().is_cancelled());
    }
    assert!(is_item_of(&harness.reader(&key(3)).read().await, &key(3)));
}

/// A queue goes with its last store, and its counters with it.
#[tokio::test]
async fn a_table_without_readers_is_forgotten() {
    let mut harness = Harness::with_items(1);
    assert_eq!(harness.tables.stats().len(), 1);
    harness.kept = None;
    assert_eq!(harness.tables.stats().len(), 0);
}

#[tokio::test]
async fn stores_of_one_table_share_its_queue_and_those_of_others_do_not() {
    let harness = Harness::with_items(1);
    let _readers = [harness.reader("a"), harness.reader("b"), harness.reader_of("other", "a")];
    let tables: Vec<_> = harness.tables.stats().into_iter().map(|stats| stats.table).collect();
    assert_eq!(tables, [TABLE, "other"]);
}
