//! `/metrics` in the text format of Prometheus.
//!
//! Names end with their unit; `_total` marks counters, which only grow until the process ends or
//! CONFIG RESETSTAT resets them.

mod chunks;
mod dolt;
mod front;

use std::fmt::{Display, Write};

use busload_log::Stats as LogStats;
use busload_pipeline::stats::{BatchReading, Stats};
use busload_postgres::TableStats;

use crate::{
    http::front_metrics::FrontMetrics,
    sources::{batches_in_flight, state_of},
    status::{State, Status},
};

/// Renders the page of all metrics.
pub fn render(status: &Status, front: &FrontMetrics) -> String {
    let mut page = Page::default();
    process(&mut page, status);
    stages(&mut page, &status.stats);
    connections(&mut page, &status.stats);
    front::render(&mut page, front);
    commands(&mut page, &status.stats);
    memory(&mut page, &status.stats);
    let tables = status.tables().iter().map(|table| (table.name.as_str(), table.stats()));
    postgres(&mut page, &tables.collect::<Vec<_>>());
    let stores =
        status.chunk_stores().map(|stores| stores.tables().iter().map(chunks::Metrics::of));
    let stores: Vec<_> = stores.into_iter().flatten().collect();
    chunks::render(&mut page, &stores);
    if !stores.is_empty() {
        dolt::render(&mut page, &status.remotesapi);
    }
    if let Some(progress) = status.progress() {
        page.gauge(
            "busload_log_written_lsn",
            "Last record written to the log.",
            progress.written().0,
        );
        page.gauge("busload_log_durable_lsn", "Last record synced to disk.", progress.durable().0);
        log(&mut page, &progress.stats());
    }
    page.text
}

fn process(page: &mut Page, status: &Status) {
    let state = status.state();
    page.family("busload_build_info", "gauge", "The version that runs.");
    page.sample("busload_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.gauge(
        "busload_ready",
        "1 while requests are served and writes accepted.",
        u8::from(state == State::Ready),
    );
    let no_space = matches!(state, State::NoSpace(_));
    page.gauge(
        "busload_log_no_space",
        "1 while writes are refused for want of disk space.",
        u8::from(no_space),
    );
    let failed = matches!(state, State::LogFailed(_));
    page.gauge(
        "busload_log_failed",
        "1 when the log failed and nothing is answered any more.",
        u8::from(failed),
    );
    let started = status.started_ms as f64 / 1000.0;
    page.gauge("process_start_time_seconds", "When the process started, since 1970.", started);
    if let Some(bytes) = resident_bytes() {
        page.gauge("process_resident_memory_bytes", "Resident memory of the process.", bytes);
    }
}

/// Reads the resident memory; none where there is no `/proc`.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn stages(page: &mut Page, stats: &Stats) {
    let readings = [
        ("net", stats.net_batches.read()),
        ("tx", stats.tx_batches.read()),
        ("commit", stats.commit_batches.read()),
        ("reply", stats.reply_batches.read()),
    ];
    let mut each = |name: &str, kind, help, of: &dyn Fn(&BatchReading) -> u64| {
        page.family(name, kind, help);
        readings
            .iter()
            .for_each(|(stage, reading)| page.sample(name, &[("stage", stage)], of(reading)));
    };
    each("busload_stage_batches_total", "counter", "Batches a stage took.", &|reading| {
        reading.batches
    });
    each("busload_stage_items_total", "counter", "Items in the batches of a stage.", &|reading| {
        reading.items
    });
    each(
        "busload_stage_batch_items_max",
        "gauge",
        "Items in the fullest batch of a stage.",
        &|reading| reading.max,
    );
}

fn connections(page: &mut Page, stats: &Stats) {
    page.gauge("busload_connections", "Connections now.", stats.connections.get());
    page.gauge(
        "busload_connections_blocked",
        "Connections whose writes wait for the log now.",
        stats.connections_blocked.get(),
    );
    page.gauge(
        "busload_connection_memory_bytes",
        "Pending replies, half-read requests and MULTI queues of all connections.",
        stats.connection_bytes.get(),
    );
    page.counter(
        "busload_connections_accepted_total",
        "Connections accepted.",
        stats.connections_total.get(),
    );
    page.counter(
        "busload_connections_rejected_total",
        "Connections refused because there were maxclients already.",
        stats.connections_rejected_total.get(),
    );
    page.counter(
        "busload_connections_evicted_total",
        "Connections closed because all replies together passed reply_bytes_total.",
        stats.connections_evicted_total.get(),
    );
    page.counter("busload_net_polls_total", "Waits for sockets.", stats.net_polls_total.get());
    page.counter("busload_net_receives_total", "Receive calls.", stats.net_receives_total.get());
    page.counter("busload_net_sends_total", "Send calls.", stats.net_sends_total.get());
    page.counter(
        "busload_net_received_bytes_total",
        "Bytes received.",
        stats.net_received_bytes_total.get(),
    );
    page.counter("busload_net_sent_bytes_total", "Bytes sent.", stats.net_sent_bytes_total.get());
}

