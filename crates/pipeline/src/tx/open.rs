//! Startup: loads the newest snapshot, recovers the log behind it into the tables, then reconciles
//! both with the configuration.
//!
//! The log holds the names, ids and settings of tables. A start that would hide keys fails and
//! tells their number: if the prefix of a new table already has keys in `default`, or if a logged
//! table is not configured any more. For a table that a source serves, the log holds only the name,
//! so that this check is made once and not at every start.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use busload_io::{Disk, DiskOperation, Rng};
use busload_log::{
    LogStage, LogWriter, Lsn, OpenError, Options, Progress, RecoveryReport, Reservation,
    SyncPolicy, ZeroHelper,
};
use busload_snapshot::{Catalogue, MakeError, Snapshot, SnapshotError};
use busload_tables::{
    TableId, Tables, Value,
    effect::{self, Replayer},
};

use super::{
    Catalog, Changes, GateFilter, Now, RequestCounts, Signals, Tickets, Tx, Watches,
    stopwatch::Stopwatch,
};
use crate::{
    gate::Gate,
    limits::{GROUP_REQUESTS, SPACE_COUNT, TABLE_COUNT_MAX},
    monitor::Monitors,
    name_pattern::TableKeys,
    password_limiter::PasswordLimiter,
    settings::{Eviction, Settings, SourceTable, SyncMode, TableSettings},
    stats::Stats,
};

/// Stage ready to run, and the parts of the log for their threads.
#[derive(Debug)]
pub struct Opened<D: Disk> {
    /// The stage that executes.
    pub tx: Tx,
    /// Positions that the log has reached.
    pub progress: Progress,
    /// The log's stage, for a thread of its own.
    pub stage: LogStage<D>,
    /// The log's helper, for another thread.
    pub helper: ZeroHelper<D>,
    /// Report of what was recovered of the log.
    pub report: RecoveryReport,
    /// Report of the snapshot that was loaded before, if there was one.
    pub snapshot: Option<SnapshotReport>,
    /// Handle by which commands ask for snapshots, for the thread that makes them.
    pub snapshots: Arc<busload_snapshot::Control>,
}

/// Report of a snapshot that was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotReport {
    /// Last record that it covers.
    pub lsn: Lsn,
    /// Number of entries of tables.
    pub entries: u64,
    /// Length of its file.
    pub file_bytes: u64,
}

/// Reason for which the start failed.
#[derive(Debug)]
pub enum StartError {
    /// The log cannot be opened.
    Log(OpenError),
    /// A snapshot cannot be read, for a reason other than its contents.
    Snapshot(SnapshotError),
    /// The configuration and the data do not agree; the text says what to do.
    Catalogue(String),
    /// Something that was recovered, or must be logged before the start, prevents it.
    Failed(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Log(error) => error.fmt(f),
            StartError::Snapshot(error) => error.fmt(f),
            StartError::Catalogue(text) | StartError::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Log(error) => Some(error),
            StartError::Snapshot(error) => Some(error),
            StartError::Catalogue(_) | StartError::Failed(_) => None,
        }
    }
}

/// Table that the log knows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    name: String,
    settings: String,
}

/// Progress of a start, for people who wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryProgress {
    /// So many bytes of the snapshot's entries were loaded, of so many.
    Snapshot(u64, u64),
    /// So many bytes of the log's records were applied, of about so many.
    Log(u64, u64),
}

/// Callback that learns the progress of a start.
pub type ReportProgress<'a> = &'a mut dyn FnMut(RecoveryProgress);

