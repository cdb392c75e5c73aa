//! Times commands for the slow log and LATENCY, and shows them to monitors.
//!
//! A batch has one time, which is enough for everything but this. So commands that can take long
//! (all that are not constant or logarithmic, and large requests) are timed one by one, with two
//! clock reads each; fast commands are not, because a clock read costs a third of a GET. What a
//! turn took beyond the commands timed by themselves is the event `turn` of LATENCY: its fast
//! commands together. If `slowlog-log-slower-than` is below [`TIME_EVERY_COMMAND_BELOW`] every
//! command is timed.
//!
//! Without a clock ([`Tx::set_clock`]) nothing is timed.

use std::time::Duration;

use busload_io::Clock;

use super::{Tx, dispatch::Outcome};
use crate::{
    args::Args,
    command::{Command, Flags},
    latency_events::LatencyEvent,
    limits::{LATENCY_SPIKE, SLOW_COMMAND, TIME_EVERY_COMMAND_BELOW, TIMED_REQUEST_BYTES_MIN},
    monitor::Monitored,
    redact,
    session::Session,
    slow_log::{SlowCommand, trimmed},
};

/// Clock and thresholds of slow commands and events.
pub(super) struct Stopwatch {
    clock: Option<Box<dyn Clock + Send>>,
    /// Time from which on a command is slow; `None` switches the slow log off.
    slow: Option<Duration>,
    /// Time from which on an event is noted; `None` switches LATENCY off.
    spike: Option<Duration>,
    /// Says whether anything is timed.
    is_on: bool,
    /// Says whether fast commands are timed, too.
    times_all: bool,
    /// Time of this turn that was measured by itself.
    measured: Duration,
    /// Number of the log's syncs, their total time and the longest, in microseconds, when they were
    /// last looked at.
    syncs: (u64, u64, u64),
}

impl Default for Stopwatch {
    fn default() -> Self {
        Self {
            clock: None,
            slow: Some(SLOW_COMMAND),
            spike: Some(LATENCY_SPIKE),
            is_on: false,
            times_all: false,
            measured: Duration::ZERO,
            syncs: (0, 0, 0),
        }
    }
}

impl Stopwatch {
    fn update(&mut self) {
        self.is_on = self.clock.is_some() && (self.slow.is_some() || self.spike.is_some());
        self.times_all = self.slow.is_some_and(|slow| slow < TIME_EVERY_COMMAND_BELOW);
    }
}

impl Tx {
    /// Sets the clock by which commands are timed; without one they are not.
    pub fn set_clock(&mut self, clock: Box<dyn Clock + Send>) {
        self.stopwatch.clock = Some(clock);
        self.stopwatch.update();
    }

    /// Returns the time from which on a command is slow, unless the slow log is off.
    pub(crate) fn slow_threshold(&self) -> Option<Duration> {
        self.stopwatch.slow
    }

    /// Changes the time from which on a command is slow; `None` switches the slow log off.
    pub(crate) fn set_slow_threshold(&mut self, slow: Option<Duration>) {
        self.stopwatch.slow = slow;
        self.stopwatch.update();
        self.tickets.set_slow_threshold(self.source_threshold());
    }

    /// Returns the time from which on LATENCY shows an event, unless it is off.
    pub(crate) fn spike_threshold(&self) -> Option<Duration> {
        self.stopwatch.spike
    }

    /// Changes the time from which on LATENCY shows an event; `None` switches it off.
    pub(crate) fn set_spike_threshold(&mut self, spike: Option<Duration>) {
        self.stopwatch.spike = spike;
        self.stopwatch.update();
        self.tickets.set_slow_threshold(self.source_threshold());
    }

    /// Returns the time from which on an answer of a source is of interest.
    fn source_threshold(&self) -> Option<Duration> {
        [self.stopwatch.slow, self.stopwatch.spike].into_iter().flatten().min()
    }

    /// Returns the time if this command is timed by itself.
    #[inline]
    pub(crate) fn start_timing(&self, command: &Command, args: &Args<'_>) -> Option<Duration> {
        if !self.stopwatch.is_on || (!self.stopwatch.times_all && is_brief(command, args)) {
            return None;
        }
        self.read_clock()
    }

    /// Returns the time, if tx has a clock and anything is timed.
    pub(super) fn read_clock(&self) -> Option<Duration> {
        self.stopwatch.clock.as_ref().filter(|_| self.stopwatch.is_on).map(|clock| clock.now())
    }

    /// Returns the time since `started`, which this turn's other work did not take.
    pub(super) fn end_timing(&mut self, started: Duration) -> Duration {
        let took = self.read_clock().unwrap_or(started).saturating_sub(started);
        self.stopwatch.measured += took;
        took
    }

