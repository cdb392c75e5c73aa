//! Tables in Postgres: the real binary, real sockets and a private cluster.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod check;
mod commands;
mod order;
mod outages;
mod secrets;
mod session;
mod shown;
#[path = "../support/mod.rs"]
mod support;

use std::{
    net::TcpStream,
    sync::atomic::{AtomicU32, Ordering},
};

use busload_cluster::Cluster;
use support::{Client, Server};
use tempfile::TempDir;

/// A relation of its own in the cluster that all tests share.
struct Relation {
    cluster: &'static Cluster,
    name: String,
}

impl Relation {
    /// `columns` is what stands between the parentheses of CREATE TABLE.
    #[track_caller]
    fn new(columns: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let cluster = Cluster::shared().unwrap();
        let name = format!("t{}", COUNT.fetch_add(1, Ordering::Relaxed));
        cluster.execute(&format!("CREATE TABLE {name} ({columns})")).unwrap();
        Self { cluster, name }
    }

    /// `pk text`, `payload text`, with these rows; the payload `NULL` is one.
    #[track_caller]
    fn of_rows(rows: &[(&str, &str)]) -> Self {
        let relation = Self::new("pk text PRIMARY KEY, payload text");
        for (key, payload) in rows {
            let payload = if *payload == "NULL" { "NULL".to_owned() } else { format!("'{payload}'") };
            relation.execute(&format!("INSERT INTO @ VALUES ('{key}', {payload})"));
        }
        relation
    }

    /// Runs SQL in which `@` is the relation.
    #[track_caller]
    fn execute(&self, sql: &str) -> String {
        self.cluster.execute(&sql.replace('@', &self.name)).unwrap().trim_end().to_owned()
    }

    /// The argument of `--table`, with a query behind relation and key.
    fn table(&self, query: &str) -> String {
        format!("objects={}?relation={}&{query}", self.cluster.url(), self.name)
    }
}

/// A server, its data, and a client of it.
struct Served {
    server: Server,
    client: Client<TcpStream>,
    _data: TempDir,
}

impl Served {
    /// With one table in Postgres.
    #[track_caller]
    fn start(table: &str, arguments: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(&data.path().join("d"), &[&["--table", table], arguments].concat());
        let client = server.client();
        Self { server, client, _data: data }
    }

    /// One command as words between spaces; its reply as text.
    #[track_caller]
    fn run(&mut self, line: &str) -> String {
        self.client.text(&line.split(' ').collect::<Vec<_>>())
    }

    /// Commands and their replies, one pair per line: `GET objects:a -> 1`. Spaces around replies do not count.
    #[track_caller]
    fn check(&mut self, transcript: &str) {
        let mut wrong = Vec::new();
        for line in transcript.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (command, expected) = line.rsplit_once(" ->").unwrap();
            let reply = self.run(command.trim_end());
            if reply.trim() != expected.trim() {
                wrong.push(format!("{line}\n     got {reply}"));
            }
        }
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    }
}
