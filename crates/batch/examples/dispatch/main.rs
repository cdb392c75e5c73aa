//! Simulates dispatch policies over distance, number of readers and cores of the database.
//!
//! ```text
//! cargo run --release -p busload-batch --example dispatch                  # prints the tables
//! cargo run --release -p busload-batch --example dispatch -- dispatch.svg  # and draws them
//! ```
//!
//! Readers ask for one key each, wait for it, and ask for the next. The adaptive, the eager and the
//! windowed policy run in the crate's own request queue on simulated time. `one mean batch` is the
//! rule that busload had first: while batches are in flight, a further one leaves with 8 keys, or
//! when its oldest has waited for the mean time of a batch.
//!
//! The world: a batch travels half the distance, is served by a free core of the database in order
//! of arrival for [`BATCH_WORK`] and [`KEY_WORK`] for each key (up to a fifth more or less), and
//! travels back. Each way takes up to some tens of microseconds longer by chance ([`JITTER`]).
//! Readers of one batch come back one after the other ([`READER_WORK`]). The same seed gives the
//! same numbers on every machine. All of it takes about two minutes.
//!
//! Columns: thousands of reads per second, mean and 99th percentile of the response time in
//! microseconds, keys per batch, busy cores of the database, and the reads beside the best policy
//! with the same distance, readers and cores. `eager` is the best of several numbers of slots, and
//! `window` of several sizes, which nobody knows beforehand. At the end: how long the adaptive
//! policy takes to follow a change of distance or readers ([`STEPS`]).

mod plot;
mod policy;
mod world;

use std::time::Duration;

use policy::{Policy, SLOTS_MAX};
use world::{Outcome, World};

/// Work of a core of the database on a batch, besides its keys.
const BATCH_WORK: Duration = Duration::from_micros(60);
/// Work of a core of the database on a key.
const KEY_WORK: Duration = Duration::from_micros(2);
/// Mean of the random part of each way.
const JITTER: Duration = Duration::from_micros(10);
/// Mean time between two readers of one batch that come back.
const READER_WORK: Duration = Duration::from_nanos(1500);
/// Time that is simulated, of which the second half counts.
const SIMULATED: Duration = Duration::from_secs(4);

const CORES: [usize; 3] = [1, 2, 16];
const DISTANCES_MICROS: [u64; 5] = [0, 250, 1000, 5000, 20_000];
const READERS: [usize; 5] = [1, 10, 50, 300, 1000];
const EAGER_SLOTS: [usize; 6] = [1, 2, 4, 8, 16, SLOTS_MAX];
const WINDOW_ENTRIES: [usize; 4] = [16, 32, 64, 256];

/// Distance and number of readers before and after a change.
const STEPS: [((Duration, usize), (Duration, usize)); 6] = [
    ((Duration::ZERO, 10), (Duration::from_millis(1), 10)),
    ((Duration::from_millis(1), 10), (Duration::from_millis(1), 300)),
    ((Duration::from_millis(1), 300), (Duration::from_millis(1), 10)),
    ((Duration::ZERO, 300), (Duration::from_millis(5), 300)),
    ((Duration::from_millis(5), 300), (Duration::ZERO, 300)),
    ((Duration::from_millis(5), 50), (Duration::from_millis(20), 1000)),
];

/// The best of a policy's settings in one cell.
struct Best {
    name: String,
    outcome: Outcome,
}

/// Outcomes of all policies for one combination of distance, readers and cores.
pub(crate) struct Cell {
    world: World,
    policies: Vec<Best>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut cells = Vec::new();
    for cores in CORES {
        for micros in DISTANCES_MICROS {
            for readers in READERS {
                let world = World { distance: Duration::from_micros(micros), cores, readers };
                let cell = Cell::measure(world);
                cell.print();
                cells.push(cell);
            }
        }
    }
    println!("\nmilliseconds until the reads per second stay at 90% after a change, 2 cores:");
    for (from, to) in STEPS {
        let [from, to] =
            [from, to].map(|(distance, readers)| World { distance, cores: 2, readers });
        let settled = from.step(&to, Policy::Adaptive);
        println!("{from} -> {to}: {} ms", settled.as_millis());
    }
    if let Some(path) = std::env::args_os().nth(1) {
        plot::draw(path.as_ref(), &cells)?;
    }
    Ok(())
}

impl Cell {
    fn measure(world: World) -> Self {
        let adaptive = [("adaptive".to_owned(), Policy::Adaptive)];
        let eager =
            EAGER_SLOTS.map(|slots| (format!("eager, {slots} slots"), Policy::Eager { slots }));
        let windows = WINDOW_ENTRIES
            .map(|entries| (format!("window of {entries}"), Policy::Window { entries }));
        let first = [("one mean batch".to_owned(), Policy::MeanHold)];
        let policies = vec![
            best(&world, adaptive.into()),
            best(&world, eager.into()),
            best(&world, windows.into()),
            best(&world, first.into()),
        ];
        Self { world, policies }
    }

    fn print(&self) {
        let cores = self.world.cores;
        println!("\n{cores} cores, {}", self.world);
        println!("policy            k reads/s  mean us   p99 us    batch  cores  of best");
        let of_best = self.of_best();
        for (Best { name, outcome }, of_best) in self.policies.iter().zip(of_best) {
            println!(
                "{name:<17} {:>9.1} {:>8.0} {:>8.0} {:>8.1} {:>6.2} {:>7.0}%",
                outcome.rate / 1e3,
                outcome.mean_micros,
                outcome.p99_micros,
                outcome.batch_mean,
                outcome.busy_cores,
                of_best * 100.0,
            );
        }
    }

    /// Returns the reads of each policy as a share of the best one's.
    fn of_best(&self) -> impl Iterator<Item = f64> {
        let rates = self.policies.iter().map(|best| best.outcome.rate);
        let most = rates.clone().fold(f64::MIN_POSITIVE, f64::max);
        rates.map(move |rate| rate / most)
    }
}

fn best(world: &World, settings: Vec<(String, Policy)>) -> Best {
    let outcomes =
        settings.into_iter().map(|(name, policy)| Best { name, outcome: world.run(policy) });
    outcomes
        .max_by(|one, other| one.outcome.rate.total_cmp(&other.outcome.rate))
        .expect("a policy has settings")
}
