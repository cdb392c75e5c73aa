//! One bad item in a batch.

use busload_postgres::{Error, Table};
use tokio::task::JoinSet;

use crate::failure::support::{Database, table_of, until};

/// Writes a bad item between good ones, all in one batch, and returns the bad one's error.
async fn among_others(database: &Database, query: &str, column: &str, bad: (&str, &str)) -> Error {
    let table = table_of(&database.url(), &format!("{query}&connections=1&timeout=60s")).await;
    // While the only connection is busy, the others are queued.
    let mut locker = database.plain().await;
    let lock = locker.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let before = table.stats().queue.writes.batches;
    let first = tokio::spawn(set(table.clone(), "0".to_owned(), column.to_owned(), "1".to_owned()));
    until("the first is under way", async || table.stats().queue.writes.batches == before + 1)
        .await;
    let mut others = JoinSet::new();
    for number in 1..10 {
        let is_bad = number == 5;
        let (key, value) = if is_bad { bad } else { ("", "1") };
        let key = if key.is_empty() { number.to_string() } else { key.to_owned() };
        let call = set(table.clone(), key, column.to_owned(), value.to_owned());
        others.spawn(async move { (is_bad, call.await) });
    }
    until("the others wait", async || table.stats().waiting == 9).await;
    lock.commit().await.unwrap();
    first.await.unwrap().unwrap();
    let (bad, good): (Vec<_>, Vec<_>) =
        others.join_all().await.into_iter().partition(|(is_bad, _)| *is_bad);
    good.into_iter().for_each(|(_, answer)| answer.expect("a neighbour succeeds"));
    assert!(table.stats().sent_alone >= 9);
    bad.into_iter().next().and_then(|(_, answer)| answer.err()).expect("the bad one fails")
}

async fn set(table: Table, key: String, column: String, value: String) -> Result<(), Error> {
    table.set_fields(key.as_bytes(), [(column.as_str(), value)]).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_that_postgres_refuses_fails_alone_with_its_reason() {
    let database = Database::new("items");
    let long = "x".repeat(20_000);
    let cases = [
        ("k text PRIMARY KEY, v int", ("", "one"), "22P02"),
        ("k text PRIMARY KEY, v smallint", ("", "40000"), "22003"),
        ("k text PRIMARY KEY, v varchar(3)", ("", "long"), "22001"),
        ("k text PRIMARY KEY, v jsonb", ("", "{"), "22P02"),
        ("k text PRIMARY KEY, v text CHECK (v <> 'no')", ("", "no"), "23514"),
        ("k text PRIMARY KEY, v int REFERENCES other", ("", "2"), "23503"),
        ("k text PRIMARY KEY CHECK (k <> 'no'), v text", ("no", "1"), "23514"),
        (
            &format!("k text PRIMARY KEY, v text, CHECK (length(v) < {})", long.len()),
            ("", &long),
            "23514",
        ),
    ];
    database.sql("CREATE TABLE other (id int PRIMARY KEY); INSERT INTO other VALUES (1)");
    for (columns, bad, state) in cases {
        database.sql(&format!("DROP TABLE IF EXISTS t; CREATE TABLE t ({columns})"));
        let error = among_others(&database, "relation=t&key=k&columns=v", "v", bad).await;
        match &error {
            Error::Data { sqlstate, message } => {
                assert_eq!(&**sqlstate, state, "{columns}: {message}");
                assert!(!message.is_empty());
            }
            other => panic!("{columns}: {other:?}"),
        }
        assert_eq!(database.sql("SELECT count(*) FROM t"), "9\n", "{columns}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_trigger_raises_fails_one_item() {
    let database = Database::new("trigger");
    database.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN IF NEW.v = 'no' THEN RAISE EXCEPTION 'we do not want %', NEW.v; END IF; \
         RETURN NEW; END$$; \
         CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    let error = among_others(&database, "relation=t&key=k&columns=v", "v", ("", "no")).await;
    assert_eq!(
        error,
        Error::Data { sqlstate: "P0001".into(), message: "we do not want no".into() }
    );
    assert_eq!(database.sql("SELECT count(*) FROM t"), "9\n");
}

/// Triggers and functions raise any state; once only some states were treated as errors of one
/// item.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_state_a_trigger_raises_its_neighbours_are_written() {
    let database = Database::new("trigger_states");
    for state in ["AB001", "55000", "38000", "21000", "42883", "0A000", "40001"] {
        database.sql(&format!(
            "TRUNCATE t; \
             CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$BEGIN IF NEW.v = 'no' THEN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END IF; \
             RETURN NEW; END$$; \
             CREATE OR REPLACE TRIGGER refuse BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE \
             FUNCTION refuse()",
        ));
        let error = among_others(&database, "relation=t&key=k&columns=v", "v", ("", "no")).await;
        assert!(
            matches!(&error, Error::Statement { sqlstate, .. } if &**sqlstate == state),
            "{state}: {error:?}"
        );
        assert_eq!(database.sql("SELECT count(*) FROM t"), "9\n", "{state}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_unique_index_refuses_one_item() {
    let database = Database::new("unique_value");
    database
        .sql("CREATE UNIQUE INDEX ON t (v) WHERE v <> '1'; INSERT INTO t VALUES ('taken', 'x')");
    let error = among_others(&database, "relation=t&key=k&columns=v", "v", ("", "x")).await;
    assert!(matches!(&error, Error::Data { sqlstate, .. } if &**sqlstate == "23505"), "{error:?}");
    assert_eq!(database.sql("SELECT count(*) FROM t"), "10\n");
}
