//! INFO: the counters of all stages, under Redis's names where Redis has them.
//!
//! Its reply waits for nothing: an operator needs it most when the log does not advance. So its
//! counts of keys can include changes that are not durable yet.

use std::fmt::{Display, Write};

use busload_tables::TableId;

use super::{Call, connection::REDIS_VERSION, refuse_many_names};
use crate::{
    error::CommandResult,
    limits::SPACE_COUNT,
    settings::TableSettings,
    stats::{BatchReading, Counter},
    tx::Tx,
};

/// Name of a section, and the function that writes it.
struct Section {
    name: &'static str,
    write: fn(&Tx, &mut Lines),
}

/// All sections in the order of the reply.
const SECTIONS: &[Section] = &[
    Section { name: "Server", write: server },
    Section { name: "Clients", write: clients },
    Section { name: "Memory", write: memory },
    Section { name: "Persistence", write: persistence },
    Section { name: "Stats", write: stats },
    Section { name: "Replication", write: replication },
    Section { name: "Stages", write: stages },
    Section { name: "Tables", write: tables },
    Section { name: "Cluster", write: cluster },
    Section { name: "Keyspace", write: keyspace },
];

pub(super) fn info(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    refuse_many_names(&call.args, 1)?;
    let asked = |section: &&Section| {
        let is_all = |word: &[u8]| {
            ["default", "all", "everything"]
                .iter()
                .any(|all| word.eq_ignore_ascii_case(all.as_bytes()))
        };
        let mut words = call.args.iter_from(1);
        words.len() == 0
            || words.any(|word| is_all(word) || word.eq_ignore_ascii_case(section.name.as_bytes()))
    };
    let mut lines = Lines::default();
    for section in SECTIONS.iter().filter(asked) {
        lines.section(section.name);
        (section.write)(tx, &mut lines);
    }
    call.reply.verbatim(lines.text.as_bytes());
    Ok(())
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn section(&mut self, name: &str) {
        let gap = if self.text.is_empty() { "" } else { "\r\n" };
        self.raw(format_args!("{gap}# {name}\r\n"));
    }

    fn field(&mut self, name: impl Display, value: impl Display) {
        self.raw(format_args!("{name}:{value}\r\n"));
    }

    fn counter(&mut self, name: &str, counter: &Counter) {
        self.field(name, counter.get());
    }

    /// Writes a number of bytes, also in a form for people.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        self.field(format_args!("{name}_human"), Human(bytes));
    }

    fn batches(&mut self, stage: &str, reading: BatchReading) {
        self.field(format_args!("{stage}_batches"), reading.batches);
        self.field(format_args!("{stage}_batch_mean"), format_args!("{:.2}", reading.mean()));
        self.field(format_args!("{stage}_batch_max"), reading.max);
    }

    fn raw(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("writing to a string cannot fail");
    }
}

/// Number of bytes that is shown as Redis shows it to people.
pub(super) struct Human(pub u64);

impl Display for Human {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: &[&str] = &["B", "K", "M", "G", "T", "P", "E"];
        let mut unit = 0;
        let mut value = self.0 as f64;
        while 1024.0 <= value {
            value /= 1024.0;
            unit += 1;
        }
        let digits = if unit == 0 { 0 } else { 2 };
        write!(f, "{value:.digits$}{}", UNITS[unit])
    }
}

fn server(tx: &Tx, lines: &mut Lines) {
    let about = &tx.settings.about;
    let uptime_s = tx.uptime().as_secs();
    lines.field("redis_version", REDIS_VERSION);
    lines.field("busload_version", &about.version);
    lines.field("redis_mode", "standalone");
    lines.field("os", &about.system);
    lines.field("arch_bits", usize::BITS);
    lines.field("process_id", about.process_id);
    lines.field("tcp_port", about.port);
    lines.field("server_time_usec", tx.now().saturating_mul(1_000));
    lines.field("uptime_in_seconds", uptime_s);
    lines.field("uptime_in_days", uptime_s / (24 * 60 * 60));
    let config_file = about.config_file.as_deref().unwrap_or(std::path::Path::new(""));
    lines.field("config_file", config_file.display());
    lines.field("data_directory", about.data_directory.display());
    lines.field("net_threads", about.net_threads);
}

