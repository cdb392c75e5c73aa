//! The cache after a restart, whatever happened to the process and the journal before it.

use super::*;
use crate::disk::journal_file::JOURNAL_NAME;

/// Objects that these tests write, and their extents.
fn objects() -> Vec<(ObjectMeta, Vec<u64>)> {
    vec![
        (object("a", size(3, 10)), vec![0, 2, 3]),
        (object("b", 77), vec![0]),
        (object("c", size(6, 0)), vec![1, 2, 4, 5]),
    ]
}

fn write_all(disk: &Arc<Disk>) {
    for (meta, extents) in objects() {
        let file = disk.object("s3://b", &meta);
        extents.into_iter().for_each(|extent| assert!(write(&file, &meta, extent)));
    }
}

/// Counts the extents that are there and checks their bytes.
fn count_present(disk: &Arc<Disk>) -> usize {
    let mut count = 0;
    for (meta, _) in objects() {
        let file = disk.object("s3://b", &meta);
        for extent in 0..meta.size.div_ceil(EXTENT_DATA_BYTES) {
            let is_present = file.has_extent(extent);
            assert_eq!(
                read(&file, &meta, extent_range(&meta, extent)),
                is_present,
                "{} {extent}",
                meta.name
            );
            count += usize::from(is_present);
        }
    }
    count
}

#[test]
fn a_restart_keeps_what_was_written() {
    let scene = Scene::new(32);
    let disk = scene.open();
    write_all(&disk);
    let bytes = stats(&disk).bytes;
    disk.close();
    drop(disk);
    let disk = scene.open();
    assert_eq!(count_present(&disk), 8);
    let journal = std::fs::metadata(scene.options.directory.join(JOURNAL_NAME)).unwrap().len();
    assert_eq!(stats(&disk).bytes, bytes + journal);
    assert_eq!((stats(&disk).extents, stats(&disk).objects, stats(&disk).corrupt), (8, 3, 0));
    assert_eq!(
        disk.list().iter().map(|object| object.present).sum::<u64>(),
        size(2, 10) + 77 + size(4, 0)
    );
}

#[test]
fn killed_before_the_journal_was_written_only_less_is_there() {
    let scene = Scene::new(32);
    let disk = scene.open();
    let meta = object("a", size(4, 0));
    let file = disk.object("s3://b", &meta);
    assert!(write(&file, &meta, 0) && disk.flush());
    (1..4).for_each(|extent| assert!(write(&file, &meta, extent)));
    let other = object("other", 100);
    assert!(write(&disk.object("s3://b", &other), &other, 0));
    drop((file, disk));
    let disk = scene.open();
    let file = disk.object("s3://b", &meta);
    assert_eq!(
        (0..4).map(|extent| file.has_extent(extent)).collect::<Vec<_>>(),
        [true, false, false, false]
    );
    assert!(read(&file, &meta, extent_range(&meta, 0)));
    assert!(!read(&disk.object("s3://b", &other), &other, 0..10));
    assert_eq!(scene.data_files().len(), 1, "a file that nobody knows is removed");
    let used = allocated(&scene.options.directory);
    assert!(used < 3 << 20, "{used}: what nobody knows takes no space");
    assert!(used <= stats(&disk).bytes + 8192, "{used}");
    assert!(write(&file, &meta, 2) && read(&file, &meta, extent_range(&meta, 2)));
}

#[test]
fn an_eviction_that_the_journal_did_not_learn_of_is_a_miss_and_no_corruption() {
    let scene = Scene::new(32);
    let disk = scene.open();
    write_all(&disk);
    assert!(disk.flush());
    let meta = &objects()[0].0;
    disk.object("s3://b", meta).remove(&(0..1));
    drop(disk);
    let disk = scene.open();
    let file = disk.object("s3://b", meta);
    assert!(file.has_extent(0), "the journal says so");
    assert!(!read(&file, meta, 0..10) && !file.has_extent(0));
    assert_eq!(stats(&disk).corrupt, 0);
    assert!(write(&file, meta, 0) && read(&file, meta, 0..10));
}

/// Directory of a closed cache, to be copied over and over.
fn closed() -> (Scene, Vec<u8>) {
    let scene = Scene::new(32);
    let disk = scene.open();
    write_all(&disk);
    assert!(disk.flush());
    disk.object("s3://b", &objects()[2].0).remove(&(EXTENT_DATA_BYTES..EXTENT_DATA_BYTES + 1));
    disk.close();
    let journal = std::fs::read(scene.options.directory.join(JOURNAL_NAME)).unwrap();
    assert!(journal.len() < 400, "{}: the tests here try every byte", journal.len());
    (scene, journal)
}

