//! Chunks in files of other servers: asked of their owners, within a deadline, and in no circle.

use std::{
    collections::HashSet,
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    os::unix::fs::PermissionsExt,
    path::Path,
    thread,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use busload_chunks::{ChunkAddress, write::manifest};
use busload_proto::v1::{GetChunksRequest, GetChunksResponse, chunks_client::ChunksClient};
use busload_resp::reply::Reply;
use sha2::{Digest, Sha256};
use tonic::{Code, Request, Status, transport::Endpoint};

use super::{
    client::Address,
    eventually,
    fixture::{World, Written, classic},
    peers::{Peer, addresses, owner, start_with},
};
use crate::{support::Server, tls::Authority};

/// Number of files of the store: so many that each of the servers owns some.
const FILES: u64 = 24;

/// Chunks of these files, with their contents.
fn chunks(files: &[Written]) -> Vec<(Address, Vec<u8>)> {
    files.iter().flat_map(|file| file.chunks.clone()).collect()
}

fn files() -> Vec<Written> {
    (0..FILES).map(|seed| classic(seed, [5_000, 7_000])).collect()
}

/// Sender of a request, as the request says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    AClient,
    APeer,
}

/// Writes a file that only its owner may read, and returns its path.
fn private(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Calls `GetChunks` for all of these chunks, perhaps with credentials.
fn get_chunks(
    server: &Server,
    store: &str,
    chunks: &[(Address, Vec<u8>)],
    authorization: Option<&str>,
) -> Result<GetChunksResponse, Status> {
    ask_chunks(server, store, chunks, authorization, Says::AClient)
}

fn ask_chunks(
    server: &Server,
    store: &str,
    chunks: &[(Address, Vec<u8>)],
    authorization: Option<&str>,
    says: Says,
) -> Result<GetChunksResponse, Status> {
    let addresses: Vec<u8> = chunks.iter().flat_map(|(address, _)| *address).collect();
    let mut request = Request::new(GetChunksRequest {
        store: store.to_owned(),
        addresses: addresses.into(),
        from_peer: says == Says::APeer,
        ..GetChunksRequest::default()
    });
    if let Some(authorization) = authorization {
        request.metadata_mut().insert("authorization", authorization.parse().unwrap());
    }
    let url = format!("http://{}", server.address("http"));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let channel = Endpoint::from_shared(url).unwrap().connect().await.unwrap();
        let mut client = ChunksClient::new(channel);
        let mut stream = client.get_chunks(request).await?.into_inner();
        let mut all = GetChunksResponse::default();
        while let Some(message) = stream.message().await? {
            all.chunks.extend(message.chunks);
            all.missing.extend(message.missing);
            all.failed.extend(message.failed);
        }
        Ok(all)
    })
}

/// Reads all of these chunks by `GetChunks`, and checks them.
#[track_caller]
fn reads_all(server: &Server, store: &str, chunks: &[(Address, Vec<u8>)]) {
    let mut all = get_chunks(server, store, chunks, None).unwrap();
    assert_eq!((all.missing.len(), &*all.failed), (0, &[][..]));
    all.chunks.sort_by_key(|chunk| chunk.index);
    assert_eq!(all.chunks.len(), chunks.len());
    for (found, (_, contents)) in all.chunks.iter().zip(chunks) {
        assert!(found.contents == contents[..]);
    }
}

/// Reads these chunks until a peer has sent some: a machine may be so busy that none comes in time.
#[track_caller]
fn until_peers_answer(server: &Server, store: &str, chunks: &[(Address, Vec<u8>)]) {
    eventually("a peer sends chunks", || {
        reads_all(server, store, chunks);
        0.0 < outcome(server, "answered")
    });
}

/// Returns how many chunks that were to come from peers had this outcome.
fn outcome(server: &Server, outcome: &str) -> f64 {
    server.metric(&format!("busload_peer_chunks_total{{outcome=\"{outcome}\"}}"))
}

fn asked_by_peers(server: &Server) -> f64 {
    server.metric("busload_peer_asked_chunks_total")
}

