//! Difference of two configurations, and what a reload does with a setting that has changed.
//!
//! Configurations are compared with defaults filled in: that a default is written down is no
//! change. `docs/configuration.md` is made from the same list.

use std::fmt;

use busload_pipeline::name_pattern::NamePattern;

use super::{ChunksSettings, Config, StoresSettings};

/// Effect of a reload on a setting that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReload {
    /// The running server takes the new value.
    Applied,
    /// The running server reads the file again; another path needs a restart.
    ContentsRead,
    /// The setting keeps its value until a restart.
    Restart,
}

impl OnReload {
    /// Describes it for the page of all settings.
    pub fn shown(self) -> &'static str {
        match self {
            OnReload::Applied => "applied",
            OnReload::ContentsRead => "file read again; another path: restart",
            OnReload::Restart => "restart",
        }
    }
}

/// A setting outside tables: its name, what a reload does, and whether two configurations agree.
struct Compared {
    name: &'static str,
    on_reload: OnReload,
    agree: fn(&Config, &Config) -> bool,
}

const fn compared(
    name: &'static str,
    on_reload: OnReload,
    agree: fn(&Config, &Config) -> bool,
) -> Compared {
    Compared { name, on_reload, agree }
}

use OnReload::{Applied, ContentsRead, Restart};

/// All settings outside tables.
#[rustfmt::skip]
const SETTINGS: [Compared; 36] = [
    compared("acl_file", ContentsRead, |a, b| a.given.acl_file == b.given.acl_file),
    compared("client_reply_bytes", Applied,
        |a, b| a.settings.client_reply_bytes == b.settings.client_reply_bytes),
    compared("data", Restart, |a, b| a.data == b.data),
    compared("http", Restart, |a, b| a.http == b.http),
    compared("http_hosts", Restart, |a, b| a.given.http_hosts == b.given.http_hosts),
    compared("http_threads", Restart, |a, b| a.http_threads == b.http_threads),
    compared("http_url", Restart, |a, b| a.front.url == b.front.url),
    compared("http_url_lifetime", Restart,
        |a, b| a.given.http_url_lifetime.unwrap_or(super::UrlLifetime::DEFAULT)
            == b.given.http_url_lifetime.unwrap_or(super::UrlLifetime::DEFAULT)),
    compared("log_format", Restart, |a, b| a.log_format == b.log_format),
    compared("log_level", Applied, |a, b| a.log_levels == b.log_levels),
    compared("maxclients", Applied, |a, b| a.settings.clients_max == b.settings.clients_max),
    compared("memory_max", Applied, |a, b| a.settings.memory_max == b.settings.memory_max),
    compared("net_threads", Restart, |a, b| a.net_threads == b.net_threads),
    compared("otel_endpoint", Restart, |a, b| endpoint(a) == endpoint(b)),
    compared("otel_sample", Restart,
        |a, b| a.traces.as_ref().map(|traces| traces.sample)
            == b.traces.as_ref().map(|traces| traces.sample)),
    compared("otel_service", Restart,
        |a, b| a.traces.as_ref().map(|traces| &traces.service)
            == b.traces.as_ref().map(|traces| &traces.service)),
    // The password itself counts, wherever it comes from.
    compared("password_file", Restart, |a, b| a.settings.password == b.settings.password),
    compared("peer_ca", Restart, |a, b| a.given.peer_ca == b.given.peer_ca),
    compared("peer_self", Restart, |a, b| a.given.peer_self == b.given.peer_self),
    compared("peers", Restart, |a, b| a.given.peers == b.given.peers),
    compared("price_dynamodb", Restart, |a, b| a.prices.dynamodb == b.prices.dynamodb),
    compared("price_egress", Restart, |a, b| a.prices.egress == b.prices.egress),
    compared("price_get", Restart, |a, b| a.prices.get == b.prices.get),
    compared("price_list", Restart, |a, b| a.prices.list == b.prices.list),
    compared("reply_bytes_total", Applied,
        |a, b| a.settings.reply_bytes_total == b.settings.reply_bytes_total),
    compared("request_bytes", Applied,
        |a, b| a.settings.request_bytes == b.settings.request_bytes),
    compared("resp", Restart, |a, b| a.resp == b.resp),
    compared("snapshot_cpu", Restart, |a, b| a.snapshots.cpu_percent == b.snapshots.cpu_percent),
    compared("snapshot_log", Restart,
        |a, b| (a.snapshots.automatic, a.snapshots.log_bytes_min)
            == (b.snapshots.automatic, b.snapshots.log_bytes_min)),
    compared("tls_cert", ContentsRead, |a, b| a.given.tls_cert == b.given.tls_cert),
    compared("tls_client_ca", ContentsRead,
        |a, b| a.given.tls_client_ca == b.given.tls_client_ca),
    compared("tls_key", ContentsRead, |a, b| a.given.tls_key == b.given.tls_key),
    compared("token_audience", Restart,
        |a, b| a.given.token_audience == b.given.token_audience),
    compared("token_file", ContentsRead, |a, b| a.given.token_file == b.given.token_file),
    compared("token_url", Restart, |a, b| a.given.token_url == b.given.token_url),
    compared("unix", Restart, |a, b| a.unix == b.unix),
];

