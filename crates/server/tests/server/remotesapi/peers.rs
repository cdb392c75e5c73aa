//! Three servers over one store, each with some of its table files.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use busload_peers::{Membership, Owner};
use tempfile::TempDir;

use super::{
    client::{Client, Way},
    eventually,
    fixture::{World, classic},
    http::{Http, target},
};
use crate::support::Server;

/// Number of files of the store: so many that each of three peers owns some.
const FILES: u64 = 24;

/// A server of several, with a client.
pub struct Peer {
    pub server: Server,
    pub client: Client,
    pub url: String,
    _data: TempDir,
}

/// Returns addresses on which nobody listens: each on an address of loopback that no other test
/// has, so that a port which was free a moment ago is still free.
pub fn addresses(count: usize) -> Vec<SocketAddr> {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let free = || {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let host = Ipv4Addr::new(127, 64 + number % 128, high, low.clamp(1, 254));
        TcpListener::bind((host, 0)).unwrap().local_addr().unwrap()
    };
    (0..count).map(|_| free()).collect()
}

impl Peer {
    /// Starts one of the servers of a list, with these arguments.
    pub fn start(address: SocketAddr, list: &[String], arguments: &[&str]) -> Self {
        Self::start_behind(&format!("http://{address}"), address, list, arguments)
    }

    /// Starts one of the servers of a list that others know by this URL.
    pub fn start_behind(
        url: &str,
        address: SocketAddr,
        list: &[String],
        arguments: &[&str],
    ) -> Self {
        let (url, http) = (url.to_owned(), address.to_string());
        let (data, list) = (tempfile::tempdir().unwrap(), list.join(","));
        let own = ["--http", &http, "--peers", &list, "--peer-self", &url];
        let server = Server::start(data.path(), &[&own[..], arguments].concat());
        Self { server, client: Client::connect(address), url, _data: data }
    }
}

/// Starts servers that are each other's peers.
fn start(count: usize, table: &str) -> Vec<Peer> {
    let peers = start_with(count, &["--table", table]);
    peers.iter().for_each(|peer| eventually("it is open", || peer.client.root("db").is_ok()));
    peers
}

/// Starts servers that are each other's peers, with these arguments, and waits until they know.
pub fn start_with(count: usize, arguments: &[&str]) -> Vec<Peer> {
    let addresses = addresses(count);
    let urls: Vec<String> = addresses.iter().map(|address| format!("http://{address}")).collect();
    let start = |address: &SocketAddr| Peer::start(*address, &urls, arguments);
    let peers: Vec<Peer> = addresses.iter().map(start).collect();
    for peer in &peers {
        let all = (count - 1) as f64;
        let alive = || peer.server.metric("busload_peers{state=\"alive\"}");
        eventually("the others answer", || alive() == all);
    }
    peers
}

/// Returns scheme and authority of a URL.
pub fn base(url: &str) -> String {
    url.split_inclusive('/').take(3).collect::<String>().trim_end_matches('/').to_owned()
}

/// Downloads from the server that a URL names.
fn download(url: &str) -> Vec<u8> {
    let base = base(url);
    let address = base.strip_prefix("http://").unwrap().parse().unwrap();
    let answer = Http::connect(address).get(&target(url, &base));
    assert!(answer.head.status == 200 && answer.is_whole, "{url}: {}", answer.text());
    answer.body
}

/// Owners as the servers must find them, when these are alive.
fn expected(alive: &[&str], file: &str) -> String {
    owner(alive, "db", file)
}

/// The owner of a file of a store when these are alive.
pub fn owner(alive: &[&str], store: &str, file: &str) -> String {
    let mut membership = Membership::new(alive[0]);
    let urls = alive.iter().map(|&url| url.to_owned());
    membership.handle_listed(urls, Duration::ZERO).unwrap();
    match membership.owner(store, &file.parse::<busload_chunks::FileId>().unwrap().0) {
        Owner::Me => alive[0].to_owned(),
        Owner::Peer(url) => url.to_owned(),
    }
}