    /// Notes how long a command took that was timed by itself. One that goes on in slices is noted
    /// when it has ended.
    pub(super) fn end_command(
        &mut self,
        started: Duration,
        outcome: Outcome,
        session: &Session,
        command: &Command,
        args: &Args<'_>,
    ) {
        let took = self.end_timing(started);
        match outcome {
            Outcome::Replied => self.note_execution(took, Some(session), command, args),
            Outcome::Pending => self.jobs.add_time(session.conn, took),
            Outcome::Deferred(_) => {}
        }
    }

    /// Notes how long a command inside EXEC took.
    pub(crate) fn end_inner_command(
        &mut self,
        started: Duration,
        session: &Session,
        command: &Command,
        args: &Args<'_>,
    ) {
        let took = self.read_clock().unwrap_or(started).saturating_sub(started);
        self.note_execution(took, Some(session), command, args);
    }

    /// Notes how long the execution of a command took, if that was long.
    pub(super) fn note_execution(
        &self,
        took: Duration,
        session: Option<&Session>,
        command: &Command,
        args: &Args<'_>,
    ) {
        if self.stopwatch.spike.is_some_and(|spike| spike <= took) {
            self.stats.latency_events.note(LatencyEvent::Command, self.unix_s(), took);
        }
        if self.stopwatch.slow.is_some_and(|slow| slow <= took) {
            let shown = (0..args.len()).map(|index| redact::shown(command.name, args, index));
            self.push_slow(took, session, trimmed(shown));
        }
    }

    /// Notes how long a source took to answer.
    pub(super) fn note_source(
        &self,
        took: Duration,
        session: Option<&Session>,
        args: Vec<Vec<u8>>,
    ) {
        if self.stopwatch.spike.is_some_and(|spike| spike <= took) {
            self.stats.latency_events.note(LatencyEvent::Source, self.unix_s(), took);
        }
        if self.stopwatch.slow.is_some_and(|slow| slow <= took) {
            self.push_slow(took, session, args);
        }
    }

    fn push_slow(&self, took: Duration, session: Option<&Session>, args: Vec<Vec<u8>>) {
        let name = session.map(|session| session.name.as_slice()).unwrap_or_default();
        self.stats.slow_log.push(SlowCommand {
            id: 0,
            unix_s: self.unix_s(),
            took,
            args,
            client: session.map(Session::address).unwrap_or_default(),
            client_name: trimmed(std::iter::once(name)).swap_remove(0),
        });
    }

    /// Records that a turn took from `start` to `end`.
    pub fn note_turn(&mut self, start: Duration, end: Duration) {
        let took = end.saturating_sub(start);
        self.stats.turns_total.add(1);
        self.stats.turn_us_max.raise(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        let rest = took.saturating_sub(std::mem::take(&mut self.stopwatch.measured));
        if self.stopwatch.spike.is_some_and(|spike| spike <= rest) {
            self.stats.latency_events.note(LatencyEvent::Turn, self.unix_s(), rest);
        }
    }

    /// Does a part of the housekeeping, and notes if it took long.
    pub(super) fn time_housekeeping<T>(
        &mut self,
        event: LatencyEvent,
        work: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let Some(started) = self.read_clock() else { return work(self) };
        let done = work(self);
        let took = self.end_timing(started);
        if self.stopwatch.spike.is_some_and(|spike| spike <= took) {
            self.stats.latency_events.note(event, self.unix_s(), took);
        }
        done
    }

    /// Notes if syncs of the log have taken long since the last call: the mean of those that have
    /// ended since, or one that is longer than all before. Housekeeping calls this ten times a
    /// second while there is work, so long syncs are seen one by one.
    pub(crate) fn note_syncs(&mut self) {
        let log = self.progress.stats();
        let now = (log.syncs, log.sync_us_total, log.sync_us_max);
        let before = std::mem::replace(&mut self.stopwatch.syncs, now);
        let Some(spike) = self.stopwatch.spike else { return };
        let mean = now.1.saturating_sub(before.1) / now.0.saturating_sub(before.0).max(1);
        let longest = if before.2 < now.2 { now.2 } else { mean };
        let took = Duration::from_micros(longest);
        if spike <= took {
            self.stats.latency_events.note(LatencyEvent::Sync, self.unix_s(), took);
        }
    }

    /// Shows a command to the monitors. Commands of operators are too dangerous to be shown.
    pub(crate) fn show_to_monitors(
        &mut self,
        session: &Session,
        command: &Command,
        args: &Args<'_>,
    ) {
        if command.flags.has(Flags::ADMIN) {
            return;
        }
        self.monitors.note(Monitored {
            now_ms: self.now_ms,
            space: session.space,
            client: &session.address(),
            command: command.name,
            args,
        });
    }

    fn unix_s(&self) -> i64 {
        self.now_ms.div_euclid(1_000)
    }
}

/// Returns whether the command takes constant or logarithmic time and has little to copy.
#[inline]
fn is_brief(command: &Command, args: &Args<'_>) -> bool {
    // SET is fast here, although Redis does not flag it so.
    command.flags.has_any(Flags::FAST.and(Flags::BRIEF))
        && args.request_bytes() < TIMED_REQUEST_BYTES_MIN
}
