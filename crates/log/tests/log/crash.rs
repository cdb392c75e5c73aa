//! After any crash everything durable survives, the records are a prefix, and nothing is invented.

use busload_hostile::rounds;
use busload_io::sim::{CrashKind, SimDisk, SimRng};
use busload_log::Options;

use crate::harness::{Oracle, Rig, promise_of, short_segments};

const KINDS: [CrashKind; 3] = [CrashKind::DropUnsynced, CrashKind::AnySubset, CrashKind::KeepAll];

/// Runs random events until the machine stops; false when the log could not even be opened.
fn live(disk: &SimDisk, seed: u64, events: u64, oracle: Oracle, kind: CrashKind) -> (Oracle, bool) {
    let kept = oracle.clone();
    match Rig::reopen(disk, short_segments(), seed, oracle, promise_of(kind)) {
        Err(error) => {
            assert!(disk.is_crashed(), "seed {seed}: {error}");
            (kept, false)
        }
        Ok(mut rig) => {
            for _ in 0..events {
                if disk.is_crashed() {
                    break;
                }
                rig.random_event();
            }
            (rig.oracle, true)
        }
    }
}

#[test]
fn a_crash_after_every_operation_loses_nothing_durable() {
    for scenario in 0..rounds(2, 6) {
        let disk = SimDisk::new();
        live(&disk, scenario, 1200, Oracle::default(), CrashKind::KeepAll);
        let count = disk.operation_count();
        assert!(100 < count);
        for ordinal in 0..count {
            let disk = SimDisk::new();
            disk.crash_at(ordinal);
            let (oracle, _) = live(&disk, scenario, 1200, Oracle::default(), CrashKind::KeepAll);
            let mut rng = SimRng::new(ordinal);
            for kind in KINDS {
                for _ in 0..if kind == CrashKind::AnySubset { 4 } else { 1 } {
                    let left = disk.crash(&mut rng, kind);
                    Rig::reopen(&left, short_segments(), 0, oracle.clone(), promise_of(kind))
                        .unwrap_or_else(|error| {
                            panic!("scenario {scenario} operation {ordinal} {kind:?}: {error}")
                        });
                }
            }
        }
    }
}

#[test]
fn lives_and_crashes_in_any_order_lose_nothing_durable() {
    for seed in 0..rounds(80, 250) {
        let mut rng = SimRng::new(seed);
        let mut disk = SimDisk::new();
        let mut oracle = Oracle::default();
        let mut kind = CrashKind::KeepAll;
        for _ in 0..8 {
            disk.crash_at(rng.below(160));
            let (seed, events) = (rng.below(1 << 40), rng.below(1000));
            (oracle, _) = live(&disk, seed, events, oracle, kind);
            kind = KINDS[rng.index(3)];
            disk = disk.crash(&mut rng, kind);
            if kind != CrashKind::KeepAll {
                // Records that were only written may be gone for good, also if the next life ends
                // before it checks.
                oracle.written = oracle.durable;
            }
        }
        Rig::reopen(&disk, short_segments(), 0, oracle, promise_of(kind))
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a_crash_after_every_operation_of_a_recovery_changes_nothing() {
    for seed in 0..rounds(15, 40) {
        let mut rng = SimRng::new(seed);
        let disk = SimDisk::new();
        let (oracle, _) = live(&disk, seed, 900, Oracle::default(), CrashKind::KeepAll);
        let torn = disk.crash(&mut rng, CrashKind::AnySubset);
        // Every later recovery must find what the first one finds.
        let twin = torn.crash(&mut rng, CrashKind::KeepAll);
        let found =
            Rig::reopen(&twin, Options::default(), 0, oracle, promise_of(CrashKind::AnySubset))
                .unwrap();
        let expected = Oracle { written: found.oracle.durable, ..found.oracle.clone() };
        let mut disk = torn;
        for ordinal in 0.. {
            disk.crash_at(ordinal % 7);
            let kind = KINDS[rng.index(3)];
            if Rig::reopen(
                &disk,
                short_segments(),
                0,
                expected.clone(),
                promise_of(CrashKind::KeepAll),
            )
            .is_ok()
                || 40 < ordinal
            {
                break;
            }
            assert!(disk.is_crashed());
            disk = disk.crash(&mut rng, kind);
        }
        Rig::reopen(
            &disk.crash(&mut rng, CrashKind::DropUnsynced),
            short_segments(),
            0,
            expected,
            promise_of(CrashKind::KeepAll),
        )
        .unwrap();
    }
}
