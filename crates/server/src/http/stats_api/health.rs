//! Health with reasons: what is wrong now or was in the last minute, the worst first, each with
//! what to do about it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    history::{History, Sample},
    tables::{TableReading, of_history},
};
use crate::{
    http::{limits::HEALTH_REASON_COUNT_LIMIT, metrics::Reading},
    status::ServerState,
};

/// Time that an event counts as a reason.
const RECENT: Duration = Duration::from_secs(60);
/// Share of the memory limit of all tables above which it is a reason.
const MEMORY_SHARE_MAX: f64 = 0.9;

/// Severity of something that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Some requests fail, or all.
    Error,
    /// Requests are answered, but somebody should look.
    Warning,
    /// Nothing is wrong at all.
    Ok,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub level: Level,
    /// Part of the server that it is about.
    pub subject: String,
    /// Name of what is wrong, in a few words.
    pub what: String,
    /// Why it is so, in words of whoever noticed it.
    pub why: String,
    /// Advice on what to do about it.
    pub action: &'static str,
}

/// Counter of the process that is a reason when it grows.
struct Growing {
    level: Level,
    subject: &'static str,
    column: &'static str,
    what: &'static str,
    why: &'static str,
    action: &'static str,
}

/// Counters of the process that are reasons when they grow.
const GROWING: [Growing; 3] = [
    Growing {
        level: Level::Error,
        subject: "memory",
        column: "memory_refused",
        what: "commands refused",
        why: "They need memory beyond the memory_max of their table, or beyond maxmemory.",
        action: "Raise memory_max or maxmemory, delete keys, or let a cache evict (evict).",
    },
    Growing {
        level: Level::Warning,
        subject: "connections",
        column: "connections_rejected",
        what: "refused",
        why: "There were maxclients connections already.",
        action: "Raise maxclients, or look for a client that does not close its connections.",
    },
    Growing {
        level: Level::Warning,
        subject: "connections",
        column: "connections_evicted",
        what: "closed",
        why: "Pending replies of all connections took too much memory.",
        action: "Look for clients that send requests and do not read the replies.",
    },
];

/// Counters of a table that are reasons when they grow: column, what, why, action.
const TABLE_GROWING: [(&str, &str, &str, &str); 3] = [
    (
        "refused",
        "requests refused",
        "Their queue was full.",
        "What is behind the table is too slow for the load, or queue_requests is too small.",
    ),
    (
        "expired",
        "requests timed out",
        "They got no answer within the table's timeout.",
        "What is behind the table is too slow for the load, or the timeout is too short.",
    ),
    (
        "outcomes_unknown",
        "writes with an unknown outcome",
        "A connection broke, or a timeout passed, after they were sent.",
        "Clients got an error and have to look whether their write took effect.",
    ),
];

/// Returns everything that is wrong, the worst first, up to a limit.
pub fn reasons(reading: &Reading<'_>, tables: &[TableReading<'_>], past: &History) -> Vec<Reason> {
    let mut reasons = Vec::new();
    reasons.extend(of_state(&reading.state));
    tables.iter().for_each(|table| reasons.extend(of_table(table)));
    reasons.extend(of_caches(reading));
    reasons.extend(of_snapshots(reading));
    reasons.extend(of_memory(reading));
    if let Some(before) = past.oldest_within(RECENT) {
        reasons.extend(of_growth(reading, tables, &before));
    }
    reasons.sort_by_key(|reason| reason.level);
    reasons.truncate(HEALTH_REASON_COUNT_LIMIT);
    reasons
}

/// Makes the object of `health`.
pub fn to_json(reasons: &[Reason]) -> Value {
    let level = reasons.first().map_or(Level::Ok, |reason| reason.level);
    let reason = |reason: &Reason| {
        json!({
            "level": reason.level.name(),
            "subject": reason.subject,
            "what": reason.what,
            "why": reason.why,
            "action": reason.action,
        })
    };
    json!({"level": level.name(), "reasons": reasons.iter().map(reason).collect::<Vec<_>>()})
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Ok => "ok",
        }
    }
}

impl Reason {
    fn new(
        level: Level,
        subject: impl Into<String>,
        what: impl Into<String>,
        why: impl Into<String>,
        action: &'static str,
    ) -> Self {
        Self { level, subject: subject.into(), what: what.into(), why: why.into(), action }
    }
}

