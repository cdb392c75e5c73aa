//! The server as the object_store crate sees it: promises of S3 that s3s-fs alone does not keep.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::{fs, net::SocketAddr, time::Duration};

use busload_bucket::Bucket;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    RetryConfig, UpdateVersion,
    aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut},
    path::Path,
};
use tempfile::TempDir;

/// Timeout for events that must happen.
const TIMEOUT: Duration = Duration::from_secs(60);

fn builder(address: SocketAddr) -> AmazonS3Builder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = ClientOptions::new()
        .with_allow_http(true)
        .with_connect_timeout(TIMEOUT)
        .with_timeout(TIMEOUT);
    AmazonS3Builder::new()
        .with_endpoint(format!("http://{address}"))
        .with_client_options(options)
        .with_bucket_name(Bucket::NAME)
        .with_region("us-east-1")
        .with_virtual_hosted_style_request(false)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
}

fn anonymous(address: SocketAddr) -> AmazonS3 {
    builder(address).with_skip_signature(true).build().unwrap()
}

fn start() -> (TempDir, Bucket, AmazonS3) {
    let root = TempDir::new().unwrap();
    let bucket = Bucket::start(root.path()).unwrap();
    let store = anonymous(bucket.address());
    (root, bucket, store)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| u8::try_from((index * 31 + index / 251) % 256).unwrap()).collect()
}

#[tokio::test]
async fn every_kind_of_range_gives_exactly_its_bytes() {
    let (_root, bucket, store) = start();
    let whole = pattern(3_000_001);
    bucket.put("a/object", &whole).unwrap();
    let size = whole.len() as u64;
    let ranges = [
        (GetRange::Bounded(0..1), 0..1),
        (GetRange::Bounded(0..size), 0..size),
        (GetRange::Bounded(1_000_000..2_500_000), 1_000_000..2_500_000),
        (GetRange::Bounded(size - 1..size), size - 1..size),
        (GetRange::Bounded(size - 10..size + 1000), size - 10..size),
        (GetRange::Offset(2_999_000), 2_999_000..size),
        (GetRange::Suffix(20), size - 20..size),
        (GetRange::Suffix(size), 0..size),
        (GetRange::Suffix(size + 5), 0..size),
    ];
    for (asked, expected) in ranges {
        let options = GetOptions { range: Some(asked.clone()), ..GetOptions::default() };
        let got = store.get_opts(&Path::from("a/object"), options).await.unwrap();
        assert_eq!((got.range.clone(), got.meta.size), (expected.clone(), size), "{asked:?}");
        let slice =
            usize::try_from(expected.start).unwrap()..usize::try_from(expected.end).unwrap();
        assert!(got.bytes().await.unwrap() == whole[slice], "{asked:?}");
    }
    assert!(store.get(&Path::from("a/object")).await.unwrap().bytes().await.unwrap() == whole);
}

#[tokio::test]
async fn a_range_beyond_the_end_or_of_an_empty_object_is_refused() {
    let (_root, bucket, store) = start();
    bucket.put("empty", b"").unwrap();
    bucket.put("small", b"12345").unwrap();
    for (name, range) in [
        ("empty", GetRange::Suffix(1)),
        ("empty", GetRange::Bounded(0..1)),
        ("small", GetRange::Bounded(5..6)),
        ("small", GetRange::Offset(99)),
    ] {
        let options = GetOptions { range: Some(range.clone()), ..GetOptions::default() };
        let error = store.get_opts(&Path::from(name), options).await.unwrap_err();
        assert!(error.to_string().contains("416"), "{name} {range:?}: {error}");
    }
    assert!(store.get(&Path::from("empty")).await.unwrap().bytes().await.unwrap().is_empty());
}

