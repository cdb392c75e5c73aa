//! Chunk locations: every chunk of every store, in both layouts, by all three calls; and the order
//! and flow of streams.

use std::{
    collections::{BTreeMap, HashSet},
    thread,
};

use busload_proto::remotesapi::{StreamChunkLocationsRequest, StreamChunkLocationsResponse};
use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::UnboundedReceiverStream};
use tonic::{Code, Streaming};

use super::{
    NOWHERE,
    client::{
        Address, ChunkLocation, Client, Grpc, Urls, WAYS, Way, legacy_locations, legacy_request,
        stream_request,
    },
    fixture::{Fixture, Listed, Served, World, classic, classic_of},
    http::{range_header, target},
    metadata::refused,
    mix,
};

const LAYOUTS: [&str; 2] = ["files", "records"];

/// Asserts that all chunks of a store are at their advertised locations.
#[track_caller]
fn check_all(client: &Client, fixture: &Fixture, table: &str, layout: &str) {
    let addresses = fixture.addresses();
    let locations = client.found(table, Way::Stream, &addresses);
    let mut downloads = client.downloads();
    for (chunk, location) in fixture.chunks.iter().zip(&locations) {
        chunk.check(&downloads.chunk(location));
        assert!(location.url.len() < 8 * 1024, "proxies allow no longer ones: {}", location.url);
    }
    let again = [Way::Stream, Way::Legacy].map(|way| client.found(table, way, &addresses));
    let unary = client.found(table, Way::Unary, &addresses);
    // The server closes idle connections, and the steps above take a while on a slow machine.
    downloads.http = client.http();
    assert!(
        unary.iter().all(|location| location.dictionary.is_none()),
        "{table}: its clients know none"
    );
    match layout {
        // A bundle also holds chunks of requests that happened to arrive at the same time.
        "records" => {
            for locations in again.iter().chain([&locations, &unary]) {
                for (chunk, location) in fixture.chunks.iter().zip(locations) {
                    // Large records stay in their table files.
                    assert!(
                        location.url.contains("/records/") || 256 << 10 < chunk.bytes(),
                        "{location:?}"
                    );
                    chunk.check(&downloads.chunk(location));
                }
            }
        }
        _ => {
            // The URLs are equal strings, by which clients merge ranges.
            assert!(
                again.iter().all(|again| *again == locations),
                "{table}: the same again, in both streams"
            );
            let urls: HashSet<_> = client
                .list(table)
                .unwrap()
                .table_file_info
                .into_iter()
                .map(|file| file.url)
                .collect();
            assert!(
                locations.iter().all(|location| urls.contains(&location.url)),
                "{table}: files that are listed"
            );
            for (chunk, location) in fixture.chunks.iter().zip(&unary).step_by(11) {
                chunk.check(&downloads.chunk(location));
            }
        }
    }
}

#[test]
fn every_chunk_of_every_store_is_at_its_location_in_both_layouts() {
    let fixtures = Fixture::sound();
    let tables = LAYOUTS.iter().flat_map(|layout| {
        fixtures.iter().map(move |fixture| {
            fixture.table(&format!(".{layout}"), &format!("dolt_layout={layout}"))
        })
    });
    let served = Served::start(&tables.collect::<Vec<_>>());
    thread::scope(|scope| {
        for layout in LAYOUTS {
            let (client, fixtures) = (&served.client, &fixtures);
            scope.spawn(move || {
                for fixture in fixtures {
                    check_all(client, fixture, &format!("{}.{layout}", fixture.name), layout);
                }
            });
        }
    });
}

/// The chunks do not match their addresses, so only their whole files can be downloaded.
#[test]
fn chunks_that_are_not_what_their_addresses_say_are_never_given_out() {
    for name in ["synth-collide-classic", "synth-collide-archive"] {
        let fixture = Fixture::new(name);
        let served = Served::start(
            &LAYOUTS.map(|layout| fixture.table(layout, &format!("dolt_layout={layout}"))),
        );
        for way in WAYS {
            let answer =
                served.client.locations(&format!("{name}records"), way, &[fixture.addresses()]);
            refused(answer, Code::DataLoss, &["chunk", "disagree"]);
        }
        let locations =
            served.client.found(&format!("{name}files"), Way::Stream, &fixture.addresses());
        for location in &locations {
            let target = target(&location.url, &served.client.base());
            // An answer that is cut off has no head, or not all of its body.
            let Ok(answer) =
                served.client.http().try_call("GET", &target, &range_header(location.span.clone()))
            else {
                continue;
            };
            if answer.head.status == 206 {
                assert!(!answer.is_whole, "{name}: {location:?} was served");
            } else {
                assert_eq!(answer.head.status, 502, "{name}: {location:?}: {}", answer.text());
                let text = answer.text();
                assert!(
                    ["chunk", "disagree"].iter().all(|part| text.contains(part)),
                    "{name}: {text}"
                );
            }
        }
    }
}

