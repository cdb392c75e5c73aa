//! Samples of the counters, one a second, of which the last five minutes are kept.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::tables::{TABLE_COLUMNS, TableReading, of_history, tables};
use crate::{
    http::{
        front::Front,
        limits::{HISTORY_INTERVAL, HISTORY_SAMPLE_COUNT_LIMIT},
        metrics::Reading,
    },
    status::{ServerState, Status},
};

/// A column of the history: its name, and its value.
type Column = (&'static str, fn(&Reading<'_>) -> u64);

/// Values of the process that the history keeps.
const COLUMNS: [Column; 27] = [
    ("commands", |reading| reading.status.stats.commands_total.get()),
    ("errors", |reading| reading.status.stats.errors_total.get()),
    ("hits", |reading| reading.status.stats.keyspace_hits_total.get()),
    ("misses", |reading| reading.status.stats.keyspace_misses_total.get()),
    ("receives", |reading| reading.status.stats.net_receives_total.get()),
    ("sends", |reading| reading.status.stats.net_sends_total.get()),
    ("received_bytes", |reading| reading.status.stats.net_received_bytes_total.get()),
    ("sent_bytes", |reading| reading.status.stats.net_sent_bytes_total.get()),
    ("connections", |reading| reading.status.stats.connections.get()),
    ("connections_rejected", |reading| reading.status.stats.connections_rejected_total.get()),
    ("connections_evicted", |reading| reading.status.stats.connections_evicted_total.get()),
    ("deferred", |reading| reading.status.stats.deferred_total.get()),
    ("memory_bytes", |reading| reading.status.stats.memory_used_bytes.get()),
    ("memory_refused", |reading| reading.status.stats.memory_refused_total.get()),
    ("net_batches", |reading| reading.status.stats.net_batches.read().batches),
    ("net_items", |reading| reading.status.stats.net_batches.read().items),
    ("tx_batches", |reading| reading.status.stats.tx_batches.read().batches),
    ("tx_items", |reading| reading.status.stats.tx_batches.read().items),
    ("commit_batches", |reading| reading.status.stats.commit_batches.read().batches),
    ("commit_items", |reading| reading.status.stats.commit_batches.read().items),
    ("reply_batches", |reading| reading.status.stats.reply_batches.read().batches),
    ("reply_items", |reading| reading.status.stats.reply_batches.read().items),
    ("log_frames", |reading| reading.log.as_ref().map_or(0, |log| log.stats.frames)),
    ("log_records", |reading| reading.log.as_ref().map_or(0, |log| log.stats.records)),
    ("log_bytes", |reading| reading.log.as_ref().map_or(0, |log| log.stats.bytes)),
    ("log_syncs", |reading| reading.log.as_ref().map_or(0, |log| log.stats.syncs)),
    ("log_sync_us", |reading| reading.log.as_ref().map_or(0, |log| sum_us(&log.stats))),
];

fn sum_us(log: &busload_log::Stats) -> u64 {
    u64::try_from(log.sync_times.sum().as_micros()).unwrap_or(u64::MAX)
}

/// Values at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Uptime when it was taken.
    at_ms: u64,
    /// Values of all [`COLUMNS`].
    values: [u64; COLUMNS.len()],
    /// Values of [`TABLE_COLUMNS`] of each table.
    tables: Vec<[u64; TABLE_COLUMNS.len()]>,
}

/// Samples of the last minutes, the oldest first. Tables are known once the server serves, and do
/// not change from then on, so the samples begin there.
#[derive(Debug)]
pub struct History {
    started: Instant,
    samples: Mutex<VecDeque<Sample>>,
}

impl Default for History {
    fn default() -> Self {
        Self { started: Instant::now(), samples: Mutex::default() }
    }
}

/// Records a sample each second, for ever.
pub async fn record(status: Arc<Status>, front: Front) {
    let mut ticks = interval(HISTORY_INTERVAL);
    // A process that was stopped for a while has a gap in its history, not samples of no time.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if status.state() != ServerState::Recovering {
            front.history.add(&Reading::new(&status, &front.metrics));
        }
    }
}

impl History {
    /// Returns the time since the start of the HTTP front, which is that of the process.
    pub fn uptime_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Adds a sample of these values.
    pub fn add(&self, reading: &Reading<'_>) {
        self.push(Sample::new(reading, self.uptime_ms()));
    }