fn endpoint(config: &Config) -> Option<&str> {
    config.traces.as_ref().map(|traces| &*traces.endpoint)
}

/// Returns what a reload does with this setting.
pub fn on_reload(name: &str) -> Option<OnReload> {
    SETTINGS.iter().find(|setting| setting.name == name).map(|setting| setting.on_reload)
}

/// Difference of two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Settings outside tables, by name, that a running server can take over.
    pub applicable: Vec<&'static str>,
    /// Settings outside tables, by name, that need a restart.
    pub fixed: Vec<&'static str>,
    /// Tables, in the order of their kinds.
    pub tables: Vec<TableChange>,
}

/// Table that two configurations do not agree on, or stores by pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableChange {
    /// Name of the table, or the pattern.
    pub name: String,
    /// Difference between the two.
    pub difference: TableDifference,
}

/// Difference of a table in two configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableDifference {
    /// Only the second has the table.
    Added,
    /// Only the first has the table.
    Removed,
    /// Both have it, with other values of these settings.
    Changed(Vec<&'static str>),
}

impl TableChange {
    /// Returns `table NAME`, or `stores PATTERN`.
    pub fn what(&self) -> String {
        let kind = if NamePattern::is_pattern(&self.name) { "stores" } else { "table" };
        format!("{kind} {}", self.name)
    }

    /// Returns `table NAME is not DONE`, or `stores PATTERN are not DONE`.
    pub fn not_done(&self, done: &str) -> String {
        let verb = if NamePattern::is_pattern(&self.name) { "are" } else { "is" };
        format!("{} {verb} not {done}", self.what())
    }
}

impl fmt::Display for TableChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.what();
        match &self.difference {
            TableDifference::Added => write!(f, "{what} (new)"),
            TableDifference::Removed => write!(f, "{what} (gone)"),
            TableDifference::Changed(settings) => write!(f, "{what} ({})", settings.join(", ")),
        }
    }
}

/// Compares a configuration with a later one.
pub fn changes(running: &Config, new: &Config) -> Changes {
    let mut changes = Changes::default();
    for setting in SETTINGS.iter().filter(|setting| !(setting.agree)(running, new)) {
        match setting.on_reload {
            Applied => changes.applicable.push(setting.name),
            ContentsRead | Restart => changes.fixed.push(setting.name),
        }
    }
    let (before, after) = (tables(running), tables(new));
    for table in &before {
        let difference = match after.iter().find(|other| other.name() == table.name()) {
            None => TableDifference::Removed,
            Some(other) => match table.changed(other) {
                changed if changed.is_empty() => continue,
                changed => TableDifference::Changed(changed),
            },
        };
        changes.tables.push(TableChange { name: table.name().to_owned(), difference });
    }
    for table in &after {
        if !before.iter().any(|other| other.name() == table.name()) {
            let (name, difference) = (table.name().to_owned(), TableDifference::Added);
            changes.tables.push(TableChange { name, difference });
        }
    }
    changes
}

/// Settings of a table of any kind.
#[derive(Clone, Copy, Debug)]
pub enum TableSettingsRef<'a> {
    /// Table whose keys are in memory.
    Memory(&'a busload_pipeline::settings::TableSettings),
    /// Table whose keys are rows of Postgres.
    Postgres(&'a busload_postgres::Settings),
    /// Table whose keys are chunks of a store.
    Chunks(&'a ChunksSettings),
    /// Stores whose names match a pattern.
    Stores(&'a StoresSettings),
}

fn tables(config: &Config) -> Vec<TableSettingsRef<'_>> {
    let memory = config.settings.tables.iter().map(TableSettingsRef::Memory);
    let postgres = config.postgres.iter().map(TableSettingsRef::Postgres);
    let chunks = config.chunks.iter().map(TableSettingsRef::Chunks);
    let stores = config.stores.iter().map(TableSettingsRef::Stores);
    memory.chain(postgres).chain(chunks).chain(stores).collect()
}

/// Returns the settings of the table of this name.
pub fn table_of<'a>(config: &'a Config, name: &str) -> Option<TableSettingsRef<'a>> {
    tables(config).into_iter().find(|table| table.name() == name)
}

