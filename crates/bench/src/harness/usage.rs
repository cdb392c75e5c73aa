//! Processors used while something was measured.

use rustix::process::{Pid, getpid};

use crate::{
    clock::{now_ns, own_cpu_ns, thread_cpu_ns},
    machine::{
        busy_ns, family_cpu_ns, process_cpu_ns, run_queue_wait_ns, steal_ns, thread_cpu_ns_of,
    },
    stats::float,
};

/// Process that answers the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answering {
    /// This program itself, as the S3 server in it, or nobody.
    #[default]
    Nobody,
    Process(Pid),
}

impl Answering {
    fn cpu_ns(self) -> Option<u64> {
        match self {
            Self::Nobody => None,
            Self::Process(pid) => process_cpu_ns(pid),
        }
    }
}

/// Processes whose processor time is measured beside our own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watched {
    pub answering: Answering,
    /// The Postgres server, if it runs here.
    pub postgres: Option<Pid>,
    /// A thread of this program that is not part of the load.
    pub proxy: Option<Pid>,
}

/// The clocks at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    pub at_ns: u64,
    /// Processor time of the calling thread, and of this whole process.
    thread_ns: u64,
    own_ns: u64,
    server_ns: Option<u64>,
    postgres_ns: Option<u64>,
    proxy_ns: Option<u64>,
    /// Time that the machine's processors spent in programs, and that the host took away.
    busy_ns: Option<u64>,
    steal_ns: Option<u64>,
    /// Time that threads of this process were ready and had no processor.
    wait_ns: Option<u64>,
}

impl Mark {
    pub fn now(watched: Watched) -> Self {
        Self {
            at_ns: now_ns(),
            thread_ns: thread_cpu_ns(),
            own_ns: own_cpu_ns(),
            server_ns: watched.answering.cpu_ns(),
            postgres_ns: watched.postgres.and_then(family_cpu_ns),
            proxy_ns: watched.proxy.and_then(thread_cpu_ns_of),
            busy_ns: busy_ns(),
            steal_ns: steal_ns(),
            wait_ns: run_queue_wait_ns(getpid()),
        }
    }
}

/// Processors used between two marks: 1 is one processor all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub wall_s: f64,
    /// Used by the thread that read the clocks.
    pub thread: f64,
    /// Used by this whole program, without the thread of a proxy.
    pub own: f64,
    pub server: Option<f64>,
    pub postgres: Option<f64>,
    pub proxy: Option<f64>,
    /// Used by programs that have nothing to do with it, and by the machine's host.
    pub others: f64,
    /// Share of the time in which threads of this program waited for a processor, or the host took
    /// one away. The server's own waiting is left out: its threads may rightly wait for each other.
    pub lost: f64,
}

impl Usage {
    pub fn between(start: &Mark, end: &Mark) -> Self {
        let wall_ns = float(end.at_ns.saturating_sub(start.at_ns).max(1));
        let share = |of: fn(&Mark) -> Option<u64>| {
            Some(float(of(end)?.saturating_sub(of(start)?)) / wall_ns)
        };
        let whole = share(|mark| Some(mark.own_ns)).unwrap_or(0.0);
        let server = share(|mark| mark.server_ns);
        let postgres = share(|mark| mark.postgres_ns);
        let proxy = share(|mark| mark.proxy_ns);
        let known = whole + server.unwrap_or(0.0) + postgres.unwrap_or(0.0);
        let busy = share(|mark| mark.busy_ns).unwrap_or(known);
        let stolen = share(|mark| mark.steal_ns).unwrap_or(0.0);
        Self {
            wall_s: wall_ns / 1e9,
            thread: share(|mark| Some(mark.thread_ns)).unwrap_or(0.0),
            own: (whole - proxy.unwrap_or(0.0)).max(0.0),
            server,
            postgres,
            proxy,
            others: (busy - known).max(0.0) + stolen,
            lost: share(|mark| mark.wait_ns).unwrap_or(0.0) + stolen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_shared_out_and_the_rest_is_that_of_others() {
        let mark = |at_ns, used| Mark {
            at_ns,
            own_ns: used,
            thread_ns: used / 2,
            busy_ns: Some(used * 4),
            steal_ns: Some(0),
            postgres_ns: Some(used * 2),
            proxy_ns: Some(used / 4),
            ..Mark::default()
        };
        let usage = Usage::between(&mark(0, 0), &mark(1_000, 500));
        let Usage { thread, own, server, postgres, proxy, others, .. } = usage;
        assert_eq!((thread, own, proxy), (0.25, 0.375, Some(0.125)));
        assert_eq!((server, postgres, others), (None, Some(1.0), 0.5));
    }
}