#[tokio::test]
async fn conditions_are_those_of_s3() {
    let (_root, bucket, store) = start();
    bucket.put("object", b"one").unwrap();
    let name = Path::from("object");
    let etag = store.head(&name).await.unwrap().e_tag.unwrap();
    let with = |if_match: Option<&str>, if_none_match: Option<&str>, head| GetOptions {
        if_match: if_match.map(Into::into),
        if_none_match: if_none_match.map(Into::into),
        head,
        ..GetOptions::default()
    };
    for head in [false, true] {
        store.get_opts(&name, with(Some(&etag), None, head)).await.unwrap();
        store.get_opts(&name, with(None, Some("\"0\""), head)).await.unwrap();
        let changed = store.get_opts(&name, with(Some("\"0\""), None, head)).await.unwrap_err();
        assert!(matches!(changed, Error::Precondition { .. }), "{changed}");
        let same = store.get_opts(&name, with(None, Some(&etag), head)).await.unwrap_err();
        assert!(matches!(same, Error::NotModified { .. }), "{same}");
        let missing = store
            .get_opts(&Path::from("nothing"), with(Some(&etag), None, head))
            .await
            .unwrap_err();
        assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    }
    // The connection is usable after a response without a body.
    assert_eq!(store.get(&name).await.unwrap().bytes().await.unwrap(), "one");
}

#[tokio::test]
async fn etags_stay_while_the_object_does_and_change_when_it_does() {
    let (root, bucket, store) = start();
    for bytes in [0, 10, 3_000_000] {
        let name = Path::from("object");
        bucket.put("object", &pattern(bytes)).unwrap();
        let head = store.head(&name).await.unwrap();
        let got = store.get(&name).await.unwrap();
        let listed = store.list(None).try_collect::<Vec<_>>().await.unwrap().remove(0);
        assert_eq!(head.e_tag, got.meta.e_tag);
        assert_eq!(head.e_tag, listed.e_tag);
        let again = Bucket::start(root.path()).unwrap();
        assert_eq!(
            anonymous(again.address()).head(&name).await.unwrap().e_tag,
            head.e_tag,
            "another server"
        );

        let mut other = pattern(bytes.max(1));
        other[0] ^= 1;
        bucket.put("object", &other).unwrap();
        assert_ne!(store.head(&name).await.unwrap().e_tag, head.e_tag, "{bytes} bytes, replaced");
        fs::write(bucket.directory().join("object"), pattern(bytes + 1)).unwrap();
        assert_ne!(
            store.head(&name).await.unwrap().e_tag,
            head.e_tag,
            "{bytes} bytes, written in place"
        );
    }
    // Small objects have the MD5 that S3 gives them.
    bucket.put("abc", b"abc").unwrap();
    let etag = store.head(&Path::from("abc")).await.unwrap().e_tag.unwrap();
    assert_eq!(etag, "\"900150983cd24fb0d6963f7d28e17f72\"");
}

#[tokio::test]
async fn a_reader_keeps_the_object_that_it_began_with() {
    let (_root, bucket, store) = start();
    let old = pattern(8 << 20);
    bucket.put("object", &old).unwrap();
    let mut body = store.get(&Path::from("object")).await.unwrap().into_stream();
    let mut read = body.next().await.unwrap().unwrap().to_vec();
    bucket.put("object", b"new").unwrap();
    while let Some(piece) = body.next().await {
        read.extend_from_slice(&piece.unwrap());
    }
    assert!(read == old);
    assert_eq!(store.get(&Path::from("object")).await.unwrap().bytes().await.unwrap(), "new");
}

