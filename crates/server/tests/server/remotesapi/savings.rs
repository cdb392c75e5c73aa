//! Savings of stores by pattern, beside what the bucket was asked for, and metrics of single
//! stores.

use busload_chunks::ChunkAddress;
use serde_json::Value;

use super::{client::Way, eventually, fixture::Served, stores::Host};
use crate::support::{Client, client::text};

/// USD of a GET, a LIST and a byte.
const PRICES: [f64; 3] = [1.0, 0.5, 1e6 / (1_u64 << 30) as f64];

/// Values of a pattern that only grow.
const COUNTERS: [&str; 8] = [
    "direct_requests_total",
    "direct_bytes_total",
    "store_requests_total",
    "lists_total",
    "store_bytes_total",
    "reads_total",
    "hits_total",
    "downloads_total",
];

/// Host behind a server whose prices are such that every part of the money is seen.
struct Priced {
    host: Host,
    served: Served,
}

impl Priced {
    fn new(stores: u64) -> Self {
        let host = Host::new(stores);
        // Stores are closed as soon as they can be, and all that was read is on disk.
        let prices =
            ["--price-get", "1000000", "--price-list", "500000", "--price-egress", "1000000"];
        let served = host.serve_with("&idle=100ms&disk_free=0&hedge=false", &prices);
        Self { host, served }
    }

    fn metric(&self, name: &str) -> f64 {
        self.served.server.metric(&format!("busload_stores_{name}{{pattern=\"*/*\"}}"))
    }

    fn counters(&self) -> [f64; COUNTERS.len()] {
        COUNTERS.map(|name| self.metric(name))
    }

    /// Reads all chunks of a store.
    fn read(&self, client: &mut Client<std::net::TcpStream>, number: usize) {
        for (address, contents) in &self.host.stores[number].chunks {
            let key = format!("org/{number}:{}", ChunkAddress(*address));
            let reply = client.call(&["GET", &key]);
            assert_eq!(reply, busload_resp::reply::Reply::Bulk(contents.clone()), "{key}");
        }
    }

    /// Waits until the counters are those of the bucket, and returns requests and bytes saved.
    fn check(&self) -> (f64, f64) {
        let seen = || {
            let (mut gets, mut lists, mut bytes) = (0.0, 0.0, 0.0);
            for seen in self.host.world.proxy.seen() {
                match seen.path.contains("list-type") {
                    true => lists += 1.0,
                    false => gets += 1.0,
                }
                let is_body = !seen.path.contains("list-type") && seen.status < 300;
                bytes += if is_body { seen.bytes as f64 } else { 0.0 };
            }
            (gets, lists, bytes)
        };
        // Fills go on behind the reads.
        let mut counted = None;
        eventually("the counters are those of the bucket", || {
            let before = seen();
            let [direct, direct_bytes, requests, lists, bytes, ..] = self.counters();
            let saved = ["requests", "bytes", "usd"].map(|of| self.metric(&format!("saved_{of}")));
            counted = Some((direct, direct_bytes, saved));
            before == (requests - lists, lists, bytes) && before == seen()
        });
        let (direct, direct_bytes, [requests, bytes, usd]) = counted.unwrap();
        let (gets, lists, sent) = seen();
        assert_eq!((requests, bytes), (direct - gets - lists, direct_bytes - sent));
        let [get, list, byte] = PRICES;
        let expected = (direct - gets) * get - lists * list + bytes * byte;
        assert!((usd - expected).abs() < 1e-6, "{usd} instead of {expected}");
        (requests, bytes)
    }
}

/// Requests of one chunk that wait together are one read of the store, and as many saved GETs.
#[test]
fn every_request_that_shares_the_read_of_a_chunk_counts() {
    let host = Host::new(1);
    let served = host.serve_with("&disk=0&hedge=false", &[]);
    let mut client = served.server.client();
    let metric =
        |name: &str| served.server.metric(&format!("busload_stores_{name}{{pattern=\"*/*\"}}"));
    let [(opening, _), (address, contents), ..] = &host.stores[0].chunks[..] else {
        panic!("a store of two chunks and more")
    };
    let key = |address: &[u8; 20]| format!("org/0:{}", ChunkAddress(*address));
    assert!(matches!(client.call(&["GET", &key(opening)]), busload_resp::reply::Reply::Bulk(_)));
    let before = ["direct_requests_total", "reads_total", "hits_total"].map(metric);
    let sent = host.world.proxy.seen().len();
    let key = key(address);
    let words: Vec<_> = std::iter::once("MGET").chain([&*key; 100]).collect();
    let reply = busload_resp::reply::Reply::Bulk(contents.clone());
    assert_eq!(client.call(&words), busload_resp::reply::Reply::Array(vec![reply; 100]));
    let after = ["direct_requests_total", "reads_total", "hits_total"].map(metric);
    assert_eq!([0, 1, 2].map(|at| after[at] - before[at]), [100.0, 100.0, 99.0]);
    assert!(host.world.proxy.seen().len() < sent + 50, "they shared a read");
}

