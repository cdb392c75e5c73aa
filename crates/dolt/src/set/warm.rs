//! Brings the files of many stores to local disk.

use std::sync::Mutex;

use busload_objects::Progress;
use futures_util::{StreamExt, stream};

use super::StoreSet;
use crate::{
    Error,
    jobs::warm::ProgressSum,
    limits::{WARMING_FAILURES_MAX, WARMING_STORES_MAX},
};

/// Outcome of a warming of stores.
#[derive(Clone, Debug, Default)]
pub struct Warmed {
    /// Bytes brought to disk, or found there.
    pub progress: Progress,
    /// Number of stores that are on disk now.
    pub stores: usize,
    /// Number of stores that are not.
    pub failed: usize,
    /// Some of these, and the reasons.
    pub failures: Vec<(String, Error)>,
}

impl StoreSet {
    /// Opens stores and brings all files of their current versions to disk, a few stores at a time.
    /// Dropping the future ends it. The total grows as stores are opened.
    pub async fn warm(
        &self,
        names: Vec<String>,
        report: &mut (dyn FnMut(Progress) + Send),
    ) -> Warmed {
        let (sum, claimed) = (ProgressSum::new(0), Mutex::new(0));
        let mut warmed = Warmed::default();
        let stores = names.into_iter().map(|name| {
            let (sum, claimed) = (&sum, &claimed);
            async move {
                let outcome = self.warm_one(&name, sum, claimed).await;
                (name, outcome)
            }
        });
        let mut stores = std::pin::pin!(stream::iter(stores).buffer_unordered(WARMING_STORES_MAX));
        loop {
            tokio::select! {
                ended = stores.next() => match ended {
                    Some((_, Ok(()))) => warmed.stores += 1,
                    Some((name, Err(error))) => warmed.add_failure(name, error),
                    None => break,
                },
                () = sum.changed() => {}
            }
            report(sum.get());
        }
        warmed.progress = sum.get();
        warmed
    }

    async fn warm_one(
        &self,
        name: &str,
        sum: &ProgressSum,
        claimed: &Mutex<u64>,
    ) -> Result<(), Error> {
        let store = self.get(name)?;
        store.opened().await?;
        let bytes = store.wanted_bytes();
        self.claim(bytes, claimed)?;
        sum.add_total(bytes);
        let mut before = Progress::default();
        let outcome = store
            .warm(&mut |now| {
                sum.add(before, now);
                before = now;
            })
            .await;
        outcome.map(drop)
    }

    /// Claims disk for the files of a store, beside those of the stores before it.
    fn claim(&self, bytes: u64, claimed: &Mutex<u64>) -> Result<(), Error> {
        let Some(store_bytes_max) = self.cache().store_bytes_max() else { return Ok(()) };
        if store_bytes_max < bytes {
            return Err(Error::Refused(format!(
                "the table files have {bytes} bytes, but those of one store may take only \
                 {store_bytes_max}: raise `disk` or `store_disk_max`"
            )));
        }
        let disk_bytes_max = self.shared.settings.store.disk_bytes_max;
        let mut claimed = claimed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if disk_bytes_max < *claimed + bytes {
            return Err(Error::Refused(format!(
                "the table files have {bytes} bytes, those of the stores before it have \
                 {claimed}, and the cache may take only {disk_bytes_max}: raise `disk`"
            )));
        }
        *claimed += bytes;
        Ok(())
    }
}

impl Warmed {
    fn add_failure(&mut self, name: String, error: Error) {
        self.failed += 1;
        if self.failures.len() < WARMING_FAILURES_MAX {
            self.failures.push((name, error));
        }
    }
}