#[test]
fn chunks_come_from_the_peer_that_owns_their_file_and_stay_on_its_disk_alone() {
    let files = files();
    let (world, chunks) = (World::of_files(&files), chunks(&files));
    let mut peers = start_with(3, &["--table", &world.as_db("timeout=1m")]);
    for peer in &peers {
        eventually("the store is open", || peer.client.root("db").is_ok());
    }
    for peer in &peers {
        reads_all(&peer.server, "db", &chunks);
        let mut redis = peer.server.client();
        for (address, contents) in &chunks {
            let key = format!("db:{}", ChunkAddress(*address));
            assert_eq!(redis.call(&["GET", &key]), Reply::Bulk(contents.clone()));
        }
    }
    let urls: Vec<_> = peers.iter().map(|peer| peer.url.clone()).collect();
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    for peer in &peers {
        let own =
            files.iter().filter(|file| owner(&urls, "db", &file.spec.id.to_string()) == peer.url);
        let own = own.count() as f64;
        let on_disk = || peer.server.metric("busload_chunks_disk_objects{table=\"db\"}");
        eventually("its own files are on its disk", || own <= on_disk());
        assert_eq!(on_disk(), own, "and no others");
        // Both rounds asked: what peers send is not kept.
        let wanted: f64 = ["answered", "missed", "timed_out", "skipped"]
            .map(|name| outcome(&peer.server, name))
            .iter()
            .sum();
        assert_eq!(wanted, 2.0 * 2.0 * (FILES as f64 - own));
    }
    for peer in &peers {
        until_peers_answer(&peer.server, "db", &chunks);
        let answers = "busload_chunks_answers_total{table=\"db\",outcome=\"peer\"}";
        assert!(0.0 < peer.server.metric(answers));
    }
    for peer in &peers {
        eventually("the others ask for its chunks", || {
            peers.iter().for_each(|other| reads_all(&other.server, "db", &chunks));
            0.0 < asked_by_peers(&peer.server)
        });
    }
    // One is killed: its files come from the bucket, then from the next in their rank.
    peers.pop().unwrap().server.kill();
    for peer in &peers {
        reads_all(&peer.server, "db", &chunks);
    }
    for peer in &peers {
        let suspect = || peer.server.metric("busload_peers{state=\"suspect\"}");
        eventually("the lost peer is suspect", || suspect() == 1.0);
        reads_all(&peer.server, "db", &chunks);
    }
}

/// Two servers write the URL of the first one in two ways. Of some files each takes the other for
/// the owner.
#[test]
fn a_question_goes_in_no_circle_when_peers_disagree_about_owners() {
    // One file in six is of that kind, by addresses that differ from run to run.
    let files: Vec<_> = (0..4 * FILES).map(|seed| classic(seed, [5_000])).collect();
    let (world, chunks) = (World::of_files(&files), chunks(&files));
    let addresses = addresses(2);
    let [first, second] = [0, 1].map(|index| format!("http://{}", addresses[index]));
    let table = world.as_db("timeout=1m");
    let one = Peer::start(addresses[0], &[first.clone(), second.clone()], &["--table", &table]);
    // The same address in another notation (RFC 4291).
    let SocketAddr::V4(v4) = addresses[0] else { panic!("an address of IPv4") };
    let renamed = format!("http://[{}]:{}", v4.ip().to_ipv6_mapped(), v4.port());
    let other = Peer::start(addresses[1], &[renamed.clone(), second.clone()], &["--table", &table]);
    for peer in [&one, &other] {
        eventually("the store is open", || peer.client.root("db").is_ok());
        let alive = || peer.server.metric("busload_peers{state=\"alive\"}");
        eventually("the other one answers", || alive() == 1.0);
    }
    let of_nobody: Vec<_> = files
        .iter()
        .filter(|file| {
            let id = file.spec.id.to_string();
            let owner = |first: &str| owner(&[first, &second], "db", &id);
            owner(&first) == second && owner(&renamed) == renamed
        })
        .cloned()
        .collect();
    assert!(!of_nobody.is_empty(), "of {} files one belongs to neither", files.len());
    let chunks_of_nobody = self::chunks(&of_nobody);
    eventually("the second one is asked", || {
        reads_all(&one.server, "db", &chunks_of_nobody);
        0.0 < asked_by_peers(&other.server)
    });
    assert_eq!(asked_by_peers(&one.server), 0.0, "the second one answered itself");
    assert_eq!(outcome(&other.server, "answered"), 0.0);
    for peer in [&one, &other] {
        reads_all(&peer.server, "db", &chunks);
    }
}

/// Serves `/healthz`, and never answers anything else.
fn hung_peer(address: SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut beginning = [0; 12];
            if stream.read_exact(&mut beginning).is_ok() && beginning == *b"GET /healthz" {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
            open.push(stream);
        }
    });
}