/// Dolt's client downloads ranges of one URL that are less than 8 KiB apart with one GET, including
/// the bytes between them.
#[test]
fn ranges_that_are_near_each_other_are_downloaded_in_one() {
    for name in ["real-classic", "real-archive-v3", "real-archive-conjoined"] {
        let fixture = Fixture::new(name);
        let served = Served::start(
            &LAYOUTS.map(|layout| fixture.table(layout, &format!("dolt_layout={layout}"))),
        );
        for layout in LAYOUTS {
            let chunks: Vec<_> = fixture.chunks.iter().step_by(2).collect();
            let addresses: Vec<_> = chunks.iter().map(|chunk| chunk.address).collect();
            let locations =
                served.client.found(&format!("{name}{layout}"), Way::Stream, &addresses);
            let mut downloads = served.client.downloads();
            let mut by_url: BTreeMap<&str, Vec<(&ChunkLocation, &Listed)>> = BTreeMap::new();
            for (location, chunk) in locations.iter().zip(chunks) {
                by_url.entry(&location.url).or_default().push((location, chunk));
            }
            for (url, mut parts) in by_url {
                parts.sort_by_key(|(location, _)| location.span.start);
                let target = downloads.target(url);
                for region in
                    parts.chunk_by(|(one, _), (two, _)| two.span.start < one.span.end + 8 * 1024)
                {
                    let start = region[0].0.span.start;
                    let end = region.iter().map(|(location, _)| location.span.end).max().unwrap();
                    let bytes = downloads.http.bytes(&target, start..end);
                    for (location, chunk) in region {
                        let at = |offset: u64| usize::try_from(offset - start).unwrap();
                        let stored = &bytes[at(location.span.start)..at(location.span.end)];
                        let dictionary = location
                            .dictionary
                            .clone()
                            .map(|range| downloads.dictionary(url, range));
                        chunk.check(&super::client::decode(stored, dictionary.as_deref()).unwrap());
                    }
                }
            }
        }
    }
}

/// A stream whose requests are sent one by one, and its answers.
struct Dialogue {
    requests: mpsc::UnboundedSender<StreamChunkLocationsRequest>,
    answers: Streaming<StreamChunkLocationsResponse>,
}

impl Dialogue {
    async fn open(mut grpc: Grpc, first: StreamChunkLocationsRequest) -> Self {
        let (requests, asked) = mpsc::unbounded_channel();
        requests.send(first).unwrap();
        let answers =
            grpc.stream_chunk_locations(UnboundedReceiverStream::new(asked)).await.unwrap();
        Self { requests, answers: answers.into_inner() }
    }
}

/// Returns requests whose answers differ in lengths and in missing chunks.
fn requests(fixture: &Fixture, count: u64) -> Vec<Vec<Address>> {
    let known = fixture.addresses();
    let of = |draw: u64| match mix(draw) % 4 {
        0 => NOWHERE,
        _ => known[usize::try_from(mix(draw) % known.len() as u64).unwrap()],
    };
    (0..count)
        .map(|request| (0..mix(request) % 12).map(|index| of(request << 8 | index)).collect())
        .collect()
}

#[track_caller]
fn check_answers(requests: &[Vec<Address>], answers: &[Vec<Option<ChunkLocation>>]) {
    assert_eq!(answers.len(), requests.len());
    for (request, answer) in requests.iter().zip(answers) {
        let missing = |addresses: &[Address]| {
            addresses.iter().map(|address| *address == NOWHERE).collect::<Vec<_>>()
        };
        assert_eq!(answer.iter().map(Option::is_none).collect::<Vec<_>>(), missing(request));
    }
}

