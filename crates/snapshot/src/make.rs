//! Makes a snapshot from the one before and the log.

use busload_io::{Disk, DiskError};
use busload_log::{Base, Lsn, OpenError, Read, ReplayError, read_durable};
use busload_tables::{
    HashPrefix, Tables,
    effect::{self, ApplyError, Effect, PartPosition},
};

use crate::{
    Catalogue, Pace, Snapshot, SnapshotError, Stopped, Summary,
    format::Header,
    limits::{PACED_BYTES, PARTITION_BITS_MAX, PARTITION_BYTES_MIN, PARTITION_FRACTION},
    partition::{Concern, Overlap, PartitionReplay, RecordPartitions},
    prepare::prepared_tables,
    writer::{SnapshotWriter, discard},
};

/// Reason why a snapshot was not made. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum MakeError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Log(OpenError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("the snapshot before cannot be applied: {0}")]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl From<OpenError> for MakeError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Replay { source, .. } if source.is::<Stopped>() => Stopped.into(),
            error => MakeError::Log(error),
        }
    }
}

/// Properties of a snapshot that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Last record to cover. Everything up to it must be durable.
    pub durable: Lsn,
    /// Random number; it keeps clients from choosing keys that all fall into one partition.
    pub seed: u64,
    /// Number of partitions, as a power of two: see [`partition_bits`].
    pub partition_bits: u32,
}

/// Returns into how many partitions, as a power of two, tables are cut that take so much memory.
pub fn partition_bits(memory_bytes: u64) -> u32 {
    let partition_bytes = PARTITION_BYTES_MIN.max(memory_bytes.div_ceil(PARTITION_FRACTION));
    let count = memory_bytes.div_ceil(partition_bytes).max(1);
    count.next_power_of_two().ilog2().min(PARTITION_BITS_MAX)
}

/// Makes a snapshot from the one before, `base`, and the log. It covers everything that is wanted,
/// or everything up to the last record at which no transaction in several records is open. Returns
/// `None` if `base` covers that already.
pub fn make<D: Disk>(
    disk: &D,
    base: Option<&Snapshot<D::File>>,
    wanted: Wanted,
    pace: &mut dyn Pace,
) -> Result<Option<Summary>, MakeError> {
    let mut steps = Steps::new(pace, wanted.partition_bits, base.is_some());
    let Some(plan) = Plan::new(disk, base, wanted, &mut steps)? else { return Ok(None) };
    let made = plan.write(disk, base, &mut steps);
    if made.is_err() {
        // The error of the snapshot says more than one of its removal would.
        let _ = discard(disk);
    }
    made.map(Some)
}

/// Progress of a snapshot, in steps that count the same: a first reading of the log; then for each
/// partition its part of the snapshot before, its part of the log, and writing it.
struct Steps<'a> {
    pace: &'a mut dyn Pace,
    done: u32,
    total: u32,
}

impl<'a> Steps<'a> {
    fn new(pace: &'a mut dyn Pace, partition_bits: u32, has_base: bool) -> Self {
        let of_partition = if has_base { 3 } else { 2 };
        Self { pace, done: 0, total: 1 + (of_partition << partition_bits) }
    }

    /// Paces work within a step, of which this share is done.
    fn pace_at(&mut self, share: f64) -> Result<(), Stopped> {
        self.pace.progress((f64::from(self.done) + share) / f64::from(self.total));
        self.pace.pace()
    }

    fn end_step(&mut self) {
        self.done += 1;
        self.pace.progress(f64::from(self.done) / f64::from(self.total));
    }
}

impl Pace for Steps<'_> {
    fn pace(&mut self) -> Result<(), Stopped> {
        self.pace.pace()
    }
}

/// Result of a first reading of the log.
struct Plan {
    header: Header,
    base: Option<Base>,
    records: RecordPartitions,
}