fn commands(page: &mut Page, stats: &Stats) {
    page.counter("busload_commands_total", "Commands executed.", stats.commands_total.get());
    page.counter("busload_error_replies_total", "Error replies.", stats.errors_total.get());
    page.counter(
        "busload_auth_denied_total",
        "AUTH and HELLO with a wrong user or password.",
        stats.auth_denied_total.get(),
    );
    page.counter(
        "busload_auth_refused_total",
        "AUTH and HELLO refused unchecked after too many wrong passwords from their address.",
        stats.auth_refused_total.get(),
    );
    page.counter(
        "busload_deferred_total",
        "Runs of requests put off because the log was behind.",
        stats.deferred_total.get(),
    );
    page.counter(
        "busload_keyspace_hits_total",
        "Lookups that found their key.",
        stats.keyspace_hits_total.get(),
    );
    page.counter(
        "busload_keyspace_misses_total",
        "Lookups that did not.",
        stats.keyspace_misses_total.get(),
    );
    page.counter(
        "busload_expired_keys_total",
        "Keys removed because their time was over.",
        stats.expired_keys_total.get(),
    );
    page.gauge(
        "busload_source_requests",
        "Requests in flight at sources.",
        stats.source_tickets.get(),
    );
}

fn memory(page: &mut Page, stats: &Stats) {
    page.gauge("busload_keys", "Keys in all memory tables.", stats.keys.get());
    page.gauge(
        "busload_keys_expiring",
        "Keys that have a time to live.",
        stats.keys_expiring.get(),
    );
    page.gauge(
        "busload_tables_memory_bytes",
        "Memory of all tables.",
        stats.memory_used_bytes.get(),
    );
    page.gauge(
        "busload_tables_memory_peak_bytes",
        "The most it ever was.",
        stats.memory_peak_bytes.get(),
    );
    page.gauge(
        "busload_tables_garbage_bytes",
        "Memory of deleted contents that is still to be freed.",
        stats.memory_garbage_bytes.get(),
    );
}

/// Renders the metrics of Postgres tables. Their families appear only if there are such tables.
fn postgres(page: &mut Page, tables: &[(&str, TableStats)]) {
    if tables.is_empty() {
        return;
    }
    let mut by_operation = |name: &str, kind, help, of: fn(&busload_batch::ClassStats) -> u64| {
        page.family(name, kind, help);
        for (table, stats) in tables {
            for (operation, class) in [("read", &stats.queue.reads), ("write", &stats.queue.writes)]
            {
                page.sample(name, &[("table", table), ("operation", operation)], of(class));
            }
        }
    };
    let counter = "counter";
    by_operation("busload_postgres_requests_total", counter, "Requests queued.", |class| {
        class.requests
    });
    by_operation(
        "busload_postgres_joined_total",
        counter,
        "Requests that joined one for the same key: reads de-duplicated, writes merged.",
        |class| class.joined,
    );
    by_operation("busload_postgres_batches_total", counter, "Batches sent.", |class| class.batches);
    by_operation(
        "busload_postgres_batch_entries_total",
        counter,
        "Keys in the batches sent.",
        |class| class.entries,
    );
    by_operation(
        "busload_postgres_batch_entries_max",
        "gauge",
        "Keys in the fullest batch.",
        |class| class.batch_entries_max as u64,
    );
    let mut each = |name: &str, kind, help, of: fn(&TableStats) -> u64| {
        page.family(name, kind, help);
        tables.iter().for_each(|(table, stats)| page.sample(name, &[("table", table)], of(stats)));
    };
    each("busload_postgres_statements_total", counter, "Statements sent.", |stats| {
        stats.statements
    });
    each(
        "busload_postgres_refused_total",
        counter,
        "Requests refused because the queue was full.",
        |stats| stats.queue.refused,
    );
    each("busload_postgres_expired_total", counter, "Requests that timed out.", |stats| {
        stats.queue.expired
    });
    each(
        "busload_postgres_left_total",
        counter,
        "Requests whose client went away first.",
        |stats| stats.queue.left,
    );
    each(
        "busload_postgres_retries_total",
        counter,
        "Batches sent again: reads after a lost connection, conflicts with other transactions.",
        |stats| stats.reads_repeated + stats.conflicts_retried,
    );
    each(
        "busload_postgres_alone_total",
        counter,
        "Entries sent alone because of another one's error.",
        |stats| stats.sent_alone,
    );
    each(
        "busload_postgres_outcomes_unknown_total",
        counter,
        "Writes with an unknown outcome.",
        |stats| stats.outcomes_unknown,
    );
    each("busload_postgres_waiting", "gauge", "Requests in the queue.", |stats| {
        stats.waiting as u64
    });
    each("busload_postgres_batches_in_flight", "gauge", "Batches in flight.", batches_in_flight);
    each("busload_postgres_connections", "gauge", "Connections open.", |stats| {
        stats.pool.up as u64
    });
    each("busload_postgres_connections_wanted", "gauge", "Connections there should be.", |stats| {
        stats.pool.wanted as u64
    });
    each(
        "busload_postgres_connections_lost_total",
        counter,
        "Connections that ended by themselves.",
        |stats| stats.pool.lost,
    );
    each(
        "busload_postgres_connect_failures_total",
        counter,
        "Attempts to connect that failed.",
        |stats| stats.pool.failed,
    );
    let name = "busload_postgres_info";
    page.family(
        name,
        "gauge",
        "1, with the state and, while not all connections are open, the last error.",
    );
    for (table, stats) in tables {
        let error = stats.pool.last_error.as_ref().map_or(String::new(), ToString::to_string);
        page.sample(name, &[("table", table), ("state", state_of(stats)), ("error", &error)], 1);
    }
}

