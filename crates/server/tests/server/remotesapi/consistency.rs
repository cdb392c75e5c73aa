//! New versions of the store while clients work, URLs that outlive versions, processes and the
//! cache, and other bytes under an old name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use busload_proto::remotesapi::RebaseRequest;

use super::{
    NOWHERE,
    client::{Address, ChunkLocation, Client, Way},
    eventually,
    fixture::{Served, World, Written, classic, classic_of},
    http::target,
};

const LAYOUTS: [&str; 2] = ["files", "records"];

/// Two files, and a conjoined file of both with new chunks.
struct Versions {
    old: [Written; 2],
    conjoined: Written,
}

impl Versions {
    fn new() -> Self {
        let old = [1, 2].map(|seed| classic(seed, (0..60).map(|index| 1_000 + index * 37)));
        let contents = |file: &Written| {
            file.chunks.iter().map(|(_, contents)| contents.clone()).collect::<Vec<_>>()
        };
        let new = classic(3, [5_000, 70, 900]);
        let conjoined = classic_of([contents(&new), contents(&old[0]), contents(&old[1])].concat());
        Self { old, conjoined }
    }

    /// Creates a store of the old version.
    fn world(&self) -> World {
        let world = World::of_files(&self.old);
        world.put(&self.conjoined);
        world
    }

    /// Writes the manifest of the new version and returns its root.
    fn switch(&self, world: &World) -> Address {
        world.name(&[&self.conjoined])
    }

    fn switch_back(&self, world: &World) -> Address {
        world.name(&[&self.old[0], &self.old[1]])
    }

    /// Returns the chunks of the old version.
    fn chunks(&self) -> Vec<(Address, Vec<u8>)> {
        self.old.iter().flat_map(|file| file.chunks.clone()).collect()
    }
}

/// Returns the paths of the listed files, by file id.
fn files(client: &Client) -> BTreeMap<String, String> {
    let list = client.list("db").unwrap().table_file_info.into_iter();
    list.map(|file| (file.file_id, target(&file.url, &client.base()))).collect()
}

fn addresses(chunks: &[(Address, Vec<u8>)]) -> Vec<Address> {
    chunks.iter().map(|(address, _)| *address).collect()
}

/// Asserts that chunks are at the advertised locations, perhaps of an earlier process.
#[track_caller]
fn check_locations(
    client: &Client,
    earlier: &str,
    locations: &[ChunkLocation],
    chunks: &[(Address, Vec<u8>)],
) {
    let mut downloads = client.downloads();
    for (location, (_, contents)) in locations.iter().zip(chunks) {
        let url = format!("{}{}", client.base(), target(&location.url, earlier));
        assert!(
            downloads.chunk(&ChunkLocation { url, ..location.clone() }) == *contents,
            "{location:?}"
        );
    }
}

#[test]
fn a_clone_is_completed_while_a_new_version_replaces_its_files() {
    for layout in LAYOUTS {
        let versions = Versions::new();
        let world = versions.world();
        let served = Served::start(&[world.as_db(&format!("poll=20ms&dolt_layout={layout}"))]);
        let client = &served.client;
        assert_eq!(client.root("db").unwrap(), versions.old[0].chunks[0].0);
        let listed = files(client);
        let [one, two] = versions.old.each_ref().map(|file| &listed[&file.spec.id.to_string()]);
        let chunks = versions.chunks();
        let locations = client.found("db", Way::Stream, &addresses(&chunks));
        assert!(client.http().get(one).body == versions.old[0].bytes);

        let root = versions.switch(&world);
        eventually("the new version is served", || client.root("db").unwrap() == root);
        assert!(client.http().get(two).body == versions.old[1].bytes, "the rest of the clone");
        served.drop_cache();
        assert!(client.http().get(one).body == versions.old[0].bytes, "again, from the store");
        check_locations(client, &client.base(), &locations, &chunks);
        let list = client.list("db").unwrap();
        assert_eq!(list.root_hash, root.to_vec());
        assert_eq!(list.table_file_info.len(), 1);
        let now = &files(client)[&versions.conjoined.spec.id.to_string()];
        assert!(client.http().get(now).body == versions.conjoined.bytes);
        assert_eq!(client.absent("db", &addresses(&versions.conjoined.chunks)).unwrap(), [0; 0]);
        let chunks = &versions.conjoined.chunks;
        check_locations(
            client,
            &client.base(),
            &client.found("db", Way::Legacy, &addresses(chunks)),
            chunks,
        );
    }
}

