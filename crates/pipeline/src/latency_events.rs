//! Latency events: what took long, with the last times that it did, for LATENCY.
//!
//! Other than in Redis the monitor is on from the start: measuring costs one clock read for work
//! that takes milliseconds anyway.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::limits::LATENCY_SAMPLES_MAX;

/// Kinds of work whose latency is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyEvent {
    /// Execution of one command that was timed by itself.
    Command,
    /// Rest of a turn: its fast commands, and the sockets if the same thread polls them.
    Turn,
    /// Answer of a source, such as Postgres, from submission on.
    Source,
    /// Sync of the log.
    Sync,
    /// Removal of expired keys in one turn.
    ExpireCycle,
    /// Eviction of keys in one turn.
    EvictionCycle,
}

impl LatencyEvent {
    /// All kinds, in the order in which LATENCY LATEST shows them.
    pub const ALL: [LatencyEvent; 6] = [
        LatencyEvent::Command,
        LatencyEvent::Turn,
        LatencyEvent::Source,
        LatencyEvent::Sync,
        LatencyEvent::ExpireCycle,
        LatencyEvent::EvictionCycle,
    ];

    /// Returns the name of the event: Redis's where it has the same.
    pub const fn name(self) -> &'static str {
        match self {
            LatencyEvent::Command => "command",
            LatencyEvent::Turn => "turn",
            LatencyEvent::Source => "source",
            LatencyEvent::Sync => "aof-fsync-always",
            LatencyEvent::ExpireCycle => "expire-cycle",
            LatencyEvent::EvictionCycle => "eviction-cycle",
        }
    }

    /// Returns the event of this name, in any case.
    pub fn of_name(name: &[u8]) -> Option<LatencyEvent> {
        Self::ALL.into_iter().find(|event| event.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Returns what an operator can do about it.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            LatencyEvent::Command => {
                "SLOWLOG GET shows which commands they were. Commands over many keys or large \
                 values cost time in proportion; a transaction executes whole."
            }
            LatencyEvent::Turn => {
                "Fast commands cannot take this long by themselves: the process was not running. \
                 Look for other processes on its cores, swapping, and a machine that is paused."
            }
            LatencyEvent::Source => {
                "The database or object store behind a table was slow or far away. SLOWLOG GET \
                 shows keys, INFO the batches and errors of each table."
            }
            LatencyEvent::Sync => {
                "The disk takes long to sync the log. Give the log a disk of its own, or choose \
                 sync = \"interval:MS\" for tables that can lose the last moments."
            }
            LatencyEvent::ExpireCycle => "Many keys expired at once. Spread their expirations.",
            LatencyEvent::EvictionCycle => {
                "Keys are evicted in large numbers or are large. Give the tables more memory_max."
            }
        }
    }
}

/// One time that something took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencySample {
    /// Unix time in seconds.
    pub unix_s: i64,
    /// Duration in milliseconds; the longest of those in that second.
    pub ms: u64,
}

/// Samples of one event.
#[derive(Clone, Debug, Default)]
pub struct LatencySeries {
    samples: VecDeque<LatencySample>,
    ms_max: u64,
}

impl LatencySeries {
    /// Returns the samples, the oldest first.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = LatencySample> + '_ {
        self.samples.iter().copied()
    }

    /// Returns the newest sample, if there is one.
    pub fn latest(&self) -> Option<LatencySample> {
        self.samples.back().copied()
    }

    /// Returns the longest duration since the start or the last reset, in milliseconds.
    pub fn ms_max(&self) -> u64 {
        self.ms_max
    }

    fn note(&mut self, unix_s: i64, ms: u64) {
        self.ms_max = self.ms_max.max(ms);
        // One sample per second, as in Redis.
        if let Some(last) = self.samples.back_mut()
            && last.unix_s == unix_s
        {
            last.ms = last.ms.max(ms);
            return;
        }
        if self.samples.len() == LATENCY_SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(LatencySample { unix_s, ms });
    }
}

/// Events that took long, which tx notes and anyone may read.
#[derive(Debug, Default)]
pub struct LatencyEvents {
    series: Mutex<[LatencySeries; LatencyEvent::ALL.len()]>,
}

impl LatencyEvents {
    /// Notes that an event took this long.
    pub fn note(&self, event: LatencyEvent, unix_s: i64, took: Duration) {
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.lock()[event as usize].note(unix_s, ms);
    }

    /// Returns the samples of an event.
    pub fn series(&self, event: LatencyEvent) -> LatencySeries {
        self.lock()[event as usize].clone()
    }

    /// Forgets the samples of an event. Returns whether there were any.
    pub fn reset(&self, event: LatencyEvent) -> bool {
        std::mem::take(&mut self.lock()[event as usize]).latest().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, [LatencySeries; LatencyEvent::ALL.len()]> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_a_sample_per_second_and_forgets_the_oldest() {
        let monitor = LatencyEvents::default();
        let note = |second: i64, ms| {
            monitor.note(LatencyEvent::Sync, second, Duration::from_millis(ms));
        };
        note(1, 200);
        note(1, 300);
        note(1, 100);
        let series = monitor.series(LatencyEvent::Sync);
        assert_eq!(series.samples().collect::<Vec<_>>(), [LatencySample { unix_s: 1, ms: 300 }]);
        for second in 2..2 + LATENCY_SAMPLES_MAX as i64 {
            note(second, 100);
        }
        let series = monitor.series(LatencyEvent::Sync);
        assert_eq!(series.samples().len(), LATENCY_SAMPLES_MAX);
        assert_eq!(series.samples().next().map(|sample| sample.unix_s), Some(2));
        assert_eq!(series.ms_max(), 300);
        assert!(monitor.reset(LatencyEvent::Sync) && !monitor.reset(LatencyEvent::Sync));
        assert_eq!(monitor.series(LatencyEvent::Sync).ms_max(), 0);
    }

    #[test]
    fn events_are_found_by_name() {
        for event in LatencyEvent::ALL {
            assert_eq!(LatencyEvent::of_name(event.name().to_uppercase().as_bytes()), Some(event));
        }
        assert_eq!(LatencyEvent::of_name(b"fork"), None);
    }
}