#[test]
fn what_was_saved_is_what_clients_got_less_what_the_bucket_was_asked_for() {
    let priced = Priced::new(2);
    let served = &priced.served;
    assert_eq!(priced.counters(), [0.0; COUNTERS.len()]);
    let mut client = served.server.client();
    priced.read(&mut client, 0);
    let (requests, bytes) = priced.check();
    assert!(requests < 0.0 && bytes < 0.0, "it has cost more than it saved: {requests} {bytes}");

    // Dolt's clients, whose locations tell what a chunk has in its file.
    let store = &priced.host.stores[0];
    let addresses: Vec<_> = store.chunks.iter().map(|(address, _)| *address).collect();
    let locations = served.client.found("org/0", Way::Stream, &addresses);
    let mut downloads = served.client.downloads();
    let stored: u64 = locations
        .iter()
        .map(|location| {
            downloads.chunk(location);
            location.span.end - location.span.start
        })
        .sum();
    let chunks = addresses.len() as f64;
    let [direct, direct_bytes, .., reads, _, downloaded] = priced.counters();
    assert_eq!((direct, reads, downloaded), (2.0 * chunks, chunks, chunks));
    assert_eq!(direct_bytes, 2.0 * stored as f64, "chunks count as their files have them");
    let absent = format!("org/0:{}", ChunkAddress(super::NOWHERE));
    assert_eq!(text(&client.call(&["GET", &absent])), "nil");
    (0..20).for_each(|_| priced.read(&mut client, 0));
    let (requests, bytes) = priced.check();
    assert!(0.0 < requests && 0.0 < bytes, "{requests} {bytes}");
    assert_eq!(priced.metric("direct_requests_total"), 22.0 * chunks, "nothing is saved by nil");
    assert_eq!(priced.metric("reads_total"), 21.0 * chunks + 1.0);

    // Neither a store that is closed nor one that is opened takes anything back.
    let mut before = priced.counters();
    for number in [1, 0, 1] {
        eventually("no store is open", || priced.metric("open") == 0.0);
        priced.read(&mut client, number);
        let now = priced.counters();
        assert!(now.iter().zip(before).all(|(now, before)| before <= *now), "{now:?} {before:?}");
        before = now;
    }
    assert_eq!(priced.metric("direct_requests_total"), 25.0 * chunks);
    priced.check();

    let info = text(&client.call(&["INFO", "tables"]));
    let line = info.lines().find(|line| line.contains("kind=chunks")).unwrap();
    assert!(line.contains(&format!("direct_requests={},", 25.0 * chunks)), "{line}");
    let stats: Value = serde_json::from_str(&served.server.http("/api/stats").1).unwrap();
    let saved = &stats["savings"][0];
    assert_eq!((&saved["kind"], &saved["name"]), (&"pattern".into(), &"*/*".into()));
    assert_eq!(saved["saved_requests"].as_f64(), Some(priced.metric("saved_requests")));
    assert_eq!(stats["prices"]["list"], 500_000.0);
}

#[test]
fn a_bundle_counts_as_its_downloads_and_not_as_the_chunks_in_it() {
    let host = Host::new(1);
    let served = host.serve("&dolt_layout=records");
    let addresses: Vec<_> = host.stores[0].chunks.iter().map(|(address, _)| *address).collect();
    let locations = served.client.found("org/0", Way::Stream, &addresses);
    assert!(locations.iter().all(|location| location.url.contains("/records/")), "{locations:?}");
    let metric = |name: &str| {
        served.server.metric(&format!("busload_stores_{name}_total{{pattern=\"*/*\"}}"))
    };
    let counted = || ["reads", "downloads", "direct_requests", "direct_bytes"].map(metric);
    assert_eq!(counted(), [0.0; 4], "nobody got anything");
    let mut downloads = served.client.downloads();
    let mut bytes = 0;
    for location in &locations {
        downloads.chunk(location);
        bytes += location.span.end - location.span.start;
    }
    let count = locations.len() as f64;
    assert_eq!(counted(), [0.0, count, count, bytes as f64]);
}

#[test]
fn only_the_busiest_stores_have_metrics_of_their_own() {
    let host = Host::new(5);
    let served = host.serve("&busiest_stores=2");
    let mut client = served.server.client();
    let reads = [1, 2, 40, 4, 60];
    for (number, times) in reads.into_iter().enumerate() {
        let key = format!("org/{number}:{}", ChunkAddress(host.stores[number].chunks[0].0));
        (0..times).for_each(|_| assert_ne!(text(&client.call(&["STRLEN", &key])), "0"));
    }
    let series = |name: &str| -> Vec<(String, f64)> {
        let (_, page) = served.server.http("/metrics");
        let lines = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
        let of = |line: &str| {
            let (labels, value) = line.split_once("} ").unwrap();
            let store = labels.strip_prefix("pattern=\"*/*\",store=\"").unwrap();
            (store.trim_end_matches('"').to_owned(), value.parse().unwrap())
        };
        lines.map(of).collect()
    };
    let expected = [("org/4".to_owned(), 60.0), ("org/2".to_owned(), 40.0)];
    eventually("the busiest stores are known", || series("busload_store_reads_total") == expected);
    for (store, bytes) in series("busload_store_fetched_bytes_total") {
        assert!(0.0 < bytes, "{store}");
    }
    let total = served.server.metric("busload_stores_reads_total{pattern=\"*/*\"}");
    assert_eq!(total, f64::from(reads.iter().sum::<i32>()));
    let stats: Value = serde_json::from_str(&served.server.http("/api/stats").1).unwrap();
    let busiest: Vec<_> = stats["busiest"].as_array().unwrap().iter().collect();
    assert_eq!(busiest.iter().map(|store| &store["name"]).collect::<Vec<_>>(), ["org/4", "org/2"]);
    assert_eq!((&busiest[0]["reads"], &busiest[0]["errors"]), (&60.into(), &0.into()));
}

#[test]
fn no_store_has_metrics_of_its_own_where_none_shall() {
    let host = Host::new(1);
    let served = host.serve("&busiest_stores=0");
    let key = format!("org/0:{}", ChunkAddress(host.stores[0].chunks[0].0));
    assert_ne!(text(&served.server.client().call(&["STRLEN", &key])), "0");
    let (_, page) = served.server.http("/metrics");
    assert!(page.contains("busload_stores_reads_total") && !page.contains("busload_store_"));
}
