//! busload's library in this process: its own dispatch policy, or the fixed windows of the
//! published design.

use std::time::Duration;

use anyhow::{Context, Result};
use busload_batch::DispatchPolicy;
use busload_postgres::{Environment, Options, Table};
use bytes::Bytes;

use super::{
    arguments::Postgres,
    database::Database,
    plain::check,
    rows::{Key, Payload},
    tasks::Requests,
};
use crate::failures::Failure;

/// Dispatch policy of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The policy of busload itself.
    Own,
    /// Dispatches with so many keys, or after so long.
    Window { keys: usize, wait: Duration },
}

/// The table as a URL, for the library and for the server's flag.
pub fn table_url(arguments: &Postgres, database: &Database, rule: Rule) -> String {
    let (url, relation) = (&database.url, &database.relation);
    let join = if url.contains('?') { '&' } else { '?' };
    let mut url = format!("{url}{join}relation={relation}&key=pk&columns=payload&writable=true");
    let connections = match rule {
        Rule::Own => arguments.busload_connections,
        Rule::Window { .. } => Some(arguments.window_connections),
    };
    if let Some(connections) = connections {
        url.push_str(&format!("&connections={connections}"));
    }
    if let (Rule::Own, Some(options)) = (rule, &arguments.table_options) {
        url.push_str(&format!("&{options}"));
    }
    url
}

/// A table of the library.
pub struct Library {
    table: Table,
}

impl Library {
    /// Connects. Must be called on the runtime of the load.
    pub async fn open(arguments: &Postgres, database: &Database, rule: Rule) -> Result<Self> {
        let url = Some(table_url(arguments, database, rule));
        let options = Options { url, ..Options::default() };
        let mut settings =
            options.resolve("bench", &Environment::of_process()).context("busload's library")?;
        if let Rule::Window { keys, wait } = rule {
            settings.queue.batch_entries_max = keys;
            settings.queue.dispatch = DispatchPolicy::Window { entries: keys, wait };
        }
        let table = Table::start(settings);
        table.connected().await.context("busload's library")?;
        Ok(Self { table })
    }

    pub async fn close(&self) {
        self.table.close().await;
    }
}

impl Requests for Library {
    async fn read(&self, row: u64) -> Result<(), Failure> {
        let found = self.table.get(Key::of(row).bytes()).await.map_err(refused)?;
        check(row, found.as_ref().and_then(|found| found.get(0)))
    }

    async fn upsert(&self, row: u64, version: u64) -> Result<(), Failure> {
        let payload = Bytes::copy_from_slice(Payload::upserted(row, version).bytes());
        self.table.set(Key::of(row).bytes(), payload).await.map_err(refused)
    }
}

fn refused(error: busload_postgres::Error) -> Failure {
    Failure::Refused(error.to_string())
}
