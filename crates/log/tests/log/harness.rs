//! A log, its disk and an oracle that knows every committed record, in one thread and under one
//! seed.

use std::time::Duration;

use busload_io::{
    Disk,
    sim::{CrashKind, SimDisk, SimRng},
};
use busload_log::{
    LogWriter, Lsn, OpenError, Opened, Options, Reservation, Step, SyncPolicy,
    format::SEGMENT_SUFFIX, open,
};

/// Options with segments so short that a few records fill one.
pub fn short_segments() -> Options {
    Options { segment_bytes: 32 * 1024, first_segment_bytes: 16 * 1024, ..Options::default() }
}

/// Records that the log was given, and what it promised.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// All records, from LSN 1 on.
    pub records: Vec<Vec<u8>>,
    pub written: u64,
    pub durable: u64,
}

/// Records that must survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    Written,
    Durable,
}

impl Oracle {
    /// Checks what a recovery returned and forgets what was lost.
    pub fn check(&mut self, recovered: &[(Lsn, Vec<u8>)], promise: Promise) {
        let least = if promise == Promise::Written { self.written } else { self.durable };
        let count = recovered.len() as u64;
        assert!(least <= count, "{promise:?} up to {least}, recovered {count}");
        assert!(recovered.len() <= self.records.len(), "records came from nowhere");
        for (index, (lsn, bytes)) in recovered.iter().enumerate() {
            assert_eq!(lsn.0, index as u64 + 1, "a hole");
            assert_eq!(bytes, &self.records[index], "record {lsn} is another");
        }
        self.records.truncate(recovered.len());
        self.written = count;
        self.durable = count;
    }
}

pub struct Rig<D: Disk> {
    pub log: Opened<D>,
    pub oracle: Oracle,
    pub now: Duration,
    pub rng: SimRng,
}

pub type Recovered = Vec<(Lsn, Vec<u8>)>;

/// Opens a log and collects its records.
pub fn open_log<D: Disk>(disk: &D, options: Options) -> Result<(Opened<D>, Recovered), OpenError> {
    let mut recovered = Vec::new();
    let mut ids = SimRng::new(99);
    let opened = open(disk.clone(), options, &mut ids, &mut |record| {
        recovered.push((record.lsn, record.bytes.to_vec()));
        Ok(())
    })?;
    Ok((opened, recovered))
}

impl<D: Disk> Rig<D> {
    pub fn new(disk: &D, options: Options, seed: u64) -> Self {
        Self::reopen(disk, options, seed, Oracle::default(), Promise::Durable)
            .expect("the log opens")
    }

    /// Opens what a crash or a shutdown left and checks it.
    pub fn reopen(
        disk: &D,
        options: Options,
        seed: u64,
        mut oracle: Oracle,
        promise: Promise,
    ) -> Result<Self, OpenError> {
        let (log, recovered) = open_log(disk, options)?;
        oracle.check(&recovered, promise);
        Ok(Self { log, oracle, now: Duration::ZERO, rng: SimRng::new(seed) })
    }

    pub fn writer(&mut self) -> &mut LogWriter {
        &mut self.log.writer
    }

    /// Commits a record without a reservation.
    pub fn append(&mut self, bytes: &[u8], policy: SyncPolicy) -> Lsn {
        let writer = &mut self.log.writer;
        writer.begin();
        let half = bytes.len() / 2;
        writer.record().extend_from_slice(&bytes[..half]);
        writer.append_shared(bytes::Bytes::copy_from_slice(&bytes[half..]));
        let lsn = writer.commit(policy);
        self.oracle.records.push(bytes.to_vec());
        assert_eq!(lsn.0, self.oracle.records.len() as u64);
        lsn
    }

    /// Commits a record if its reservation is granted.
    pub fn try_append(&mut self, bytes: &[u8], policy: SyncPolicy) -> Reservation {
        let reservation = self.log.writer.reserve(bytes.len() as u64);
        if reservation == Reservation::Granted {
            self.append(bytes, policy);
        }
        reservation
    }