/// Opens a copy with another journal. It copies the data, because punched holes would change linked
/// files.
fn open_with_journal(closed: &Scene, journal: &[u8]) -> (Scene, Arc<Disk>) {
    let scene = Scene::new(32);
    std::fs::create_dir(&scene.options.directory).unwrap();
    for path in closed.data_files() {
        std::fs::copy(&path, scene.options.directory.join(path.file_name().unwrap())).unwrap();
    }
    std::fs::write(scene.options.directory.join(JOURNAL_NAME), journal).unwrap();
    let disk = scene.open();
    (scene, disk)
}

/// Opens copies with a journal each and reads all; seven extents of eight are there if nothing is
/// lost.
fn check_journals(closed: &Scene, journals: impl Iterator<Item = Vec<u8>>) -> Vec<usize> {
    let mut counts = Vec::new();
    for journal in journals {
        let (scene, disk) = open_with_journal(closed, &journal);
        let claimed = stats(&disk).extents;
        let present = readable(&disk);
        assert!(present as u64 <= claimed);
        assert!(
            allocated(&scene.options.directory) <= stats(&disk).bytes + 16_384,
            "all is counted"
        );
        counts.push(present);
        disk.close();
        drop(disk);
        let again = scene.open();
        assert_eq!(readable(&again), present, "the second start finds what the first one left");
    }
    counts
}

/// Counts the extents that can be read and checks their bytes.
fn readable(disk: &Arc<Disk>) -> usize {
    let mut count = 0;
    for (meta, _) in objects() {
        let file = disk.object("s3://b", &meta);
        let extents = 0..meta.size.div_ceil(EXTENT_DATA_BYTES);
        count += extents.filter(|&extent| read(&file, &meta, extent_range(&meta, extent))).count();
    }
    count
}

#[test]
fn a_journal_torn_at_any_byte_loses_what_it_does_not_say() {
    let (closed, journal) = closed();
    // Every byte would take minutes; the records' own tests try every byte of a journal in memory.
    let lengths = (0..journal.len()).step_by(7).chain([journal.len()]);
    let counts = check_journals(&closed, lengths.map(|length| journal[..length].to_vec()));
    assert!(counts.is_sorted(), "{counts:?}");
    assert_eq!((counts[0], counts[counts.len() - 1]), (0, 7));
}

#[test]
fn a_journal_flipped_at_any_byte_loses_one_record() {
    let (closed, journal) = closed();
    let counts = check_journals(
        &closed,
        (0..journal.len()).step_by(5).map(|position| {
            let mut flipped = journal.clone();
            flipped[position] ^= 0x41;
            flipped
        }),
    );
    // The largest loss: the record of the largest file.
    assert!(counts.iter().all(|count| (4..=7).contains(count)), "{counts:?}");
    assert!(counts.contains(&4) && counts.contains(&7));
}

#[test]
fn a_journal_of_something_else_is_an_empty_cache() {
    let foreign = [vec![0; 300], b"{\"not\": \"ours\"}".to_vec(), vec![0xff; 300]];
    let counts = check_journals(&closed().0, foreign.into_iter());
    assert_eq!(counts, [0, 0, 0]);
}

#[test]
fn without_a_journal_nothing_is_there_and_nothing_takes_space() {
    let (scene, _) = closed();
    std::fs::remove_file(scene.options.directory.join(JOURNAL_NAME)).unwrap();
    std::fs::write(scene.options.directory.join("journal.new"), b"half").unwrap();
    std::fs::write(scene.options.directory.join("x.keep.new"), b"half").unwrap();
    std::fs::write(scene.options.directory.join("notes.txt"), b"somebody's").unwrap();
    let disk = scene.open();
    assert_eq!(readable(&disk), 0);
    let mut names: Vec<String> = std::fs::read_dir(&scene.options.directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["journal", "lock", "notes.txt"], "only what looks like ours is removed");
}

/// An earlier file of the same number: numbers are used again after a journal was lost.
#[test]
fn blocks_of_an_earlier_life_are_not_taken_for_those_of_this_one() {
    let (scene, meta) = (Scene::new(16), object("a", size(1, 0)));
    let disk = scene.open();
    assert!(write(&disk.object("s3://b", &meta), &meta, 0));
    disk.close();
    let old = std::fs::read(&scene.data_files()[0]).unwrap();
    drop(disk);
    std::fs::remove_dir_all(&scene.options.directory).unwrap();
    let disk = scene.open();
    let changed = ObjectMeta { etag: "\"v2\"".into(), ..meta.clone() };
    let file = disk.object("s3://b", &changed);
    assert!(write(&file, &changed, 0));
    std::fs::write(&scene.data_files()[0], old).unwrap();
    assert!(!read(&file, &changed, 0..10), "right blocks, of something else");
    assert_eq!(stats(&disk).corrupt, 1);
}

#[test]
fn a_smaller_limit_after_a_restart_holds() {
    let mut scene = Scene::new(32);
    let disk = scene.open();
    write_all(&disk);
    disk.close();
    drop(disk);
    scene.options.bytes_max = 4 << 20;
    let disk = scene.open();
    assert!(stats(&disk).bytes <= 4 << 20 && 2 <= stats(&disk).extents, "{:?}", stats(&disk));
    assert!(allocated(&scene.options.directory) <= 4 << 20);
}

