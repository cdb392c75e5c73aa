//! busload's library in this process: its own dispatch policy, or the fixed windows of the
//! published design.

use std::time::Duration;

use anyhow::{Context, Result};
use busload_batch::DispatchPolicy;
use busload_postgres::{Environment, Error, Options, Table};

use super::{
    load::{Request, Target},
    rows::{check, key, upserted},
};
use crate::failures::Failure;

/// A table of the library.
pub struct Library {
    table: Table,
}

impl Library {
    /// Connects to the table at `url`, and sends batches by busload's own policy or with so many
    /// keys or after so long. Must be called on the runtime of the load.
    pub async fn open(url: String, window: Option<(usize, Duration)>) -> Result<Self> {
        let options = Options { url: Some(url), ..Options::default() };
        let settings = options.resolve("bench", &Environment::of_process());
        let mut settings = settings.context("busload's library")?;
        if let Some((keys, wait)) = window {
            settings.queue.batch_entries_max = keys;
            settings.queue.dispatch = DispatchPolicy::Window { entries: keys, wait };
        }
        let table = Table::start(settings);
        table.connected().await.context("busload's library")?;
        Ok(Self { table })
    }
}

impl Target for Library {
    async fn ask(&self, Request { row, version, .. }: Request) -> Result<u64, Failure> {
        let key = key(row);
        let refused = |error: Error| Failure::Refused(error.to_string());
        let Some(version) = version else {
            let found = self.table.get(key.as_bytes()).await.map_err(refused)?;
            return check(row, found.as_ref().and_then(|found| found.get(0)));
        };
        let written = self.table.set(key.as_bytes(), upserted(row, version)).await;
        written.map(|()| 1).map_err(refused)
    }
}
