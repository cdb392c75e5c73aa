//! Stores of `aws://`: the manifest is an item of a DynamoDB table, the files are in a bucket.

use std::{path::Path, sync::Arc};

use busload_bucket::{Bucket, Dynamo, DynamoFault};
use busload_chunks::FileSpec;
use busload_dolt::{ChunkAddress, DynamoTables, Error, Settings, Store, StoreStatus};
use serde_json::{Value, json};

use crate::store::{
    fixtures::check_store,
    support::{
        Harness, addresses, contents, contents_of, copy, fixture, fixture_list, get, open, until,
        write_file,
    },
};

const TABLE: &str = "dolt-manifests";
const KEY_ID: &str = "AKIDEXAMPLE";
const SECRET: &str = "hush";

/// A bucket and a table for any number of stores.
struct Aws {
    harness: Harness,
    bucket: Bucket,
    dynamo: Dynamo,
    tables: DynamoTables,
}

impl Aws {
    fn new() -> Self {
        let harness = Harness::new();
        let root = harness.path().join("s3");
        std::fs::create_dir(&root).unwrap();
        let bucket = Bucket::with_credentials(&root, KEY_ID, SECRET).unwrap();
        let dynamo = Dynamo::start(TABLE).unwrap();
        Self { harness, bucket, dynamo, tables: DynamoTables::default() }
    }

    /// Starts servers with the fixture as Dolt wrote it; its item is in this table.
    fn of_fixture() -> (Self, &'static str) {
        let aws = Self::new();
        let fixture = fixture("aws-appendix");
        copy(&fixture.join("s3"), aws.bucket.directory());
        aws.dynamo.put(TABLE, fixture_item(&fixture));
        (aws, "org/repo-ns")
    }

