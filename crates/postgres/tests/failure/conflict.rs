//! Other transactions that are in the way.

use busload_postgres::{Error, Table};
use tokio::task::JoinHandle;

use crate::support::{Database, table, until, until_blocked, value};

fn set(table: &Table, key: &'static str, value: &'static str) -> JoinHandle<Result<(), Error>> {
    let table = table.clone();
    tokio::spawn(async move { table.set(key.as_bytes(), value).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_loses_a_deadlock_is_made_again() {
    let database = Database::new("deadlock");
    database.sql("INSERT INTO t VALUES ('a', '0'), ('b', '0')");
    // One connection and lane, and time to gather, so that both keys are in one batch.
    let table =
        table(&database.url(), "timeout=10s&connections=1&options=-c%20deadlock_timeout%3D300ms").await;
    let observer = database.plain().await;
    let mut other = database.plain().await;
    let transaction = other.transaction().await.unwrap();
    // Only ours ever looks for deadlocks, so it is ours that loses.
    transaction.batch_execute("SET LOCAL deadlock_timeout = '1h'").await.unwrap();
    transaction.batch_execute("UPDATE t SET v = 'other' WHERE k = 'b'").await.unwrap();
    let write_both = tokio::spawn({
        let table = table.clone();
        async move { tokio::join!(table.set(b"a", "ours"), table.set(b"b", "ours")) }
    });
    until_blocked(&observer, 1).await;
    transaction.batch_execute("UPDATE t SET v = 'other' WHERE k = 'a'").await.unwrap();
    transaction.commit().await.unwrap();
    let (a, b) = write_both.await.unwrap();
    a.unwrap();
    b.unwrap();
    assert!(table.stats().conflicts_retried >= 1);
    assert_eq!(database.sql("SELECT k, v FROM t ORDER BY k"), "a|ours\nb|ours\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serialization_failure_is_made_again() {
    let database = Database::new("serialization");
    database.sql("INSERT INTO t VALUES ('a', '0')");
    let isolation = "options=-c%20default_transaction_isolation%3Dserializable";
    let table = table(&database.url(), &format!("timeout=10s&{isolation}")).await;
    let observer = database.plain().await;
    let mut other = database.plain().await;
    let transaction = other.transaction().await.unwrap();
    transaction.batch_execute("UPDATE t SET v = 'other' WHERE k = 'a'").await.unwrap();
    let ours = set(&table, "a", "ours");
    until_blocked(&observer, 1).await;
    transaction.commit().await.unwrap();
    ours.await.unwrap().unwrap();
    assert_eq!(table.stats().conflicts_retried, 1);
    assert_eq!(value(&table, "a").await.unwrap().as_deref(), Some("ours"));
}

/// A trigger that fails so many times; what a sequence counts is not undone with the transaction.
fn fails(database: &Database, times: u32) {
    let sql = format!(
        "CREATE SEQUENCE failures; \
         CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN IF nextval('failures') <= {times} THEN \
         RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END IF; RETURN NEW; END$$; \
         CREATE TRIGGER fail BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION fail()"
    );
    database.sql(&sql);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicts_are_retried_several_times_but_not_forever() {
    let database = Database::new("retries");
    fails(&database, 3);
    let table = table(&database.url(), "timeout=10s").await;
    table.set(b"a", "1").await.unwrap();
    assert_eq!(table.stats().conflicts_retried, 3);
    database.sql("ALTER SEQUENCE failures MINVALUE -1000000 RESTART WITH -1000000");
    match table.set(b"b", "1").await {
        Err(Error::Statement { sqlstate, message }) => {
            assert_eq!((&*sqlstate, &*message), ("40001", "not now"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(value(&table, "b").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_locked_holds_up_its_lane_and_nobody_else() {
    let database = Database::new("locked");
    database.sql("INSERT INTO t VALUES ('a', '0')");
    let table = table(&database.url(), "timeout=500ms&connections=4&lanes=4").await;
    let observer = database.plain().await;
    let mut other = database.plain().await;
    let transaction = other.transaction().await.unwrap();
    transaction.batch_execute("UPDATE t SET v = 'other' WHERE k = 'a'").await.unwrap();
    let ours = set(&table, "a", "ours");
    until_blocked(&observer, 1).await;
    // Writes of other lanes and all reads of other keys go on.
    let mut done = 0;
    for number in 0..16 {
        let key = format!("key {number}");
        done += u32::from(table.set(key.as_bytes(), "x").await.is_ok());
        assert!(table.get(key.as_bytes()).await.is_ok());
        if done >= 3 {
            break;
        }
    }
    assert!(done >= 3);
    assert!(matches!(ours.await.unwrap(), Err(Error::OutcomeUnknown(_))));
    transaction.commit().await.unwrap();
    until("the lane is free again", async || table.set(b"a", "later").await.is_ok()).await;
    until_blocked(&observer, 0).await;
    assert_eq!(value(&table, "a").await.unwrap().as_deref(), Some("later"));
}
