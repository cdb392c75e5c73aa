//! Helpers of these tests.

use std::sync::OnceLock;

use busload_batch::{Loaded, Receipt, Reply, Stored};
use busload_cluster::Cluster;
use busload_postgres::{
    Environment, Error, Options, PgService, Row, Settings, Table, read_error, write_error,
};
use tokio::sync::mpsc::UnboundedSender;

pub fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<&'static Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::shared().expect("a cluster starts"))
}

/// Runs SQL as the superuser. Rows come as lines, values separated by `|`.
#[track_caller]
pub fn sql(sql: &str) -> String {
    cluster().execute(sql).expect(sql).trim_end().to_owned()
}

pub fn settings(query: &str) -> Settings {
    settings_as("busload", query)
}

/// Returns settings for another role. The timeout is longer than a machine stands still.
pub fn settings_as(user: &str, query: &str) -> Settings {
    let url = cluster().url().replace("//busload@", &format!("//{user}@"));
    let url = format!("{url}?timeout=60s&connect_timeout=60s&{query}");
    let options = Options { url: Some(url), ..Options::default() };
    options.resolve("test", &Environment::empty()).expect(query)
}

/// Starts a table and waits until it is connected.
pub async fn table(query: &str) -> Table {
    connected(settings(query)).await
}

pub async fn connected(settings: Settings) -> Table {
    let table = Table::start(settings);
    table.connected().await.expect("it connects");
    table
}

/// Returns the values of a row, as text; `None` is NULL.
pub fn texts(row: &Row) -> Vec<Option<String>> {
    row.values()
        .map(|value| value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        .collect()
}

/// Returns the only value of the row under a key.
pub async fn value(table: &Table, key: &str) -> Option<String> {
    let row = table.get(key.as_bytes()).await.expect(key).expect("there is a row");
    assert_eq!(row.len(), 1);
    texts(&row).remove(0)
}

/// Returns a data error's SQLSTATE; any other answer fails the test.
#[track_caller]
pub fn sqlstate<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Err(Error::Data { sqlstate, .. }) => sqlstate.to_string(),
        other => panic!("expected an error of Postgres, got {other:?}"),
    }
}

/// Sends answers to a channel with the request's number, as a server would to its connections.
#[derive(Debug)]
pub struct ToChannel(pub usize, pub UnboundedSender<(usize, Answer)>);

#[derive(Debug)]
pub enum Answer {
    Read(Result<Option<Row>, Error>),
    Written(Result<u64, Error>),
}

impl Reply<PgService> for ToChannel {
    fn loaded(self, outcome: Loaded<PgService>) {
        let _ = self.1.send((self.0, Answer::Read(outcome.map_err(read_error))));
    }

    fn stored(self, outcome: Stored<PgService>, receipt: Option<Receipt<PgService>>) {
        let count = outcome.map_err(write_error);
        let count = count.and_then(|outcome| outcome.count(&receipt.expect("it is written")));
        let _ = self.1.send((self.0, Answer::Written(count)));
    }
}