#[tokio::test]
async fn listings_have_pages_prefixes_and_folders() {
    let (_root, bucket, store) = start();
    for index in 0..2345 {
        fs::create_dir_all(bucket.directory().join("db/deep/er")).unwrap();
        fs::write(bucket.directory().join(format!("db/{index:05}")), index.to_string()).unwrap();
    }
    fs::write(bucket.directory().join("db/deep/er/one"), "1").unwrap();
    fs::write(bucket.directory().join("db2"), "beside").unwrap();
    fs::create_dir_all(bucket.directory().join("db/nothing/here")).unwrap();

    let all: Vec<_> = store.list(Some(&Path::from("db"))).try_collect().await.unwrap();
    assert_eq!(all.len(), 2346);
    assert!(all.is_sorted_by(|one, other| one.location < other.location));
    let middle = all.iter().find(|object| object.location.as_ref() == "db/01234").unwrap();
    assert_eq!(middle.size, 4);

    let folder = store.list_with_delimiter(Some(&Path::from("db"))).await.unwrap();
    assert_eq!(folder.objects.len(), 2345);
    assert_eq!(
        folder.common_prefixes,
        [Path::from("db/deep")],
        "a folder without objects does not exist"
    );
    let top = store.list_with_delimiter(None).await.unwrap();
    assert_eq!(top.objects.len(), 1);
    assert_eq!(top.common_prefixes, [Path::from("db")]);
    let none = store.list_with_delimiter(Some(&Path::from("absent"))).await.unwrap();
    assert!(none.objects.is_empty() && none.common_prefixes.is_empty());
    let from: Vec<_> = store
        .list_with_offset(Some(&Path::from("db")), &Path::from("db/02340"))
        .try_collect()
        .await
        .unwrap();
    assert_eq!(from.len(), 5, "four numbers and the deep one");
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let (_root, bucket, store) = start();
    bucket.put("folder/object", b"1").unwrap();
    for name in ["nothing", "folder", "folder/object/below", "folder/other"] {
        let error = store.get(&Path::from(name)).await.unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{name}: {error}");
        let error = store.head(&Path::from(name)).await.unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{name}: {error}");
    }
    bucket.delete("folder/object").unwrap();
    assert!(matches!(store.head(&Path::from("folder/object")).await, Err(Error::NotFound { .. })));
    let elsewhere = builder(bucket.address())
        .with_skip_signature(true)
        .with_bucket_name("other")
        .build()
        .unwrap();
    assert!(elsewhere.list_with_delimiter(None).await.is_err(), "another bucket");
}

#[tokio::test]
async fn writes_through_s3_are_seen_with_the_etag_that_they_returned() {
    let (_root, bucket, store) = start();
    let name = Path::from("written/object");
    for bytes in [5, 2_000_000] {
        let put = store.put(&name, Bytes::from(pattern(bytes)).into()).await.unwrap();
        assert_eq!(store.head(&name).await.unwrap().e_tag, put.e_tag);
        let update = |e_tag: &str| PutOptions {
            mode: PutMode::Update(UpdateVersion { e_tag: Some(e_tag.into()), version: None }),
            ..PutOptions::default()
        };
        let lost = store.put_opts(&name, "x".into(), update("\"0\"")).await.unwrap_err();
        assert!(matches!(lost, Error::Precondition { .. }), "{lost}");
        store.put_opts(&name, "y".into(), update(&put.e_tag.unwrap())).await.unwrap();
        assert_eq!(fs::read(bucket.directory().join("written/object")).unwrap(), b"y");
    }
    store.delete(&name).await.unwrap();
    assert!(matches!(store.head(&name).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn only_who_signs_with_the_key_is_served() {
    let root = TempDir::new().unwrap();
    let bucket = Bucket::with_credentials(root.path(), "key", "secret").unwrap();
    bucket.put("folder/object", b"1").unwrap();
    let name = Path::from("folder/object");
    let signed = |secret: &str| {
        let builder = builder(bucket.address()).with_access_key_id("key");
        builder.with_secret_access_key(secret).build().unwrap()
    };
    let good = signed("secret");
    assert_eq!(good.get(&name).await.unwrap().bytes().await.unwrap(), "1");
    assert_eq!(
        good.list_with_delimiter(Some(&Path::from("folder"))).await.unwrap().objects.len(),
        1
    );
    for bad in [signed("wrong"), anonymous(bucket.address())] {
        let error = bad.get(&name).await.unwrap_err();
        assert!(matches!(error, Error::PermissionDenied { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_readers_at_once_are_served() {
    let (_root, bucket, store) = start();
    let whole = Bytes::from(pattern(4 << 20));
    bucket.put("object", &whole).unwrap();
    let reads = (0..400u64).map(|index| {
        let (store, whole) = (store.clone(), whole.clone());
        async move {
            let at = index * 7919 % (3 << 20);
            let got = store.get_range(&Path::from("object"), at..at + 50_000).await.unwrap();
            let at = usize::try_from(at).unwrap();
            assert!(got == whole[at..at + 50_000], "read {index}");
        }
    });
    futures_util::future::join_all(reads).await;
}

#[tokio::test]
async fn it_ends_when_dropped() {
    let (_root, bucket, store) = start();
    bucket.put("object", b"1").unwrap();
    store.head(&Path::from("object")).await.unwrap();
    let address = bucket.address();
    bucket.stop();
    let is_closed = async {
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, is_closed).await.expect("the port is closed");
}
