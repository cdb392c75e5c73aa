//! Runs work on the threads of the stores, because those of HTTP only send and receive.

use tokio::{runtime::Handle, task::JoinHandle};
use tonic::Status as Refusal;

/// Handle of a task that is aborted when the handle is dropped.
pub struct AbortOnDrop<T>(pub JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs work on this runtime and returns its result, or an error if busload is shutting down and
/// there is no runtime. The work starts at the first poll and then needs no further ones, so it
/// frees what it holds however slowly the caller takes the result.
pub async fn run<T: Send + 'static>(
    runtime: Option<Handle>,
    work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    let runtime = runtime.ok_or_else(shutting_down)?;
    let mut task = AbortOnDrop(runtime.spawn(work));
    match (&mut task.0).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => {
            Err(Refusal::internal("this is a bug of busload, of which its log says more"))
        }
        Err(_) => Err(shutting_down()),
    }
}

fn shutting_down() -> Refusal {
    Refusal::unavailable("busload is shutting down")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::{
        runtime::{Builder, Runtime},
        sync::Semaphore,
    };
    use tonic::Code;

    use super::*;

    fn other() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).build().unwrap()
    }

    fn wait<T>(work: impl Future<Output = T>) -> T {
        Builder::new_current_thread().build().unwrap().block_on(work)
    }

    #[test]
    fn work_goes_on_though_nobody_polls_and_ends_when_nobody_waits() {
        let (stores, permits) = (other(), Arc::new(Semaphore::new(1)));
        let (begun, permit) =
            (Arc::new(Semaphore::new(0)), Arc::clone(&permits).try_acquire_owned().unwrap());
        let begin = Arc::clone(&begun);
        let work = async move {
            let _permit = permit;
            begin.add_permits(1);
            std::future::pending::<Result<(), Refusal>>().await
        };
        wait(async {
            let mut work = Box::pin(run(Some(stores.handle().clone()), work));
            assert!(futures_util::poll!(&mut work).is_pending());
            begun.acquire().await.unwrap().forget();
            assert_eq!(permits.available_permits(), 0);
            drop(work);
            permits.acquire().await.unwrap().forget();
        });
    }

    #[test]
    fn work_that_ends_without_a_result_is_an_error() {
        let code = |outcome: Result<(), Refusal>| outcome.unwrap_err().code();
        assert_eq!(code(wait(run(None, async { Ok(()) }))), Code::Unavailable);
        let stores = other();
        let bug = run(Some(stores.handle().clone()), async { panic!("meant for a test") });
        assert_eq!(code(wait(bug)), Code::Internal);
        let refused = run(Some(stores.handle().clone()), async { Err(Refusal::data_loss("")) });
        assert_eq!(code(wait(refused)), Code::DataLoss);
        let never = run(Some(stores.handle().clone()), std::future::pending::<Result<(), _>>());
        stores.shutdown_background();
        assert_eq!(code(wait(never)), Code::Unavailable);
    }
}
