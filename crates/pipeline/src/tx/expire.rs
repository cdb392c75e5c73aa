//! Removes expired keys a few at a time. Reads treat them as absent anyway; the sweep frees their
//! memory and logs the deletes.

use std::time::Duration;

use busload_log::Reservation;
use busload_tables::{KeyHash, Sweep, TableId, effect};

use super::{Access, Key, Logging, Tx};
use crate::{
    gate::Gate,
    limits::{HOUSEKEEPING_INTERVAL, SWEEP_ENTRIES_PER_TURN, SWEEP_RECORD_KEYS},
};

/// Keys that a sweep found; the buffers are reused from turn to turn.
#[derive(Debug, Default)]
pub(super) struct SweepState {
    keys: Vec<u8>,
    found: Vec<(KeyHash, usize)>,
}

impl Tx {
    /// Sweeps a bounded part of all tables. Returns when the next sweep is worth it; `None` when no
    /// key expires.
    pub(super) fn sweep_expired(&mut self) -> Option<Duration> {
        let mut again = None;
        for table in self.catalog.all_memory() {
            if self.tables.expiring_len(table) == 0 {
                continue;
            }
            let wait = match self.sweep_table(table) {
                Swept::More => Duration::ZERO,
                Swept::UntilMs(due) => {
                    let wait = due.saturating_sub(self.now_ms).max(1);
                    Duration::from_millis(wait.unsigned_abs()).max(SWEEP_PAUSE_MIN)
                }
                Swept::LogRefused => HOUSEKEEPING_INTERVAL,
            };
            again = Some(again.map_or(wait, |earlier: Duration| earlier.min(wait)));
        }
        again
    }

    fn sweep_table(&mut self, table: TableId) -> Swept {
        let mut state = std::mem::take(&mut self.sweep);
        state.keys.clear();
        state.found.clear();
        let swept =
            self.tables.sweep(table, self.now_ms, SWEEP_ENTRIES_PER_TURN, &mut |hash, key| {
                state.keys.extend_from_slice(key);
                state.found.push((hash, state.keys.len()));
            });
        let complete = self.delete_found(table, &state);
        self.sweep = state;
        match swept {
            _ if !complete => Swept::LogRefused,
            Sweep::More => Swept::More,
            Sweep::Done { next_due } => next_due.map_or(Swept::UntilMs(i64::MAX), Swept::UntilMs),
        }
    }

    /// Deletes the found keys in records of a few keys; returns false when the log grants no more
    /// space.
    fn delete_found(&mut self, table: TableId, state: &SweepState) -> bool {
        let mut start = 0;
        for group in state.found.chunks(SWEEP_RECORD_KEYS) {
            let end = group.last().map_or(start, |(_, end)| *end);
            let reservation = end - start + group.len() * effect::OVERHEAD_BYTES_MAX;
            let logged = self.catalog.logging(table) != Logging::Off;
            if logged && !matches!(self.log.reserve(reservation as u64), Reservation::Granted) {
                return false;
            }
            self.reservation_granted = reservation as u64;
            for &(hash, end) in group {
                // A key that a job has locked is deleted when the job has ended.
                if self.jobs.is_empty() || !self.jobs.conflict(table, hash, Access::Write) {
                    self.delete(&Key { table, hash, bytes: &state.keys[start..end] });
                }
                start = end;
            }
            self.stats.expired_keys_total.add(group.len() as u64);
            self.commit();
            self.gate.set(Gate::OPEN);
        }
        true
    }
}

/// Shortest pause between two sweeps. Keys expire in bursts: it is cheaper to remove the keys of a
/// few milliseconds together.
const SWEEP_PAUSE_MIN: Duration = Duration::from_millis(5);

enum Swept {
    More,
    UntilMs(i64),
    LogRefused,
}