impl TableSettingsRef<'_> {
    fn name(&self) -> &str {
        match self {
            TableSettingsRef::Memory(settings) => &settings.name,
            TableSettingsRef::Postgres(settings) => &settings.name,
            TableSettingsRef::Chunks(settings) => &settings.name,
            TableSettingsRef::Stores(settings) => settings.pattern.text(),
        }
    }

    /// Returns the settings whose values differ.
    fn changed(&self, other: &Self) -> Vec<&'static str> {
        let differing = match (self, other) {
            (TableSettingsRef::Memory(a), TableSettingsRef::Memory(b)) => vec![
                ("sync", a.sync != b.sync),
                ("memory_max", a.memory_max != b.memory_max),
                ("evict", a.evict != b.evict),
            ],
            (TableSettingsRef::Postgres(a), TableSettingsRef::Postgres(b)) => {
                postgres_differing(a, b)
            }
            (TableSettingsRef::Chunks(a), TableSettingsRef::Chunks(b)) => chunks_differing(a, b),
            (TableSettingsRef::Stores(a), TableSettingsRef::Stores(b)) => stores_differing(a, b),
            _ => vec![("kind", true)],
        };
        differing.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

fn postgres_differing(
    a: &busload_postgres::Settings,
    b: &busload_postgres::Settings,
) -> Vec<(&'static str, bool)> {
    let (queue, other) = (&a.queue, &b.queue);
    // `Debug` shows everything but the password.
    let server = |settings: &busload_postgres::Settings| format!("{:?}", settings.server);
    vec![
        ("url", server(a) != server(b)),
        ("password", a.server.password != b.server.password),
        ("relation", a.relation != b.relation),
        ("key", a.key != b.key),
        ("columns", a.columns != b.columns),
        ("separator", a.separator != b.separator),
        ("writable", a.writable != b.writable),
        ("connections", a.connections != b.connections),
        ("timeout", a.timeout != b.timeout),
        ("batch", queue.batch_entries_max != other.batch_entries_max),
        ("queue_requests", queue.requests_max != other.requests_max),
        ("queue_bytes", queue.bytes_max != other.bytes_max),
        ("join_in_flight", queue.sharing != other.sharing),
    ]
}

fn chunks_differing(a: &ChunksSettings, b: &ChunksSettings) -> Vec<(&'static str, bool)> {
    vec![
        ("url", a.url != b.url),
        ("disk", a.disk_bytes_max != b.disk_bytes_max),
        ("disk_free", a.disk_free_bytes_min != b.disk_free_bytes_min),
        ("directory", a.directory != b.directory),
        // 0 stands for fill = touched.
        ("fill", (a.fill_whole_max == 0) != (b.fill_whole_max == 0)),
        ("fill_whole_max", a.fill_whole_max != b.fill_whole_max),
        ("fill_memory", a.fill_bytes_max != b.fill_bytes_max),
        ("poll", a.poll != b.poll),
        ("memory", a.memory_bytes_max != b.memory_bytes_max),
        ("requests", a.requests_max != b.requests_max),
        ("hedge", a.hedge != b.hedge),
        ("timeout", a.timeout != b.timeout),
        ("grace_period", a.grace_period != b.grace_period),
        ("contents", a.contents != b.contents),
        ("queue_requests", a.queue_requests != b.queue_requests),
        ("dolt_paths", a.dolt_paths != b.dolt_paths),
        ("dolt_layout", a.dolt_layout != b.dolt_layout),
    ]
}

fn stores_differing(a: &StoresSettings, b: &StoresSettings) -> Vec<(&'static str, bool)> {
    let (share, other) = (a.store_share, b.store_share);
    let mut differing = chunks_differing(&a.chunks, &b.chunks);
    differing.extend([
        ("stores_max", a.stores_max != b.stores_max),
        ("index_memory", a.index_bytes_max != b.index_bytes_max),
        ("idle", a.idle != b.idle),
        ("store_disk_min", share.floor_bytes != other.floor_bytes),
        ("store_disk_max", share.cap_bytes != other.cap_bytes),
        ("busiest_stores", a.busiest_max != b.busiest_max),
    ]);
    differing
}

#[cfg(test)]
mod tests;
