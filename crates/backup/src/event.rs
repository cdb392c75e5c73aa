//! Events of a backup or a restore while it lasts.

/// News of work in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Number of bytes to be read or copied in all.
    Total(u64),
    /// Number of bytes read or copied since the last event.
    Done(u64),
    /// Something is not as it should be, and the work goes on.
    Warning(String),
}

/// Callback that takes events.
pub(crate) type Say<'a> = dyn FnMut(Event) + 'a;
