//! Postgres, or the network to it, no longer answers.

use std::time::Duration;

use busload_cluster::proxy::Direction;
use busload_postgres::{Error, Table};
use tokio::task::JoinSet;

use crate::failure::{
    load::Load,
    support::{
        Database, LONG, SLACK, all_up, blocking, cluster, prepared_everywhere, quiet_table, table,
        timed, until, value,
    },
};

const TIMEOUT: Duration = Duration::from_millis(300);
const QUERY: &str = "timeout=300ms&connections=2";

/// Reads many keys at once; every caller must get an answer within its deadline.
async fn all_hear_in_time(table: &Table) -> Vec<Error> {
    let mut calls = JoinSet::new();
    for number in 0..200 {
        let (table, key) = (table.clone(), format!("key {number}"));
        calls.spawn(async move {
            let call = async {
                if number % 2 == 0 {
                    value(&table, &key).await.map(drop)
                } else {
                    table.set(key.as_bytes(), "x").await
                }
            };
            timed(call).await
        });
    }
    let answers = calls.join_all().await;
    let slowest = answers.iter().map(|(_, took)| *took).max().unwrap();
    assert!(slowest < TIMEOUT + SLACK, "{slowest:?}");
    answers.into_iter().filter_map(|(answer, _)| answer.err()).collect()
}

fn is_late(error: &Error) -> bool {
    matches!(error, Error::TooLate | Error::OutcomeUnknown(_))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_hears_in_time_from_a_postgres_that_hangs_and_it_recovers() {
    let cluster = cluster();
    let hanging = table(&cluster.url(), QUERY).await;
    // Another table of the process, at another server.
    let neighbour = table(&Database::new("neighbour").url(), "timeout=60s").await;

    blocking(|| cluster.pause()).unwrap();
    let errors = all_hear_in_time(&hanging).await;
    assert_eq!(errors.len(), 200);
    assert!(errors.iter().all(is_late), "{errors:?}");
    let (answer, took) = timed(value(&neighbour, "a")).await;
    assert_eq!(answer.unwrap(), None);
    assert!(took < SLACK, "{took:?}");
    // Longer than the table keeps a silent connection.
    until("connections are given up", async || {
        all_hear_in_time(&hanging).await;
        hanging.stats().pool.up == 0
    })
    .await;
    blocking(|| cluster.resume()).unwrap();
    until("a read succeeds", async || hanging.get(b"a").await.is_ok()).await;
    all_up(&hanging).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_under_load_lose_nothing_and_hold_up_nobody() {
    let cluster = cluster();
    let table = table(&cluster.url(), QUERY).await;
    let load = Load::start(std::slice::from_ref(&table), 12, 24);
    for pause in [TIMEOUT / 2, 2 * TIMEOUT, 8 * TIMEOUT] {
        load.progress().await;
        blocking(|| cluster.pause()).unwrap();
        tokio::time::sleep(pause).await;
        blocking(|| cluster.resume()).unwrap();
    }
    load.progress().await;
    let report = load.check(&table).await;
    println!("{} reads, {} writes, {} errors", report.reads, report.writes, report.errors.len());
    assert!(report.has_error(is_late));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_way_that_swallows_replies_is_given_up() {
    let database = Database::new("swallowed");
    let proxy = database.proxy();
    // Two connections: with one, a write would wait for the answer to its PREPARE.
    let table = quiet_table(&database.url_at(proxy.port()), "timeout=4s&connections=2").await;
    prepared_everywhere(&table).await;
    proxy.stall(Direction::ToClient);
    // Of another key: a write waits for the earlier reads of its key.
    assert_eq!(table.get(b"b").await.unwrap_err(), Error::TooLate);
    assert!(matches!(table.set(b"a", "2").await, Err(Error::OutcomeUnknown(_))));
    assert!(proxy.wait_held(Direction::ToClient, LONG));
    // The server has made the write.
    until("it was written", async || database.sql("SELECT v FROM t WHERE k = 'a'") == "2\n").await;
    proxy.resume();
    until("a read succeeds", async || value(&table, "a").await.is_ok()).await;
    assert_eq!(value(&table, "a").await.unwrap().as_deref(), Some("2"));
}