#[test]
fn hundreds_of_requests_sent_before_an_answer_is_read_are_answered_in_order() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start(
        &LAYOUTS.map(|layout| fixture.table(layout, &format!("dolt_layout={layout}"))),
    );
    let requests = requests(&fixture, 400);
    for layout in LAYOUTS {
        let path = format!("real-archive-v3{layout}");
        let known = served.client.found(&path, Way::Legacy, &fixture.addresses());
        let mut grpc = served.client.another();
        let answers = served.client.wait(async {
            let (sent, all_sent) = tokio::sync::oneshot::channel::<()>();
            let asked: Vec<_> =
                requests.iter().map(|request| stream_request(&path, request)).collect();
            // Notified when the last request is taken, since the stream is dropped then.
            let held = tokio_stream::iter(asked).chain(tokio_stream::iter(std::iter::from_fn(
                move || {
                    let _held = &sent;
                    None
                },
            )));
            let mut answers = grpc.stream_chunk_locations(held).await.unwrap().into_inner();
            all_sent.await.expect_err("nothing is sent over it");
            let mut urls = Urls::default();
            let mut all = Vec::new();
            while let Some(answer) = answers.message().await.unwrap() {
                all.push(urls.locations(answer, requests[all.len()].len()));
            }
            all
        });
        check_answers(&requests, &answers);
        if layout == "files" {
            let locations: BTreeMap<_, _> = fixture.addresses().into_iter().zip(known).collect();
            for (request, answer) in requests.iter().zip(&answers) {
                let expected: Vec<_> =
                    request.iter().map(|address| locations.get(address).cloned()).collect();
                assert_eq!(*answer, expected);
            }
        }
        let mut downloads = served.client.downloads();
        let chunks: BTreeMap<_, _> =
            fixture.chunks.iter().map(|chunk| (chunk.address, chunk)).collect();
        for (address, location) in requests.concat().iter().zip(answers.concat()).step_by(7) {
            if let Some(location) = location {
                chunks[address].check(&downloads.chunk(&location));
            }
        }
    }
}

#[test]
fn older_streams_are_answered_in_order_too() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start(
        &LAYOUTS.map(|layout| fixture.table(layout, &format!("dolt_layout={layout}"))),
    );
    let requests = requests(&fixture, 300);
    for layout in LAYOUTS {
        let answers = served
            .client
            .locations(&format!("real-archive-v3{layout}"), Way::Legacy, &requests)
            .unwrap();
        check_answers(&requests, &answers);
    }
}

#[test]
fn a_request_is_answered_while_the_stream_stays_open() {
    let fixture = Fixture::new("real-classic");
    let served = Served::start(
        &LAYOUTS.map(|layout| fixture.table(layout, &format!("dolt_layout={layout}"))),
    );
    for layout in LAYOUTS {
        let path = format!("real-classic{layout}");
        let answers = served.client.wait(async {
            let first = stream_request(&path, &[fixture.chunks[0].address]);
            let mut dialogue = Dialogue::open(served.client.grpc.clone(), first).await;
            let mut answers = vec![dialogue.answers.message().await.unwrap().unwrap()];
            for chunk in &fixture.chunks[1..20] {
                dialogue.requests.send(stream_request(&path, &[chunk.address, NOWHERE])).unwrap();
                answers.push(dialogue.answers.message().await.unwrap().unwrap());
            }
            // When the client ends its requests, the answers end, too.
            drop(dialogue.requests);
            assert_eq!(dialogue.answers.message().await.unwrap(), None);
            answers
        });
        assert_eq!(answers.len(), 20);
        assert!(answers.iter().all(|answer| answer.locations.len() == 1));
        assert!(answers[1..].iter().all(|answer| answer.missing_indexes == [1]));
    }
}

#[test]
fn a_stream_without_requests_has_no_answers() {
    let served = Served::start(&[Fixture::new("real-classic").as_db("")]);
    for way in WAYS {
        assert_eq!(served.client.locations("db", way, &[]).unwrap(), Vec::<Vec<_>>::new());
    }
}

#[test]
fn empty_requests_have_empty_answers() {
    let fixture = Fixture::new("real-classic");
    let served = Served::start(
        &LAYOUTS.map(|layout| fixture.table(layout, &format!("dolt_layout={layout}"))),
    );
    let one = vec![fixture.chunks[0].address];
    for layout in LAYOUTS {
        for way in WAYS {
            let requests =
                [vec![], one.clone(), vec![], vec![], vec![NOWHERE], one.clone(), vec![]];
            let answers =
                served.client.locations(&format!("real-classic{layout}"), way, &requests).unwrap();
            check_answers(&requests, &answers);
        }
    }
}