fn of_state(state: &ServerState) -> Option<Reason> {
    let (level, subject, what, action) = match state {
        ServerState::Ready => return None,
        ServerState::Recovering => (
            Level::Warning,
            "start",
            "requests wait",
            "They are answered once the log is read. The output of the process says how far it is.",
        ),
        ServerState::NoSpace(_) => (
            Level::Error,
            "log",
            "the disk is full",
            "Free space on the disk of the data directory: writes resume by themselves. Reads are \
             answered meanwhile.",
        ),
        ServerState::LogFailed(_) => (
            Level::Error,
            "log",
            "failed, nothing is answered any more",
            "Look after the disk, then start busload again: it recovers every acknowledged write.",
        ),
        ServerState::Stopping => {
            (Level::Warning, "server", "it is shutting down", "The process ends by itself.")
        }
    };
    Some(Reason::new(level, subject, what, state.to_string(), action))
}

fn of_table(table: &TableReading<'_>) -> Option<Reason> {
    let TableReading { name, kind, state, error, .. } = table;
    let (level, what) = match *state {
        "up" | "open" if error.is_none() => return None,
        "up" => (Level::Warning, "some connections are not open"),
        "connecting" | "opening" => (Level::Warning, *state),
        _ => (Level::Error, *state),
    };
    let why = error.as_deref().unwrap_or("The first attempt has not ended.");
    let action = match *kind {
        "postgres" => "busload tries again by itself. The command busload check tests it, too.",
        _ => "busload tries again by itself, and serves the last version that it has seen.",
    };
    Some(Reason::new(level, format!("table {name}"), what, why, action))
}

fn of_caches(reading: &Reading<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for table in &reading.chunks {
        let mut warn = |what: &str, why: String, action| {
            let subject = format!("table {}", table.name);
            reasons.push(Reason::new(Level::Warning, subject, what, why, action));
        };
        if let Some(why) = &table.stats.cache.bypassed {
            warn(
                "its cache on disk is bypassed",
                why.clone(),
                "Reads are answered from the store. Look after the disk of the cache.",
            );
        }
        if table.stats.corrupt != 0 {
            warn(
                "corrupt chunks",
                format!("The contents of {} did not match their address.", table.stats.corrupt),
                "None was served. The command busload cache verify checks what is on disk.",
            );
        }
    }
    reasons
}

fn of_snapshots(reading: &Reading<'_>) -> Option<Reason> {
    let error = reading.log.as_ref()?.snapshots.error.as_ref()?;
    Some(Reason::new(
        Level::Warning,
        "snapshots",
        "the last one failed",
        &**error,
        "Nothing is lost: the log keeps what it would have covered, and grows until one is made.",
    ))
}

fn of_memory(reading: &Reading<'_>) -> Option<Reason> {
    let stats = &reading.status.stats;
    let (used, max) = (stats.memory_used_bytes.get(), stats.memory_max_bytes.get());
    let is_tight = max != 0 && max as f64 * MEMORY_SHARE_MAX <= used as f64;
    is_tight.then(|| {
        Reason::new(
            Level::Warning,
            "memory",
            "nearly full",
            format!("Tables take {} % of maxmemory.", used.saturating_mul(100) / max),
            "At the limit, tables that evict lose keys, and others refuse writes.",
        )
    })
}

fn of_growth(reading: &Reading<'_>, tables: &[TableReading<'_>], before: &Sample) -> Vec<Reason> {
    let now = Sample::new(reading, 0);
    let mut reasons = Vec::new();
    let mut add = |level, subject: String, count: u64, what: &str, why, action| {
        if count != 0 {
            let what = format!("{count} {what} in the last minute");
            reasons.push(Reason::new(level, subject, what, why, action));
        }
    };
    for Growing { level, subject, column, what, why, action } in GROWING {
        add(level, subject.to_owned(), now.growth(before, column), what, why, action);
    }
    for (index, table) in of_history(tables).into_iter().enumerate() {
        for (column, what, why, action) in TABLE_GROWING {
            let count = now.table_growth(before, index, column);
            add(Level::Warning, format!("table {}", table.name), count, what, why, action);
        }
    }
    reasons
}