fn clients(tx: &Tx, lines: &mut Lines) {
    // `other_sessions` leaves out the client that asks.
    lines.field("connected_clients", tx.other_sessions().count() + 1);
    lines.field("cluster_connections", 0);
    lines.field("maxclients", tx.settings.clients_max);
    lines.counter("blocked_clients", &tx.stats.connections_blocked);
    lines.field("tracking_clients", 0);
    lines.counter("source_tickets", &tx.stats.source_tickets);
}

fn memory(tx: &Tx, lines: &mut Lines) {
    let stats = &tx.stats;
    let (live, garbage) = tx.memory_and_garbage();
    let used = live + garbage;
    lines.bytes("used_memory", used);
    lines.bytes("used_memory_peak", stats.memory_peak_bytes.get().max(used));
    lines.field("used_memory_garbage", garbage);
    lines.counter("used_memory_connections", &stats.connection_bytes);
    lines.bytes("total_system_memory", tx.settings.about.memory_total);
    lines.bytes("maxmemory", tx.settings.memory_max);
    lines.field("maxmemory_policy", super::config::maxmemory_policy(tx));
}

fn persistence(tx: &Tx, lines: &mut Lines) {
    let log = tx.progress.stats();
    lines.field("loading", 0);
    lines.field("async_loading", 0);
    let snapshots = tx.snapshots.status();
    let last = if snapshots.error.is_none() { "ok" } else { "err" };
    lines.field("rdb_bgsave_in_progress", u8::from(snapshots.running));
    let last_save_ms = snapshots.finished_ms.unwrap_or(tx.started.wall_ms);
    lines.field("rdb_last_save_time", last_save_ms.div_euclid(1_000));
    lines.field("rdb_last_bgsave_status", last);
    let seconds = |time: Option<std::time::Duration>| {
        time.map_or(-1, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
    };
    lines.field("rdb_last_bgsave_time_sec", seconds(snapshots.took));
    lines.field("aof_enabled", u8::from(tx.catalog.any_logged()));
    lines.field("aof_rewrite_in_progress", 0);
    let status = if tx.progress.failure().is_none() && tx.progress.no_space().is_none() {
        "ok"
    } else {
        "err"
    };
    lines.field("aof_last_write_status", status);
    lines.bytes("log_size_bytes", log.log_bytes);
    lines.field("log_segments", log.segments);
    lines.field("log_written_lsn", tx.progress.written().0);
    lines.field("log_durable_lsn", tx.progress.durable().0);
    lines.field("log_records", log.records);
    lines.field("log_frames", log.frames);
    lines.field("log_written_bytes", log.bytes);
    lines.field("log_syncs", log.syncs);
    lines.field("log_sync_usec_mean", format_args!("{:.1}", ratio(log.sync_us_total, log.syncs)));
    lines.field("log_sync_usec_max", log.sync_us_max);
    lines.field("snapshot_lsn", snapshots.lsn.0);
    lines.field("snapshot_entries", snapshots.entries);
    lines.bytes("snapshot_size_bytes", snapshots.file_bytes);
    let percent = f64::from(snapshots.done_permille) / 10.0;
    lines.field("snapshot_progress_percent", format_args!("{percent:.1}"));
    lines.field("snapshots_made", snapshots.made);
    lines.field("snapshots_failed", snapshots.failed);
    if let Some(error) = &snapshots.error {
        lines.field("snapshot_error", one_line(error));
    }
    if let Some(message) = tx.progress.no_space() {
        lines.field("log_no_space", one_line(&message));
    }
}

fn ratio(of: u64, to: u64) -> f64 {
    if to == 0 { 0.0 } else { of as f64 / to as f64 }
}

fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

fn stats(tx: &Tx, lines: &mut Lines) {
    let stats = &tx.stats;
    lines.counter("total_connections_received", &stats.connections_total);
    lines.counter("total_commands_processed", &stats.commands_total);
    lines.counter("total_net_input_bytes", &stats.net_received_bytes_total);
    lines.counter("total_net_output_bytes", &stats.net_sent_bytes_total);
    lines.counter("rejected_connections", &stats.connections_rejected_total);
    lines.counter("expired_keys", &stats.expired_keys_total);
    lines.counter("evicted_keys", &stats.evicted_keys_total);
    lines.counter("evicted_clients", &stats.connections_evicted_total);
    lines.counter("keyspace_hits", &stats.keyspace_hits_total);
    lines.counter("keyspace_misses", &stats.keyspace_misses_total);
    lines.field("pubsub_channels", 0);
    lines.field("pubsub_patterns", 0);
    lines.counter("total_error_replies", &stats.errors_total);
    lines.counter("acl_access_denied_auth", &stats.auth_denied_total);
    lines.counter("auth_refused", &stats.auth_refused_total);
    lines.counter("total_deferred_runs", &stats.deferred_total);
}

fn replication(_: &Tx, lines: &mut Lines) {
    lines.field("role", "master");
    lines.field("connected_slaves", 0);
}

fn cluster(_: &Tx, lines: &mut Lines) {
    lines.field("cluster_enabled", 0);
}

/// Writes how full the batches of each stage are. A stage that keeps up has small ones; they grow
/// with the load.
fn stages(tx: &Tx, lines: &mut Lines) {
    let stats = &tx.stats;
    let log = tx.progress.stats();
    let net = stats.net_batches.read();
    lines.batches("net", net);
    lines.batches("tx", stats.tx_batches.read());
    lines.batches("commit", stats.commit_batches.read());
    let frames =
        BatchReading { batches: log.frames, items: log.records, max: log.frame_records_max };
    lines.batches("log", frames);
    lines.batches("reply", stats.reply_batches.read());
    for (name, _, info) in tx.sources() {
        for (what, reading) in info.batches {
            lines.batches(&format!("table_{name}_{what}"), reading);
        }
    }
    lines.counter("turn_usec_max", &stats.turn_us_max);
    let calls = [
        ("net_polls", &stats.net_polls_total),
        ("net_receives", &stats.net_receives_total),
        ("net_sends", &stats.net_sends_total),
    ];
    for (name, counter) in calls {
        lines.counter(name, counter);
    }
    let calls =
        calls.iter().map(|(_, counter)| counter.get()).sum::<u64>() + log.frames + log.syncs;
    lines.field("system_calls_per_request", format_args!("{:.4}", ratio(calls, net.items)));
}

/// Writes one line per table, with its settings and measurements.
fn tables(tx: &Tx, lines: &mut Lines) {
    for table in tx.catalog.all_memory() {
        let spaces = if table.0 == 0 { SPACE_COUNT } else { 1 };
        // Show the spaces of `default` as one table.
        if let Some(memory) = tx.catalog.memory(table)
            && (table.0 == 0 || SPACE_COUNT <= table.0)
        {
            table_line(tx, &memory.settings, (table.0..table.0 + spaces).map(TableId), lines);
        }
    }
    for (name, kind, info) in tx.sources() {
        lines.raw(format_args!("table_{name}:kind={kind}"));
        for (field, value) in info.fields {
            // A comma would begin the next field.
            lines.raw(format_args!(",{field}={}", one_line(&value).replace(',', ";")));
        }
        lines.raw(format_args!("\r\n"));
    }
}

fn table_line(
    tx: &Tx,
    settings: &TableSettings,
    parts: impl Iterator<Item = TableId> + Clone,
    lines: &mut Lines,
) {
    let keys: usize = parts.clone().map(|part| tx.key_count(part)).sum();
    let bytes: u64 = parts.map(|part| tx.table_bytes(part)).sum();
    let TableSettings { name, sync, memory_max, evict } = settings;
    lines.raw(format_args!(
        "table_{name}:kind=memory,sync={sync},keys={keys},bytes={bytes},memory_max={},\
         evict={evict},survives={}\r\n",
        memory_max.unwrap_or(0),
        sync.promise().replace(',', ";"),
    ));
}

/// Writes Redis's section of spaces; named tables count in the space where SCAN shows them.
fn keyspace(tx: &Tx, lines: &mut Lines) {
    for space in 0..SPACE_COUNT {
        let tables = tx.catalog.listed(space);
        let keys: usize = tables.iter().map(|&table| tx.key_count(table)).sum();
        let expires: usize = tables.iter().map(|&table| tx.expiring_key_count(table)).sum();
        if keys != 0 {
            lines.raw(format_args!("db{space}:keys={keys},expires={expires},avg_ttl=0\r\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_to_people_as_redis_shows_them() {
        let shown = |bytes| Human(bytes).to_string();
        assert_eq!(shown(0), "0B");
        assert_eq!(shown(1_023), "1023B");
        assert_eq!(shown(1_024), "1.00K");
        assert_eq!(shown(1_015_096), "991.30K");
        assert_eq!(shown(12_128_256), "11.57M");
        assert_eq!(shown(25_276_510_208), "23.54G");
        assert_eq!(shown(u64::MAX), "16.00E");
    }
}
