//! Stores that fail in the middle of a body. Clients get right bytes or an error that they retry,
//! never a short body that looks complete.

use std::{ops::Range, thread, time::Duration};

use busload_bucket::{Fault, Faults, Rule};
use tonic::Code;

use super::{
    client::{ChunkLocation, Way, decode},
    eventually,
    fixture::{Fixture, Served, World, classic},
    http::{Http, range_header, target},
    mix,
};

/// Counters of how downloads ended.
#[derive(Debug, Default)]
struct Outcomes {
    right: u32,
    refused: u32,
    cut: u32,
}

impl Outcomes {
    /// Downloads known bytes: a range, or the whole resource if none is given. Opens a new
    /// connection if the old one is broken.
    #[track_caller]
    fn download(
        &mut self,
        http: &mut Http,
        at: (&str, Option<Range<u64>>),
        truth: &[u8],
        reconnect: impl Fn() -> Http,
    ) {
        let (target, range) = at;
        let header = range.clone().map(range_header).unwrap_or_default();
        let Ok(answer) = http.try_call("GET", target, &header) else {
            self.cut += 1;
            *http = reconnect();
            return;
        };
        let expected = if range.is_some() { 206 } else { 200 };
        if answer.head.status == expected {
            assert_eq!(
                answer.head.length(),
                truth.len(),
                "{target} {range:?}: a short body that looks complete"
            );
            assert!(truth.starts_with(&answer.body), "{target} {range:?}: wrong bytes");
            if answer.is_whole {
                self.right += 1;
            } else {
                self.cut += 1;
                *http = reconnect();
            }
            return;
        }
        assert!(
            [502, 503, 504].contains(&answer.head.status),
            "{target}: {:?} {}",
            answer.head,
            answer.text()
        );
        assert!(answer.is_whole && !answer.body.is_empty(), "an error says why");
        assert!(answer.head.get("retry-after").is_some(), "{:?}", answer.head);
        self.refused += 1;
    }
}

/// Returns the faults of bodies that can be detected without knowing the right bytes. Whole files
/// and the bytes between chunks cannot be verified while they are being sent.
fn faults() -> Faults {
    let rules = [
        Rule::sometimes(0.15, Fault::Reset(300)),
        Rule::sometimes(0.15, Fault::Truncate(700)),
        Rule::sometimes(0.1, Fault::Status(503)),
        Rule::sometimes(0.1, Fault::NoAnswer),
        Rule::sometimes(0.05, Fault::WrongRange),
        Rule::sometimes(0.05, Fault::WholeForRange),
        Rule::sometimes(0.05, Fault::Reset(0)),
        Rule::sometimes(0.02, Fault::Stall(100)),
    ];
    Faults { rules: rules.into(), ..Faults::default() }
}

