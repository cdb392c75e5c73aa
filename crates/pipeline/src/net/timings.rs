//! Requests that are executed and whose replies wait for their gates, for the latencies. See
//! [`crate::latency`].

use std::{collections::VecDeque, sync::Arc, time::Duration};

use crate::{
    gate::Watermarks,
    latency::{TableLatencies, Timing},
    limits::TIMINGS_MAX,
    stats::Stats,
};

/// Timings of requests whose replies net has not released yet.
#[derive(Debug, Default)]
pub(super) struct Timings {
    waiting: VecDeque<Timing>,
    /// Tables by slot, as far as they are known.
    tables: Vec<Arc<TableLatencies>>,
}

impl Timings {
    /// Adds those of a batch. Beyond [`TIMINGS_MAX`] the oldest count as released with the turn.
    pub fn extend(&mut self, timings: &[Timing]) {
        self.waiting.extend(timings);
    }

    /// Records those whose gates are open as released at `now`.
    pub fn record(&mut self, stats: &Stats, progress: Watermarks, now: Duration) {
        let mut excess = self.waiting.len().saturating_sub(TIMINGS_MAX);
        let tables = &mut self.tables;
        self.waiting.retain(|timing| {
            let is_waiting = excess == 0 && !timing.gate.is_open(progress);
            if !is_waiting {
                excess = excess.saturating_sub(1);
                record(stats, tables, timing, now.saturating_sub(timing.received));
            }
            is_waiting
        });
    }
}

fn record(stats: &Stats, tables: &mut Vec<Arc<TableLatencies>>, timing: &Timing, time: Duration) {
    let (class, count) = (timing.class, u64::from(timing.count));
    let slot = class.slot().index();
    if tables.len() <= slot {
        *tables = stats.latencies.tables_by_slot();
    }
    tables[slot].family(class.family()).requests.record(time, count);
    if let Some(command) = stats.latencies.command(class.command()) {
        command.requests.record(time, count);
    }
}