#[test]
fn urls_are_good_after_a_restart_and_for_files_that_were_dropped_before_it() {
    for layout in LAYOUTS {
        let versions = Versions::new();
        let world = versions.world();
        let served = Served::start(&[world.as_db(&format!("dolt_layout={layout}"))]);
        let (listed, base) = (files(&served.client), served.client.base());
        let chunks = versions.chunks();
        let locations = served.client.found("db", Way::Stream, &addresses(&chunks));
        let served = served.restart();
        assert_eq!(files(&served.client), listed, "the same URLs");
        let again = served.client.found("db", Way::Stream, &addresses(&chunks));
        let targets = |locations: &[ChunkLocation], base: &str| {
            locations
                .iter()
                .map(|location| (target(&location.url, base), location.span.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            targets(&again, &served.client.base()),
            targets(&locations, &base),
            "the same locations"
        );

        versions.switch(&world);
        for empty in [false, true] {
            // The process learned from no request in between which chunks they are.
            let served = if empty {
                Served::start(&[world.as_db(&format!("dolt_layout={layout}"))])
            } else {
                Served::start(&[world.as_db(&format!("disk=0&dolt_layout={layout}"))])
            };
            check_locations(&served.client, &base, &locations, &chunks);
            for file in &versions.old {
                let answer = served.client.http().get(&listed[&file.spec.id.to_string()]);
                assert!(
                    answer.head.status == 200 && answer.body == file.bytes,
                    "{}",
                    answer.head.status
                );
            }
        }
        let served = served.restart();
        check_locations(&served.client, &base, &locations, &chunks);
        assert_eq!(files(&served.client).len(), 1, "and it is the new version");
    }
}

#[test]
fn files_that_the_store_does_not_have_any_more_are_not_found() {
    let versions = Versions::new();
    let world = versions.world();
    let served = Served::start(&[world.as_db("")]);
    let listed = files(&served.client);
    versions.switch(&world);
    world.bucket.delete(&format!("p/{}", versions.old[0].spec.id)).unwrap();
    let served = served.restart_empty();
    let [gone, there] = versions.old.each_ref().map(|file| &listed[&file.spec.id.to_string()]);
    for _ in 0..2 {
        let answer = served.client.http().get(gone);
        assert_eq!(answer.head.status, 404, "{}", answer.text());
        assert!(served.client.http().get(there).body == versions.old[1].bytes);
    }
}

#[test]
fn records_of_chunks_that_were_collected_are_not_found() {
    let versions = Versions::new();
    let world = versions.world();
    let served = Served::start(&[world.as_db("dolt_layout=records")]);
    let chunks = &versions.old[0].chunks;
    let locations = served.client.found("db", Way::Stream, &addresses(chunks));
    let records = target(&locations[0].url, &served.client.base());
    world.name(&[&versions.old[1]]);
    world.bucket.delete(&format!("p/{}", versions.old[0].spec.id)).unwrap();
    let served = served.restart_empty();
    let answer = served.client.http().range(&records, 0..10);
    assert_eq!(answer.head.status, 404, "{}", answer.text());
    assert!(!answer.text().is_empty(), "and why");
}

#[test]
fn records_are_made_again_when_memory_is_used_for_others() {
    // More bundles than fit in memory.
    let file = classic(9, (0..400).map(|_| 250 << 10));
    let world = World::of_files(std::slice::from_ref(&file));
    let served = Served::start(&[world.as_db("dolt_layout=records")]);
    let client = &served.client;
    let mut locations = Vec::new();
    for chunks in file.chunks.chunks(16) {
        locations.extend(client.found("db", Way::Stream, &addresses(chunks)));
    }
    let mut downloads = client.downloads();
    for turn in 0..2 {
        for (location, (_, contents)) in locations.iter().zip(&file.chunks).step_by(9) {
            assert!(downloads.chunk(location) == *contents, "{turn} {location:?}");
        }
    }
    let again = client.found("db", Way::Legacy, &addresses(&file.chunks[..16]));
    assert_eq!(again, locations[..16]);
}

#[test]
fn what_is_in_one_answer_is_of_one_version() {
    let versions = Versions::new();
    let world = versions.world();
    let served = Served::start(&[world.as_db("poll=10ms&dolt_layout=files")]);
    let client = &served.client;
    let old: BTreeSet<_> = versions.old.iter().map(|file| file.spec.id.to_string()).collect();
    let new: BTreeSet<_> = [versions.conjoined.spec.id.to_string()].into();
    let roots = [versions.old[0].chunks[0].0, versions.conjoined.chunks[0].0];
    let asked = addresses(&versions.chunks());
    let done = AtomicBool::new(false);
    // Whether the old and the new version were seen, in lists and in locations.
    let seen = [const { [const { AtomicBool::new(false) }; 2] }; 2];
    let [in_lists, in_locations] = &seen;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let list = client.list("db").unwrap();
                let is_new = list.root_hash == roots[1].to_vec();
                assert!(is_new || list.root_hash == roots[0].to_vec());
                let ids: BTreeSet<_> =
                    list.table_file_info.into_iter().map(|file| file.file_id).collect();
                assert_eq!(ids, *if is_new { &new } else { &old });
                in_lists[usize::from(is_new)].store(true, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let locations = client.found("db", Way::Legacy, &asked);
                let id = |location: &ChunkLocation| {
                    location.url.split('?').next().unwrap().rsplit('/').next().unwrap().to_owned()
                };
                let ids: BTreeSet<_> = locations.iter().map(id).collect();
                assert!(ids == old || ids == new, "{ids:?}");
                in_locations[usize::from(ids == new)].store(true, Ordering::Relaxed);
            }
        });
        let is_all_seen = || seen.iter().flatten().all(|seen| seen.load(Ordering::Relaxed));
        for turn in 0..3_000 {
            let root =
                if turn % 2 == 0 { versions.switch(&world) } else { versions.switch_back(&world) };
            eventually("the version is served", || client.root("db").unwrap() == root);
            // A client that saw the root finds the chunks below it.
            if turn % 2 == 0 {
                assert_eq!(
                    client.absent("db", &addresses(&versions.conjoined.chunks)).unwrap(),
                    [0; 0]
                );
            }
            if 30 <= turn && is_all_seen() {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(is_all_seen(), "both versions are seen: {seen:?}");
    });
}

