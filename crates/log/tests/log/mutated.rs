//! Logs with random changes in one of their files: a log opens to records that were written, or is
//! refused. Whatever a length says, recovery takes no more memory than the files justify.

use busload_hostile::{Random, mutate, within};
use busload_io::sim::SimDisk;
use busload_log::{SyncPolicy, format::LAST_SEGMENT_NAME, tools};

use crate::harness::{Oracle, Promise, Rig, open_log, short_segments};

/// Number of changed logs.
const SEEDS: u64 = 3_000;
/// Memory that recovery takes whatever it finds: zeros of the next segment, windows, messages.
const MEMORY_BYTES: usize = 4 << 20;
/// Most memory for each byte of the files, which the simulated disk holds, too.
const MEMORY_FACTOR: usize = 8;

/// End of the run that wrote a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Killed,
}

/// A log to be changed, without the zeros behind its last frame.
struct Sample {
    files: Vec<(String, Vec<u8>)>,
    oracle: Oracle,
    end: End,
}

/// Creates a log of so many segments, in which each frame holds a few records.
fn sample(segments: u64, end: End, seed: u64) -> Sample {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), seed);
    for _ in 0..12 {
        let record = rig.random_record(60);
        rig.append(&record, SyncPolicy::Always);
        if rig.rng.below(3) == 0 {
            rig.flush();
            rig.step_stage();
        }
    }
    while rig.log.progress.stats().segments < segments {
        let record = rig.random_record(900);
        rig.must_append(&record, SyncPolicy::Always);
        rig.flush();
        rig.step_stage();
    }
    rig.flush();
    rig.settle();
    let oracle = if end == End::Closed { rig.close() } else { rig.oracle };
    let mut files: Vec<_> = disk.snapshot().into_iter().collect();
    files.retain_mut(|(_, contents)| {
        let used = contents.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        // A log that was killed has a few zeros behind its last frame.
        contents.truncate(used.max(4096) + 256);
        !contents.is_empty()
    });
    Sample { files, oracle, end }
}

fn disk_with(files: &[(String, Vec<u8>)]) -> SimDisk {
    let disk = SimDisk::new();
    files.iter().for_each(|(name, contents)| disk.put_file(name, contents));
    disk
}

#[test]
fn a_changed_log_opens_to_what_was_written_or_is_refused() {
    let samples: Vec<Sample> = [(1, End::Closed), (1, End::Killed), (3, End::Closed)]
        .into_iter()
        .chain([(3, End::Killed)])
        .zip(1..)
        .map(|((segments, end), seed)| sample(segments, end, seed))
        .collect();
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let sample = &samples[random.below(samples.len())];
        let mut files = sample.files.clone();
        let changed = random.below(files.len());
        let (name, contents) = &mut files[changed];
        if name == LAST_SEGMENT_NAME {
            contents.truncate(64);
        }
        let whole = contents.clone();
        mutate(contents, &mut random);
        let is_changed = *contents != whole;
        let what = format!("seed {seed}, {name} of a log that was {:?}", sample.end);
        let bytes: usize = files.iter().map(|(_, contents)| contents.len()).sum();
        let disk = disk_with(&files);
        // Only reads, so that nothing but recovery's own memory counts.
        let verified = within(MEMORY_FACTOR * bytes + MEMORY_BYTES, &what, || {
            tools::verify(&disk, None).and_then(|report| report.verdict)
        });
        let before = disk.snapshot();
        let found = open_log(&disk, short_segments()).map(|(_, recovered)| recovered);
        match &found {
            Ok(recovered) => {
                opened += u64::from(is_changed);
                let promise = sample.oracle.clone();
                let durable = if sample.end == End::Closed { promise.durable } else { 0 };
                Oracle { durable, ..promise }.check(recovered, Promise::Durable);
                let (_, again) = open_log(&disk, short_segments()).unwrap();
                assert_eq!(again, *recovered, "{what}: the second start finds other records");
            }
            Err(_) => {
                refused += 1;
                assert!(is_changed, "{what}: refused unchanged");
                assert_eq!(disk.snapshot(), before, "{what}: a refused start changed the log");
            }
        }
        // `log verify` tells what a start would.
        assert_eq!(verified.is_ok(), found.is_ok(), "{what}: {verified:?}");
    }
    assert!(SEEDS / 10 < opened && SEEDS / 3 < refused, "{opened} opened, {refused} refused");
}
