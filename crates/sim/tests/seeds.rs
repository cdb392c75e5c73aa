//! Seeds that run with every test.

use busload_sim::{
    Trace, run,
    seeds::{Seeds, run_seeds},
};

/// Number of seeds that run here; `cargo xtask sim` runs more.
const SEED_COUNT: u64 = 200;

#[test]
fn nothing_acknowledged_or_observed_is_lost() {
    let seeds = Seeds { first: 0, count: SEED_COUNT, trace: Trace::Off };
    let outcome = run_seeds(seeds).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{outcome:#?}");
    // The chances are such that everything happens often.
    assert!(SEED_COUNT * 2 < outcome.starts);
    assert!(SEED_COUNT / 2 < outcome.from_snapshot);
    assert!(SEED_COUNT / 10 < outcome.crashed_starts);
    assert!(SEED_COUNT < outcome.power_losses);
    assert!(SEED_COUNT < outcome.transactions_lost);
    assert!(SEED_COUNT < outcome.snapshots);
    assert!(SEED_COUNT / 20 < outcome.sliced);
    assert!(SEED_COUNT / 20 < outcome.spoiled_snapshots);
    assert!(SEED_COUNT / 20 < outcome.disk_failures);
    assert!(SEED_COUNT / 10 < outcome.refused);
}

#[test]
fn a_seed_gives_the_same_history_each_time() {
    for seed in 0..20 {
        assert_eq!(run(seed, Trace::Off), run(seed, Trace::Off), "seed {seed}");
    }
}