    fn push(&self, sample: Sample) {
        let mut samples = self.samples();
        if samples.len() == HISTORY_SAMPLE_COUNT_LIMIT {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    fn samples(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the first sample that is no older than this, from which differences count.
    pub fn oldest_within(&self, age: Duration) -> Option<Sample> {
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let oldest_ms = self.uptime_ms().saturating_sub(age_ms);
        self.samples().iter().find(|sample| oldest_ms <= sample.at_ms).cloned()
    }

    /// Makes the object of `history`: the samples that are younger than `since_ms`, all of them if
    /// there is none.
    pub fn to_json(&self, since_ms: Option<u64>, all: &[TableReading<'_>]) -> Value {
        let tables = of_history(all);
        let samples = self.samples();
        let young = |sample: &&Sample| since_ms.is_none_or(|since_ms| since_ms < sample.at_ms);
        json!({
            "interval_ms": HISTORY_INTERVAL.as_millis() as u64,
            "samples_max": HISTORY_SAMPLE_COUNT_LIMIT,
            "columns": COLUMNS.map(|(name, _)| name),
            "table_columns": TABLE_COLUMNS.map(|(name, _)| name),
            "tables": tables.iter().map(|table| &*table.name).collect::<Vec<_>>(),
            "tables_left_out": all.len() - tables.len(),
            "samples": samples.iter().filter(young).map(Sample::to_json).collect::<Vec<_>>(),
        })
    }
}

impl Sample {
    /// Takes a sample of these values.
    pub fn new(reading: &Reading<'_>, at_ms: u64) -> Self {
        let of_table = |table: &TableReading<'_>| TABLE_COLUMNS.map(|(_, of)| of(table));
        let tables = tables(reading);
        Self {
            at_ms,
            values: COLUMNS.map(|(_, of)| of(reading)),
            tables: of_history(&tables).into_iter().map(of_table).collect(),
        }
    }

    /// Returns how much a column has grown since an earlier sample; 0 after a reset.
    pub fn growth(&self, earlier: &Sample, column: &str) -> u64 {
        let index = COLUMNS.iter().position(|(name, _)| *name == column);
        index.map_or(0, |index| self.values[index].saturating_sub(earlier.values[index]))
    }

    /// Returns how much a column of a table has grown since an earlier sample; 0 after a reset.
    pub fn table_growth(&self, earlier: &Sample, table: usize, column: &str) -> u64 {
        let index = TABLE_COLUMNS.iter().position(|(name, _)| *name == column);
        let value = |sample: &Sample| Some(sample.tables.get(table)?[index?]);
        let values = value(self).zip(value(earlier));
        values.map_or(0, |(now, before)| now.saturating_sub(before))
    }

    fn to_json(&self) -> Value {
        let tables: Vec<Value> = self.tables.iter().map(|table| json!(table)).collect();
        json!({"at_ms": self.at_ms, "values": self.values.to_vec(), "tables": tables})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::front_metrics::FrontMetrics;

    #[test]
    fn the_last_minutes_are_kept_and_no_more() {
        let history = History::default();
        for at_ms in 1..=HISTORY_SAMPLE_COUNT_LIMIT as u64 + 7 {
            history.push(Sample { at_ms, ..Sample::default() });
        }
        let all = history.to_json(None, &[]);
        let samples = all["samples"].as_array().unwrap();
        assert_eq!(samples.len(), HISTORY_SAMPLE_COUNT_LIMIT);
        assert_eq!(samples[0]["at_ms"], 8);
        let last = HISTORY_SAMPLE_COUNT_LIMIT as u64 + 6;
        let young = history.to_json(Some(last), &[]);
        assert_eq!(young["samples"].as_array().unwrap().len(), 1, "{}", young["samples"]);
    }

    #[test]
    fn columns_are_told_apart_and_grow_as_their_counters_do() {
        let (status, front) = (Status::default(), FrontMetrics::default());
        let before = Sample::new(&Reading::new(&status, &front), 0);
        status.stats.connections_rejected_total.add(3);
        let after = Sample::new(&Reading::new(&status, &front), 1);
        for (name, _) in COLUMNS {
            let expected = if name == "connections_rejected" { 3 } else { 0 };
            assert_eq!(after.growth(&before, name), expected, "{name}");
            assert_eq!(before.growth(&after, name), 0, "{name} after a reset");
        }
    }
}
