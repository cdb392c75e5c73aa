//! Other transactions that conflict.

use busload_postgres::{Error, Table};
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::{Client, Transaction};

use crate::failure::support::{Database, table, until, until_blocked, value};

fn set(table: &Table, key: &'static str, value: &'static str) -> JoinHandle<Result<(), Error>> {
    let table = table.clone();
    tokio::spawn(async move { table.set(key.as_bytes(), value).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_loses_a_deadlock_is_made_again() {
    let database = Database::new("deadlock");
    database.sql("INSERT INTO t VALUES ('a', '0'), ('b', '0'), ('c', '0'), ('first', '0')");
    let options = "options=-c%20deadlock_timeout%3D100ms";
    let table = table(&database.url(), &format!("timeout=60s&connections=1&{options}")).await;
    let observer = database.plain().await;
    let (mut holder, mut gate, mut other) =
        (database.plain().await, database.plain().await, database.plain().await);
    let held = locked(&mut holder, "first").await;
    let gate = locked(&mut gate, "b").await;
    let transaction = locked(&mut other, "c").await;
    // Only our session ever checks for deadlocks, so it is ours that loses.
    transaction.batch_execute("SET LOCAL deadlock_timeout = '1h'").await.unwrap();
    // While the only connection is busy all three are queued, so that they are in one batch.
    let first = set(&table, "first", "ours");
    until_blocked(&observer, 1).await;
    let ours = ["a", "b", "c"].map(|key| set(&table, key, "ours"));
    until("all wait", async || table.stats().waiting == 3).await;
    held.commit().await.unwrap();
    first.await.unwrap().unwrap();
    // A session checks for deadlocks only once in each wait. So ours, which has `a`, waits for `b`
    // until the other waits for `a`, and then for `c`: the deadlock exists when ours begins to
    // wait, however slow anybody is.
    until_blocked(&observer, 1).await;
    let crossing = async {
        transaction.batch_execute("UPDATE t SET v = 'crossing' WHERE k = 'a'").await.unwrap();
        transaction.commit().await.unwrap();
    };
    let opening = async {
        until("the other is blocked", async || {
            let asked =
                "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE \
                 '%crossing%'";
            !observer.query(asked, &[]).await.expect("answers").is_empty()
        })
        .await;
        gate.commit().await.unwrap();
    };
    tokio::join!(crossing, opening);
    for answer in ours {
        answer.await.unwrap().unwrap();
    }
    assert!(table.stats().conflicts_retried >= 1);
    assert_eq!(
        database.sql("SELECT k, v FROM t ORDER BY k"),
        "a|ours\nb|ours\nc|ours\nfirst|ours\n"
    );
}

/// Returns a transaction that has changed a row.
async fn locked<'a>(client: &'a mut Client, key: &str) -> Transaction<'a> {
    let transaction = client.transaction().await.unwrap();
    let change = format!("UPDATE t SET v = 'other' WHERE k = '{key}'");
    transaction.batch_execute(&change).await.unwrap();
    transaction
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serialization_failure_is_made_again() {
    let database = Database::new("serialization");
    database.sql("INSERT INTO t VALUES ('a', '0')");
    let isolation = "options=-c%20default_transaction_isolation%3Dserializable";
    let table = table(&database.url(), &format!("timeout=60s&{isolation}")).await;
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

/// Creates a trigger that fails `times` times; it counts with a sequence, which no rollback undoes.
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
    let table = table(&database.url(), "timeout=60s").await;
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
async fn a_row_that_is_locked_holds_up_its_partition_and_nobody_else() {
    let database = Database::new("locked");
    database.sql("INSERT INTO t VALUES ('a', '0')");
    let table = table(&database.url(), "timeout=5s&connections=4").await;
    let observer = database.plain().await;
    let mut other = database.plain().await;
    let transaction = other.transaction().await.unwrap();
    transaction.batch_execute("UPDATE t SET v = 'other' WHERE k = 'a'").await.unwrap();
    let ours = set(&table, "a", "ours");
    until_blocked(&observer, 1).await;
    // Writes of other partitions and all reads of other keys go on.
    let mut writes = JoinSet::new();
    for number in 0..16 {
        let table = table.clone();
        writes.spawn(async move { table.set(format!("key {number}").as_bytes(), "x").await });
    }
    for number in 0..16 {
        assert_eq!(value(&table, &format!("other {number}")).await, Ok(None));
    }
    for _ in 0..3 {
        assert_eq!(writes.join_next().await.expect("there are more").unwrap(), Ok(()));
    }
    assert!(!ours.is_finished());
    // The server ends the statement a little later than its caller hears; after a pause of the
    // machine both may come at once.
    assert!(matches!(ours.await.unwrap(), Err(Error::OutcomeUnknown(_) | Error::TooLate)));
    transaction.commit().await.unwrap();
    until("the write partition is free again", async || table.set(b"a", "later").await.is_ok())
        .await;
    until_blocked(&observer, 0).await;
    assert_eq!(value(&table, "a").await.unwrap().as_deref(), Some("later"));
}
