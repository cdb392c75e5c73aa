//! Signals of the operating system: the first SIGTERM or SIGINT asks for an orderly end, the second
//! ends at once.
//!
//! SIGHUP does nothing (there is nothing to reload), SIGPIPE and SIGXFSZ neither (the writes they
//! are about report the error).

use std::{
    sync::{Arc, OnceLock},
    task::Waker,
    thread,
};

use busload_pipeline::tx::Signals as Stop;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
    iterator::Signals,
    low_level,
};

use crate::failure::Failure;

/// What a process killed by a signal ends with in a shell, plus the signal's number.
const KILLED_BY: i32 = 128;

/// The pipeline's handle for the thread that waits for signals.
#[derive(Clone, Debug, Default)]
pub struct Stopper {
    waker: Arc<OnceLock<Waker>>,
}

impl Stopper {
    /// From now on there is something to end in order; this wakes it.
    pub fn arm(&self, waker: Waker) {
        // Once per process.
        let _ = self.waker.set(waker);
    }
}

/// Starts the thread.
pub fn watch(stop: Arc<Stop>) -> Result<Stopper, Failure> {
    let failed = |error: std::io::Error| Failure::run(format!("cannot watch for signals: {error}"));
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGXFSZ]).map_err(failed)?;
    let stopper = Stopper::default();
    let armed = stopper.clone();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut asked = false;
            for signal in signals.forever() {
                match armed.waker.get() {
                    _ if signal == SIGHUP => {
                        log::info!("SIGHUP is ignored: there is nothing to reload")
                    }
                    _ if signal == SIGXFSZ => {
                        log::error!("a file may not grow: the limit of ulimit -f is reached")
                    }
                    Some(waker) if !asked => {
                        asked = true;
                        log::info!("{}: stopping", name(signal));
                        stop.stop();
                        waker.wake_by_ref();
                    }
                    _ => {
                        log::warn!("{}: ending at once", name(signal));
                        low_level::exit(KILLED_BY + signal);
                    }
                }
            }
        })
        .map_err(failed)?;
    Ok(stopper)
}

fn name(signal: i32) -> &'static str {
    low_level::signal_name(signal).unwrap_or("signal")
}
