//! `costs`: what an operation costs on this machine, by itself and shared by a batch; and the
//! server that one writes first, beside busload.
//!
//! ```text
//!   PRICES --open--> Operation: closure that is run with a batch and a time --> ns per operation
//!      |                                                                     |
//!      +--> cases: each batch, in turns <-- Table::group --------------------+
//!                                              |
//!   fit: operation = fixed + items * each <--- medians of a price's batches
//! ```
//!
//! The index is that of busload's memory tables, in this process: its price is a part of what a
//! request costs, and cannot be measured from outside. Everything else here is the system's, the
//! database's or the store's.

mod files;
mod fit;
mod memory;
mod remote_operations;
mod system;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use self::fit::Fit;
use super::{
    kv::{self, Kv},
    memory_tables::Bench,
};
use crate::{
    bytes::bytes_text,
    cli::name_of,
    clock::now_ns,
    harness::{Number, Row, Sample, Table, TableLayout, arguments::count, hidden, label, shown},
    limits::{COSTS_KEYS_MAX, COSTS_TIME_NS},
    remote::Distance,
    server::ServerKind,
    stats::{float, float_of, ratio},
};

const HELP: &str = "\
What is measured
  An operation is what has a fixed price: a look into memory, a system call, a wake-up, a sync, a
  statement, a GET. Each is made again and again with batches of 1, 10, 100 and 1,000 items, in
  turns, --rounds times; numbers are medians, `spread` is most less least by the median. `us/op`
  and `us/item` are wall time, `x` is how many times less an item costs than alone. A line is fitted
  through the batches of an operation, each counting alike: `fixed` + items * `each`. `half` is the
  batch at which the fixed price is half of the whole (none if an item's price is not to be seen),
  `fit` the greatest distance of a measured batch from the line.

  hash lookup, insert     busload's own index: 1,000 keys, or --table-keys, which no cache holds; a
                          batch is hashed and prefetched before it is looked at
  pipe call               half of a write to a pipe and the read of it; an item is a byte
  wake-up                 half of a ping-pong of two threads over eventfd; an item is a number that
                          is handed over under a lock
  loopback                request and reply of 64 bytes an item, over TCP
  log write, sync         records of 64 bytes in the page cache; with fdatasync on a growing file,
                          or on one filled with zeros before, as busload's log has it
  statement               SELECT of random keys of 100,000 by their primary key, in a Postgres that
                          is started here; left out where there is none
  object GET              a ranged GET of 4 KiB an item from a store --first-byte ms away
  read                    the same from a file: in the page cache, or with O_DIRECT from the disk

  naive                   `kv --servers busload,naive`: the naive server has a thread for each
                          connection, one lock, and for each SET a write and an fdatasync

Examples
  busload-bench costs --csv costs.csv --servers-csv servers.csv
  busload-bench report costs.csv servers.csv --html report.html    all of it as one page
  busload-bench costs --section disk --dir /data                   the disk only";

/// `kv` with other defaults, after the price list.
#[derive(Debug, Args)]
#[command(
    after_long_help = HELP,
    mut_arg("servers", |argument| argument.default_value("busload,naive")),
    mut_arg("pipelines", |argument| argument.default_value("1,16")),
    mut_arg("ops", |argument| argument.default_value("get,set")),
    mut_arg("rounds", |argument| argument.default_value("3")),
    mut_arg("seconds", |argument| argument.default_value("1")),
    mut_arg("warm_up", |argument| argument.default_value("0.2")),
    mut_arg("keys", |argument| argument.default_value("1000")),
    mut_arg("durability", |argument| argument.default_value("always")),
    mut_arg("net_threads", |argument| argument.default_value("0")),
    mut_arg("jitter", |argument| argument.default_value("0")),
)]
pub struct Costs {
    /// Operations to measure
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_value = "memory,system,disk,postgres,objects,naive")]
    section: Vec<Section>,
    /// Keys of the index that is larger than the processor's caches
    #[arg(long, value_name = "N", default_value = "4000000")]
    #[arg(value_parser = count::<10_000, COSTS_KEYS_MAX>)]
    table_keys: usize,
    /// Append the measurements of the servers to this file; --csv takes the price list
    #[arg(long, value_name = "FILE")]
    servers_csv: Option<PathBuf>,
    #[command(flatten)]
    distance: Distance,
    #[command(flatten)]
    kv: Kv,
}

