//! Tests of Postgres tables: the real binary, real sockets and a private cluster.

mod check;
mod commands;
mod order;
mod outages;
mod secrets;
mod session;
mod shown;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::served::Served;
use busload_cluster::Cluster;

/// A relation of one test, in the cluster that all tests share.
struct Relation {
    cluster: &'static Cluster,
    name: String,
}

impl Relation {
    /// Creates a relation; `columns` stands between the parentheses of CREATE TABLE.
    #[track_caller]
    fn new(columns: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let cluster = Cluster::shared().unwrap();
        let name = format!("t{}", COUNT.fetch_add(1, Ordering::Relaxed));
        cluster.execute(&format!("CREATE TABLE {name} ({columns})")).unwrap();
        Self { cluster, name }
    }

    /// Creates a relation of `pk text` and `payload text` with these rows; the payload `NULL` is
    /// the null value.
    #[track_caller]
    fn of_rows(rows: &[(&str, &str)]) -> Self {
        let relation = Self::new("pk text PRIMARY KEY, payload text");
        for (key, payload) in rows {
            let payload =
                if *payload == "NULL" { "NULL".to_owned() } else { format!("'{payload}'") };
            relation.execute(&format!("INSERT INTO @ VALUES ('{key}', {payload})"));
        }
        relation
    }

    /// Runs SQL in which `@` is the relation.
    #[track_caller]
    fn execute(&self, sql: &str) -> String {
        self.cluster.execute(&sql.replace('@', &self.name)).unwrap().trim_end().to_owned()
    }

    /// Returns the argument of `--table` for the relation, with this query. Unless the query sets a
    /// timeout, it is longer than anything takes on a slow machine.
    fn table(&self, query: &str) -> String {
        let time = if query.contains("timeout=") { "" } else { "&timeout=60s" };
        format!("objects={}?relation={}&{query}{time}", self.cluster.url(), self.name)
    }
}
