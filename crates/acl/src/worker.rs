//! Threads for what takes long: hashing passwords, reading and writing the file of users.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    task::{Context, Poll, Waker},
    thread,
};

use crate::limits::{TASKS_MAX, WORKER_THREADS};

type Task = Box<dyn FnOnce() + Send>;

/// Error: too many tasks wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Worker threads, which start with the first task.
#[derive(Debug, Default)]
pub struct Workers {
    tasks: OnceLock<SyncSender<Task>>,
}

impl Workers {
    /// Has a worker do this.
    pub fn run<T: Clone + Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Promise<T>, Busy> {
        let promise = Promise::new();
        let kept = promise.clone();
        let tasks = self.tasks.get_or_init(start);
        match tasks.try_send(Box::new(move || kept.keep(task()))) {
            Ok(()) => Ok(promise),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(Busy),
        }
    }
}

fn start() -> SyncSender<Task> {
    let (sender, receiver) = sync_channel(TASKS_MAX);
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..WORKER_THREADS {
        let receiver = Arc::clone(&receiver);
        let body = move || {
            while let Some(task) = next(&receiver) {
                task();
            }
        };
        // With one thread fewer the others do its work; with none tasks are refused.
        let _ = thread::Builder::new().name("passwords".into()).spawn(body);
    }
    sender
}

fn next(receiver: &Mutex<Receiver<Task>>) -> Option<Task> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// The result of a task, once it is done. It can be asked for, and awaited.
#[derive(Debug)]
pub struct Promise<T>(Arc<Mutex<PromiseState<T>>>);

#[derive(Debug)]
struct PromiseState<T> {
    value: Option<T>,
    wakers: Vec<Waker>,
}

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone> Promise<T> {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(PromiseState { value: None, wakers: Vec::new() })))
    }

    /// Returns the result, if the task is done.
    pub fn get(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).value.clone()
    }

    fn keep(&self, value: T) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.value = Some(value);
        std::mem::take(&mut state.wakers).into_iter().for_each(Waker::wake);
    }
}

impl<T: Clone> Future for Promise<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = state.value.clone() {
            return Poll::Ready(value);
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            state.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}
