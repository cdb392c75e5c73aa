//! Postgres is down, restarted, killed.

use busload_cluster::StopMode;
use busload_postgres::{Error, Table};

use crate::failure::{
    load::Load,
    support::{all_up, blocking, cluster, settings, table, timed, until, value},
};

const QUICK: &str = "timeout=500ms&connections=3";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_finds_postgres_down_says_so_at_once_and_recovers_by_itself() {
    let cluster = cluster();
    cluster.stop(StopMode::Fast).unwrap();
    let table = Table::start(settings(&cluster.url(), "timeout=5s"));
    let cannot = |error: &Error| {
        let text = error.to_string();
        assert!(matches!(error, Error::CannotConnect(_)), "{error:?}");
        assert!(text.starts_with("cannot connect to postgres at 127.0.0.1:"), "{text}");
        assert!(text.contains("refused"), "{text}");
    };
    cannot(&table.connected().await.unwrap_err());
    cannot(&table.get(b"a").await.unwrap_err());
    let (answer, took) = timed(table.set(b"a", "1")).await;
    cannot(&answer.unwrap_err());
    assert!(took.as_millis() < 1000, "{took:?}");
    blocking(|| cluster.start()).unwrap();
    until("a write succeeds", async || table.set(b"a", "1").await.is_ok()).await;
    assert_eq!(value(&table, "a").await.unwrap().as_deref(), Some("1"));
    all_up(&table).await;
    assert_eq!(table.stats().pool.last_error, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_never_connected_can_be_closed() {
    let cluster = cluster();
    cluster.stop(StopMode::Immediate).unwrap();
    let table = Table::start(settings(&cluster.url(), ""));
    let (_, took) = timed(table.close()).await;
    assert!(took.as_millis() < 2000, "{took:?}");
    assert!(table.get(b"a").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_and_kills_under_load_lose_nothing_that_was_acknowledged() {
    let cluster = cluster();
    let table = table(&cluster.url(), QUICK).await;
    let load = Load::start(std::slice::from_ref(&table), 12, 24);
    load.progress().await;
    let ends = [
        (|cluster| cluster.stop(StopMode::Fast)) as fn(&busload_cluster::Cluster) -> _,
        busload_cluster::Cluster::kill,
        |cluster| cluster.stop(StopMode::Immediate),
        busload_cluster::Cluster::kill,
    ];
    for end in ends {
        blocking(|| end(&cluster).and_then(|()| cluster.start())).unwrap();
        load.progress().await;
    }
    all_up(&table).await;
    let stats = table.stats();
    let report = load.check(&table).await;
    println!("{} reads, {} writes, {} errors", report.reads, report.writes, report.errors.len());
    assert!(report.has_error(|error| matches!(error, Error::CannotConnect(_))));
    assert!(stats.pool.lost >= 4, "{:?}", stats.pool);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_at_a_kill_is_unknown_or_done_never_reported_as_not_done() {
    let cluster = cluster();
    let table = table(&cluster.url(), "timeout=1s&connections=4").await;
    let mut unknown = 0;
    // Writes without a pause, so that each kill hits some in flight.
    for _ in 0..3 {
        let before = table.stats().rows_written;
        let load = Load::start(std::slice::from_ref(&table), 64, 0);
        until("writes have begun", async || table.stats().rows_written > before).await;
        blocking(|| cluster.kill().and_then(|()| cluster.start())).unwrap();
        until("writes are made", async || table.set(b"other", "x").await.is_ok()).await;
        let report = load.check(&table).await;
        unknown +=
            report.errors.iter().filter(|error| matches!(error, Error::OutcomeUnknown(_))).count();
        cluster.execute("TRUNCATE t").unwrap();
    }
    assert!(unknown > 0);
}