    fn settings(&self, database: &str) -> Settings {
        let environment = |name: &str| match name {
            "AWS_ACCESS_KEY_ID" => Some(KEY_ID.to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some(SECRET.to_owned()),
            _ => None,
        };
        Settings {
            url: format!(
                "aws://[{TABLE}:{}]/{database}?endpoint=http://{}&dynamodb-endpoint=http://{}\
                 &region=us-east-1&path-style=true",
                Bucket::NAME,
                self.bucket.address(),
                self.dynamo.address()
            ),
            directory: self.harness.path().join("cache").join(database),
            tables: self.tables.clone(),
            environment: Arc::new(environment),
            ..self.harness.settings()
        }
    }

    /// Puts a file of chunks into a database.
    fn write_file(&self, database: &str, chunks: &[Vec<u8>]) -> FileSpec {
        let folder = self.bucket.directory().join(database);
        std::fs::create_dir_all(&folder).unwrap();
        write_file(&folder, chunks)
    }

    fn put(&self, database: &str, root: ChunkAddress, files: &[FileSpec]) {
        self.dynamo.put(TABLE, item(database, root, files));
    }

    fn start(&self, database: &str) -> Store {
        Store::start(self.settings(database)).unwrap()
    }
}

fn fixture_item(fixture: &Path) -> Value {
    let text = std::fs::read_to_string(fixture.join("dynamodb-item.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["Item"].clone()
}

/// Makes an item as Dolt does.
fn item(database: &str, root: ChunkAddress, files: &[FileSpec]) -> Value {
    let specs: Vec<_> =
        files.iter().map(|file| format!("{}:{}", file.id, file.chunk_count)).collect();
    let mut item = json!({
        "db": {"S": database},
        "nbsVers": {"S": "4"},
        "vers": {"S": "__DOLT__"},
        "root": {"B": base64(&root.0)},
        "lck": {"B": base64(&[7; 20])},
    });
    if !specs.is_empty() {
        item["specs"] = json!({"S": specs.join(":")});
    }
    item
}

/// Encodes 20 bytes in base64.
fn base64(bytes: &[u8; 20]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let digits = (bits + "00").into_bytes();
    let digit = |bits: &[u8]| {
        let index = bits.iter().fold(0, |sum, bit| 2 * sum + usize::from(bit - b'0'));
        char::from(DIGITS[index])
    };
    digits.chunks(6).map(digit).chain(['=']).collect()
}

async fn failure_of(store: &Store) -> Error {
    store.opened().await.expect_err("it is not served")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_chunk_of_a_store_that_dolt_wrote_comes_out_right() {
    let listed = fixture_list("aws-appendix", "chunks.jsonl");
    for disk_bytes_max in [0, 1 << 30] {
        let (aws, database) = Aws::of_fixture();
        check_store(Settings { disk_bytes_max, ..aws.settings(database) }, &listed).await;
    }
}

/// The appendix holds copies of chunks: its file comes first, and no file twice.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_appendix_come_first_and_once() {
    let (aws, database) = Aws::of_fixture();
    let store = open(aws.settings(database)).await;
    let expected = std::fs::read(fixture("aws-appendix").join("expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.manifest.root.to_string(), expected["root"].as_str().unwrap());
    assert_eq!(snapshot.manifest.gc_generation, None, "this form has none");
    assert_eq!(snapshot.manifest.computed_lock(), snapshot.manifest.lock);
    let files: Vec<Value> = snapshot
        .files
        .iter()
        .map(|file| json!({"count": file.index.chunk_count(), "file": file.name()}))
        .collect();
    assert_eq!(Value::Array(files), expected["table_files"]);
    let appendix: Vec<_> =
        snapshot.manifest.appendix.iter().map(|file| file.id.to_string()).collect();
    assert_eq!(appendix, [expected["appendix_table_files"][0]["file"].as_str().unwrap()]);
    assert_eq!(store.stats().versions, 1);
    // One read was enough, because the answer had a checksum.
    let seen = aws.dynamo.take_seen();
    assert!(seen.len() == 1 && seen[0].is_consistent, "{seen:?}");
    assert_eq!(store.stats().usage.item_units, 1);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_of_the_item_is_served_after_the_next_refresh() {
    let aws = Aws::new();
    let chunks: Vec<Vec<u8>> = (0..6).map(contents).collect();
    let known = addresses(&chunks);
    let first = aws.write_file("db", &chunks[..3]);
    aws.put("db", known[0], &[first]);
    let store = open(aws.settings("db")).await;
    assert_eq!(contents_of(&store, known[0]).await, chunks[0]);
    assert_eq!(get(&store, known[3]).await, Ok(None));
    let second = aws.write_file("db", &chunks[3..]);
    aws.put("db", known[3], &[first, second]);
    // A chunk that no file holds causes a refresh, which begins after the request.
    assert_eq!(contents_of(&store, known[3]).await, chunks[3]);
    assert_eq!((store.stats().root, store.stats().versions), (Some(known[3]), 2));
    store.refresh().await.unwrap();
    assert_eq!(store.stats().versions, 2, "the same item is no new version");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_empty_without_an_item_and_without_files() {
    let aws = Aws::new();
    let store = open(aws.settings("db")).await;
    assert!(!store.snapshot().unwrap().has_manifest);
    assert_eq!(get(&store, ChunkAddress([7; 20])).await, Ok(None));
    let chunks: Vec<Vec<u8>> = (0..3).map(contents).collect();
    let known = addresses(&chunks);
    aws.put("db", known[0], &[aws.write_file("db", &chunks)]);
    assert_eq!(contents_of(&store, known[1]).await, chunks[1]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_without_files_is_an_empty_store_that_exists() {
    let aws = Aws::new();
    aws.put("db", ChunkAddress::ZERO, &[]);
    let store = open(aws.settings("db")).await;
    assert!(store.snapshot().unwrap().has_manifest);
    assert_eq!(store.stats().files, 0);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_without_an_item_are_no_empty_store() {
    let aws = Aws::new();
    let chunks: Vec<Vec<u8>> = (0..3).map(contents).collect();
    let file = aws.write_file("db", &chunks);
    let store = aws.start("db");
    let Error::Unreachable(text) = failure_of(&store).await else { panic!() };
    assert!(text.contains(&format!("there is no item \"db\" of DynamoDB table {TABLE}")), "{text}");
    assert!(text.contains(&file.id.to_string()), "{text}");
    aws.put("db", addresses(&chunks)[0], &[file]);
    until(&store, |state| *state == StoreStatus::Open).await;
    store.close().await;
}

/// "Empty" would make every chunk absent.
#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_is_gone_does_not_empty_the_store() {
    let aws = Aws::new();
    let chunks: Vec<Vec<u8>> = (0..3).map(contents).collect();
    let known = addresses(&chunks);
    aws.put("db", known[0], &[aws.write_file("db", &chunks)]);
    let store = open(aws.settings("db")).await;
    aws.dynamo.delete(TABLE, "db");
    let Err(Error::Unreachable(text)) = store.refresh().await else { panic!() };
    assert!(text.contains("is gone") && text.contains(TABLE), "{text}");
    assert_eq!(contents_of(&store, known[0]).await, chunks[0]);
    assert!(matches!(get(&store, ChunkAddress([7; 20])).await, Err(Error::Unreachable(_))));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_manifest_is_named_with_what_was_expected() {
    let good = item("db", ChunkAddress([1; 20]), &[]);
    let with = |name: &str, value: Value| {
        let mut item = good.clone();
        item[name] = value;
        item
    };
    let without = |name: &str| {
        let mut item = good.clone();
        item.as_object_mut().unwrap().remove(name);
        item
    };
    let journal = format!("{}:1", "v".repeat(32));
    for (item, part) in [
        (without("root"), "expected an attribute root"),
        (without("lck"), "expected an attribute lck"),
        (without("vers"), "expected an attribute vers"),
        (without("nbsVers"), "expected an attribute nbsVers"),
        (with("root", json!({"S": "abc"})), "expected bytes (B) as root, found text (S)"),
        (with("root", json!({"B": "AAEC"})), "expected a root of 20 bytes, found 3"),
        (with("root", json!({"B": "?"})), "\"root\": expected bytes in base64"),
        (with("lck", json!({"N": "1"})), "expected bytes (B) as lck, found a value of type N"),
        (with("vers", json!({"S": "7.18"})), "data format"),
        (with("nbsVers", json!({"S": "5"})), "a manifest of version \"5\""),
        (with("nbsVers", json!({"N": "4"})), "expected text (S) as nbsVers"),
        (with("specs", json!({"S": "abc:1"})), "file id"),
        (with("specs", json!({"S": "a".repeat(32)})), "chunk count"),
        (with("specs", json!({"SS": ["a"]})), "expected text (S) as specs"),
        (with("appendix", json!({"B": "AAEC"})), "expected text (S) as appendix"),
        (with("specs", json!({"S": journal})), "journal"),
    ] {
        let aws = Aws::new();
        aws.dynamo.put(TABLE, item);
        let store = aws.start("db");
        let text = failure_of(&store).await.to_string();
        assert!(text.contains(part), "{text}");
        assert!(text.contains("\"db\"") && text.contains(TABLE), "{text}");
        store.close().await;
    }
}

/// A bit that flips on the way must not make a chunk absent.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_checksum_is_believed_when_another_agrees() {
    let aws = Aws::new();
    let chunks: Vec<Vec<u8>> = (0..3).map(contents).collect();
    let known = addresses(&chunks);
    aws.put("db", known[0], &[aws.write_file("db", &chunks)]);
    aws.dynamo.always(Some(DynamoFault::NoChecksum));
    let store = open(aws.settings("db")).await;
    assert_eq!(aws.dynamo.take_seen().len(), 2);
    store.refresh().await.unwrap();
    assert_eq!(aws.dynamo.take_seen().len(), 1, "it says what was known");
    assert_eq!(store.stats().usage.item_units, 3, "each read is billed");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flipped_bits_and_throttling_do_not_show() {
    let (aws, database) = Aws::of_fixture();
    let throttled = DynamoFault::Refuse(400, "ProvisionedThroughputExceededException");
    aws.dynamo.next([DynamoFault::Flip, throttled, DynamoFault::NoAnswer]);
    let store = open(aws.settings(database)).await;
    assert_eq!(store.stats().files, 5);
    let stats = aws.tables.stats().remove(0);
    assert_eq!((stats.requests, stats.throttles, stats.failures), (4, 1, 2));
    store.close().await;
}

/// All stores of a table are refreshed by few requests, whoever asks.
#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_of_many_stores_takes_a_request_for_a_hundred_of_them() {
    const STORES: usize = 120;
    let aws = Aws::new();
    let chunks: Vec<Vec<u8>> = (0..2).map(contents).collect();
    let names: Vec<String> = (0..STORES).map(|number| format!("org/repo-{number}")).collect();
    let mut stores = Vec::new();
    for name in &names {
        aws.put(name, addresses(&chunks)[0], &[aws.write_file(name, &chunks)]);
        stores.push(open(Settings { disk_bytes_max: 0, ..aws.settings(name) }).await);
    }
    aws.dynamo.take_seen();
    aws.dynamo.hold(true);
    let refreshes: Vec<_> = stores
        .iter()
        .cloned()
        .map(|store| tokio::spawn(async move { store.refresh().await }))
        .collect();
    let waiting = || usize::try_from(aws.tables.stats()[0].waiting).unwrap();
    let in_flight = || aws.tables.stats()[0].requests as usize - STORES;
    let asked = || aws.tables.stats()[0].keys as usize - STORES + waiting();
    while asked() < STORES || in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    aws.dynamo.hold(false);
    for refresh in refreshes {
        refresh.await.unwrap().unwrap();
    }
    let seen = aws.dynamo.take_seen();
    let keys: usize = seen.iter().map(|request| request.keys.len()).sum();
    assert_eq!(keys, STORES);
    println!("a refresh of {STORES} stores took {} requests", seen.len());
    assert!(seen.len() <= 4, "{}", seen.len());
    for store in stores {
        store.close().await;
    }
}