#[test]
fn ranges_of_files_are_right_or_fail_openly_whatever_the_store_does() {
    let file = classic(4, (0..200).map(|index| 500 + index * 41));
    let world = World::of_files(std::slice::from_ref(&file));
    // Without a disk, every download goes to the store.
    let served = Served::start(&[world.as_db("disk=0&timeout=2s&dolt_layout=files")]);
    served.wait_until_open();
    let client = &served.client;
    let url = client.list("db").unwrap().table_file_info.remove(0).url;
    let target = target(&url, &client.base());
    world.proxy.set(faults());
    let outcomes: Vec<Outcomes> = thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                let (target, file) = (&target, &file);
                scope.spawn(move || {
                    let (mut http, mut outcomes) = (client.http(), Outcomes::default());
                    for index in 0..50 {
                        let draw = mix(worker << 32 | index);
                        let start = draw % (file.bytes.len() as u64 - 1);
                        let length = 1 + mix(draw) % 40_000;
                        let end = (start + length).min(file.bytes.len() as u64);
                        let bytes = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
                        let (range, truth) = match index % 10 {
                            0 => (None, &file.bytes[..]),
                            _ => (Some(start..end), &file.bytes[bytes]),
                        };
                        outcomes.download(&mut http, (target, range), truth, || client.http());
                    }
                    outcomes
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let right: u32 = outcomes.iter().map(|outcomes| outcomes.right).sum();
    assert!(100 < right, "the store answers sometimes: {outcomes:?}");
    world.proxy.set(Faults::default());
    // Stalled requests stay in the store's request window for some seconds.
    eventually("it is served as ever", || {
        let bytes = client.file(&target);
        assert!(bytes.as_ref().is_none_or(|bytes| *bytes == file.bytes), "wrong bytes");
        bytes.is_some()
    });
}

#[test]
fn chunks_are_right_or_an_error_whatever_the_store_does_in_both_layouts() {
    let fixture = Fixture::new("real-archive-v3");
    let world = World::of(&fixture);
    for layout in ["files", "records"] {
        world.proxy.set(Faults::default());
        let served =
            Served::start(&[world.as_db(&format!("disk=0&timeout=2s&dolt_layout={layout}"))]);
        served.wait_until_open();
        let client = &served.client;
        assert_eq!(client.root("db").unwrap(), fixture.root());
        // Bytes that differ from the store's: detected where chunks are verified by their address.
        let mut faults = faults();
        faults.rules.insert(0, Rule::sometimes(0.2, Fault::Flip(1_234)));
        faults.rules.insert(1, Rule::sometimes(0.1, Fault::LyingRange));
        world.proxy.set(faults);
        let (mut downloads, mut right) = (client.downloads(), 0);
        for (turn, chunks) in fixture.chunks.chunks(20).enumerate() {
            let asked: Vec<_> = chunks.iter().map(|chunk| chunk.address).collect();
            let way = [Way::Stream, Way::Legacy, Way::Unary][turn % 3];
            let locations = match client.locations("db", way, &[asked]) {
                Ok(mut locations) => locations.remove(0),
                Err(status) => {
                    assert!(
                        [Code::Unavailable, Code::DataLoss].contains(&status.code()),
                        "{status}"
                    );
                    continue;
                }
            };
            for (chunk, location) in chunks.iter().zip(locations).step_by(4) {
                let location =
                    location.expect("what the store cannot say is no chunk that does not exist");
                let target = downloads.target(&location.url);
                let Ok(answer) =
                    downloads.http.try_call("GET", &target, &range_header(location.span.clone()))
                else {
                    downloads = client.downloads();
                    continue;
                };
                if answer.head.status == 206 && answer.is_whole {
                    let dictionary = location
                        .dictionary
                        .clone()
                        .map(|range| downloads.dictionary(&location.url, range));
                    chunk.check(&decode(&answer.body, dictionary.as_deref()).unwrap());
                    right += 1;
                } else if !answer.is_whole {
                    downloads = client.downloads();
                }
            }
        }
        assert!(20 < right, "{layout}: the store answers sometimes, {right}");
        world.proxy.set(Faults::default());
        // Corruption that was seen twice in the same way is taken for real for some seconds.
        let (addresses, mut locations) = (fixture.addresses(), Vec::new());
        eventually("all chunks have locations", || {
            locations = client
                .locations("db", Way::Stream, std::slice::from_ref(&addresses))
                .unwrap_or_default();
            !locations.is_empty()
        });
        let mut downloads = client.downloads();
        for (chunk, location) in fixture.chunks.iter().zip(locations.remove(0)).step_by(5) {
            let location = location.expect("the store holds it");
            let (target, range) =
                (downloads.target(&location.url), range_header(location.span.clone()));
            // The location is not asked for again: on a slow machine that request could be refused.
            let mut stored = Vec::new();
            eventually("the chunk is served", || {
                let answer = downloads.http.try_call("GET", &target, &range);
                let Some(answer) = answer.ok().filter(|answer| answer.is_whole) else {
                    downloads.http = client.http();
                    return false;
                };
                stored = answer.body;
                answer.head.status == 206
            });
            let dictionary =
                location.dictionary.clone().map(|range| downloads.dictionary(&location.url, range));
            chunk.check(&decode(&stored, dictionary.as_deref()).unwrap());
        }
    }
}

#[test]
fn a_body_is_cut_off_when_the_store_goes_away_in_the_middle() {
    let file = classic(6, (0..96).map(|_| 1 << 19));
    let world = World::of_files(std::slice::from_ref(&file));
    let served = Served::start(&[world.as_db("disk=0&timeout=1s")]);
    served.wait_until_open();
    let client = &served.client;
    let target = target(&client.list("db").unwrap().table_file_info.remove(0).url, &client.base());
    let size = file.bytes.len() as u64;
    for range in [None, Some(5..size - 5)] {
        let header = range.clone().map(range_header).unwrap_or_default();
        let (mut http, head) = client.begin(&target, &header);
        let truth = match range {
            None => &file.bytes[..],
            Some(_) => &file.bytes[5..file.bytes.len() - 5],
        };
        assert_eq!(head.length(), truth.len());
        let mut received = http.body(1 << 20).unwrap();
        world.proxy.go_away();
        received.extend(http.body(truth.len() - received.len()).unwrap());
        assert!(received.len() < truth.len(), "nobody has the rest");
        assert!(truth.starts_with(&received), "what came is right");
        world.proxy.come_back();
        // The client resumes at the next byte.
        let rest = truth.len() as u64 - received.len() as u64;
        let start = 5 * u64::from(!header.is_empty()) + received.len() as u64;
        let mut bytes = Vec::new();
        eventually("the store is there again", || {
            let answer = client.http().try_call("GET", &target, &range_header(start..start + rest));
            let answer = answer.ok().filter(|answer| answer.head.status == 206 && answer.is_whole);
            bytes = answer.map(|answer| answer.body).unwrap_or_default();
            !bytes.is_empty()
        });
        assert!(truth.ends_with(&bytes) && bytes.len() as u64 == rest);
    }
}

#[test]
fn a_store_that_is_away_is_an_error_before_anything_is_sent() {
    let fixture = Fixture::new("real-archive-v3");
    let world = World::of(&fixture);
    for layout in ["files", "records"] {
        let mut served =
            Served::start(&[world.as_db(&format!("disk=0&timeout=500ms&dolt_layout={layout}"))]);
        served.wait_until_open();
        let client = &served.client;
        let urls: Vec<_> =
            client.list("db").unwrap().table_file_info.into_iter().map(|file| file.url).collect();
        world.proxy.go_away();
        for url in urls.iter().take(3) {
            let target = target(url, &client.base());
            for (method, headers) in [("GET", ""), ("GET", "Range: bytes=10-2000\r\n")] {
                let answer = client.http().call(method, &target, headers);
                assert_eq!(
                    answer.head.status,
                    503,
                    "{method} {target} {headers}: {}",
                    answer.text()
                );
                assert!(answer.head.get("retry-after").is_some());
                assert!(answer.text().contains("s3://"), "{}", answer.text());
            }
            assert_eq!(
                client.http().call("HEAD", &target, "").head.status,
                200,
                "its length is known"
            );
        }
        // Dictionaries and chunks that could not be read cannot be advertised.
        for way in [Way::Stream, Way::Legacy, Way::Unary] {
            let status = client.locations("db", way, &[fixture.addresses()]).unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            // Several waits share the deadline, and the first to notice reports it.
            assert!(
                ["within", "in time"].iter().any(|part| status.message().contains(part)),
                "{status}"
            );
        }
        world.proxy.come_back();
        eventually("the store is served", || {
            client.locations("db", Way::Unary, &[fixture.addresses()]).is_ok()
        });
        // Clients print only the status, so the log says why, but not for each of the twelve.
        served.server.signal(rustix::process::Signal::TERM);
        assert!(served.server.wait().success());
        let said = served.server.said().iter();
        let lines = said.filter(|line| line.contains("table db: a download was refused: ")).count();
        assert!((1..6).contains(&lines), "{:?}", served.server.said());
    }
}

/// Clients wait 15 seconds for a status, however many requests to the store it takes.
#[test]
fn looking_for_a_file_and_its_first_bytes_have_one_timeout_together() {
    let [old, new] = [14, 15].map(|seed| classic(seed, (0..50).map(|index| 1_000 + index * 7)));
    let world = World::of_files(std::slice::from_ref(&old));
    let url = {
        let served = Served::start(&[world.as_db("")]);
        target(
            &served.client.list("db").unwrap().table_file_info.remove(0).url,
            &served.client.base(),
        )
    };
    world.put(&new);
    world.name(&[&new]);
    // The file is not in the served version, so the server looks for it in the store.
    let served = Served::start(&[world.as_db("disk=0&timeout=5s")]);
    served.wait_until_open();
    // One delay fits into the timeout, and two exceed it.
    let delay = Rule::always(Fault::Delay(Duration::from_secs(3))).to(&old.spec.id.to_string());
    world.proxy.set(Faults { rules: vec![delay], ..Faults::default() });
    let mut http = served.client.http();
    let answer = http.range(&url, 10..2_000);
    assert_eq!(answer.head.status, 503, "{}", answer.text());
    assert!(answer.head.get("retry-after").is_some());
    assert!(
        ["s3://", "5s", "db"].iter().all(|part| answer.text().contains(part)),
        "{}",
        answer.text()
    );
    // The file has been found by now.
    eventually("its bytes come in time", || {
        let answer = http.range(&url, 10..2_000);
        assert!([206, 503].contains(&answer.head.status), "{}", answer.text());
        answer.head.status == 206 && answer.body == old.bytes[10..2_000]
    });
}

/// Dolt's client hangs for ever if the download of a dictionary keeps failing.
#[test]
fn dictionaries_that_were_given_out_are_served_whatever_happens() {
    for name in [
        "real-archive-v3",
        "rewritten-archive-v1",
        "real-archive-conjoined",
        "synth-sizes-archive-zstd",
    ] {
        for disk in ["", "disk=0&"] {
            let fixture = Fixture::new(name);
            let world = World::of(&fixture);
            let served = Served::start(&[world.as_db(&format!("{disk}dolt_layout=files"))]);
            let client = &served.client;
            let locations = client.found("db", Way::Stream, &fixture.addresses());
            let dictionaries = |locations: &[ChunkLocation]| {
                let of = |location: &ChunkLocation| {
                    Some((target(&location.url, &client.base()), location.dictionary.clone()?))
                };
                let mut all: Vec<_> = locations.iter().filter_map(of).collect();
                all.sort_by_key(|(target, range)| (target.clone(), range.start));
                all.dedup();
                all
            };
            let given = dictionaries(&locations);
            assert!(!given.is_empty(), "{name}");
            world.proxy.go_away();
            if disk.is_empty() {
                served.drop_cache();
            }
            for _ in 0..2 {
                for (target, range) in &given {
                    let bytes = client.http().bytes(target, range.clone());
                    assert!(
                        zstd::bulk::decompress(&bytes, 1 << 20).is_ok(),
                        "{name}: a dictionary"
                    );
                    let path = fixture
                        .files()
                        .into_iter()
                        .find(|file| target.contains(&file.id.to_string()))
                        .unwrap()
                        .path;
                    let at = |offset: u64| usize::try_from(offset).unwrap();
                    assert!(bytes == std::fs::read(path).unwrap()[at(range.start)..at(range.end)]);
                }
            }
            // Locations that were advertised before can be advertised again.
            if disk.is_empty() {
                assert_eq!(client.found("db", Way::Legacy, &fixture.addresses()), locations);
            }
        }
    }
}

#[test]
fn a_dictionary_that_is_corrupt_in_the_store_is_never_given_out() {
    let fixture = Fixture::new("real-archive-v3");
    let archive =
        fixture.files().into_iter().max_by_key(|file| file.path.metadata().unwrap().len()).unwrap();
    let world = World::of(&fixture);
    let mut bytes = std::fs::read(&archive.path).unwrap();
    // The dictionary is the first span of this file.
    bytes[..200].fill(0);
    world.bucket.put(&format!("p/{}.darc", archive.id), &bytes).unwrap();
    for layout in ["files", "records"] {
        let served = Served::start(&[world.as_db(&format!("dolt_layout={layout}"))]);
        for way in [Way::Stream, Way::Legacy, Way::Unary] {
            let status = served.client.locations("db", way, &[fixture.addresses()]).unwrap_err();
            assert_eq!(status.code(), Code::DataLoss, "{layout} {way:?}: {status}");
        }
    }
}
