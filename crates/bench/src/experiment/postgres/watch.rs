//! The clocks, read at both ends of a window by a thread of its own: looking at three hundred
//! sessions takes milliseconds in which no client should have to wait.

use std::{
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};

use crate::{
    clock::{Window, now_ns},
    sample::{Cpu, Mark, Watched},
};

/// The thread that reads the clocks.
pub struct Watch {
    thread: JoinHandle<Cpu>,
    /// Dropped when the load failed, so that nobody waits for the window's end.
    _hurry: mpsc::Sender<()>,
}

impl Watch {
    pub fn start(watched: Watched, window: Window) -> Result<Self> {
        let (hurry, hurried) = mpsc::channel();
        let thread = thread::Builder::new().name("clocks".to_owned()).spawn(move || {
            wait_until(&hurried, window.from_ns);
            let start = Mark::now(watched);
            wait_until(&hurried, window.until_ns);
            Cpu::between(&start, &Mark::now(watched))
        });
        Ok(Self { thread: thread.context("a thread for clocks")?, _hurry: hurry })
    }

    /// Waits for the window's end; the processors used in it.
    pub fn finish(self) -> Result<Cpu> {
        self.thread.join().map_err(|_| anyhow!("the thread for clocks panicked"))
    }
}

fn wait_until(hurried: &mpsc::Receiver<()>, at_ns: u64) {
    let _ = hurried.recv_timeout(Duration::from_nanos(at_ns.saturating_sub(now_ns())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_sees_what_this_program_uses() {
        let is_seen = (0..crate::clock::TRIES).any(|_| {
            let from_ns = now_ns();
            let window = Window { from_ns, until_ns: from_ns + 50_000_000 };
            let watch = Watch::start(Watched::default(), window).unwrap();
            while now_ns() < window.until_ns {
                std::hint::black_box(0);
            }
            let cpu = watch.finish().unwrap();
            assert!(cpu.postgres.is_none(), "{cpu:?}");
            // Less where others had the processors.
            0.1 < cpu.own
        });
        assert!(is_seen);
    }
}