/// Recovers the tables from the newest valid snapshot and the log on `disk`, and reconciles them
/// with the settings.
#[allow(clippy::too_many_arguments, reason = "called in one place, with what only the edge has")]
pub fn open<D>(
    disk: D,
    options: Options,
    settings: Settings,
    stats: Arc<Stats>,
    signals: Arc<Signals>,
    mut rng: Box<dyn Rng + Send>,
    now: Now,
    say: ReportProgress<'_>,
) -> Result<Opened<D>, StartError>
where
    D: Disk + Sync,
    D::File: Sync,
{
    let lock = busload_log::lock(&disk).map_err(StartError::Log)?;
    let (mut tables, mut catalogue, snapshot) = match load_newest(&disk, say)? {
        Some((loaded, snapshot)) => (loaded.tables, loaded.catalogue, Some(snapshot)),
        None => (Tables::new(rng.next_u64()), Catalogue::default(), None),
    };
    let base = snapshot.as_ref().map(Snapshot::base);
    // What is wrong with the files, the opening says better.
    let total = busload_log::bytes_behind(&disk, base.as_ref()).unwrap_or(0);
    let mut replayer = Replayer::new(&mut tables);
    let (mut records, mut bytes) = (0, 0);
    let opened =
        busload_log::open_behind(disk, lock, options, &mut *rng, base.as_ref(), &mut |record| {
            catalogue.note(record.bytes)?;
            replayer.push(record.bytes)?;
            records += 1;
            bytes += record.bytes.len() as u64;
            if records % PROGRESS_RECORDS == 0 {
                say(RecoveryProgress::Log(bytes, total));
            }
            Ok(())
        })
        .map_err(StartError::Log)?;
    let has_open_parts = replayer.finish();
    let known = known_tables(&catalogue);
    let next_id = known.keys().next_back().map_or(SPACE_COUNT, |id| SPACE_COUNT.max(id + 1));
    let snapshot = snapshot.map(|snapshot| SnapshotReport {
        lsn: snapshot.header().lsn,
        entries: snapshot.entries(),
        file_bytes: snapshot.file_bytes(),
    });

    let busload_log::Opened { writer, progress, stage, helper, report } = opened;
    let mut start = Start { tables, writer, stage, helper, progress, now_ms: now.wall_ms };
    let now_ms = now.wall_ms.max(report.wall_ms.unwrap_or(i64::MIN));
    start.now_ms = now_ms;
    let catalog = start.agree(&settings, &known, next_id)?;
    let Start { tables, writer, stage, helper, progress, .. } = start;

    let net_assumes_log_in = !settings.needs_password();
    let users = match settings.users.clone() {
        Some(users) => users,
        None => settings.own_users().map_err(StartError::Failed)?,
    };
    let snapshots = Arc::<busload_snapshot::Control>::default();
    let mut request_counts = RequestCounts::new(Arc::clone(&stats.latencies));
    for id in catalog.all_memory() {
        if let Some(table) = catalog.memory(id) {
            request_counts.add_memory(id, &table.settings.name);
        }
    }
    let tx = Tx {
        snapshots: Arc::clone(&snapshots),
        parts_abandoned: has_open_parts,
        tables,
        catalog,
        clients_max_at_start: settings.clients_max,
        settings,
        stats,
        rng,
        progress: progress.clone(),
        watches: Watches::default(),
        users,
        net_assumes_log_in,
        guesses: PasswordLimiter::default(),
        signals,
        started: now,
        log: writer,
        filter: GateFilter::new(),
        gate: std::cell::Cell::new(Gate::OPEN),
        changes: Changes::default(),
        any_change: false,
        records_open: 0,
        reservation_granted: 0,
        defer_put: false,
        deferred_put: None,
        sliced: false,
        sessions: Vec::new(),
        next_client_id: 0,
        closes: Vec::new(),
        net_limits: None,
        idle_check_due: Duration::ZERO,
        monitors: Monitors::default(),
        stopwatch: Stopwatch::default(),
        tickets: Tickets::new(),
        order: None,
        leaving: Vec::new(),
        new_table: None,
        jobs: Default::default(),
        now_ms,
        now: now.monotonic,
        sweep: Default::default(),
        eviction: Default::default(),
        scratch: Vec::new(),
        hashes: vec![(TableId(0), busload_tables::KeyHash(0)); GROUP_REQUESTS],
        request_counts,
    };
    tx.publish_metrics();
    Ok(Opened { tx, progress, stage, helper, report, snapshot, snapshots })
}

/// Number of records of the log between two reports of progress.
const PROGRESS_RECORDS: u64 = 1 << 16;

/// Contents of a snapshot, and the snapshot itself.
type LoadedFrom<F> = (busload_snapshot::Loaded, Snapshot<F>);

/// Loads the newest snapshot that verifies, if there is one.
fn load_newest<D>(
    disk: &D,
    say: ReportProgress<'_>,
) -> Result<Option<LoadedFrom<D::File>>, StartError>
where
    D: Disk + Sync,
    D::File: Sync,
{
    let failed = |error| StartError::Snapshot(SnapshotError::Disk(error));
    for lsn in busload_snapshot::newest_first(disk).map_err(failed)? {
        let loaded = Snapshot::open(disk, lsn).map_err(MakeError::Snapshot).and_then(|snapshot| {
            let total = snapshot.raw_bytes();
            let mut progress = |bytes| say(RecoveryProgress::Snapshot(bytes, total));
            Ok((busload_snapshot::load(disk, &snapshot, &mut progress)?, snapshot))
        });
        match loaded {
            Ok(loaded) => return Ok(Some(loaded)),
            Err(MakeError::Snapshot(error @ SnapshotError::Version { .. })) => {
                return Err(StartError::Snapshot(error));
            }
            Err(MakeError::Snapshot(SnapshotError::Disk(error)))
                if error.operation != DiskOperation::Read =>
            {
                return Err(failed(error));
            }
            Err(error) => log::error!("{error}; the snapshot before it takes its place"),
        }
    }
    Ok(None)
}