#[test]
fn each_file_is_downloaded_from_its_owner_and_a_lost_peer_loses_its_share() {
    let files: Vec<_> = (0..FILES).map(|seed| classic(seed, [5_000, 7_000])).collect();
    let world = World::of_files(&files);
    let bytes_of: BTreeMap<String, &[u8]> =
        files.iter().map(|file| (file.spec.id.to_string(), &*file.bytes)).collect();
    let mut peers = start(3, &world.as_db(""));
    let all: Vec<String> = peers.iter().map(|peer| peer.url.clone()).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();

    let mut bases = BTreeSet::new();
    for peer in &peers {
        let listed = peer.client.list("db").unwrap().table_file_info;
        assert_eq!(listed.len(), files.len());
        for entry in &listed {
            let base = base(&entry.url);
            assert_eq!(base, expected(&all, &entry.file_id), "all agree on {}", entry.file_id);
            assert!(download(&entry.url) == bytes_of[&entry.file_id], "{}", entry.url);
            bases.insert(base);
        }
        assert!(0.0 < peer.server.metric("busload_peer_urls_total"));
    }
    assert_eq!(bases.len(), 3, "each owns some");
    // Whoever is asked serves, whether the file is its own or not.
    for entry in peers[0].client.list("db").unwrap().table_file_info {
        for peer in &peers {
            let url = entry.url.replace(&base(&entry.url), &peer.url);
            assert!(download(&url) == bytes_of[&entry.file_id], "{url}");
        }
    }
    // Chunks are where the answer says.
    let addresses: Vec<_> =
        files.iter().flat_map(|file| file.chunks.iter().map(|(address, _)| *address)).collect();
    for (peer, way) in peers.iter().zip([Way::Stream, Way::Legacy, Way::Stream]) {
        let found = peer.client.found("db", way, &addresses);
        assert_eq!(found.iter().map(|at| base(&at.url)).collect::<BTreeSet<_>>(), bases);
        for location in found {
            let of_owner = Client::connect(base(&location.url)[7..].parse().unwrap());
            let mut downloads = of_owner.downloads();
            assert!(!downloads.chunk(&location).is_empty());
        }
    }
    // Every file comes to one disk, although every peer has been asked for every file.
    let files_of = |peer: &Peer| {
        let listed = peers[0].client.list("db").unwrap().table_file_info;
        listed.iter().filter(|entry| base(&entry.url) == peer.url).count() as f64
    };
    for peer in &peers {
        let on_disk = || peer.server.metric("busload_chunks_disk_objects{table=\"db\"}");
        eventually("its own files are on its disk", || files_of(peer) <= on_disk());
        assert!(on_disk() == files_of(peer), "{} of {}", on_disk(), files_of(peer));
    }

    // One is killed. The others serve its files as soon as they know.
    let lost = peers.pop().unwrap();
    let lost_url = lost.url.clone();
    drop(lost.server);
    let rest = [all[0], all[1]];
    for peer in &peers {
        // A clone whose download was cut off asks again at once, and three times in all.
        let names_lost = || {
            let listed = peer.client.list("db").unwrap().table_file_info;
            listed.iter().any(|entry| base(&entry.url) == lost_url)
        };
        assert!((0..3).any(|_| !names_lost()));
        let suspect = || peer.server.metric("busload_peers{state=\"suspect\"}");
        eventually("the lost peer is suspect", || suspect() == 1.0);
        for entry in peer.client.list("db").unwrap().table_file_info {
            let (before, now) = (expected(&all, &entry.file_id), base(&entry.url));
            assert_eq!(now, expected(&rest, &entry.file_id));
            assert!(before == lost_url || before == now, "only the files of the lost peer move");
            assert!(download(&entry.url) == bytes_of[&entry.file_id], "{}", entry.url);
        }
    }
}
