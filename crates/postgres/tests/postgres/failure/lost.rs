//! Connections that end in the middle of a batch.

use busload_cluster::proxy::Direction::{self, ToClient, ToServer};
use busload_postgres::Error;
use tokio_postgres::Client;

use crate::failure::support::{
    BLOCKED, Database, all_up, prepared_everywhere, quiet_table, until, until_blocked, value,
};

const QUERY: &str = "timeout=60s&connections=2";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_whose_connection_is_cut_is_made_again_on_another_and_succeeds() {
    let database = Database::new("cut_reads");
    let long = "x".repeat(100_000);
    database.sql(&format!("INSERT INTO t VALUES ('a', '{long}')"));
    let proxy = database.proxy();
    let table = quiet_table(&database.url_at(proxy.port()), QUERY).await;
    // Before the request, before the reply, in the middle of the reply.
    for (direction, bytes) in [(ToServer, 0), (ToClient, 0), (ToClient, 5), (ToClient, 50_000)] {
        let before = table.stats();
        proxy.cut_after(direction, bytes);
        let found = value(&table, "a").await.unwrap().expect("there is a row");
        assert!(found == long, "{direction:?} {bytes}: {} bytes", found.len());
        assert_eq!(proxy.pending_cuts(), 0);
        assert_eq!(table.stats().reads_repeated, before.reads_repeated + 1);
        all_up(&table).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_connection_is_cut_has_an_unknown_outcome_and_is_not_made_again() {
    let database = Database::new("cut_writes");
    let proxy = database.proxy();
    let table = quiet_table(&database.url_at(proxy.port()), QUERY).await;
    database.sql("CREATE TABLE made (k text, v text)");
    database.sql(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN INSERT INTO made VALUES (NEW.k, NEW.v); RETURN NEW; END'; \
             CREATE TRIGGER note AFTER INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION note()",
    );
    table.set(b"a", "prepared").await.unwrap();
    let cases: [(Direction, &str, &str); 2] =
        [(ToServer, "never sent", ""), (ToClient, "done", "done\n")];
    for (direction, value, made) in cases {
        // Both connections must have prepared the statement, or the cut would hit its preparation.
        prepared_everywhere(&table).await;
        proxy.cut_after(direction, 0);
        let answer = table.set(b"a", value).await;
        assert!(matches!(answer, Err(Error::OutcomeUnknown(_))), "{answer:?}");
        let text = answer.unwrap_err().to_string();
        assert!(text.starts_with("outcome unknown: "), "{text}");
        all_up(&table).await;
        table.set(b"b", "later").await.unwrap();
        assert_eq!(database.sql(&format!("SELECT v FROM made WHERE v = '{value}'")), made);
    }
    assert_eq!(table.stats().outcomes_unknown, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_terminated_in_mid_batch_fails_no_read_and_leaves_writes_unknown() {
    let database = Database::new("terminated");
    database.sql("INSERT INTO t VALUES ('a', '0')");
    let table = quiet_table(&database.url(), QUERY).await;
    let observer = database.plain().await;
    let mut locker = database.plain().await;
    let lock = locker.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let reader = tokio::spawn({
        let table = table.clone();
        async move { value(&table, "a").await }
    });
    until_blocked(&observer, 1).await;
    let writer = tokio::spawn({
        let table = table.clone();
        async move { table.set(b"b", "1").await }
    });
    until_blocked(&observer, 2).await;
    terminate_blocked(&observer, 2).await;
    let answer = writer.await.unwrap();
    assert!(matches!(answer, Err(Error::OutcomeUnknown(_))), "{answer:?}");
    lock.commit().await.unwrap();
    assert_eq!(reader.await.unwrap().unwrap().as_deref(), Some("0"));
    assert_eq!(table.stats().reads_repeated, 1);
    assert_eq!(value(&table, "b").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_is_made_again_only_once() {
    let database = Database::new("once");
    let table = quiet_table(&database.url(), QUERY).await;
    let observer = database.plain().await;
    let mut locker = database.plain().await;
    let lock = locker.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let reader = tokio::spawn({
        let table = table.clone();
        async move { value(&table, "a").await }
    });
    // Connections that are opened again wait for the lock, too.
    until("the read is given up", async || {
        observer.batch_execute(&format!("{TERMINATE} {BLOCKED}")).await.unwrap();
        reader.is_finished()
    })
    .await;
    let answer = reader.await.unwrap();
    assert!(matches!(answer, Err(Error::ConnectionLost(_))), "{answer:?}");
    assert_eq!(table.stats().reads_repeated, 1);
    lock.commit().await.unwrap();
    until("it reads again", async || value(&table, "a").await.is_ok()).await;
}

const TERMINATE: &str = "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE";

/// Ends the sessions that wait for a lock, and waits until they are gone.
async fn terminate_blocked(observer: &Client, count: usize) {
    let sql = format!("{TERMINATE} {BLOCKED}");
    let ended: Vec<i32> =
        observer.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(ended.len(), count);
    until("they are gone", async || {
        let sql = "SELECT FROM pg_stat_activity WHERE pid = ANY ($1)";
        observer.query(sql, &[&ended]).await.unwrap().is_empty()
    })
    .await;
}