#[test]
fn what_was_pushed_before_the_question_is_found() {
    for (layout, way) in [("files", Way::Stream), ("records", Way::Stream), ("records", Way::Unary)]
    {
        let versions = Versions::new();
        let world = versions.world();
        // No poll reads the manifest during the test.
        let served = Served::start(&[world.as_db(&format!("poll=60m&dolt_layout={layout}"))]);
        let client = &served.client;
        let chunks = &versions.conjoined.chunks[..3];
        let asked = [addresses(chunks), vec![NOWHERE]].concat();
        assert_eq!(client.absent("db", &asked).unwrap(), [0, 1, 2, 3]);
        versions.switch(&world);
        let locations =
            client.locations("db", way, std::slice::from_ref(&asked)).unwrap().remove(0);
        assert_eq!(locations[3], None);
        let locations: Vec<_> = locations.into_iter().flatten().collect();
        check_locations(client, &client.base(), &locations, chunks);
        assert_eq!(client.absent("db", &asked).unwrap(), [3]);
        assert_eq!(
            client.root("db").unwrap(),
            versions.conjoined.chunks[0].0,
            "the root belongs to it"
        );
    }
}

#[test]
fn rebase_looks_at_the_manifest() {
    let versions = Versions::new();
    let world = versions.world();
    let served = Served::start(&[world.as_db("poll=60m")]);
    let client = &served.client;
    assert_eq!(client.root("db").unwrap(), versions.old[0].chunks[0].0);
    let root = versions.switch(&world);
    let request = RebaseRequest { repo_path: "db".into(), ..Default::default() };
    client.call(|mut grpc| async move { grpc.rebase(request).await }).unwrap();
    assert_eq!(client.root("db").unwrap(), root);
}

/// Two uploads under one name may differ in their bytes.
#[test]
fn other_bytes_under_the_same_name_have_another_url() {
    let versions = Versions::new();
    let world = versions.world();
    let served = Served::start(&[world.as_db("poll=20ms&disk=0")]);
    let id = versions.old[0].spec.id.to_string();
    let old = files(&served.client)[&id].clone();
    assert!(served.client.http().get(&old).body == versions.old[0].bytes);
    // The file has as many chunks as the manifest says.
    let replaced = classic(77, (0..60).map(|index| 2_000 + index * 11));
    world.bucket.put(&format!("p/{id}"), &replaced.bytes).unwrap();
    let check_old = |served: &Served| {
        let answer = served.client.http().try_call("GET", &old, "");
        let answer = answer.ok().filter(|answer| answer.is_whole && answer.head.status == 200);
        assert!(answer.is_none_or(|answer| answer.body == versions.old[0].bytes), "other bytes");
    };
    check_old(&served);
    let served = served.restart_empty();
    let new = files(&served.client)[&id].clone();
    assert_ne!(new, old);
    assert!(served.client.http().get(&new).body == replaced.bytes);
    let answer = served.client.http().get(&old);
    assert_eq!(answer.head.status, 404, "{}", answer.text());
}

#[test]
fn bytes_of_two_uploads_under_one_name_are_never_in_one_answer() {
    let lengths = || (0..96).map(|_| 1 << 19);
    let [file, replaced] = [12, 13].map(|seed| classic(seed, lengths()));
    assert_eq!(
        file.bytes.len(),
        replaced.bytes.len(),
        "nothing but their contents tells them apart"
    );
    let world = World::of_files(std::slice::from_ref(&file));
    for disk in ["", "disk=0&"] {
        world.put(&file);
        let served = Served::start(&[world.as_db(&format!("{disk}timeout=2s"))]);
        served.wait_until_open();
        let client = &served.client;
        let target = files(client).into_values().next().unwrap();
        let (mut http, head) = client.begin(&target, "");
        assert_eq!(head.status, 200);
        let mut received = http.body(1 << 20).unwrap();
        world.bucket.put(&format!("p/{}", file.spec.id), &replaced.bytes).unwrap();
        received.extend(http.body(head.length() - received.len()).unwrap());
        assert!(file.bytes.starts_with(&received), "what came is of the one that was begun");
        // Ranges come from the old file if they are on disk, and fail otherwise.
        for start in (0..48).map(|index| index << 20) {
            let answer = client.http().range(&target, start..start + 1_000);
            let at = usize::try_from(start).unwrap();
            let is_right = answer.head.status == 206 && answer.body == file.bytes[at..at + 1_000];
            let is_refused = [404, 502, 503].contains(&answer.head.status);
            assert!(is_right || is_refused, "{start}: {:?}", answer.head);
        }
    }
}