fn known_tables(catalogue: &Catalogue) -> BTreeMap<u16, Known> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let known = |table: &busload_snapshot::KnownTable| Known {
        name: text(&table.name),
        settings: text(&table.settings),
    };
    catalogue.0.iter().map(|(&id, table)| (id, known(table))).collect()
}

/// State between recovery and the first request.
struct Start<D: Disk> {
    tables: Tables,
    writer: LogWriter,
    stage: LogStage<D>,
    helper: ZeroHelper<D>,
    progress: Progress,
    now_ms: i64,
}

impl<D: Disk> Start<D> {
    /// Compares the log's tables with the configured ones, logs the differences, and returns the
    /// catalog.
    fn agree(
        &mut self,
        settings: &Settings,
        known: &BTreeMap<u16, Known>,
        mut next_id: u16,
    ) -> Result<Catalog, StartError> {
        let Some((default, named)) = settings.tables.split_first() else {
            return refuse("there is no table `default`".into());
        };
        let count = named.len() + settings.sources.len();
        if TABLE_COUNT_MAX < count {
            return refuse(format!(
                "{count} tables are configured, at most {TABLE_COUNT_MAX} can be"
            ));
        }
        self.check_dropped(settings, known)?;
        let new_sources: Vec<&SourceTable> =
            settings.sources.iter().filter(|s| !is_known(s, known)).collect();
        new_sources.iter().try_for_each(|source| self.check_hidden(source))?;
        let mut catalog = Catalog::new(default.clone());
        self.settle_settings(TableId(0), default, known.get(&0))?;
        for table in named {
            let existing = known.iter().find(|(id, known)| **id != 0 && known.name == table.name);
            let id = match existing {
                Some((&id, known)) => {
                    if known.settings.ends_with(ADOPTING) {
                        // An earlier start was interrupted while it moved keys.
                        self.adopt_all(TableId(id), table)?;
                    }
                    self.settle_settings(TableId(id), table, Some(known))?;
                    TableId(id)
                }
                None => {
                    let id = TableId(next_id);
                    next_id += 1;
                    self.create(id, table, settings.adopt_tables)?;
                    id
                }
            };
            catalog.add_memory(id, table.clone());
        }
        for (&id, known) in
            known.iter().filter(|(id, known)| **id != 0 && !is_configured(settings, known))
        {
            self.drop_table(TableId(id), known)?;
        }
        let mut sources: HashMap<String, TableId> = known
            .iter()
            .filter(|(_, known)| settings.sources.iter().any(|source| is_entry_of(source, known)))
            .map(|(&id, known)| (known.name.clone(), TableId(id)))
            .collect();
        for source in new_sources {
            let mut record = Vec::new();
            let id = TableId(next_id);
            source_created(&mut record, id, &source.name, source.kind);
            self.tables.create(id);
            sources.insert(source.name.clone(), id);
            next_id += 1;
            self.append(&record)?;
        }
        self.sync()?;
        catalog.note_known(sources, next_id);
        catalog.evicting().iter().for_each(|table| self.tables.start_eviction(*table));
        Ok(catalog)
    }

    /// Checks that a table which would vanish with its keys is dropped on purpose.
    fn check_dropped(
        &self,
        settings: &Settings,
        known: &BTreeMap<u16, Known>,
    ) -> Result<(), StartError> {
        for name in &settings.drop_tables {
            let known = known.iter().find(|(id, known)| **id != 0 && known.name == *name);
            if settings.tables.iter().any(|table| table.name == *name)
                || known.is_some_and(|(_, known)| is_configured(settings, known))
            {
                return refuse(format!(
                    "table {name} is both configured and named by --drop-table"
                ));
            }
            if known.is_none() {
                return refuse(format!("--drop-table {name}: the log knows no such table"));
            }
        }
        for (&id, known) in
            known.iter().filter(|(id, known)| **id != 0 && !is_configured(settings, known))
        {
            let (name, count) = (&known.name, self.tables.len(TableId(id)));
            if count == 0 || settings.drop_tables.contains(name) {
                continue;
            }
            return match settings.sources.iter().find(|source| source.name == *name) {
                None => refuse(format!(
                    "table {name} holds {count} keys in the log but is not configured; configure \
                     it again, or drop it with its keys by --drop-table {name}"
                )),
                Some(source) => refuse(format!(
                    "table {name} is a {} table now, but the log has a memory table of that name \
                     with {count} keys; drop that one with its keys by --drop-table {name}, or \
                     choose another name",
                    source.kind
                )),
            };
        }
        Ok(())
    }

