//! A log of random transactions on a simulated disk, and a model of what it holds.

use std::{collections::BTreeMap, time::Duration};

use busload_io::{
    Disk, Rng,
    sim::{SimDisk, SimRng},
};
use busload_log::{
    LogStage, LogWriter, Lsn, Options, Progress, RecoveryReport, Reservation, SyncPolicy,
    ZeroHelper,
};
use busload_snapshot::{
    Catalogue, MakeError, Pace, Reading, Snapshot, Stopped, Summary, Wanted, load, newest_first,
};
use busload_tables::{
    TableId, Tables, Value,
    effect::{self, PartPosition, Replayer},
};

/// Contents of all tables: value, expiry, whether it is general.
pub type Contents = BTreeMap<(u16, Vec<u8>), (Stored, Option<i64>, bool)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    String(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// An open log and the model of its contents.
pub struct World {
    pub disk: SimDisk,
    pub writer: LogWriter,
    pub progress: Progress,
    pub stage: LogStage<SimDisk>,
    pub helper: ZeroHelper<SimDisk>,
    pub rng: SimRng,
    pub tables: Tables,
    pub catalogue: Catalogue,
    pub report: RecoveryReport,
    /// LSN of the snapshot that was loaded at the start.
    pub loaded: Option<Lsn>,
    /// All records since the start, in order.
    pub records: Vec<Vec<u8>>,
    pub policy: SyncPolicy,
    /// True if snapshots sort the log into a file; `None` leaves it to chance.
    pub spills: Option<bool>,
    now: Duration,
}

/// Pacer that never pauses.
pub struct AtOnce;

impl Pace for AtOnce {
    fn pace(&mut self) -> Result<(), Stopped> {
        Ok(())
    }
}

pub fn small_segments() -> Options {
    Options { segment_bytes: 64 << 10, first_segment_bytes: 32 << 10, ..Options::default() }
}

impl World {
    pub fn start(disk: SimDisk, seed: u64) -> Self {
        Self::try_start(disk, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
    }

    /// Starts as a server does: from the newest snapshot that verifies.
    pub fn try_start(disk: SimDisk, seed: u64) -> Result<Self, String> {
        let mut rng = SimRng::new(seed);
        let lock = busload_log::lock(&disk).map_err(|error| error.to_string())?;
        let mut tables = Tables::new(seed);
        let mut catalogue = Catalogue::default();
        let mut base = None;
        for lsn in newest_first(&disk).expect("nothing fails here") {
            let Ok(snapshot) = Snapshot::open(&disk, lsn) else { continue };
            let Ok(loaded) = load(&disk, &snapshot, &mut |_| {}) else { continue };
            (tables, catalogue) = (loaded.tables, loaded.catalogue);
            base = Some(snapshot.base());
            break;
        }
        let mut replayer = Replayer::new(&mut tables);
        let opened = busload_log::open_behind(
            disk.clone(),
            lock,
            small_segments(),
            &mut rng,
            base.as_ref(),
            &mut |record| {
                catalogue.note(record.bytes)?;
                Ok(replayer.push(record.bytes)?)
            },
        )
        .map_err(|error| error.to_string())?;
        replayer.finish();
        let busload_log::Opened { writer, progress, stage, helper, report } = opened;
        let loaded = base.map(|base| base.lsn);
        Ok(Self {
            disk,
            writer,
            progress,
            stage,
            helper,
            rng,
            tables,
            catalogue,
            report,
            loaded,
            records: Vec::new(),
            policy: SyncPolicy::Always,
            spills: None,
            now: Duration::ZERO,
        })
    }

    pub fn append(&mut self, record: &[u8]) {
        loop {
            match self.writer.reserve(record.len() as u64) {
                Reservation::Granted => break,
                Reservation::Behind => {
                    self.writer.flush(0);
                    self.drive();
                }
                other => panic!("{other:?}"),
            }
        }
        self.writer.begin();
        self.writer.record().extend_from_slice(record);
        self.writer.commit(self.policy);
        self.records.push(record.to_vec());
        self.catalogue.note(record).expect("nothing fails here");
    }

    fn drive(&mut self) {
        self.now += Duration::from_millis(1);
        self.stage.step(self.now);
        self.helper.step(self.now);
    }

    /// Waits until everything is durable.
    pub fn sync(&mut self) {
        self.writer.flush(1_000);
        let last = Lsn(self.writer.next_lsn().0 - 1);
        while self.progress.durable() < last {
            assert_eq!(self.progress.failure(), None);
            self.drive();
        }
    }

    /// Waits until everything is written.
    pub fn write(&mut self) {
        self.writer.flush(1_000);
        let last = Lsn(self.writer.next_lsn().0 - 1);
        while self.progress.written() < last {
            assert_eq!(self.progress.failure(), None);
            self.drive();
        }
    }

    /// Lets the log and its helper work a little.
    pub fn drive_some(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.drive());
    }

    /// Appends a record and applies it to the tables.
    pub fn transact(&mut self, record: &[u8]) {
        self.append(record);
        let mut replayer = Replayer::new(&mut self.tables);
        replayer.push(record).expect("nothing fails here");
        replayer.finish();
    }

    /// Appends transactions by chance, with single effects and many, some in parts with others
    /// between them.
    pub fn work(&mut self, count: usize) {
        if !self.tables.exists(TableId(20)) {
            let mut record = Vec::new();
            effect::catalogue_created(&mut record, TableId(20), b"named", b"kind=memory");
            self.transact(&record);
        }
        (0..count).for_each(|_| self.transact_by_chance());
        self.sync();
    }

    /// Appends one transaction by chance.
    pub fn transact_by_chance(&mut self) {
        match self.draw(20) {
            0 => {
                let mut whole = Vec::new();
                (0..30).for_each(|_| self.effect(&mut whole));
                self.transact_in_parts(&whole);
            }
            1 => {
                let mut record = Vec::new();
                (0..12).for_each(|_| self.effect(&mut record));
                self.transact(&record);
            }
            _ => {
                let mut record = Vec::new();
                self.effect(&mut record);
                self.transact(&record);
            }
        }
    }

    fn transact_in_parts(&mut self, whole: &[u8]) {
        let (first, rest) = whole.split_at(1 + self.draw(whole.len() - 3));
        let (next, last) = rest.split_at(1 + self.draw(rest.len() - 1));
        self.append(&part(PartPosition::First, first));
        let mut between = Vec::new();
        self.effect(&mut between);
        self.transact(&between);
        if !next.is_empty() {
            self.append(&part(PartPosition::Next, next));
        }
        if last.is_empty() {
            return;
        }
        self.append(&part(PartPosition::Last, last));
        let mut replayer = Replayer::new(&mut self.tables);
        replayer.push(whole).expect("nothing fails here");
        replayer.finish();
    }

    pub fn draw(&mut self, below: usize) -> usize {
        usize::try_from(self.rng.next_u64() % below.max(1) as u64).expect("nothing fails here")
    }

    fn effect(&mut self, out: &mut Vec<u8>) {
        let table = TableId([0, 0, 3, 20][self.draw(4)]);
        let key = format!("key:{}", self.draw(150)).into_bytes();
        let long = if self.draw(60) == 0 { 5_000 } else { 40 };
        let value = vec![b'a' + self.draw(26) as u8; self.draw(long)];
        let expiry = (self.draw(3) == 0).then(|| self.draw(1_000) as i64);
        match self.draw(14) {
            0..6 => effect::put(out, table, &key, &value, expiry),
            6 => effect::patch(out, table, &key, self.draw(50), &value),
            7 | 8 => effect::delete(out, table, &key),
            9 => effect::expire(out, table, &key, 77),
            10 => effect::persist(out, table, &key),
            11 => {
                let count = 1 + self.draw(90);
                effect::hash_put_header(out, table, &key, count);
                for _ in 0..count {
                    let field = format!("field:{}", self.draw(300)).into_bytes();
                    effect::hash_put_pair(out, &field, &value);
                }
            }
            12 => {
                effect::hash_delete_header(out, table, &key, 2);
                effect::hash_delete_field(out, b"field:1");
                effect::hash_delete_field(out, b"field:2");
            }
            _ => {
                if self.draw(40) == 0 {
                    effect::flush(out, table);
                } else {
                    effect::delete(out, table, &key);
                }
            }
        }
    }

    pub fn newest(&self) -> Option<Snapshot<<SimDisk as Disk>::File>> {
        let lsn = *newest_first(&self.disk).expect("nothing fails here").first()?;
        Some(Snapshot::open(&self.disk, lsn).expect("nothing fails here"))
    }

    pub fn make(&mut self) -> Result<Option<Summary>, MakeError> {
        // From one partition to many, so that they are split and merged from one to the next.
        let partition_bits = self.draw(7) as u32;
        self.make_paced(partition_bits, &mut AtOnce)
    }

    pub fn make_paced(
        &mut self,
        partition_bits: u32,
        pace: &mut dyn Pace,
    ) -> Result<Option<Summary>, MakeError> {
        let seed = self.rng.next_u64();
        let reading = match self.spills.unwrap_or(seed.is_multiple_of(2)) {
            true => Reading::Spilled,
            // Some of the records are not noted.
            false => Reading::Repeated { noted_max: (seed % 900) as usize },
        };
        let durable = self.progress.durable();
        let wanted = Wanted { durable, seed, partition_bits, reading };
        busload_snapshot::make(&self.disk, self.newest().as_ref(), wanted, pace)
    }

    pub fn contents(&self) -> Contents {
        contents(&self.tables)
    }

    /// Ends the process without a word, and starts another on what the disk has.
    pub fn restart(self, seed: u64) -> Self {
        let disk = self.disk.clone();
        drop(self);
        Self::start(disk, seed)
    }
}

pub fn part(position: PartPosition, bytes: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    effect::part_header(&mut record, position);
    record.extend_from_slice(bytes);
    record
}

pub fn contents(tables: &Tables) -> Contents {
    let mut contents = Contents::new();
    for table in tables.ids() {
        for entry in tables.entries(table) {
            let stored = match entry.value {
                Value::String(value) => Stored::String(value.as_slice().to_vec()),
                Value::Hash(fields) => Stored::Hash(
                    fields.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect(),
                ),
            };
            let earlier = contents
                .insert((table.0, entry.key.to_vec()), (stored, entry.expiry, entry.is_general));
            assert_eq!(earlier, None, "one entry for each key");
        }
    }
    contents
}
