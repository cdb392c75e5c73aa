//! Drops values that take long to drop (returning hundreds of megabytes to the system) on a thread
//! that nobody waits for.

use std::{
    any::Any,
    sync::{
        OnceLock,
        mpsc::{Sender, channel},
    },
};

use crate::limits::BYTES_FREED_INLINE;

/// Drops the value on the reaper's thread, or here when that thread cannot be started.
pub fn drop_elsewhere<T: Any + Send>(value: T) {
    static REAPER: OnceLock<Option<Sender<Box<dyn Any + Send>>>> = OnceLock::new();
    let reaper = REAPER.get_or_init(|| {
        let (sender, receiver) = channel::<Box<dyn Any + Send>>();
        let thread = std::thread::Builder::new()
            .name("reaper".into())
            .spawn(move || receiver.into_iter().for_each(drop));
        thread.ok().map(|_| sender)
    });
    if let Some(sender) = reaper {
        // A failed send returns the value, which is then dropped here.
        let _ = sender.send(Box::new(value));
    }
}

/// Drops a value that holds this much memory: on the reaper's thread if it is so large that
/// dropping it here would delay the caller.
pub fn drop_sized<T: Any + Send>(value: T, bytes: usize) {
    if BYTES_FREED_INLINE < bytes {
        drop_elsewhere(value);
    }
}