#[test]
fn a_journal_that_has_grown_is_written_anew() {
    let scene = Scene::new(8);
    let disk = scene.open();
    let meta = object(&"long".repeat(200), 100);
    let file = disk.object("s3://b", &meta);
    let path = scene.options.directory.join(JOURNAL_NAME);
    let mut longest = 0;
    for _ in 0..500 {
        assert!(write(&file, &meta, 0));
        file.remove(&(0..1));
        assert!(disk.flush());
        longest = longest.max(std::fs::metadata(&path).unwrap().len());
    }
    assert!((64 << 10..68 << 10).contains(&longest), "{longest}");
    assert!(stats(&disk).bytes <= longest);
    assert!(write(&file, &meta, 0));
    disk.close();
    drop((file, disk));
    let disk = scene.open();
    assert!(read(&disk.object("s3://b", &meta), &meta, 0..100));
}

#[test]
fn only_one_process_has_a_directory() {
    let scene = Scene::new(8);
    let disk = scene.open();
    // For the lock a second descriptor is like a second process.
    let error = Disk::open(&scene.options).unwrap_err();
    let Error::Locked(text) = &error else { panic!("{error}") };
    let expected = format!("is in use by process {}", std::process::id());
    assert!(
        text.contains(&expected) && text.contains(scene.options.directory.to_str().unwrap()),
        "{text}"
    );
    disk.close();
    // A closed cache lets others in.
    scene.open().close();
}

/// Journals of a million extents, as a terabyte of cache leaves.
#[test]
fn a_million_extents_are_warm_in_less_than_a_second() {
    const FILES: u32 = 1000;
    const EXTENTS: u32 = 1000;
    let mut scene = Scene::new(2 << 20);
    scene.options.bytes_max = 2 << 40;
    std::fs::create_dir(&scene.options.directory).unwrap();
    let mut journal = Vec::new();
    for id in 1..=FILES {
        let meta = object(&format!("table-{id}"), size(2 * u64::from(EXTENTS), 0));
        let record = journal::FileRecord {
            id,
            generation: id.into(),
            size: meta.size,
            store: "s3://b",
            name: &meta.name,
            etag: &meta.etag,
        };
        journal::write_file(&mut journal, &record);
        // Every other extent: the worst case for runs.
        let present = (0..EXTENTS).map(|extent| 2 * extent);
        journal::write_extents(&mut journal, id, journal::Presence::Present, present);
        let data =
            std::fs::File::create(scene.options.directory.join(cache_file::data_name(id))).unwrap();
        data.set_len((2 * u64::from(EXTENTS)) << 20).unwrap();
    }
    std::fs::write(scene.options.directory.join(JOURNAL_NAME), &journal).unwrap();
    let start = tokio::time::Instant::now();
    let disk = scene.open();
    let took = start.elapsed();
    assert_eq!(stats(&disk).extents, u64::from(FILES * EXTENTS));
    let memory = disk.accounting().queues.memory_bytes();
    println!("{} bytes of journal, {took:?}, {memory} bytes of queues", journal.len());
    assert!(memory <= 30 << 20, "{memory}: 32 MiB are for all");
    // Thirty times the limit's second: the machine may be slow, and busy with other tests.
    assert!(took < std::time::Duration::from_secs(30), "{took:?}");
    let file = disk.object("s3://b", &object("table-7", size(2 * u64::from(EXTENTS), 0)));
    assert!(file.has_extent(4) && !file.has_extent(5));
}

/// Sidecars are not evicted. With a limit lowered below them the disk once stayed above it for
/// ever, and nothing could be written.
#[test]
fn a_lowered_limit_holds_for_sidecars_too() {
    let mut scene = Scene::new(64);
    let disk = scene.open();
    write_all(&disk);
    for (name, mib) in [("small", 1), ("large", 9), ("medium", 3), ("larger", 12)] {
        disk.write_sidecar("s3://b", name, &vec![7; mib << 20]);
        assert!(disk.read_sidecar("s3://b", name).is_some(), "{name}");
    }
    disk.close();
    drop(disk);
    scene.options.bytes_max = 16 << 20;
    let disk = scene.open();
    let names = ["small", "medium", "large", "larger"];
    assert_eq!(
        names.map(|name| disk.read_sidecar("s3://b", name).is_some()),
        [true, true, false, false]
    );
    assert!(stats(&disk).bytes <= 16 << 20, "{}", stats(&disk).bytes);
    assert!(allocated(&scene.options.directory) <= 16 << 20);
    assert_eq!(stats(&disk).bypassed, None);
    let meta = object("new", size(1, 0));
    assert!(
        disk.flush() && write(&disk.object("s3://b", &meta), &meta, 0),
        "there is room beside them"
    );
}
