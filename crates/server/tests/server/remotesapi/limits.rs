//! Many clients at once, slow clients, and clients that go away.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use busload_bucket::Faults;
use futures_util::future::join_all;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::{
    client::{Client, Way, stream_request},
    eventually,
    fixture::{Fixture, Served, World, Written, classic},
    http::{Http, target},
    mix,
};
use crate::support::TIMEOUT;

const LAYOUTS: [&str; 2] = ["files", "records"];

/// Writes files of 8 MiB in total, with chunks of many sizes.
fn files(count: u64) -> Vec<Written> {
    (0..count)
        .map(|seed| classic(100 + seed, (0..128).map(|index| 1_000 + index * 1_000)))
        .collect()
}

/// Does what a clone does: reads the list and downloads every file in it.
fn clone(client: &Client, written: &BTreeMap<String, &Written>, first: usize) {
    let list = client.list("db").unwrap().table_file_info;
    assert_eq!(list.len(), written.len());
    let mut http = client.http();
    for index in 0..list.len() {
        let file = &list[(first + index) % list.len()];
        let answer = http.get(&target(&file.url, &client.base()));
        assert_eq!(answer.head.status, 200, "{}", answer.text());
        assert!(answer.is_whole && answer.body == written[&file.file_id].bytes, "{}", file.file_id);
    }
}

#[test]
fn twenty_clones_at_once_fetch_each_file_from_the_store_once() {
    let files = files(4);
    let world = World::of_files(&files);
    // A clone that waits half of the timeout for a part that another one requested requests it
    // itself.
    let served = Served::start(&[world.as_db("timeout=60s")]);
    let client = &served.client;
    let written: BTreeMap<_, _> =
        files.iter().map(|file| (file.spec.id.to_string(), file)).collect();
    assert_eq!(client.list("db").unwrap().table_file_info.len(), files.len());
    world.proxy.set(Faults { first_byte: Duration::from_millis(5), ..Faults::default() });
    world.proxy.forget();
    let barrier = Barrier::new(20);
    thread::scope(|scope| {
        for number in 0..20 {
            let (barrier, written) = (&barrier, &written);
            scope.spawn(move || {
                barrier.wait();
                // The clones start with different files.
                clone(client, written, number % 2);
            });
        }
    });
    for file in &files {
        let (sent, size) = (world.sent(&file.spec.id.to_string()), file.bytes.len() as u64);
        assert!(
            sent <= size,
            "{sent} bytes of the store for a file of {size}: {:?}",
            world.proxy.seen()
        );
    }
    // A further clone requests nothing from the store.
    eventually("all is on disk", || {
        world.proxy.forget();
        clone(client, &written, 0);
        files.iter().all(|file| world.sent(&file.spec.id.to_string()) == 0)
    });
}

#[test]
fn sixty_four_downloads_of_cold_data_at_once_are_exact() {
    let file = classic(7, (0..512).map(|index| 2_000 + index * 40));
    let world = World::of_files(std::slice::from_ref(&file));
    for layout in LAYOUTS {
        let served = Served::start(&[world.as_db(&format!("dolt_layout={layout}"))]);
        let client = &served.client;
        let addresses: Vec<_> = file.chunks.iter().map(|(address, _)| *address).collect();
        let locations = client.found("db", Way::Stream, &addresses);
        world.proxy.set(Faults {
            first_byte: Duration::from_millis(5),
            jitter: Duration::from_millis(4),
            ..Faults::default()
        });
        served.drop_cache();
        let barrier = Barrier::new(64);
        thread::scope(|scope| {
            for worker in 0..64 {
                let (barrier, locations, file) = (&barrier, &locations, &file);
                scope.spawn(move || {
                    let mut downloads = client.downloads();
                    barrier.wait();
                    for turn in 0..16 {
                        let index = usize::try_from(mix(worker << 8 | turn) % 512).unwrap();
                        assert!(
                            downloads.chunk(&locations[index]) == file.chunks[index].1,
                            "{index}"
                        );
                    }
                });
            }
        });
    }
}

/// Starts downloads whose bodies nobody reads.
fn unread(client: &Client, targets: &[String], count: usize) -> Vec<Http> {
    targets
        .iter()
        .cycle()
        .take(count)
        .map(|target| {
            let mut http = client.http();
            http.send("GET", target, "");
            http
        })
        .collect()
}

fn resident(served: &Served) -> f64 {
    served.server.metric("process_resident_memory_bytes")
}

