//! The relation changes under load.

use busload_postgres::{Error, limits};

use crate::failure::{
    load::Load,
    support::{Database, all_up, table, until, value},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_whose_relation_changes_says_what_is_missing_and_recovers_when_it_is_back() {
    let database = Database::new("changes");
    let table = table(&database.url(), "timeout=20s&connections=3").await;
    // Change that breaks the table, change that repairs it, and text of the errors meanwhile.
    let changes = [
        ("ALTER TABLE t RENAME COLUMN v TO w", "ALTER TABLE t RENAME COLUMN w TO v", "v"),
        ("ALTER TABLE t RENAME COLUMN k TO key", "ALTER TABLE t RENAME COLUMN key TO k", "k"),
        ("ALTER TABLE t RENAME TO u", "ALTER TABLE u RENAME TO t", "t"),
        (
            "ALTER TABLE t DROP CONSTRAINT t_pkey",
            "ALTER TABLE t ADD PRIMARY KEY (k)",
            "CREATE UNIQUE INDEX",
        ),
    ];
    for (taken, back, named) in changes {
        let load = Load::start(std::slice::from_ref(&table), 8, 16);
        load.progress().await;
        database.sql(taken);
        until("it is told", async || {
            let answer = table.set(b"other", "x").await;
            matches!(&answer, Err(Error::Schema(text)) if text.contains(named))
        })
        .await;
        load.saw_error(|error| error.to_string().contains(named)).await;
        database.sql(back);
        load.progress().await;
        let report = load.check(&table).await;
        let clear = |error: &Error| matches!(error, Error::Schema(_) | Error::Statement { .. });
        assert!(
            report.errors.iter().all(clear),
            "{taken}: {:?}",
            report.errors.iter().find(|error| !clear(error))
        );
        assert!(report.has_error(|error| error.to_string().contains(named)));
        database.sql("TRUNCATE t");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_may_come_and_change_their_type_under_load_unnoticed() {
    let database = Database::new("grows");
    let table = table(&database.url(), "timeout=20s&connections=3").await;
    let load = Load::start(std::slice::from_ref(&table), 8, 16);
    let changes = [
        "ALTER TABLE t ADD COLUMN other int DEFAULT 7",
        "ALTER TABLE t ALTER COLUMN v TYPE varchar(100)",
        "ALTER TABLE t ALTER COLUMN v TYPE bigint USING v::bigint",
        "ALTER TABLE t DROP COLUMN other",
        "CREATE INDEX ON t (v)",
        "VACUUM FULL t",
    ];
    for change in changes {
        load.progress().await;
        all_up(&table).await;
        // Changes that follow each other faster than this are noticed, but not hidden: every
        // session must have this age.
        tokio::time::sleep(limits::REOPEN_AGE_MIN).await;
        database.sql(change);
    }
    load.progress().await;
    let report = load.check(&table).await;
    assert_eq!(report.errors.first(), None);
    assert_eq!(value(&table, "none").await.unwrap(), None);
}
