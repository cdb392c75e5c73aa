//! Measures how fast records become durable, and how fast a start recovers them.
//!
//! `cargo run --release -p busload-log --example throughput [DIRECTORY] [SECONDS]`: one writer that
//! commits batches of 70-byte records, with at most one batch in flight (as N clients without
//! pipelining do) or as many as the log's limits allow.

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use busload_io::{OsRng, RealDisk, handover::ThreadWaker};
use busload_log::{
    LogWriter, Lsn, Opened, Options, Progress, Reservation, Stats, SyncPolicy, open,
};

const RECORD_BYTES: usize = 70;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFlight {
    OneBatch,
    Unbounded,
}

#[allow(clippy::disallowed_methods, reason = "this measures time")]
fn now() -> Instant {
    Instant::now()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let parent = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let seconds: f64 = arguments.next().map_or(1.0, |text| text.parse().expect("seconds"));
    let duration = Duration::from_secs_f64(seconds);
    println!(
        "{:<8} {:<10} {:>6} {:>12} {:>8} {:>10} {:>10} {:>9} {:>9} {:>9}",
        "policy",
        "in flight",
        "batch",
        "records/s",
        "MB/s",
        "frames/s",
        "rec/frame",
        "sync p50",
        "sync p99",
        "turn us"
    );
    for (policy, in_flight, batch) in [
        (SyncPolicy::Always, InFlight::OneBatch, 1),
        (SyncPolicy::Always, InFlight::OneBatch, 50),
        (SyncPolicy::Always, InFlight::OneBatch, 1000),
        (SyncPolicy::Always, InFlight::Unbounded, 50),
        (SyncPolicy::Always, InFlight::Unbounded, 1000),
        (SyncPolicy::Os, InFlight::OneBatch, 50),
        (SyncPolicy::Os, InFlight::Unbounded, 50),
        (SyncPolicy::Os, InFlight::Unbounded, 1000),
    ] {
        run(&parent, duration, policy, in_flight, batch);
    }
    recover(&parent, 10_000_000);
}

fn directory(parent: &Path) -> PathBuf {
    let directory = parent.join(format!("throughput-{}", std::process::id()));
    std::fs::remove_dir_all(&directory).ok();
    directory
}

fn start(directory: &Path) -> (LogWriter, Progress, Vec<thread::JoinHandle<()>>) {
    let disk = RealDisk::open(directory).expect("a directory");
    let begun = now();
    let Opened { writer, progress, stage, helper, .. } =
        open(disk, Options::default(), &mut OsRng::new(), &mut |_| Ok(())).expect("an empty log");
    if Duration::from_millis(100) < begun.elapsed() {
        println!("opening took {:?}", begun.elapsed());
    }
    (
        writer,
        progress,
        vec![thread::spawn(move || stage.run()), thread::spawn(move || helper.run())],
    )
}

fn append(writer: &mut LogWriter, record: &[u8], policy: SyncPolicy) -> Reservation {
    let reservation = writer.reserve(record.len() as u64);
    if reservation == Reservation::Granted {
        writer.begin();
        writer.record().extend_from_slice(record);
        writer.commit(policy);
    }
    reservation
}

fn must_append(
    writer: &mut LogWriter,
    progress: &Progress,
    thread_waker: &ThreadWaker,
    record: &[u8],
    policy: SyncPolicy,
) {
    while append(writer, record, policy) != Reservation::Granted {
        progress.wake_when_moved();
        if append(writer, record, policy) == Reservation::Granted {
            return;
        }
        thread_waker.park(None);
    }
}

fn run(parent: &Path, duration: Duration, policy: SyncPolicy, in_flight: InFlight, batch: u64) {
    let directory = directory(parent);
    let (mut writer, progress, threads) = start(&directory);
    let thread_waker = ThreadWaker::current();
    progress.set_waker(thread_waker.waker());
    let record = [b'x'; RECORD_BYTES];
    let (begun, mut records, mut turns) = (now(), 0_u64, 0_u64);
    while begun.elapsed() < duration {
        turns += 1;
        for _ in 0..batch {
            must_append(&mut writer, &progress, &thread_waker, &record, policy);
            records += 1;
        }
        writer.flush(0);
        if in_flight == InFlight::OneBatch {
            wait(&progress, &thread_waker, policy, Lsn(writer.next_lsn().0 - 1));
        }
    }
    writer.close();
    for thread in threads {
        thread.join().expect("it ends");
    }
    let seconds = begun.elapsed().as_secs_f64();
    report(policy, in_flight, batch, records, turns, seconds, &progress.stats());
    std::fs::remove_dir_all(&directory).ok();
}

fn wait(progress: &Progress, thread_waker: &ThreadWaker, policy: SyncPolicy, lsn: Lsn) {
    loop {
        let reached = match policy {
            SyncPolicy::Always => progress.wake_when_durable(lsn),
            _ => progress.wake_when_written(lsn),
        };
        if reached {
            return;
        }
        thread_waker.park(None);
    }
}

fn quantile(stats: &Stats, share: f64) -> u64 {
    let total: u64 = stats.sync_us_buckets.iter().sum();
    let mut seen = 0;
    for (bucket, count) in stats.sync_us_buckets.iter().enumerate() {
        seen += count;
        if share * total as f64 <= seen as f64 {
            return 1 << bucket;
        }
    }
    0
}

fn report(
    policy: SyncPolicy,
    in_flight: InFlight,
    batch: u64,
    records: u64,
    turns: u64,
    seconds: f64,
    stats: &Stats,
) {
    println!(
        "{:<8} {:<10} {:>6} {:>12.0} {:>8.1} {:>10.0} {:>10.1} {:>8}u {:>8}u {:>9.1}",
        format!("{policy:?}"),
        format!("{in_flight:?}"),
        batch,
        records as f64 / seconds,
        stats.bytes as f64 / seconds / 1e6,
        stats.frames as f64 / seconds,
        stats.frame_records_mean(),
        quantile(stats, 0.5),
        quantile(stats, 0.99),
        seconds * 1e6 / turns as f64,
    );
}

fn recover(parent: &Path, records: u64) {
    let directory = directory(parent);
    let (mut writer, progress, threads) = start(&directory);
    let thread_waker = ThreadWaker::current();
    progress.set_waker(thread_waker.waker());
    let record = [b'x'; RECORD_BYTES];
    let begun = now();
    for index in 0..records {
        must_append(&mut writer, &progress, &thread_waker, &record, SyncPolicy::Os);
        if index % 64 == 0 {
            writer.flush(0);
        }
    }
    writer.close();
    for thread in threads {
        thread.join().expect("it ends");
    }
    println!("wrote {records} records in {:?}", begun.elapsed());
    let disk = RealDisk::open(&directory).expect("a directory");
    let begun = now();
    let (mut count, mut bytes) = (0_u64, 0_usize);
    let opened = open(disk, Options::default(), &mut OsRng::new(), &mut |record| {
        count += 1;
        bytes += record.bytes.len();
        Ok(())
    })
    .expect("it recovers");
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "recovered {count} records, {} MB in {seconds:.3} s: {:.1} M records/s; {:?}",
        bytes / 1_000_000,
        count as f64 / seconds / 1e6,
        opened.report
    );
    std::fs::remove_dir_all(&directory).ok();
}