#[test]
fn clients_that_do_not_read_cost_little_memory_and_disturb_nobody() {
    let files: Vec<_> = (0..3).map(|seed| classic(seed, (0..64).map(|_| 1 << 19))).collect();
    let fixture = Fixture::new("real-archive-v3");
    let world = World::of_files(&files);
    for disk in ["", "disk=0&"] {
        let served =
            Served::start(&[world.as_db(&format!("{disk}timeout=60s")), fixture.table("", "")]);
        let client = &served.client;
        let list = client.list("db").unwrap().table_file_info;
        let targets: Vec<_> = list.iter().map(|file| target(&file.url, &client.base())).collect();
        let locations = client.found(fixture.name, Way::Stream, &fixture.addresses());
        let mut downloads = client.downloads();
        let before = resident(&served);
        let slow = unread(client, &targets, 100);
        for (chunk, location) in fixture.chunks.iter().zip(&locations).step_by(5) {
            chunk.check(&downloads.chunk(location));
        }
        assert_eq!(client.root(fixture.name).unwrap(), fixture.root());
        let answer = client.http().get(&targets[0]);
        let id = &list[0].file_id;
        let truth = &files.iter().find(|file| file.spec.id.to_string() == *id).unwrap().bytes;
        assert!(answer.is_whole && answer.body == *truth, "the same file for who reads it");
        let grown = resident(&served) - before;
        assert!(grown < f64::from(400 << 20), "{grown} bytes");
        // A client that reads in the end gets the whole body.
        let mut late = slow.into_iter().nth(50).unwrap();
        let head = late.head();
        let body = late.body(head.length()).unwrap();
        assert_eq!(body.len(), head.length());
        assert!(files.iter().any(|file| file.bytes == body));
    }
}

/// The memory budget suffices for some downloads. Later ones wait at most for the table's timeout,
/// and then get `Retry-After`.
#[test]
fn so_many_clients_that_do_not_read_that_others_cannot_be_served_cost_no_more_memory() {
    let file = classic(11, (0..64).map(|_| 1 << 19));
    let fixture = Fixture::new("real-archive-v3");
    let world = World::of_files(std::slice::from_ref(&file));
    let served = Served::start(&[world.as_db("timeout=3s"), fixture.table("", "")]);
    served.wait_until_open();
    let client = &served.client;
    let target = target(&client.list("db").unwrap().table_file_info.remove(0).url, &client.base());
    eventually("all of it comes", || client.file(&target).is_some_and(|bytes| bytes == file.bytes));
    let before = resident(&served);
    let slow = unread(client, std::slice::from_ref(&target), 300);
    let answer = client.http().get(&target);
    match answer.head.status {
        200 => assert!(answer.is_whole && answer.body == file.bytes),
        status => {
            assert_eq!(status, 503, "{}", answer.text());
            assert!(answer.head.get("retry-after").is_some() && !answer.body.is_empty());
        }
    }
    let list = client.list(fixture.name).unwrap().table_file_info;
    let elsewhere = super::http::target(&list[0].url, &client.base());
    assert_eq!(
        client.http().get(&elsewhere).head.status,
        200,
        "other tables have memory of their own"
    );
    assert_eq!(client.root("db").unwrap(), file.chunks[0].0, "and calls need none");
    let grown = resident(&served) - before;
    assert!(grown < f64::from(600 << 20), "{grown} bytes");
    drop(slow);
    eventually("there is memory again", || {
        client.file(&target).is_some_and(|bytes| bytes == file.bytes)
    });
}

/// Opens an HTTP/2 connection without a flow-control window: no byte of a body ever reaches the
/// socket, so the socket never stalls.
async fn without_window(address: SocketAddr, target: &str, count: usize) -> Vec<(u16, impl Sized)> {
    let mut client = http2::Builder::new(TokioExecutor::new());
    client.initial_stream_window_size(0);
    let stream = TcpStream::connect(address).await.unwrap();
    let (requests, connection) = client.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{address}{target}");
    let answers = (0..count).map(|_| {
        let mut requests = requests.clone();
        let request = hyper::Request::get(&uri).body(axum::body::Body::empty()).unwrap();
        async move {
            let answer = requests.send_request(request).await.unwrap();
            (answer.status().as_u16(), (answer, requests))
        }
    });
    join_all(answers).await
}

#[test]
fn one_connection_takes_a_share_of_the_memory_for_downloads_and_leaves_the_rest_to_others() {
    let file = classic(12, (0..64).map(|_| 1 << 19));
    let world = World::of_files(std::slice::from_ref(&file));
    // Downloads beyond the budget wait this long; all others need less, even on a slow machine.
    let served = Served::start(&[world.as_db("timeout=6s")]);
    let client = &served.client;
    let target = target(&client.list("db").unwrap().table_file_info.remove(0).url, &client.base());
    assert!(client.http().get(&target).body == file.bytes);
    let address = served.server.address("http");
    let greedy = client.wait(without_window(address, &target, 250));
    let sent = greedy.iter().filter(|(status, _)| *status == 200).count();
    assert!(0 < sent && sent < 100, "{sent} downloads");
    assert!(greedy.iter().all(|(status, _)| matches!(status, 200 | 503)));
    for _ in 0..5 {
        assert!(client.http().get(&target).body == file.bytes, "others go on");
    }
    // The connection's quota is free again once its downloads have ended.
    drop(greedy);
    eventually("there is memory again", || {
        client.wait(without_window(address, &target, 1)).iter().all(|(status, _)| *status == 200)
    });
}