    /// Commits a record, letting the log and the helper work until its reservation is granted.
    pub fn must_append(&mut self, bytes: &[u8], policy: SyncPolicy) {
        for _ in 0..10_000 {
            match self.try_append(bytes, policy) {
                Reservation::Granted => return,
                Reservation::Behind => {
                    self.step_stage();
                    self.step_helper();
                }
                refused => panic!("{refused:?}"),
            }
        }
        panic!("no reservation was ever granted");
    }

    pub fn flush(&mut self) {
        self.log.writer.flush(i64::try_from(self.now.as_millis()).expect("a short test"));
    }

    pub fn step_stage(&mut self) -> Step {
        let step = self.log.stage.step(self.now);
        self.note_promises();
        step
    }

    pub fn step_helper(&mut self) -> Step {
        let step = self.log.helper.step(self.now);
        self.note_promises();
        step
    }

    /// Notes what the log has promised.
    fn note_promises(&mut self) {
        let (written, durable) = (self.log.progress.written().0, self.log.progress.durable().0);
        assert!(durable <= written && written <= self.oracle.records.len() as u64);
        assert!(
            self.oracle.written <= written && self.oracle.durable <= durable,
            "a watermark went back"
        );
        (self.oracle.written, self.oracle.durable) = (written, durable);
    }

    /// Steps both until neither has anything to do; lets pass the time that the helper waits for.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            let stage = self.step_stage();
            let helper = self.step_helper();
            let quiet = matches!(stage, Step::Idle | Step::IdleUntil(_) | Step::Ended);
            match helper {
                Step::Idle | Step::Ended if quiet => return,
                Step::IdleUntil(due) if quiet => self.now = self.now.max(due),
                _ => {}
            }
        }
        panic!("it never settles");
    }

    /// Lets time pass in small steps while both work.
    pub fn settle_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            for _ in 0..50 {
                self.step_stage();
                self.step_helper();
            }
            self.now = (self.now + Duration::from_micros(1000)).min(end);
        }
        for _ in 0..200 {
            self.step_stage();
            self.step_helper();
        }
    }

    /// Closes the log with a clean shutdown.
    pub fn close(mut self) -> Oracle {
        self.log.writer.close();
        for _ in 0..100_000 {
            if self.step_stage() == Step::Ended {
                assert_eq!(self.log.progress.failure(), None);
                assert_eq!(
                    self.oracle.durable,
                    self.oracle.records.len() as u64,
                    "a close syncs everything"
                );
                return self.oracle;
            }
            self.step_helper();
        }
        panic!("it never ends");
    }

    /// Returns a record of random length and contents.
    pub fn random_record(&mut self, bytes_max: u64) -> Vec<u8> {
        let count = 1 + self.rng.below(bytes_max);
        let first = self.rng.below(256) as u8;
        (0..count).map(|at| first.wrapping_add((at % 251) as u8)).collect()
    }

    pub fn random_policy(&mut self) -> SyncPolicy {
        match self.rng.below(4) {
            0 | 1 => SyncPolicy::Os,
            2 => SyncPolicy::Always,
            _ => SyncPolicy::Interval(Duration::from_millis(5)),
        }
    }

    /// Runs one random event.
    pub fn random_event(&mut self) {
        match self.rng.below(16) {
            0..6 => {
                let bytes_max = [40, 40, 40, 300, 3000][self.rng.index(5)];
                let (record, policy) = (self.random_record(bytes_max), self.random_policy());
                self.try_append(&record, policy);
            }
            6..8 => self.flush(),
            8..12 => drop(self.step_stage()),
            12..15 => drop(self.step_helper()),
            _ => self.now += Duration::from_millis(self.rng.below(4)),
        }
    }
}

/// Returns the names of the segments, in order.
pub fn segments_of(disk: &SimDisk) -> Vec<String> {
    disk.snapshot().into_keys().filter(|name| name.ends_with(SEGMENT_SUFFIX)).collect()
}

/// Returns a disk with the same files except the lost ones.
pub fn without(disk: &SimDisk, lost: &[String]) -> SimDisk {
    let left = SimDisk::new();
    for (name, contents) in disk.snapshot() {
        if !lost.contains(&name) {
            left.put_file(&name, &contents);
        }
    }
    left
}

/// Returns what survives a crash of this kind.
pub fn promise_of(kind: CrashKind) -> Promise {
    if kind == CrashKind::KeepAll { Promise::Written } else { Promise::Durable }
}