#[test]
fn chunks_asked_for_twice_are_at_one_place() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start(
        &LAYOUTS.map(|layout| fixture.table(layout, &format!("dolt_layout={layout}"))),
    );
    let [a, b] = [fixture.chunks[3].address, fixture.chunks[900].address];
    let request = [a, b, a, NOWHERE, a, b, NOWHERE];
    for layout in LAYOUTS {
        for way in WAYS {
            let path = format!("real-archive-v3{layout}");
            let answer =
                served.client.locations(&path, way, &[request.to_vec()]).unwrap().remove(0);
            assert_eq!(
                (&answer[2], &answer[4], &answer[5]),
                (&answer[0], &answer[0], &answer[1]),
                "{way:?}"
            );
            assert_eq!((&answer[3], &answer[6]), (&None, &None));
            let mut downloads = served.client.downloads();
            fixture.chunks[3].check(&downloads.chunk(answer[0].as_ref().unwrap()));
            fixture.chunks[900].check(&downloads.chunk(answer[1].as_ref().unwrap()));
        }
    }
}

#[test]
fn requests_are_replayed_on_a_new_stream_with_answers_as_good() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start(
        &LAYOUTS.map(|layout| fixture.table(layout, &format!("dolt_layout={layout}"))),
    );
    for layout in LAYOUTS {
        let path = format!("real-archive-v3{layout}");
        let requests: Vec<Vec<_>> =
            fixture.addresses().chunks(100).map(<[Address]>::to_vec).collect();
        let complete = served.client.locations(&path, Way::Stream, &requests).unwrap();
        // The client cancels after some answers, and asks for the others again.
        for answered in [0, 1, 5] {
            let asked: Vec<_> =
                requests.iter().map(|request| stream_request(&path, request)).collect();
            let mut grpc = served.client.grpc.clone();
            let mut locations: Vec<_> = served.client.wait(async {
                let answers = grpc.stream_chunk_locations(tokio_stream::iter(asked)).await.unwrap();
                let (mut answers, mut urls, mut locations) =
                    (answers.into_inner(), Urls::default(), Vec::new());
                for request in &requests[..answered] {
                    let answer = answers.message().await.unwrap().unwrap();
                    locations.push(urls.locations(answer, request.len()));
                }
                locations
            });
            locations.extend(
                served.client.locations(&path, Way::Stream, &requests[answered..]).unwrap(),
            );
            if layout == "files" {
                assert_eq!(locations, complete);
            }
            let locations = locations.iter().flatten().map(|location| location.as_ref().unwrap());
            let mut downloads = served.client.downloads();
            for (chunk, location) in fixture.chunks.iter().zip(locations) {
                chunk.check(&downloads.chunk(location));
            }
        }
    }
}

#[test]
fn streams_at_the_same_time_do_not_mix() {
    let fixtures = [Fixture::new("real-archive-v3"), Fixture::new("real-classic")];
    let tables = fixtures.each_ref().map(|fixture| fixture.table("", ""));
    let served = Served::start(&tables);
    // Several streams take turns on one connection.
    let answers = served.client.wait(async {
        let mut dialogues = Vec::new();
        for fixture in &fixtures {
            let first = stream_request(fixture.name, &[fixture.chunks[0].address]);
            dialogues
                .push((Dialogue::open(served.client.grpc.clone(), first).await, Urls::default()));
        }
        let mut answers = [const { Vec::new() }; 2];
        for index in 0..60 {
            for ((dialogue, urls), (fixture, answers)) in
                dialogues.iter_mut().zip(fixtures.iter().zip(&mut answers))
            {
                let answer = dialogue.answers.message().await.unwrap().unwrap();
                answers.push(urls.locations(answer, 1).remove(0).unwrap());
                let next = stream_request(fixture.name, &[fixture.chunks[index + 1].address]);
                dialogue.requests.send(next).unwrap();
            }
        }
        answers
    });
    let mut downloads = served.client.downloads();
    for (fixture, answers) in fixtures.iter().zip(&answers) {
        for (chunk, location) in fixture.chunks.iter().zip(answers) {
            chunk.check(&downloads.chunk(location));
        }
    }
}

#[test]
fn a_hundred_streams_of_one_connection_are_answered_at_the_same_time() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start(
        &LAYOUTS.map(|layout| fixture.table(layout, &format!("dolt_layout={layout}"))),
    );
    for layout in LAYOUTS {
        let path = format!("real-archive-v3{layout}");
        let answers = served.client.wait(async {
            let mut dialogues = Vec::new();
            for chunk in &fixture.chunks[..100] {
                let first = stream_request(&path, &[chunk.address]);
                dialogues.push(Dialogue::open(served.client.grpc.clone(), first).await);
            }
            let mut answers = Vec::new();
            for dialogue in dialogues.iter_mut().rev() {
                answers.push(dialogue.answers.message().await.unwrap().unwrap());
            }
            answers
        });
        assert!(
            answers
                .iter()
                .all(|answer| answer.locations.len() == 1 && answer.missing_indexes.is_empty())
        );
    }
}