fn log(page: &mut Page, log: &LogStats) {
    page.counter(
        "busload_log_frames_total",
        "Frames written; each took one write call.",
        log.frames,
    );
    page.counter("busload_log_records_total", "Records written.", log.records);
    page.gauge(
        "busload_log_frame_records_max",
        "Records in the fullest frame.",
        log.frame_records_max,
    );
    page.counter("busload_log_written_bytes_total", "Bytes of all frames written.", log.bytes);
    page.gauge("busload_log_size_bytes", "Bytes in use of all segments on disk.", log.log_bytes);
    page.gauge("busload_log_segments", "Segments on disk.", log.segments);
    let name = "busload_log_sync_duration_seconds";
    page.family(name, "histogram", "How long syncs of the log took.");
    let mut count = 0;
    let last = log
        .sync_us_buckets
        .iter()
        .rposition(|&in_bucket| in_bucket != 0)
        .map_or(0, |last| last + 1);
    for (power, in_bucket) in log.sync_us_buckets.iter().enumerate().take(last) {
        count += in_bucket;
        let bound = (1_u64 << power) as f64 / 1e6;
        page.sample(&format!("{name}_bucket"), &[("le", &bound.to_string())], count);
    }
    page.sample(&format!("{name}_bucket"), &[("le", "+Inf")], count);
    page.sample(&format!("{name}_sum"), &[], log.sync_us_total as f64 / 1e6);
    page.sample(&format!("{name}_count"), &[], count);
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    // Writing to a string cannot fail, here and below.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
            let _ = write!(self.text, "{}{label}=\"{text}\"", if index == 0 { '{' } else { ',' });
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use busload_remotesapi::{Download, Method, RemotesapiStats};

    #[test]
    fn every_sample_belongs_to_a_family_that_is_described_once() {
        let mut page = Page { text: render(&Status::default(), &FrontMetrics::default()) };
        let mut sync_us_buckets = [0; busload_log::SYNC_BUCKET_COUNT];
        sync_us_buckets[3] = 2;
        sync_us_buckets[7] = 1;
        super::log(
            &mut page,
            &LogStats { sync_us_buckets, sync_us_total: 100, ..LogStats::default() },
        );
        let dolt = RemotesapiStats::default();
        dolt.count_call(Method::Root);
        dolt.count_sent(Download::Range, 4096);
        super::dolt::render(&mut page, &dolt);
        let mut described = HashSet::new();
        let mut family = "";
        for line in page.text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = help.split(' ').next().unwrap();
                assert!(described.insert(family), "{family} is described twice");
            } else if !line.starts_with("# TYPE ") {
                assert!(line.starts_with(family), "{line} is not of {family}");
                assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(30 < described.len());
        let docs = include_str!("../../../../docs/chunks.md");
        for name in described.iter().filter(|name| name.starts_with("busload_dolt_")) {
            assert!(docs.contains(&format!("`{name}`")), "{name} is described nowhere");
        }
        assert!(page.text.contains("busload_stage_batches_total{stage=\"net\"} 0\n"));
        assert!(page.text.contains("busload_dolt_calls_total{method=\"Root\"} 1\n"));
        assert!(page.text.contains("busload_dolt_calls_total{method=\"Commit\"} 0\n"));
        assert!(page.text.contains("busload_dolt_sent_bytes_total{kind=\"range\"} 4096\n"));
        assert!(
            page.text.contains("busload_log_sync_duration_seconds_bucket{le=\"0.000008\"} 2\n")
        );
        assert!(page.text.contains("busload_log_sync_duration_seconds_bucket{le=\"+Inf\"} 3\n"));
    }
}
