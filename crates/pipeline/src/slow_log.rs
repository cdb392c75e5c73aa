//! Slow log: the last commands whose execution took long, for SLOWLOG and the dashboard.
//!
//! What it measures: a command in memory counts the time that its execution took on the thread of
//! the tables (of a sliced command all its slices), without the time that it waited for others, for
//! a sync or for the network. A command on a table of a source counts the time from its submission
//! to its answer. Fast commands are not timed one by one while the threshold is 1 ms or more; see
//! `tx/timing.rs`.
//!
//! Arguments are trimmed as in Redis, and passwords are not kept. The log keeps at most as many
//! entries as `slowlog-max-len` says, and at most [`SLOW_LOG_BYTES_MAX`] of them.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::limits::{
    SLOW_LOG_ARG_BYTES_MAX, SLOW_LOG_ARGS_MAX, SLOW_LOG_BYTES_MAX, SLOW_LOG_LEN_DEFAULT,
};

/// Slow commands, which tx adds and anyone may read. The lock is held for an entry only.
#[derive(Debug, Default)]
pub struct SlowLog {
    entries: Mutex<Entries>,
}

/// Command whose execution took long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCommand {
    /// Number of the entry, which is never used again.
    pub id: u64,
    /// Unix time of the execution, in seconds.
    pub unix_s: i64,
    /// Duration that the command took.
    pub took: Duration,
    /// Arguments, the command's name first, trimmed and without secrets.
    pub args: Vec<Vec<u8>>,
    /// Address of the client, empty when the client is gone.
    pub client: String,
    /// Name that the client has given itself.
    pub client_name: Vec<u8>,
}

impl SlowCommand {
    fn bytes(&self) -> usize {
        let args: usize = self.args.iter().map(|arg| arg.len() + size_of::<Vec<u8>>()).sum();
        size_of::<Self>() + args + self.client.len() + self.client_name.len()
    }
}

#[derive(Debug)]
struct Entries {
    /// Entries, the newest last.
    entries: VecDeque<SlowCommand>,
    bytes: usize,
    next_id: u64,
    len_max: usize,
}

impl Default for Entries {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0, next_id: 0, len_max: SLOW_LOG_LEN_DEFAULT }
    }
}

impl Entries {
    fn trim(&mut self) {
        while self.len_max < self.entries.len() || SLOW_LOG_BYTES_MAX < self.bytes {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.bytes -= oldest.bytes();
        }
    }
}

impl SlowLog {
    /// Adds a command, and removes the oldest ones above the limits. Sets its id.
    pub fn push(&self, mut command: SlowCommand) {
        let mut entries = self.lock();
        command.id = entries.next_id;
        entries.next_id += 1;
        entries.bytes += command.bytes();
        entries.entries.push_back(command);
        entries.trim();
    }

    /// Returns the newest commands, the newest first.
    pub fn newest(&self, count: usize) -> Vec<SlowCommand> {
        self.lock().entries.iter().rev().take(count).cloned().collect()
    }

    /// Returns how many commands are in the log.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Returns whether no command is in the log.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all commands; ids go on.
    pub fn reset(&self) {
        let mut entries = self.lock();
        entries.entries = VecDeque::new();
        entries.bytes = 0;
    }

    /// Sets how many commands are kept, and removes the oldest ones above.
    pub fn set_len_max(&self, len_max: usize) {
        let mut entries = self.lock();
        entries.len_max = len_max;
        entries.trim();
    }

    /// Returns how many commands are kept at most.
    pub fn len_max(&self) -> usize {
        self.lock().len_max
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Trims arguments as Redis does: the first 32, of each the first 128 bytes, and how much is left
/// out.
pub fn trimmed<'a>(args: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let count = args.len();
    let whole = if SLOW_LOG_ARGS_MAX < count { SLOW_LOG_ARGS_MAX - 1 } else { count };
    let mut trimmed: Vec<Vec<u8>> = args.take(whole).map(trimmed_arg).collect();
    if whole < count {
        trimmed.push(format!("... ({} more arguments)", count - whole).into_bytes());
    }
    trimmed
}

fn trimmed_arg(arg: &[u8]) -> Vec<u8> {
    let mut shown = arg[..arg.len().min(SLOW_LOG_ARG_BYTES_MAX)].to_vec();
    if shown.len() < arg.len() {
        let left = arg.len() - shown.len();
        shown.extend_from_slice(format!("... ({left} more bytes)").as_bytes());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(args: Vec<Vec<u8>>) -> SlowCommand {
        SlowCommand {
            id: 0,
            unix_s: 1_700_000_000,
            took: Duration::from_micros(5),
            args,
            client: "127.0.0.1:5".into(),
            client_name: Vec::new(),
        }
    }

    #[test]
    fn arguments_are_trimmed_as_redis_trims_them() {
        let count = |count: usize| trimmed((0..count).map(|_| &b"a"[..])).len();
        assert_eq!((count(1), count(32), count(33), count(1_000)), (1, 32, 32, 32));
        let many = trimmed((0..40).map(|_| &b"a"[..]));
        assert_eq!(many[30], b"a");
        assert_eq!(many[31], b"... (9 more arguments)");
        let long = trimmed([&[b'x'; 128][..], &[b'y'; 200]].into_iter());
        assert_eq!(long[0], [b'x'; 128]);
        assert_eq!(long[1], [&[b'y'; 128][..], b"... (72 more bytes)"].concat());
    }

    #[test]
    fn the_newest_commands_stay_within_both_limits() {
        let log = SlowLog::default();
        for _ in 0..SLOW_LOG_LEN_DEFAULT + 5 {
            log.push(command(vec![b"GET".to_vec()]));
        }
        assert_eq!(log.len(), SLOW_LOG_LEN_DEFAULT);
        let ids: Vec<u64> = log.newest(2).iter().map(|command| command.id).collect();
        assert_eq!(ids, [SLOW_LOG_LEN_DEFAULT as u64 + 4, SLOW_LOG_LEN_DEFAULT as u64 + 3]);
        log.set_len_max(3);
        assert_eq!(log.newest(usize::MAX).len(), 3);
        log.reset();
        assert!(log.is_empty());
        log.push(command(Vec::new()));
        assert_eq!(log.newest(1)[0].id, SLOW_LOG_LEN_DEFAULT as u64 + 5, "ids go on");

        log.set_len_max(usize::MAX);
        let large = trimmed((0..1_000).map(|_| &[b'x'; 1_000][..]));
        for _ in 0..3_000 {
            log.push(command(large.clone()));
        }
        let bytes: usize = log.newest(usize::MAX).iter().map(SlowCommand::bytes).sum();
        assert!(bytes <= SLOW_LOG_BYTES_MAX && SLOW_LOG_BYTES_MAX / 2 < bytes, "{bytes}");
    }
}