#[test]
fn a_peer_that_hangs_delays_few_requests_and_fails_none() {
    let files = files();
    let (world, chunks) = (World::of_files(&files), chunks(&files));
    let addresses = addresses(2);
    hung_peer(addresses[0]);
    let urls = addresses.iter().map(|address| format!("http://{address}")).collect::<Vec<_>>();
    let peer = Peer::start(addresses[1], &urls, &["--table", &world.as_db("timeout=1m")]);
    eventually("the store is open", || peer.client.root("db").is_ok());
    let alive = || peer.server.metric("busload_peers{state=\"alive\"}");
    eventually("the other one answers probes", || alive() == 1.0);
    let mut redis = peer.server.client();
    for _ in 0..2 {
        reads_all(&peer.server, "db", &chunks);
        for (address, contents) in &chunks {
            let key = format!("db:{}", ChunkAddress(*address));
            assert_eq!(redis.call(&["GET", &key]), Reply::Bulk(contents.clone()));
        }
    }
    let count = |name| outcome(&peer.server, name);
    assert!(0.0 < count("timed_out") && 0.0 < count("skipped"));
    assert_eq!(count("answered"), 0.0);
}

#[test]
fn stores_by_pattern_keep_the_files_of_their_peers_off_the_disk() {
    let (world, files) = (World::empty(), files());
    for (number, file) in files.iter().enumerate() {
        let put = |name: &str, bytes: &[u8]| {
            world.bucket.put(&format!("dolt/org/{number}/{name}"), bytes).unwrap();
        };
        put(&file.spec.id.to_string(), &file.bytes);
        put("manifest", manifest(ChunkAddress(file.chunks[0].0), &[file.spec]).as_bytes());
    }
    let url = busload_bucket::url(world.proxy.address(), "dolt/{name}");
    let peers = start_with(2, &["--stores", &format!("*/*={url}&timeout=1m")]);
    let name = |number: usize| format!("org/{number}");
    for peer in &peers {
        let mut redis = peer.server.client();
        for (number, file) in files.iter().enumerate() {
            reads_all(&peer.server, &name(number), &file.chunks);
            let (address, contents) = &file.chunks[0];
            let key = format!("{}:{}", name(number), ChunkAddress(*address));
            assert_eq!(redis.call(&["GET", &key]), Reply::Bulk(contents.clone()));
        }
    }
    let urls = [&*peers[0].url, &*peers[1].url];
    for peer in &peers {
        let own = files.iter().enumerate().filter(|(number, file)| {
            owner(&urls, &name(*number), &file.spec.id.to_string()) == peer.url
        });
        let own = own.count() as f64;
        assert!(0.0 < own && own < FILES as f64);
        let on_disk = || peer.server.metric("busload_stores_disk_objects{pattern=\"*/*\"}");
        eventually("its own files are on its disk", || own <= on_disk());
        assert_eq!(on_disk(), own, "and no others");
        eventually("the other one sends chunks", || {
            for (number, file) in files.iter().enumerate() {
                reads_all(&peer.server, &name(number), &file.chunks);
            }
            0.0 < outcome(&peer.server, "answered")
        });
    }
}

#[test]
fn peers_log_in_with_a_key_of_their_password_where_clients_need_tokens() {
    let files = files();
    let (world, chunks) = (World::of_files(&files), chunks(&files));
    let kept = tempfile::tempdir().unwrap();
    let private = |name: &str, text: &str| private(kept.path(), name, text);
    let (password, tokens) = (private("password", "sesame\n"), private("tokens", ""));
    let addresses = addresses(2);
    let urls = addresses.iter().map(|address| format!("http://{address}")).collect::<Vec<_>>();
    let table = world.as_db("timeout=1m");
    let arguments = ["--table", &table, "--password-file", &password, "--token-file", &tokens];
    let peers = [0, 1].map(|index| Peer::start(addresses[index], &urls, &arguments));
    let basic = format!("Basic {}", BASE64_STANDARD.encode("default:sesame"));
    let metric = |peer: &Peer, name: &str| {
        let metrics = metrics(&peer.server, &basic);
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}")).to_owned()
    };
    for peer in &peers {
        let alive = || metric(peer, "busload_peers{state=\"alive\"}");
        eventually("the other one answers", || alive() == "1");
    }
    for peer in &peers {
        eventually("the other one has sent chunks", || {
            let all = get_chunks(&peer.server, "db", &chunks, Some(&basic));
            let answered = metric(peer, "busload_peer_chunks_total{outcome=\"answered\"}");
            all.is_ok_and(|all| all.chunks.len() == chunks.len()) && answered != "0"
        });
    }
    for wrong in [None, Some("Busload-Peer 99999999999.AAAAAAAAAAAAAAAAAAAAAA")] {
        let refused = get_chunks(&peers[0].server, "db", &chunks, wrong).unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{wrong:?}: {refused}");
    }
}