/// Operations that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    /// Lookups and inserts of the index
    Memory,
    /// System calls, wake-ups, loopback
    System,
    /// Writes, syncs and reads of files
    Disk,
    /// Statements
    Postgres,
    /// Objects of a store
    Objects,
    /// The naive server beside busload
    Naive,
}

/// Closure that makes operations with so many items for so many nanoseconds, and returns the
/// nanoseconds of one.
type Operation = Box<dyn FnMut(usize, u64) -> Result<f64>>;

/// Place for operations: what the command line says, and a directory for their files.
struct Place<'a> {
    costs: &'a Costs,
    directory: &'a Path,
}

/// An operation that has a price.
struct Price {
    section: Section,
    name: &'static str,
    item: &'static str,
    item_bytes: u64,
    batches: &'static [usize],
    open: fn(&Place<'_>) -> Result<Operation>,
}

impl Price {
    const fn new(
        section: Section,
        name: &'static str,
        (item, item_bytes): (&'static str, u64),
        open: fn(&Place<'_>) -> Result<Operation>,
    ) -> Self {
        Self { section, name, item, item_bytes, batches: &BATCHES, open }
    }
}

const BATCHES: [usize; 4] = [1, 10, 100, 1_000];
/// Records of 64 bytes: further ones make 4 KiB, 64 KiB and 1 MiB.
const SYNC_BATCHES: [usize; 7] = [1, 10, 64, 100, 1_000, 1_024, 16_384];

const KEY: (&str, u64) = ("key", memory::ENTRY_BYTES);
const RECORD: (&str, u64) = ("record", files::RECORD_BYTES);
const CHUNK: (&str, u64) = ("chunk", files::CHUNK_BYTES);

/// The price list, from the nearest to the farthest.
static PRICES: [Price; 15] = {
    use Section::{Disk, Memory, Objects, Postgres, System};
    [
        Price::new(Memory, "hash lookup (cached)", KEY, |_| memory::lookups(memory::KEYS_CACHED)),
        Price::new(Memory, "hash lookup (memory)", KEY, |place| {
            memory::lookups(place.costs.table_keys)
        }),
        Price::new(Memory, "hash insert (cached)", KEY, |_| memory::inserts(memory::KEYS_CACHED)),
        Price::new(Memory, "hash insert (memory)", KEY, |place| {
            memory::inserts(place.costs.table_keys)
        }),
        Price::new(System, "pipe call", ("byte", 1), |_| system::pipe_calls()),
        Price::new(System, "wake-up (same core)", ("number", 8), |place| {
            system::wake_ups(&place.costs.kv.setup.processors.load_cpu)
        }),
        Price::new(System, "wake-up (other core)", ("number", 8), |place| {
            system::wake_ups(&place.costs.kv.setup.processors.server_cpu)
        }),
        Price::new(System, "loopback round trip", ("message", system::MESSAGE_BYTES), |place| {
            system::loopback(&place.costs.kv.setup.processors.server_cpu)
        }),
        Price::new(Disk, "log write", RECORD, |place| files::log(place, files::Log::Unsynced)),
        Price {
            batches: &SYNC_BATCHES,
            ..Price::new(Disk, "sync (zeros ahead)", RECORD, |place| {
                files::log(place, files::Log::Ahead)
            })
        },
        Price {
            batches: &SYNC_BATCHES,
            ..Price::new(Disk, "sync (growing file)", RECORD, |place| {
                files::log(place, files::Log::Growing)
            })
        },
        Price::new(Disk, "read (page cache)", CHUNK, |place| {
            files::reads(place, files::Reads::Cached)
        }),
        Price::new(Disk, "read (disk)", CHUNK, |place| files::reads(place, files::Reads::Direct)),
        Price::new(Postgres, "Postgres statement", KEY, remote_operations::statements),
        Price::new(Objects, "object GET", CHUNK, remote_operations::gets),
    ]
};

/// Batch of a price.
#[derive(Clone, Copy)]
struct Case {
    price: &'static Price,
    batch: usize,
}

const OPERATION_US: Number = Number::new("operation_us", "us/op");
const ITEM_US: Number = Number::new("item_us", "us/item");
/// Cost of an item alone by that of an item of the batch.
const SAVED: Number = Number::new("x", "x");
const FIXED_US: Number = Number::new("fixed_us", "fixed us");
const EACH_US: Number = Number::new("each_us", "each us");
const HALF: Number = Number::new("half_batch", "half");
const FIT: Number = Number::percent("fit_error", "fit");

const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("section", "", 0, |case| name_of(&case.price.section)),
        label("operation", "operation", 20, |case| case.price.name.to_owned()),
        label("item", "item", 7, |case| case.price.item.to_owned()),
        label("batch", "batch", 6, |case| case.batch.to_string()),
        label("bytes", "bytes", 8, |case| bytes_text(case.bytes())),
        shown(OPERATION_US),
        shown(ITEM_US),
        shown(SAVED),
        hidden(FIXED_US),
        hidden(EACH_US),
        hidden(HALF),
        hidden(FIT),
    ],
    main: OPERATION_US,
    ratios,
};

impl Case {
    fn bytes(&self) -> u64 {
        self.price.item_bytes * u64::try_from(self.batch).unwrap_or(u64::MAX)
    }
}

/// Compares an item with one alone, and fits a line through all batches of its price.
fn ratios(row: &Row<Case>, rows: &[Row<Case>]) -> Vec<(Number, Option<f64>)> {
    let of_price = || rows.iter().filter(|other| other.case.price.name == row.case.price.name);
    let points = of_price().map(|row| (float_of(row.case.batch), row.sample.or_zero(OPERATION_US)));
    let fit = Fit::through(&points.collect::<Vec<_>>());
    let alone = of_price().find(|row| row.case.batch == 1);
    let alone_us = alone.and_then(|row| row.sample.get(ITEM_US));
    vec![
        (SAVED, alone_us.and_then(|alone| ratio(alone, row.sample.or_zero(ITEM_US)))),
        (FIXED_US, fit.map(|fit| fit.fixed)),
        (EACH_US, fit.map(|fit| fit.each)),
        (HALF, fit.and_then(|fit| fit.half_batch())),
        (FIT, fit.map(|fit| fit.error)),
    ]
}

pub fn costs(arguments: &Costs) -> Result<()> {
    let Costs { section, distance, kv, .. } = arguments;
    let setup = &kv.setup;
    let has_servers = section.contains(&Section::Naive);
    let kinds: &[ServerKind] = if has_servers { &setup.servers } else { &[] };
    let more = format!(
        "{}; {} keys in memory; medians of {}",
        distance.text(),
        arguments.table_keys,
        kv.rounds.rounds
    );
    let bench = Bench::new(setup, kinds, &more)?;
    let mut table = bench.table("Price of an operation", &LAYOUT)?;
    for price in PRICES.iter().filter(|price| section.contains(&price.section)) {
        let directory = bench.cleanup.directory(&bench.starter.directory)?;
        match (price.open)(&Place { costs: arguments, directory: directory.path() }) {
            Ok(operation) => measure(&mut table, price, operation, kv.rounds.rounds)?,
            Err(error) => println!("{}: left out: {error:#}", price.name),
        }
    }
    print_list(&table);
    if has_servers {
        kv::run_in(
            &bench,
            kv,
            "The server that one writes first",
            arguments.servers_csv.as_deref(),
        )?;
    }
    Ok(())
}

fn measure(
    table: &mut Table<Case>,
    price: &'static Price,
    mut operation: Operation,
    rounds: usize,
) -> Result<()> {
    let cases: Vec<_> = price.batches.iter().map(|&batch| Case { price, batch }).collect();
    table.group("", &cases, rounds, |case, _| {
        let operation_us = operation(case.batch, COSTS_TIME_NS)? / 1e3;
        Ok(Sample::default()
            .with(OPERATION_US, operation_us)
            .with(ITEM_US, operation_us / float_of(case.batch)))
    })?;
    Ok(())
}

/// Prints a line for each price: the fitted line, and an item's cost in each batch.
fn print_list(table: &Table<Case>) {
    let heads = BATCHES.map(|batch| format!("at {batch}"));
    let [one, ten, hundred, thousand] = &heads;
    println!(
        "\nPrice list, us: fixed + items * each; an item in a batch; half of it fixed up to\n\
         {:<20} {:>9} {:>9} {one:>9} {ten:>9} {hundred:>9} {thousand:>9} {:>9} {:>5}",
        "operation", "fixed", "each", "half", "fit"
    );
    for price in &PRICES {
        let rows = |batch| table.find(|case| case.price.name == price.name && case.batch == batch);
        let Some(first) = rows(1) else { continue };
        let text = |row: Option<&Row<Case>>, number: Number| {
            let value = row.and_then(|row| row.sample.get(number));
            value.map_or_else(|| "-".to_owned(), |value| number.text(value))
        };
        let numbers = [FIXED_US, EACH_US].map(|number| text(Some(first), number));
        let items = BATCHES.map(|batch| text(rows(batch), ITEM_US));
        let columns: String =
            numbers.iter().chain(&items).map(|text| format!(" {text:>9}")).collect();
        let (half, fit) = (text(Some(first), HALF), text(Some(first), FIT));
        println!("{:<20}{columns} {half:>9} {fit:>5}", price.name);
    }
}

/// Makes operations until the time is over, and returns the nanoseconds of one. The clock is
/// read more rarely the faster they are.
fn ns_per_operation(time_ns: u64, mut operation: impl FnMut() -> Result<()>) -> Result<f64> {
    // The first one fills caches and does not count.
    operation()?;
    let started_ns = now_ns();
    let (mut operations, mut at_once) = (0_u64, 1_u64);
    loop {
        for _ in 0..at_once {
            operation()?;
        }
        operations += at_once;
        let spent_ns = now_ns() - started_ns;
        if time_ns <= spent_ns {
            return Ok(float(spent_ns) / float(operations));
        }
        if spent_ns < time_ns / 16 {
            at_once *= 2;
        }
    }
}

/// Fails unless an operation brought as many items as it was to.
fn check(found: usize, wanted: usize) -> Result<()> {
    if found == wanted { Ok(()) } else { bail!("{found} of {wanted} items came back") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_made_until_the_time_is_over_and_its_failure_ends_it() {
        let mut made = 0_u64;
        let ns = ns_per_operation(2_000_000, || {
            made += 1;
            Ok(())
        });
        // One more than counts; every one took a part of at least the time asked for.
        assert!(2_000_000.0 <= ns.unwrap() * float(made - 1) * 1.000_001, "{made}");
        assert!(ns_per_operation(1, || bail!("no")).is_err());
        assert!(check(1, 2).is_err() && check(2, 2).is_ok());
    }

    #[test]
    fn a_price_is_a_line_through_its_batches() {
        let price = PRICES.iter().find(|price| price.name == "pipe call").unwrap();
        let row = |batch| {
            let operation_us = 10.0 + 0.1 * float_of(batch);
            let sample = Sample::default()
                .with(OPERATION_US, operation_us)
                .with(ITEM_US, operation_us / float_of(batch));
            Row { case: Case { price, batch }, sample, round: 0 }
        };
        let rows: Vec<_> = price.batches.iter().map(|&batch| row(batch)).collect();
        let values: Vec<_> = ratios(&rows[3], &rows).into_iter().map(|(_, value)| value).collect();
        let near = |position: usize, wanted: f64| {
            let value: f64 = values[position].unwrap();
            assert!((value - wanted).abs() < 1e-6 * wanted.max(1.0), "{position}: {value}");
        };
        for (position, wanted) in [10.1 / 0.11, 10.0, 0.1, 100.0, 0.0].into_iter().enumerate() {
            near(position, wanted);
        }
    }

    #[test]
    fn names_of_prices_differ() {
        let names: std::collections::BTreeSet<_> = PRICES.iter().map(|price| price.name).collect();
        assert_eq!(names.len(), PRICES.len());
        let has_sizes = |bytes| {
            let mut cases = SYNC_BATCHES.iter().map(|batch| batch * 64);
            cases.any(|size| size == bytes)
        };
        assert!([4 << 10, 64 << 10, 1 << 20].into_iter().all(has_sizes));
    }
}
