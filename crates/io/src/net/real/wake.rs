//! Waker of a poll: one system call per poll that must be woken, however often it is woken.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Wake,
};

use mio::{Registry, Token};

#[derive(Debug)]
pub(super) struct PollWaker {
    /// The system call was made and the poll has not seen it yet.
    woken: AtomicBool,
    waker: mio::Waker,
}

impl PollWaker {
    pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        Ok(Self { woken: AtomicBool::new(false), waker: mio::Waker::new(registry, token)? })
    }

    /// Notes that the poll has seen the wake. From here on the polling thread sees everything that
    /// the wakers published before.
    pub(super) fn reset(&self) {
        self.woken.swap(false, Ordering::AcqRel);
    }
}

impl Wake for PollWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel)
            && let Err(error) = self.waker.wake()
        {
            self.woken.store(false, Ordering::Release);
            log::error!("cannot wake the socket loop: {error}");
        }
    }
}
