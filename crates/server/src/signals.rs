//! Signals of the operating system: the first SIGTERM or SIGINT asks for a clean shutdown, the
//! second ends the process at once.
//!
//! SIGHUP asks for a reload, which another thread does. SIGPIPE and SIGXFSZ do nothing: the writes
//! that cause them report the error.

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

use crate::{failure::Failure, service_manager::ServiceManager};

/// Exit code that a shell reports for a process killed by a signal, less the signal's number.
const KILLED_BY: i32 = 128;

/// Handle by which the pipeline tells the signal thread whom to wake.
#[derive(Clone, Debug, Default)]
pub struct Stopper {
    waker: Arc<OnceLock<Waker>>,
}

impl Stopper {
    /// Makes the first signal from now on shut the pipeline down cleanly; this waker wakes it.
    pub fn arm(&self, waker: Waker) {
        // Once per process.
        let _ = self.waker.set(waker);
    }
}

/// Starts the thread that waits for signals.
pub fn watch(stop: Arc<Stop>, manager: ServiceManager) -> Result<Stopper, Failure> {
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
                    // Before the start has ended the manager would take READY for its end.
                    None if signal == SIGHUP => log::info!("SIGHUP is ignored during a start"),
                    Some(_) if signal == SIGHUP => {
                        log::info!("SIGHUP: reading the configuration again");
                        stop.reloads.request();
                    }
                    _ if signal == SIGXFSZ => {
                        log::error!("a file may not grow: the limit of ulimit -f is reached")
                    }
                    Some(waker) if !asked => {
                        asked = true;
                        log::info!("{}: stopping", name(signal));
                        stop.stop();
                        waker.wake_by_ref();
                        manager.stopping();
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
