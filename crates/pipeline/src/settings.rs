//! Settings of the pipeline. The server parses files and flags; CONFIG SET changes some later.

use std::{path::PathBuf, sync::Arc, time::Duration};

use busload_acl::Users;

use crate::{command::command_list, limits};

/// Durability of a table's writes at the time they are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Replies after the sync.
    Always,
    /// Replies after the write call and syncs at most this much later.
    Interval(Duration),
    /// Replies after the write call; the operating system decides when to sync.
    Os,
    /// Does not log the table at all.
    Off,
}

impl SyncMode {
    /// Returns what survives a crash, for INFO and the documentation.
    pub fn promise(self) -> &'static str {
        match self {
            SyncMode::Always => "every acknowledged and every observed write survives power loss",
            SyncMode::Interval(_) => {
                "acknowledged writes survive a crash of the process; power loss takes at most the \
                 interval"
            }
            SyncMode::Os => {
                "acknowledged writes survive a crash of the process; power loss takes what the \
                 system had not synced"
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

/// Behaviour of a table when its memory, or that of all tables, is at the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// It refuses commands that need more memory.
    #[default]
    None,
    /// It is a cache: it deletes the keys that S3-FIFO chooses.
    S3Fifo,
}

impl std::fmt::Display for Eviction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Eviction::None => "none",
            Eviction::S3Fifo => "s3-fifo",
        })
    }
}

/// Settings of a memory table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSettings {
    /// Name of the table: `default`, or the prefix of its keys before the `:`.
    pub name: String,
    /// Durability of its writes.
    pub sync: SyncMode,
    /// Memory above which commands that need more are refused, or keys evicted.
    pub memory_max: Option<u64>,
    /// Policy by which keys are evicted at `memory_max` of the table or of all tables.
    pub evict: Eviction,
}

impl TableSettings {
    /// Returns the table `default` with default settings.
    pub fn default_table() -> Self {
        Self {
            name: "default".into(),
            sync: SyncMode::Always,
            memory_max: None,
            evict: Eviction::None,
        }
    }
}

/// Table that a source serves. The source has its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTable {
    /// Name of the table: the prefix of its keys before the `:`.
    pub name: String,
    /// Kind of the table, as [`Source::kind`](crate::source::Source::kind) names it.
    pub kind: &'static str,
}

/// Settings of the whole pipeline.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Memory tables, `default` first.
    pub tables: Vec<TableSettings>,
    /// Tables that sources serve; none has the name of a memory table.
    pub sources: Vec<SourceTable>,
    /// Memory of all tables together above which tables that are caches evict, and commands that
    /// need more are refused if that does not suffice; 0 means no limit.
    pub memory_max: u64,
    /// Password of the user `default`, if it has one.
    pub password: Option<Vec<u8>>,
    /// Users, which have the password already; none: only `default`.
    pub users: Option<Arc<Users>>,
    /// Pending reply bytes of one client above which net stops reading it.
    pub client_reply_bytes: usize,
    /// Memory of all connections above which net closes the largest.
    pub reply_bytes_total: usize,
    /// Number of connections that may be open at once.
    pub clients_max: u32,
    /// Largest size of one request in bytes.
    pub request_bytes: usize,
    /// Seconds after which a client that sends nothing is closed; 0 means never.
    pub idle_timeout_s: u32,
    /// Says whether a table takes over the keys in `default` that have its prefix.
    pub adopt_tables: bool,
    /// Logged tables that are no longer configured and shall be dropped with their keys.
    pub drop_tables: Vec<String>,
    /// Facts about the process for INFO and CONFIG GET.
    pub about: About,
}

impl Settings {
    /// Returns whether clients must say who they are.
    pub fn needs_password(&self) -> bool {
        match &self.users {
            Some(users) => !users.default_user().is_open(),
            None => self.password.is_some(),
        }
    }

    /// Makes a table of the user `default` alone, with the password if there is one.
    pub fn own_users(&self) -> Result<Arc<Users>, String> {
        Users::open(command_list().clone(), self.password.as_deref(), None).map(Arc::new)
    }
}

/// Facts about the process that INFO shows.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Version of this busload.
    pub version: String,
    /// RESP port, 0 for none.
    pub port: u16,
    /// Addresses the server listens on, as text for people.
    pub bind: String,
    /// Directory that holds the data.
    pub data_directory: PathBuf,
    /// Configuration file, if any.
    pub config_file: Option<PathBuf>,
    /// Operating system and architecture.
    pub system: String,
    /// Id of the process.
    pub process_id: u32,
    /// Number of net threads.
    pub net_threads: usize,
    /// Physical memory or container limit in bytes.
    pub memory_total: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tables: vec![TableSettings::default_table()],
            sources: Vec::new(),
            memory_max: 0,
            password: None,
            users: None,
            client_reply_bytes: limits::CLIENT_REPLY_BYTES,
            reply_bytes_total: limits::REPLY_BYTES_TOTAL,
            clients_max: 10_000,
            request_bytes: 1 << 30,
            idle_timeout_s: 0,
            adopt_tables: false,
            drop_tables: Vec::new(),
            about: About::default(),
        }
    }
}
