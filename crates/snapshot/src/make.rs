//! Makes a snapshot from the one before and the log.

use std::path::PathBuf;

use busload_io::{Disk, DiskError, DiskErrorKind};
use busload_log::{Base, Lsn, OpenError, Read, ReplayError, read_durable};
use busload_tables::{
    HashPrefix, Tables,
    effect::{self, ApplyError, Effect, PartPosition},
};

use crate::{
    Catalogue, Pace, Snapshot, SnapshotError, Stopped, Summary,
    format::{Header, SPILL_NAME},
    limits::{
        NOTED_RECORDS_MAX, PACED_BYTES, PARTITION_BITS_MAX, PARTITION_BYTES_MIN, PARTITION_FRACTION,
    },
    partition::{Concern, Overlap, PartitionReplay, RecordPartitions},
    prepare::prepared_tables,
    spill::Spill,
    writer::{SnapshotWriter, discard, remove_if_there},
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
    Spill(#[from] InvalidSpill),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Place where the sorted log does not verify.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} does not hold at offset {offset} what was just written: the disk may be failing",
    path.display()
)]
pub struct InvalidSpill {
    /// Path of the file.
    pub path: PathBuf,
    /// Offset of the chunk that does not verify.
    pub offset: u64,
}

impl From<OpenError> for MakeError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Replay { source, .. } if source.is::<Stopped>() => Stopped.into(),
            OpenError::Replay { path, offset, lsn, source } => {
                match source.downcast::<DiskError>() {
                    Ok(error) => MakeError::Disk(*error),
                    Err(source) => MakeError::Log(OpenError::Replay { path, offset, lsn, source }),
                }
            }
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
    /// Way in which the log is read.
    pub reading: Reading,
}

/// Way in which the log is read, of which every partition needs a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Once to note the partition of each record, and once for each partition: nothing more is
    /// written, and the cost grows with the number of partitions.
    Repeated {
        /// Number of records of which the partition is noted.
        noted_max: usize,
    },
    /// Once, to sort it by partition into a file. While the disk is too full for that, the log is
    /// read repeatedly.
    Spilled,
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
    let made = make_planned(disk, base, wanted, &mut steps);
    // The error of the snapshot says more than one of the removal would, and the next attempt
    // replaces what is left.
    let _ = match made {
        Ok(_) => remove_if_there(disk, SPILL_NAME),
        Err(_) => discard(disk),
    };
    made
}

fn make_planned<D: Disk>(
    disk: &D,
    base: Option<&Snapshot<D::File>>,
    wanted: Wanted,
    steps: &mut Steps<'_>,
) -> Result<Option<Summary>, MakeError> {
    let plan = match Plan::new(disk, base, wanted, steps) {
        Err(MakeError::Disk(error))
            if error.kind == DiskErrorKind::NoSpace && wanted.reading == Reading::Spilled =>
        {
            log::warn!("{error}; the log is read once for each part of the keys instead");
            remove_if_there(disk, SPILL_NAME)?;
            let reading = Reading::Repeated { noted_max: NOTED_RECORDS_MAX };
            Plan::new(disk, base, Wanted { reading, ..wanted }, steps)?
        }
        plan => plan?,
    };
    plan.map(|plan| plan.write(disk, base, steps)).transpose()
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
struct Plan<'a, D: Disk> {
    header: Header,
    base: Option<Base>,
    records: PlannedRecords<'a, D>,
}

/// Records of the log, as the first reading prepares them for the partitions.
enum PlannedRecords<'a, D: Disk> {
    Noted(RecordPartitions),
    Spilled(Spill<'a, D>),
}

impl<'a, D: Disk> PlannedRecords<'a, D> {
    fn begin(disk: &'a D, base: Lsn, wanted: Wanted) -> Result<Self, DiskError> {
        let Wanted { seed, partition_bits, reading, .. } = wanted;
        Ok(match reading {
            Reading::Repeated { noted_max } => {
                PlannedRecords::Noted(RecordPartitions::new(partition_bits, base, noted_max))
            }
            Reading::Spilled => PlannedRecords::Spilled(Spill::begin(disk, partition_bits, seed)?),
        })
    }

    fn push(&mut self, record: &[u8], hashing: &Tables) -> Result<(), ReplayError> {
        match self {
            PlannedRecords::Noted(noted) => Ok(noted.note(record, hashing)?),
            PlannedRecords::Spilled(spill) => spill.push(record, hashing),
        }
    }

    fn end(&mut self) -> Result<(), DiskError> {
        match self {
            PlannedRecords::Noted(_) => Ok(()),
            PlannedRecords::Spilled(spill) => spill.end(),
        }
    }
}

impl<'a, D: Disk> Plan<'a, D> {
    fn new(
        disk: &'a D,
        snapshot: Option<&Snapshot<D::File>>,
        wanted: Wanted,
        steps: &mut Steps<'_>,
    ) -> Result<Option<Self>, MakeError> {
        let Wanted { durable, seed, partition_bits, .. } = wanted;
        let base = snapshot.map(Snapshot::base);
        let seed = snapshot.map_or(seed, |snapshot| snapshot.header().seed);
        let base_lsn = base.map_or(Lsn(0), |base| base.lsn);
        let mut records = PlannedRecords::begin(disk, base_lsn, wanted)?;
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
            records.push(record, &hashing)
        })?;
        let Some(read) = read else { return Ok(None) };
        let lsn = open_since.map_or(durable, |first: Lsn| Lsn(first.0 - 1));
        if lsn <= base_lsn {
            return Ok(None);
        }
        records.end()?;
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

    fn write(
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
            self.replay_log(disk, partition, &mut replay, &mut catalogue, steps)?;
            replay.finish();
            expected = tables.ids().map(|table| (table, tables.len(table))).collect();
            write_partition(&mut writer, &tables, steps)?;
            steps.end_step();
        }
        Ok(writer.finish(&catalogue)?)
    }

    /// Applies what the log holds of a partition, and notes the changes of the set of tables.
    fn replay_log(
        &self,
        disk: &D,
        partition: u64,
        replay: &mut PartitionReplay<'_>,
        catalogue: &mut Catalogue,
        steps: &mut Steps<'_>,
    ) -> Result<(), MakeError> {
        let records = match &self.records {
            PlannedRecords::Noted(records) => records,
            PlannedRecords::Spilled(spill) => {
                catalogue.note(spill.catalogue()).map_err(ApplyError::from)?;
                for chunk in spill.chunks(partition as usize) {
                    replay.push_chunk(&chunk?)?;
                    steps.pace()?;
                }
                steps.end_step();
                return Ok(());
            }
        };
        let lsn = self.header.lsn;
        read_paced(disk, self.base.as_ref(), lsn, steps, &mut |lsn, record| match records
            .concern(lsn, partition)
        {
            Concern::None => Ok(()),
            Concern::Whole => Ok(replay.push_wanted(record)?),
            Concern::Unknown => {
                catalogue.note(record)?;
                Ok(replay.push(record)?)
            }
        })?;
        Ok(())
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