#[test]
fn a_client_that_reads_a_kibibyte_at_a_time_gets_all_and_holds_up_nobody() {
    let file = classic(8, (0..24).map(|_| 1 << 19));
    let world = World::of_files(std::slice::from_ref(&file));
    let served = Served::start(&[world.as_db("")]);
    let client = &served.client;
    let target = target(&client.list("db").unwrap().table_file_info.remove(0).url, &client.base());
    let mut slow = client.http();
    slow.send("GET", &target, "");
    let head = slow.head();
    assert_eq!(head.status, 200);
    let mut received = Vec::new();
    let mut fast = client.http();
    // For each KiB that the slow client reads, the fast one reads more.
    for turn in 0..60 {
        received.extend(slow.body(1024).unwrap());
        if turn % 6 == 0 {
            assert!(fast.get(&target).body == file.bytes);
        } else {
            assert_eq!(fast.bytes(&target, 1_000..9_000), file.bytes[1_000..9_000]);
        }
    }
    received.extend(slow.body(head.length() - received.len()).unwrap());
    assert!(received == file.bytes);
}

#[test]
fn streams_that_nobody_reads_cost_little_memory_and_disturb_nobody() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start(
        &LAYOUTS.map(|layout| fixture.table(layout, &format!("dolt_layout={layout}"))),
    );
    let client = &served.client;
    for layout in LAYOUTS {
        let path = format!("real-archive-v3{layout}");
        assert_eq!(client.root(&path).unwrap(), fixture.root());
        let before = resident(&served);
        let addresses = &fixture.addresses()[..512];
        // Some 40 MB of answers each. A connection has only a few streams, as unread bytes of one
        // stream take from the window of all.
        let mut streams = Vec::new();
        for _ in 0..30 {
            let mut grpc = client.another();
            for _ in 0..2 {
                let requests = std::iter::repeat_n(stream_request(&path, addresses), 2_000);
                streams.push(
                    client.wait(grpc.stream_chunk_locations(tokio_stream::iter(requests))).unwrap(),
                );
            }
        }
        let locations = client.found(&path, Way::Stream, addresses);
        let mut downloads = client.downloads();
        for (chunk, location) in fixture.chunks.iter().zip(&locations).step_by(9) {
            chunk.check(&downloads.chunk(location));
        }
        let grown = resident(&served) - before;
        assert!(grown < f64::from(300 << 20), "{grown} bytes");
        let mut late = streams.swap_remove(31).into_inner();
        let answer = client.wait(late.message());
        assert_eq!(
            answer.unwrap().unwrap().locations.len(),
            512,
            "and who reads after all gets answers"
        );
    }
}

#[test]
fn clients_that_go_away_leave_nothing_behind() {
    let files = files(3);
    let world = World::of_files(&files);
    let served = Served::start(&[world.as_db("disk=0&timeout=60s&dolt_layout=records")]);
    let client = &served.client;
    let list = client.list("db").unwrap().table_file_info;
    let targets: Vec<_> = list.iter().map(|file| target(&file.url, &client.base())).collect();
    world.proxy.set(Faults { first_byte: Duration::from_millis(5), ..Faults::default() });
    let before = resident(&served);
    // More connections in total than the server allows at a time.
    for turn in 0..30 {
        let mut leaving = unread(client, &targets, 150);
        leaving.truncate(75);
        for http in leaving.iter_mut().step_by(3) {
            assert_eq!(http.head().status, 200);
            http.body(1024).unwrap();
        }
        drop(leaving);
        let mut grpc = client.grpc.clone();
        client.wait(async {
            let addresses: Vec<_> =
                files[turn % 3].chunks.iter().map(|(address, _)| *address).collect();
            let requests = std::iter::repeat_n(stream_request("db", &addresses), 50);
            drop(grpc.stream_chunk_locations(tokio_stream::iter(requests)).await.unwrap());
        });
    }
    // A new client downloads all files.
    let started = Instant::now();
    let written: BTreeMap<_, _> =
        files.iter().map(|file| (file.spec.id.to_string(), file)).collect();
    clone(client, &written, 0);
    assert!(started.elapsed() < TIMEOUT);
    // On a slow machine the last clients may not be gone yet.
    eventually("memory is given back", || resident(&served) - before < f64::from(400 << 20));
    assert!(served.server.stop().success(), "and it ends in order");
}

#[test]
fn a_server_that_ends_cuts_downloads_off_and_clients_go_on_with_the_next_one() {
    let file = classic(14, (0..96).map(|_| 1 << 19));
    let world = World::of_files(std::slice::from_ref(&file));
    let served = Served::start(&[world.as_db("")]);
    let target = target(
        &served.client.list("db").unwrap().table_file_info.remove(0).url,
        &served.client.base(),
    );
    let mut slow = unread(&served.client, std::slice::from_ref(&target), 8);
    let heads: Vec<_> = slow.iter_mut().map(Http::head).collect();
    let served = served.restart();
    for (mut http, head) in slow.into_iter().zip(heads) {
        let mut body = http.body(head.length()).unwrap();
        assert!(
            body.len() < head.length() && file.bytes.starts_with(&body),
            "{} bytes",
            body.len()
        );
        let rest = served.client.http().bytes(&target, body.len() as u64..head.length() as u64);
        body.extend(rest);
        assert!(body == file.bytes);
    }
}
