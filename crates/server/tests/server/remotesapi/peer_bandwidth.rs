//! Bytes that three servers send beside one, each over a link of its own. Asserts no speed;
//! `BUSLOAD_PEER_FILES=900 cargo test -p busload --test server peer_bandwidth -- --nocapture`
//! prints it.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use busload_bucket::{FaultProxy, Faults};
use busload_io::{Clock, RealClock};

use super::{
    eventually,
    fixture::{World, classic},
    http::{Http, target},
    peers::{Peer, addresses, base},
};

/// Number of table files, unless `BUSLOAD_PEER_FILES` says another one: too few to measure by.
const FILES_DEFAULT: u64 = 90;
/// Length of a table file.
const FILE_BYTES: usize = 8 << 10;
/// Bytes per second of the link of each server: few enough for two cores to fill three of them.
const LINK: u64 = 2 << 20;
/// Downloads at once, as of four clients of Dolt.
const DOWNLOADS: usize = 12;

/// Servers behind a link each.
struct Behind {
    peers: Vec<Peer>,
    _links: Vec<FaultProxy>,
}

/// Starts servers that send over links of their own, and brings their files to their disks.
fn start(count: usize, table: &str) -> Behind {
    let addresses = addresses(count);
    let faults = || Faults { line: LINK, ..Faults::default() };
    let links: Vec<_> =
        addresses.iter().map(|address| FaultProxy::start(*address, 1, faults()).unwrap()).collect();
    let urls: Vec<_> = links.iter().map(|link| format!("http://{}", link.address())).collect();
    let start = |(url, address): (&String, _)| {
        // Its own files, too, are at the other end of its link.
        let arguments = ["--table", table, "--http-url", url];
        Peer::start_behind(url, address, &urls, &arguments)
    };
    let peers: Vec<_> = urls.iter().zip(addresses).map(start).collect();
    for peer in &peers {
        eventually("the store is open", || peer.client.root("db").is_ok());
        let alive = || peer.server.metric("busload_peers{state=\"alive\"}");
        eventually("the others answer", || alive() == (count - 1) as f64);
        let mut http = Http::connect(peer.server.address("http"));
        http.send("POST", "/api/cache/db/warm", "Connection: close\r\nContent-Length: 0\r\n");
        let said = http.rest();
        assert!(said.contains(r#"{"finished""#), "{said}");
    }
    Behind { peers, _links: links }
}

/// Downloads all files from where the first server says that they are, and returns the time.
fn download_all(behind: &Behind, bytes_of: &BTreeMap<String, Vec<u8>>) -> Duration {
    let listed = behind.peers[0].client.list("db").unwrap().table_file_info;
    assert_eq!(listed.len(), bytes_of.len());
    let (clock, next) = (RealClock::new(), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..DOWNLOADS {
            scope.spawn(|| {
                let mut connections = BTreeMap::new();
                while let Some(entry) = listed.get(next.fetch_add(1, Relaxed)) {
                    let base = base(&entry.url);
                    let address = base.strip_prefix("http://").unwrap().parse().unwrap();
                    let http = connections.entry(base.clone());
                    let http: &mut Http = http.or_insert_with(|| Http::connect(address));
                    let answer = http.get(&target(&entry.url, &base));
                    assert!(answer.is_whole && answer.body == bytes_of[&entry.file_id]);
                }
            });
        }
    });
    clock.now()
}

#[test]
fn each_file_is_sent_over_the_link_of_its_owner() {
    let set = std::env::var("BUSLOAD_PEER_FILES").ok();
    let count = set.map_or(FILES_DEFAULT, |text| text.parse().expect("a number of files"));
    let files: Vec<_> = (0..count).map(|seed| classic(seed, [FILE_BYTES - 200])).collect();
    let bytes_of: BTreeMap<_, _> =
        files.iter().map(|file| (file.spec.id.to_string(), file.bytes.clone())).collect();
    let all = bytes_of.values().map(Vec::len).sum::<usize>() as f64;
    let world = World::of_files(&files);
    let (mut rates, file_count) = (Vec::new(), count);
    for count in [1, 3] {
        let behind = start(count, &world.as_db("timeout=1m"));
        let read =
            |peer: &Peer| peer.server.metric("busload_chunks_store_bytes_total{table=\"db\"}");
        let before: f64 = behind.peers.iter().map(read).sum();
        let took = download_all(&behind, &bytes_of);
        let after: f64 = behind.peers.iter().map(read).sum();
        assert!(after - before < all / 100.0, "the bytes come from the disks");
        let rate = all / took.as_secs_f64() / 1e6;
        let listed = behind.peers[0].client.list("db").unwrap().table_file_info;
        let mut shares = BTreeMap::<String, usize>::new();
        listed.iter().for_each(|entry| *shares.entry(base(&entry.url)).or_default() += 1);
        let largest = shares.values().max().copied().unwrap_or_default();
        println!(
            "{count} of {:.1} MB/s each: {rate:.1} MB/s; the largest share is {largest} of \
             {file_count} files",
            LINK as f64 / 1e6
        );
        rates.push(rate);
    }
    println!("three send {:.2} times what one sends", rates[1] / rates[0]);
}
