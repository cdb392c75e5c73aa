//! What the server is told at start. Parsing files and flags is the server's work.

use std::{path::PathBuf, time::Duration};

use crate::limits;

/// How durable a table's writes are when they are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Reply after the sync.
    Always,
    /// Reply after the write call, sync at the latest this much later.
    Interval(Duration),
    /// Reply after the write call; the system decides when to sync.
    Os,
    /// Not logged at all.
    Off,
}

impl SyncMode {
    /// What survives, for INFO and the documentation.
    pub fn promise(self) -> &'static str {
        match self {
            SyncMode::Always => "every acknowledged and every observed write survives power loss",
            SyncMode::Interval(_) => {
                "acknowledged writes survive a crash of the process; power loss takes at most the interval"
            }
            SyncMode::Os => {
                "acknowledged writes survive a crash of the process; power loss takes what the system had not synced"
            }
            SyncMode::Off => "nothing survives a stop of the process",
        }
    }
}

impl std::fmt::Display for SyncMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SyncMode::Always => f.write_str("always"),
            SyncMode::Interval(every) => write!(f, "interval:{}", every.as_millis()),
            SyncMode::Os => f.write_str("os"),
            SyncMode::Off => f.write_str("off"),
        }
    }
}

/// A memory table's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSettings {
    /// Its name: `default`, or the prefix of its keys before the `:`.
    pub name: String,
    /// How durable.
    pub sync: SyncMode,
    /// Memory above which commands that need more are refused.
    pub memory_max: Option<u64>,
}

impl TableSettings {
    /// The table `default` with default settings.
    pub fn default_table() -> Self {
        Self { name: "default".into(), sync: SyncMode::Always, memory_max: None }
    }
}

/// A table that a source answers for; the source has its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTable {
    /// Its name: the prefix of its keys before the `:`.
    pub name: String,
    /// Its kind, as [`Source::kind`](crate::source::Source::kind) says it.
    pub kind: &'static str,
}

/// All settings of the pipeline.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Memory tables, `default` first.
    pub tables: Vec<TableSettings>,
    /// Tables of other kinds; none has the name of a memory table.
    pub sources: Vec<SourceTable>,
    /// Memory of all tables together above which commands that need more are refused; 0 is no
    /// limit.
    pub memory_max: u64,
    /// The password clients must give, if any.
    pub password: Option<Vec<u8>>,
    /// Pending replies of one client above which it is not read.
    pub client_reply_bytes: usize,
    /// Memory of all connections above which the largest is closed.
    pub reply_bytes_total: usize,
    /// Connections at once.
    pub clients_max: u32,
    /// Bytes of one request.
    pub request_bytes: usize,
    /// Tables whose prefix already has keys in `default` take them over.
    pub adopt_tables: bool,
    /// Logged tables that are not configured any more and shall be dropped with their keys.
    pub drop_tables: Vec<String>,
    /// For INFO and CONFIG GET.
    pub about: About,
}

/// What INFO tells about the process.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// busload's version.
    pub version: String,
    /// The RESP port, 0 for none.
    pub port: u16,
    /// The addresses it listens at, for people.
    pub bind: String,
    /// Where the data is.
    pub data_directory: PathBuf,
    /// The configuration file, if any.
    pub config_file: Option<PathBuf>,
    /// `os` and architecture.
    pub system: String,
    /// Process id.
    pub process_id: u32,
    /// Net threads.
    pub net_threads: usize,
    /// Physical memory or container limit.
    pub memory_total: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tables: vec![TableSettings::default_table()],
            sources: Vec::new(),
            memory_max: 0,
            password: None,
            client_reply_bytes: limits::CLIENT_REPLY_BYTES,
            reply_bytes_total: limits::REPLY_BYTES_TOTAL,
            clients_max: 10_000,
            request_bytes: 1 << 30,
            adopt_tables: false,
            drop_tables: Vec::new(),
            about: About::default(),
        }
    }
}