    /// Checks that a source hides no keys in `default`. They cannot be moved into the source.
    fn check_hidden(&self, source: &SourceTable) -> Result<(), StartError> {
        let SourceTable { name, kind } = source;
        let keys = TableKeys::of(name);
        let is_hidden = |key: &[u8]| keys.contain(key);
        let count: usize =
            (0..SPACE_COUNT).map(|space| self.keys_with(TableId(space), &is_hidden).len()).sum();
        if count == 0 {
            return Ok(());
        }
        refuse(format!(
            "table {name} is a new {kind} table, but {count} keys that begin with `{name}:` are in \
             table default and would be hidden; rename or delete them first (--adopt-tables moves \
             keys to memory tables only), or choose another name"
        ))
    }

    /// Logs changed settings. The keys that a table held until it stopped being logged must not
    /// return at the next start.
    fn settle_settings(
        &mut self,
        id: TableId,
        table: &TableSettings,
        known: Option<&Known>,
    ) -> Result<(), StartError> {
        let text = settings_text(table);
        if known.is_some_and(|known| known.settings == text) {
            return Ok(());
        }
        let mut record = Vec::new();
        match known {
            None => {
                effect::catalogue_created(&mut record, id, table.name.as_bytes(), text.as_bytes())
            }
            Some(_) => effect::catalogue_settings(&mut record, id, text.as_bytes()),
        }
        if table.sync == SyncMode::Off {
            let spaces = if id.0 == 0 { 0..SPACE_COUNT } else { id.0..id.0 + 1 };
            spaces.for_each(|space| effect::flush(&mut record, TableId(space)));
        }
        self.append(&record)
    }

    fn create(
        &mut self,
        id: TableId,
        table: &TableSettings,
        adopt: bool,
    ) -> Result<(), StartError> {
        let name = &table.name;
        let prefix = format!("{name}:").into_bytes();
        let taken = |space: u16| self.keys_with_prefix(TableId(space), &prefix);
        let in_space_0 = taken(0);
        let elsewhere: usize = (1..SPACE_COUNT).map(|space| taken(space).len()).sum();
        let count = in_space_0.len() + elsewhere;
        if count != 0 && !adopt {
            return refuse(format!(
                "table {name} is new, but {count} keys that begin with `{name}:` are in table \
                 default and would be hidden; --adopt-tables moves them to {name}, or choose \
                 another name"
            ));
        }
        if elsewhere != 0 {
            return refuse(format!(
                "table {name} is new, but {elsewhere} keys that begin with `{name}:` are in spaces \
                 1 to 15; only keys of space 0 can be adopted: rename or delete them first"
            ));
        }
        self.tables.create(id);
        let settings = settings_text(table);
        let mut record = Vec::new();
        if count == 0 {
            effect::catalogue_created(&mut record, id, name.as_bytes(), settings.as_bytes());
            return self.append(&record);
        }
        // Until the last key is moved the log says so, and the next start continues where this one
        // stopped.
        let unfinished = format!("{settings}{ADOPTING}");
        effect::catalogue_created(&mut record, id, name.as_bytes(), unfinished.as_bytes());
        self.append(&record)?;
        self.adopt_all(id, table)?;
        let mut record = Vec::new();
        effect::catalogue_settings(&mut record, id, settings.as_bytes());
        self.append(&record)
    }

    /// Moves all keys with the table's prefix from space 0 of `default`.
    fn adopt_all(&mut self, id: TableId, table: &TableSettings) -> Result<(), StartError> {
        for key in self.keys_with_prefix(TableId(0), format!("{}:", table.name).as_bytes()) {
            self.adopt(&key, id, table.sync)?;
        }
        Ok(())
    }