#[test]
fn what_is_no_list_of_addresses_ends_the_stream_after_the_answers_before_it() {
    let fixture = Fixture::new("real-classic");
    let served = Served::start(&[fixture.as_db("")]);
    let good = fixture.addresses()[..3].to_vec();
    let many = vec![good[0]; 16_385];
    let packed = |bytes: Vec<u8>| StreamChunkLocationsRequest {
        chunk_hashes: bytes.into(),
        ..stream_request("db", &[])
    };
    let bad = [
        (packed(vec![7; 19]), "20"),
        (packed(vec![7; 21]), "20"),
        (packed(vec![7; 1]), "20"),
        (stream_request("db", &many), "16384"),
        (stream_request("nowhere", &good), "nowhere"),
    ];
    for (bad, text) in bad {
        let code = if text == "nowhere" { Code::NotFound } else { Code::InvalidArgument };
        let asked = vec![
            stream_request("db", &good),
            stream_request("db", &good),
            bad,
            stream_request("db", &good),
        ];
        let mut grpc = served.client.grpc.clone();
        served.client.wait(async {
            let mut answers =
                grpc.stream_chunk_locations(tokio_stream::iter(asked)).await.unwrap().into_inner();
            let mut urls = Urls::default();
            for _ in 0..2 {
                let answer =
                    answers.message().await.unwrap().expect("what came before is answered");
                assert!(urls.locations(answer, good.len()).iter().all(Option::is_some));
            }
            refused(answers.message().await, code, &[text]);
        });
    }
    let mut hashes = legacy_request("db", &good);
    hashes.chunk_hashes.push(vec![7; 19].into());
    let bad = [hashes, legacy_request("db", &many)];
    for bad in bad {
        let asked = vec![legacy_request("db", &good), bad.clone()];
        let mut grpc = served.client.grpc.clone();
        served.client.wait(async {
            let mut answers = grpc
                .stream_download_locations(tokio_stream::iter(asked))
                .await
                .unwrap()
                .into_inner();
            let answer = answers.message().await.unwrap().expect("what came before is answered");
            assert!(legacy_locations(answer, &good).iter().all(Option::is_some));
            refused(answers.message().await, Code::InvalidArgument, &[]);
            refused(grpc.get_download_locations(bad).await, Code::InvalidArgument, &[]);
        });
    }
}

#[test]
fn as_many_addresses_as_may_be_asked_for_at_once_are_located() {
    let fixture = Fixture::new("synth-many-archive");
    let served = Served::start(
        &LAYOUTS.map(|layout| fixture.table(layout, &format!("dolt_layout={layout}"))),
    );
    let known = fixture.addresses();
    let request: Vec<_> = (0..16_384)
        .map(|index| if index % 9 == 0 { NOWHERE } else { known[index % known.len()] })
        .collect();
    for layout in LAYOUTS {
        for way in WAYS {
            let path = format!("synth-many-archive{layout}");
            let answer =
                served.client.locations(&path, way, std::slice::from_ref(&request)).unwrap();
            check_answers(std::slice::from_ref(&request), &answer);
        }
    }
}

#[test]
fn chunks_of_all_sizes_are_given_in_resources_of_bounded_size() {
    // Sizes around the limits of a bundle and far above; some chunks compress, others do not.
    let sizes =
        [1, 100, 4_096, 65_536, 200 << 10, 256 << 10, (256 << 10) + 1, 300 << 10, 1 << 20, 5 << 20];
    let noise = classic(5, sizes.into_iter().chain((0..40).map(|_| 250 << 10)));
    let sevens = classic_of([3_000_000, 9_000_000].map(|bytes| vec![7; bytes]));
    let chunks = [&*noise.chunks, &*sevens.chunks].concat();
    let world = World::of_files(&[noise, sevens]);
    let addresses: Vec<_> = chunks.iter().map(|(address, _)| *address).collect();
    for layout in LAYOUTS {
        let served = Served::start(&[world.as_db(&format!("dolt_layout={layout}"))]);
        let locations = served.client.found("db", Way::Stream, &addresses);
        let mut downloads = served.client.downloads();
        for ((_, contents), location) in chunks.iter().zip(&locations) {
            assert!(downloads.chunk(location) == *contents, "{} bytes", contents.len());
        }
        for url in
            locations.iter().map(|location| &location.url).filter(|url| url.contains("/records/"))
        {
            let target = downloads.target(url);
            let head = downloads.http.call("HEAD", &target, "").head;
            assert!(head.length() <= 9 << 20, "{} bytes in memory for {url}", head.length());
        }
    }
}
