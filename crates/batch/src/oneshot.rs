//! The reply behind the futures of `load` and `store`.

use tokio::sync::oneshot;

use crate::service::{Loaded, Receipt, Reply, Service, Stored};

/// Answers one future: the [`Reply`] of a [`Batcher`](crate::Batcher) whose callers await.
pub struct Oneshot<S: Service>(Sender<S>);

enum Sender<S: Service> {
    Load(oneshot::Sender<Loaded<S>>),
    Store(oneshot::Sender<Stored<S>>),
}

impl<S: Service> Oneshot<S> {
    pub(crate) fn load() -> (Self, oneshot::Receiver<Loaded<S>>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Sender::Load(sender)), receiver)
    }

    pub(crate) fn store() -> (Self, oneshot::Receiver<Stored<S>>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Sender::Store(sender)), receiver)
    }
}

/// A caller that has gone is no error: its answer is dropped.
impl<S: Service> Reply<S> for Oneshot<S> {
    fn loaded(self, outcome: Loaded<S>) {
        if let Sender::Load(sender) = self.0 {
            let _ = sender.send(outcome);
        }
    }

    fn stored(self, outcome: Stored<S>, _receipt: Option<Receipt<S>>) {
        if let Sender::Store(sender) = self.0 {
            let _ = sender.send(outcome);
        }
    }
}

impl<S: Service> std::fmt::Debug for Oneshot<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Sender::Load(_) => "Oneshot(load)",
            Sender::Store(_) => "Oneshot(store)",
        })
    }
}