    /// Moves one key from space 0 of `default`.
    fn adopt(&mut self, key: &[u8], to: TableId, sync: SyncMode) -> Result<(), StartError> {
        let from = TableId(0);
        let hash = self.tables.hash(key);
        // A time before all expiries: expired keys move too, and are swept there.
        let expiry = self.tables.expiry(from, hash, key, i64::MIN).flatten();
        let mut put = Vec::new();
        match self.tables.get(from, hash, key, i64::MIN) {
            None => return Ok(()),
            Some(Value::String(value)) => effect::put(&mut put, to, key, value.as_slice(), expiry),
            Some(Value::Hash(fields)) => {
                effect::hash_put_header(&mut put, to, key, fields.len());
                fields
                    .iter()
                    .for_each(|(field, value)| effect::hash_put_pair(&mut put, field, value));
                if let Some(at) = expiry {
                    effect::expire(&mut put, to, key, at);
                }
            }
        }
        let mut delete = Vec::new();
        effect::delete(&mut delete, from, key);
        for effect in effect::decode(&put).chain(effect::decode(&delete)) {
            let effect = effect.expect("effects just encoded decode");
            effect::apply(&mut self.tables, effect).expect("both tables exist");
        }
        if sync != SyncMode::Off {
            delete.extend_from_slice(&put);
        }
        self.append(&delete)
    }

    fn drop_table(&mut self, id: TableId, known: &Known) -> Result<(), StartError> {
        log::info!("table {} is dropped with {} keys", known.name, self.tables.len(id));
        self.tables.remove(id);
        let mut record = Vec::new();
        effect::catalogue_dropped(&mut record, id);
        self.append(&record)
    }

    fn keys_with_prefix(&self, table: TableId, prefix: &[u8]) -> Vec<Vec<u8>> {
        self.keys_with(table, &|key| key.starts_with(prefix))
    }

    fn keys_with(&self, table: TableId, is_meant: &dyn Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut position = Some(0);
        while let Some(from) = position {
            position = self.tables.scan(table, from, usize::MAX, i64::MIN, &mut |key, _| {
                if is_meant(key) {
                    found.push(key.to_vec());
                }
            });
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Appends a record and drives the log by hand: its threads do not run yet.
    fn append(&mut self, record: &[u8]) -> Result<(), StartError> {
        loop {
            match self.writer.reserve(record.len() as u64) {
                Reservation::Granted => break,
                Reservation::Behind => {
                    self.writer.flush(self.now_ms);
                    self.drive();
                }
                Reservation::NoSpace { message } | Reservation::Failed { message } => {
                    return Err(StartError::Failed(message.to_string()));
                }
            }
        }
        self.writer.begin();
        self.writer.record().extend_from_slice(record);
        self.writer.commit(SyncPolicy::Always);
        Ok(())
    }

    /// Waits until everything appended is durable.
    fn sync(&mut self) -> Result<(), StartError> {
        self.writer.flush(self.now_ms);
        let last = Lsn(self.writer.next_lsn().0 - 1);
        while self.progress.durable() < last {
            if let Some(message) = self.progress.failure() {
                return Err(StartError::Failed(message.to_string()));
            }
            self.drive();
        }
        Ok(())
    }

    fn drive(&mut self) {
        self.stage.step(Duration::ZERO);
        self.helper.step(Duration::ZERO);
    }
}

fn refuse<T>(text: String) -> Result<T, StartError> {
    Err(StartError::Catalogue(text))
}

/// Returns whether the table continues. A former memory table that a source serves now does not:
/// its keys belong to no table any more.
fn is_configured(settings: &Settings, known: &Known) -> bool {
    settings.tables.iter().any(|table| table.name == known.name)
        || settings.sources.iter().any(|source| is_entry_of(source, known))
}

/// Returns whether the log knows the source already.
fn is_known(source: &SourceTable, known: &BTreeMap<u16, Known>) -> bool {
    known.values().any(|known| is_entry_of(source, known))
}

fn is_entry_of(source: &SourceTable, known: &Known) -> bool {
    source.name == known.name && known.settings == kind_text(source.kind)
}

/// Returns the settings of a source as the log stores them.
fn kind_text(kind: &str) -> String {
    format!("kind={kind}")
}

/// Appends the creation of a source's table. Its id is taken for good; nothing is ever stored under
/// it.
pub(super) fn source_created(record: &mut Vec<u8>, id: TableId, name: &str, kind: &str) {
    effect::catalogue_created(record, id, name.as_bytes(), kind_text(kind).as_bytes());
}

/// Suffix of the settings of a table whose keys are being moved from `default`.
const ADOPTING: &str = " adopting";

/// Returns the settings of a table as the log stores them.
pub(super) fn settings_text(table: &TableSettings) -> String {
    match table.evict {
        Eviction::None => format!("kind=memory sync={}", table.sync),
        evict => format!("kind=memory sync={} evict={evict}", table.sync),
    }
}