/// A store that is opened again after a push opens the few new files by their names, without a
/// listing. Those of the other peer stay off the disk all the same.
#[test]
fn files_opened_by_their_names_stay_off_the_disk_of_peers_that_do_not_own_them() {
    let (world, files) = (World::empty(), files());
    let (old, pushed) = (&files[0], &files[1..9]);
    let put = |name: &str, bytes: &[u8]| {
        world.bucket.put(&format!("dolt/org/{name}"), bytes).unwrap();
    };
    let name_files = |files: &[Written]| {
        let specs: Vec<_> = files.iter().map(|file| file.spec).collect();
        let root = ChunkAddress(files[0].chunks[0].0);
        put("0/manifest", manifest(root, &specs).as_bytes());
    };
    put(&format!("0/{}", old.spec.id), &old.bytes);
    name_files(&files[..1]);
    let url = busload_bucket::url(world.proxy.address(), "dolt/{name}");
    let stores = format!("*/*={url}&timeout=1m&poll=10m&idle=1s");
    let peers = start_with(2, &["--stores", &stores]);
    let on_disk = |peer: &Peer| {
        let (_, body) = peer.server.http("/api/cache/stores");
        let lists: serde_json::Value = serde_json::from_str(&body).unwrap();
        lists[0]["stores"].as_array().unwrap().clone()
    };
    peers.iter().for_each(|peer| reads_all(&peer.server, "org/0", &old.chunks));
    for peer in &peers {
        eventually("the store is closed, and known by its index", || {
            let stores = on_disk(peer);
            stores.len() == 1 && stores[0]["bytes"] != 0 && stores[0]["open"].is_null()
        });
    }
    pushed.iter().for_each(|file| put(&format!("0/{}", file.spec.id), &file.bytes));
    name_files(&files[..9]);
    let before = world.proxy.seen().len();
    for peer in &peers {
        let mut http = peer.client.http();
        let head = "Connection: close\r\nContent-Length: 0\r\n";
        http.send("POST", "/api/cache/org%2F0/warm", head);
        let said = http.rest();
        assert!(said.contains(r#"{"finished""#), "{said}");
    }
    let seen = world.proxy.seen();
    let is_direct =
        |seen: &&busload_bucket::Seen| seen.method == "GET" && !seen.path.contains("list-type");
    let others: Vec<_> = seen[before..].iter().filter(|seen| !is_direct(seen)).collect();
    assert!(others.is_empty(), "files were opened by name: {others:?}");
    let urls = [&*peers[0].url, &*peers[1].url];
    for peer in &peers {
        let is_own = |file: &&Written| owner(&urls, "org/0", &file.spec.id.to_string()) == peer.url;
        let own = files[..9].iter().filter(is_own).count() as u64;
        let stores = on_disk(peer);
        assert_eq!(stores[0]["files"], own, "its own files and no others");
        reads_all(&peer.server, "org/0", &self::chunks(&files[..9]));
    }
}

/// Whoever has logged in as a client is none of the peers, whatever a request says: else it could
/// keep chunks from being asked of their owners, and take the places that peers have.
#[test]
fn a_client_with_a_token_is_not_believed_to_be_a_peer() {
    let files = files();
    let (world, chunks) = (World::of_files(&files), chunks(&files));
    let kept = tempfile::tempdir().unwrap();
    let hash: String =
        Sha256::digest("let-me-in").iter().map(|byte| format!("{byte:02x}")).collect();
    let entry = format!("[[token]]\nname = 'ci'\nsha256 = '{hash}'\nread = ['*']\n");
    let private = |name: &str, text: &str| private(kept.path(), name, text);
    let (password, tokens) = (private("password", "sesame\n"), private("tokens", &entry));
    let addresses = addresses(2);
    let urls = addresses.iter().map(|address| format!("http://{address}")).collect::<Vec<_>>();
    let table = world.as_db("timeout=1m");
    let arguments = ["--table", &table, "--password-file", &password, "--token-file", &tokens];
    let peers = [0, 1].map(|index| Peer::start(addresses[index], &urls, &arguments));
    let basic = format!("Basic {}", BASE64_STANDARD.encode("default:sesame"));
    let metric = |name: &str| {
        let metrics = metrics(&peers[0].server, &basic);
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum::<f64>()
    };
    eventually("the other one answers", || metric("busload_peers{state=\"alive\"}") == 1.0);
    // Chunks in files of the other one are wanted of it, whether it answers in time or not.
    let wanted = || metric("busload_peer_chunks_total");
    for credentials in [&*basic, "Bearer let-me-in"] {
        let before = wanted();
        eventually("all chunks are read", || {
            let all = ask_chunks(&peers[0].server, "db", &chunks, Some(credentials), Says::APeer);
            all.is_ok_and(|all| all.chunks.len() == chunks.len())
        });
        assert!(before < wanted(), "{credentials}: a request of a peer is never passed on");
    }
    assert_eq!(metric("busload_peer_asked_chunks_total"), 0.0, "nobody was taken for a peer");
}

/// Returns the metrics of a server that asks for a password.
fn metrics(server: &Server, authorization: &str) -> String {
    let mut stream = TcpStream::connect(server.address("http")).unwrap();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n\
         Connection: close\r\n\r\n"
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// One server listens at the first address of a name. The other one finds it by that name, and is
/// not in the answer itself.
#[test]
fn peers_are_found_by_the_addresses_of_a_name() {
    let files = files();
    let (world, chunks) = (World::of_files(&files), chunks(&files));
    let table = world.as_db("timeout=1m");
    let named = {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        free.local_addr().unwrap()
    };
    let list = [format!("dns:localhost:{}", named.port())];
    let of_name = ("localhost", named.port()).to_socket_addrs().unwrap().collect::<HashSet<_>>();
    assert!(of_name.contains(&named), "{of_name:?}");
    let one = Peer::start(named, &list, &["--table", &table]);
    let other = Peer::start(addresses(1)[0], &list, &["--table", &table]);
    for (peer, alive) in [(&one, 0.0), (&other, 1.0)] {
        let count =
            |state: &str| peer.server.metric(&format!("busload_peers{{state=\"{state}\"}}"));
        let suspect = of_name.len() as f64 - 1.0;
        eventually("the name is resolved, and nobody is its own peer", || {
            count("alive") == alive && count("suspect") == suspect
        });
        eventually("the store is open", || peer.client.root("db").is_ok());
        reads_all(&peer.server, "db", &chunks);
    }
    until_peers_answer(&other.server, "db", &chunks);
    let urls = [&*other.url, &*one.url];
    let owners = other.client.list("db").unwrap().table_file_info.into_iter().map(|entry| {
        let expected = owner(&urls, "db", &entry.file_id);
        assert!(entry.url.starts_with(&format!("{expected}/")), "{}", entry.url);
        expected
    });
    assert_eq!(owners.collect::<HashSet<_>>().len(), 2, "each owns some");
}

#[test]
fn peers_behind_tls_ask_each_other_and_trust_no_other_authority() {
    let (authority, other) = (Authority::new(), Authority::new());
    let files = files();
    let (world, chunks) = (World::of_files(&files), chunks(&files));
    for (trusted, is_right) in [(&authority, true), (&other, false)] {
        let addresses = addresses(2);
        authority.issue_for("server", addresses.iter().map(SocketAddr::ip));
        let urls: Vec<_> = addresses.iter().map(|address| format!("https://{address}")).collect();
        let (ca, peer_ca) = (authority.text("ca.pem"), trusted.text("ca.pem"));
        let start = |(address, url): (&SocketAddr, &String)| {
            let data = tempfile::tempdir().unwrap();
            let (http, list) = (address.to_string(), urls.join(","));
            let mut flags = authority.flags();
            let more = ["--http", &http, "--peers", &list, "--peer-self", url];
            let more = [&more[..], &["--peer-ca", &peer_ca, "--tls-client-ca", &ca]].concat();
            flags.extend(more.into_iter().map(str::to_owned));
            flags.extend(["--table".to_owned(), world.as_db("timeout=1m")]);
            let flags: Vec<_> = flags.iter().map(String::as_str).collect();
            (Server::start(data.path(), &flags), data)
        };
        let servers: Vec<_> = addresses.iter().zip(&urls).map(start).collect();
        let server = &servers[0].0;
        let metric = |name: &str| authority.metric_shown_to(Some("server"), server, name);
        let state = if is_right { "alive" } else { "suspect" };
        let state = format!("busload_peers{{state=\"{state}\"}}");
        eventually("the other one was asked", || metric(&state) == 1.0);
        let mut redis = authority.known_client(server, "server");
        let mut read_all = || {
            for (address, contents) in &chunks {
                let key = format!("db:{}", ChunkAddress(*address));
                assert_eq!(redis.call(&["GET", &key]), Reply::Bulk(contents.clone()));
            }
        };
        let answered = || metric("busload_peer_chunks_total{outcome=\"answered\"}");
        if is_right {
            eventually("the other one sends chunks", || {
                read_all();
                0.0 < answered()
            });
        } else {
            read_all();
            assert_eq!(answered(), 0.0);
        }
    }
}