impl Plan {
    fn new<D: Disk>(
        disk: &D,
        snapshot: Option<&Snapshot<D::File>>,
        wanted: Wanted,
        steps: &mut Steps<'_>,
    ) -> Result<Option<Self>, MakeError> {
        let Wanted { durable, seed, partition_bits } = wanted;
        let base = snapshot.map(Snapshot::base);
        let seed = snapshot.map_or(seed, |snapshot| snapshot.header().seed);
        let base_lsn = base.map_or(Lsn(0), |base| base.lsn);
        let mut records = RecordPartitions::new(partition_bits, base_lsn);
        let hashing = Tables::new(seed);
        let mut open_since = None;
        let read = read_paced(disk, base.as_ref(), durable, steps, &mut |lsn, record| {
            if effect::is_part(record)
                && let Some(Effect::Part { position, .. }) =
                    effect::decode(record).next().transpose()?
            {
                match position {
                    PartPosition::First => open_since = Some(lsn),
                    PartPosition::Next => {}
                    PartPosition::Last => open_since = None,
                }
            }
            Ok(records.note(record, &hashing)?)
        })?;
        let Some(read) = read else { return Ok(None) };
        let lsn = open_since.map_or(durable, |first: Lsn| Lsn(first.0 - 1));
        if lsn <= base_lsn {
            return Ok(None);
        }
        let header = Header {
            log_id: read.log_id,
            lsn,
            segment: read.segment,
            wall_ms: read.wall_ms,
            seed,
            partition_bits,
        };
        Ok(Some(Self { header, base, records }))
    }

    fn write<D: Disk>(
        &self,
        disk: &D,
        snapshot: Option<&Snapshot<D::File>>,
        steps: &mut Steps<'_>,
    ) -> Result<Summary, MakeError> {
        let mut writer = SnapshotWriter::begin(disk, self.header)?;
        let base_catalogue = snapshot.map(|snapshot| snapshot.catalogue(disk)).transpose()?;
        let base_catalogue = base_catalogue.unwrap_or_default();
        let mut catalogue = Catalogue::default();
        // Partitions are about equally large.
        let mut expected = Vec::new();
        for partition in 0..1_u64 << self.header.partition_bits {
            let prefix = HashPrefix { bits: self.header.partition_bits, value: partition };
            let mut tables = prepared_tables(self.header.seed, &base_catalogue, &expected, prefix)?;
            catalogue = Catalogue::default();
            catalogue.note(&base_catalogue).map_err(ApplyError::from)?;
            let mut replay = PartitionReplay::new(&mut tables, prefix);
            if let Some(snapshot) = snapshot {
                let overlap = Overlap::new(snapshot.header(), self.header.seed, prefix);
                for older in overlap.partitions.clone() {
                    for block in snapshot.blocks(disk, older) {
                        replay.push_block(&block?, &overlap)?;
                        steps.pace()?;
                    }
                }
                steps.end_step();
            }
            let lsn = self.header.lsn;
            read_paced(disk, self.base.as_ref(), lsn, steps, &mut |lsn, record| match self
                .records
                .concern(lsn, partition)
            {
                Concern::None => Ok(()),
                Concern::Whole => Ok(replay.push_wanted(record)?),
                Concern::Unknown => {
                    catalogue.note(record)?;
                    Ok(replay.push(record)?)
                }
            })?;
            replay.finish();
            expected = tables.ids().map(|table| (table, tables.len(table))).collect();
            write_partition(&mut writer, &tables, steps)?;
            steps.end_step();
        }
        Ok(writer.finish(&catalogue)?)
    }
}

/// Writes all entries of the tables.
fn write_partition<D: Disk>(
    writer: &mut SnapshotWriter<'_, D>,
    tables: &Tables,
    pace: &mut dyn Pace,
) -> Result<(), MakeError> {
    for table in tables.ids() {
        for entry in tables.entries(table) {
            writer.entry(table, &entry, pace)?;
        }
    }
    writer.end_partition()?;
    Ok(pace.pace()?)
}

/// Callback that takes the records of the log.
type Sink<'a> = dyn FnMut(Lsn, &[u8]) -> Result<(), ReplayError> + 'a;

/// Reads records and calls the pacer now and then. It is a step of the work.
fn read_paced<D: Disk>(
    disk: &D,
    base: Option<&Base>,
    until: Lsn,
    steps: &mut Steps<'_>,
    sink: &mut Sink<'_>,
) -> Result<Option<Read>, OpenError> {
    let first = base.map_or(0, |base| base.lsn.0);
    let count = until.0.saturating_sub(first).max(1);
    let mut unpaced = 0;
    let read = read_durable(disk, base, until, &mut |record| {
        unpaced += record.bytes.len();
        if PACED_BYTES <= unpaced {
            unpaced = 0;
            steps.pace_at((record.lsn.0 - first) as f64 / count as f64)?;
        }
        sink(record.lsn, record.bytes)
    })?;
    steps.end_step();
    Ok(read)
}
