//! The relation changes under load.

use std::{collections::BTreeMap, time::Duration};

use busload_postgres::{Error, Row, Table};
use tokio::task::JoinSet;

use crate::failure::{
    load::{Load, Report},
    support::{Database, SLACK, all_up, table, table_of, timed, until, value},
};

/// Time in which a change is followed, besides what a loaded machine adds.
const SOON: Duration = Duration::from_secs(1);

/// Returns how often the clients got each error.
fn by_text(errors: &[Error]) -> BTreeMap<String, usize> {
    let mut texts = BTreeMap::new();
    errors.iter().for_each(|error| *texts.entry(error.to_string()).or_default() += 1);
    texts
}

#[track_caller]
fn nobody_noticed(report: &Report) {
    assert!(report.errors.is_empty(), "{:#?}", by_text(&report.errors));
}

/// A trigger whose function remembers the types of the columns.
const TRIGGER: &str = "
    CREATE TABLE made (k text, v text);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN INSERT INTO made VALUES (NEW.k, NEW.v); RETURN NEW; END';
    CREATE TRIGGER note AFTER INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION note()";

/// Types that hold the numbers of the load, and how to get there from any other.
const TYPES: [&str; 5] =
    ["varchar(100)", "bigint USING v::bigint", "numeric", "text", "varchar(40)"];

/// Once, sessions younger than a second were not opened anew: clients got "cached plan must not
/// change result type", and for as long as the session lived "type of parameter 15 (bigint) does
/// not match that when preparing the plan (integer)".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_that_change_again_and_again_fail_no_request() {
    let database = Database::new("types");
    database.sql(TRIGGER);
    let table = table(&database.url(), "timeout=20s&connections=3").await;
    let load = Load::start(std::slice::from_ref(&table), 5, 5);
    for _ in 0..3 {
        for to in TYPES {
            load.progress().await;
            database.sql(&format!("ALTER TABLE t ALTER COLUMN v TYPE {to}"));
        }
    }
    load.progress().await;
    // One right after the other, while requests are tried again.
    let owner = database.plain().await;
    for to in TYPES.into_iter().cycle().take(20) {
        owner.batch_execute(&format!("ALTER TABLE t ALTER COLUMN v TYPE {to}")).await.unwrap();
    }
    load.progress().await;
    let opened = table.stats().pool.opened;
    nobody_noticed(&load.check(&table).await);
    assert_eq!(opened, 3, "no connection is opened for a change");
}

/// Once, a write right after the change was converted to the old type first: `007` was stored as
/// `7`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn value_is_stored_as_it_was_sent_right_after_its_column_has_become_text() {
    let database = Database::new("zeros");
    database.sql("CREATE TABLE one (k text PRIMARY KEY, v int)");
    database.sql("CREATE TABLE two (k text PRIMARY KEY, v int, w int)");
    let one = table_of(&database.url(), "relation=one&key=k&timeout=20s&connections=1").await;
    let two = table_of(&database.url(), "relation=two&key=k&timeout=20s&connections=1").await;
    let owner = database.plain().await;
    let to = async |column: &str, type_name: &str| {
        for relation in ["one", "two"] {
            if relation == "two" || column == "v" {
                let change = format!(
                    "ALTER TABLE {relation} ALTER COLUMN {column} TYPE {type_name} \
                     USING {column}::{type_name}"
                );
                owner.batch_execute(&change).await.unwrap();
            }
        }
    };
    for round in 0..5 {
        let key = format!("k{round}");
        let key = key.as_bytes();
        // Once with statements that were prepared before the change, once with new ones.
        if round % 2 == 0 {
            one.set(key, "1").await.unwrap();
            two.set_fields(key, [("v", "1"), ("w", "1")]).await.unwrap();
        }
        to("v", "text").await;
        one.set(key, "007").await.unwrap();
        two.set_fields(key, [("v", "007"), ("w", "8")]).await.unwrap();
        to("w", "text").await;
        two.set_fields(key, [("w", "008")]).await.unwrap();
        let texts =
            |row: Option<Row>| row.expect("it was written").values().flatten().collect::<Vec<_>>();
        assert_eq!(texts(one.get(key).await.unwrap()), ["007"]);
        assert_eq!(texts(two.get(key).await.unwrap()), ["007", "008"]);
        to("v", "int").await;
        to("w", "int").await;
    }
}

/// The driver remembers the names of types, so a renamed one must not look like another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_of_users_are_written_on_when_they_are_renamed_or_changed() {
    let database = Database::new("moods");
    database.sql(
        "CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN calm AS mood;
         CREATE TYPE pair AS (a int, b text); CREATE SCHEMA other;
         CREATE TABLE m (k text PRIMARY KEY, v mood, c calm, p pair, l mood[], d numeric(5, 2))",
    );
    let table = table_of(&database.url(), "relation=m&key=k&timeout=20s&connections=2").await;
    let fields = [("v", "glad"), ("c", "sad"), ("p", "(1,x)"), ("l", "{sad,glad}"), ("d", "1.50")];
    for change in [
        "SELECT 1",
        "ALTER TYPE mood RENAME TO humour",
        "ALTER TYPE humour ADD VALUE 'mad'",
        "ALTER TYPE pair SET SCHEMA other",
        "ALTER TABLE m ALTER COLUMN d TYPE numeric(7, 3)",
        "ALTER TABLE m ALTER COLUMN v TYPE text",
        "ALTER TABLE m ALTER COLUMN c TYPE humour",
    ] {
        database.sql(change);
        for round in 0..4 {
            table.set_fields(b"k", fields).await.expect(change);
            table.set_fields(b"k", [("v", "sad")]).await.expect(change);
            let row = table.get(b"k").await.unwrap().expect("it was written");
            assert_eq!(row.get(0), Some(&b"sad"[..]), "{change}, round {round}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_leaves_the_served_columns_is_served_on() {
    let database = Database::new("grows");
    let table = table(&database.url(), "timeout=20s&connections=3").await;
    let load = Load::start(std::slice::from_ref(&table), 5, 5);
    let changes = [
        "ALTER TABLE t ADD COLUMN other int DEFAULT 7",
        "ALTER TABLE t RENAME COLUMN other TO another",
        "ALTER TABLE t DROP COLUMN another",
        "CREATE INDEX ON t (v)",
        "VACUUM FULL t",
        "BEGIN; ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (k); COMMIT",
        "CREATE UNIQUE INDEX second ON t (k)",
        "ALTER TABLE t DROP CONSTRAINT t_pkey",
        // Replaced by a copy with its columns in another order.
        "BEGIN; LOCK TABLE t; CREATE TABLE u (v text, k varchar CONSTRAINT t_pkey PRIMARY KEY); \
         INSERT INTO u SELECT v, k FROM t; DROP TABLE t; ALTER TABLE u RENAME TO t; COMMIT",
        // Two tables change their names.
        "BEGIN; LOCK TABLE t; CREATE TABLE u (k text PRIMARY KEY, v text); \
         INSERT INTO u SELECT k, v FROM t; ALTER TABLE t RENAME TO old; \
         ALTER TABLE u RENAME TO t; COMMIT",
    ];
    for _ in 0..2 {
        for change in changes {
            load.progress().await;
            database.sql(change);
        }
        load.progress().await;
        database.sql("DROP TABLE old; ALTER INDEX u_pkey RENAME TO t_pkey");
    }
    load.progress().await;
    nobody_noticed(&load.check(&table).await);
    assert_eq!(value(&table, "none").await.unwrap(), None);
    assert_eq!(table.stats().pool.opened, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn integer_keys_stay_the_same_keys_when_their_column_changes_its_width() {
    let database = Database::new("widths");
    database.sql("CREATE TABLE n (k int PRIMARY KEY, v int)");
    let table =
        table_of(&database.url(), "relation=n&key=k&columns=v&timeout=20s&connections=3").await;
    let mut clients = JoinSet::new();
    for client in 0..10 {
        clients.spawn(count_up(table.clone(), client));
    }
    for to in ["bigint", "smallint", "int"].into_iter().cycle().take(9) {
        let before = table.stats().rows_written;
        until("all go on", async || table.stats().rows_written > before + 40).await;
        database.sql(&format!("ALTER TABLE n ALTER COLUMN k TYPE {to}"));
        database.sql(&format!("ALTER TABLE n ALTER COLUMN v TYPE {to}"));
    }
    let before = table.stats().rows_written;
    until("all go on", async || table.stats().rows_written > before + 40).await;
    table.close().await;
    while let Some(client) = clients.join_next().await {
        client.expect("no request fails");
    }
}

/// Writes 0 to 999 again and again under one key and reads each back, until the table closes.
async fn count_up(table: Table, client: u32) {
    let key = client.to_string();
    for number in (0..1000).cycle() {
        let number = number.to_string();
        let written = table.set(key.as_bytes(), number.clone()).await;
        let read = if written.is_ok() { value(&table, &key).await } else { Ok(None) };
        match (written, read) {
            (Err(Error::Closed), _) | (_, Err(Error::Closed)) => return,
            (written, read) => {
                written.unwrap();
                assert_eq!(read.unwrap(), Some(number));
            }
        }
    }
}

/// A change that a table cannot be served after, and its repair.
struct Breach {
    breaks: &'static str,
    repairs: &'static str,
    /// Error that all requests get in between.
    error: &'static str,
}

const BREACHES: [Breach; 7] = [
    Breach {
        breaks: "ALTER TABLE t RENAME COLUMN v TO w",
        repairs: "ALTER TABLE t RENAME COLUMN w TO v",
        error: "column \"v\" of public.t is gone; it is \"w\" now",
    },
    Breach {
        breaks: "ALTER TABLE t RENAME COLUMN k TO key",
        repairs: "ALTER TABLE t RENAME COLUMN key TO k",
        error: "column \"k\" of public.t is gone; it is \"key\" now",
    },
    Breach {
        breaks: "ALTER TABLE t DROP COLUMN v",
        repairs: "ALTER TABLE t ADD COLUMN v text; TRUNCATE t",
        error: "column \"v\" of public.t is gone; ",
    },
    Breach {
        breaks: "ALTER TABLE t RENAME TO u",
        repairs: "ALTER TABLE u RENAME TO t",
        error: "public.t is gone; did you mean u? There are: u",
    },
    Breach {
        breaks: "DROP TABLE t",
        repairs: "CREATE TABLE t (k text PRIMARY KEY, v text)",
        error: "public.t is gone; there is none at all",
    },
    Breach {
        breaks: "ALTER TABLE t DROP CONSTRAINT t_pkey",
        repairs: "ALTER TABLE t ADD CONSTRAINT t_pkey PRIMARY KEY (k)",
        error: "public.t has no unique index on exactly its key (k), which every read would need",
    },
    Breach {
        breaks: "ALTER TABLE t ALTER COLUMN k TYPE char(20)",
        repairs: "ALTER TABLE t ALTER COLUMN k TYPE text",
        error: "key column k of public.t is character(20): ",
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_cannot_be_served_says_why_within_a_second_and_is_served_when_it_can() {
    let database = Database::new("breaches");
    let table = table(&database.url(), "timeout=20s&connections=3").await;
    for Breach { breaks, repairs, error: expected } in BREACHES {
        let is_told =
            |error: &Error| matches!(error, Error::Schema(text) if text.starts_with(expected));
        let mut load = Load::start(std::slice::from_ref(&table), 5, 5);
        load.progress().await;
        database.sql(breaks);
        let ((), took) = timed(load.saw_error(is_told)).await;
        assert!(took < SOON + SLACK, "{breaks}: {took:?}");
        // Reads of a key that nobody writes would still succeed without an index.
        let refused = async || {
            table.get(b"other").await.is_err_and(|error| is_told(&error))
                && table.set(b"other", "x").await.is_err_and(|error| is_told(&error))
        };
        assert!(refused().await, "{breaks}");
        assert!(table.stats().refusal.as_ref().is_some_and(is_told));
        database.sql(repairs);
        let ((), took) = timed(load.progress()).await;
        assert!(took < SOON + SLACK, "{repairs}: {took:?}");
        assert_eq!(table.stats().refusal, None);
        let report = load.end().await;
        // A new index is not used as long as transactions run that are older: those of this
        // cluster's other tests.
        let is_new = |error: &Error| error.to_string().ends_with("from using it for now");
        let others: Vec<_> =
            report.errors.into_iter().filter(|error| !is_told(error) && !is_new(error)).collect();
        assert!(others.is_empty(), "{breaks}: {:#?}", by_text(&others));
        database.sql("TRUNCATE t");
    }
    assert_eq!(table.stats().pool.opened, 3);
}

/// Reads need no index to succeed, and with one request now and then no statement fails for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_index_is_noticed_though_all_reads_succeed_without_it() {
    let database = Database::new("lost_index");
    let table = table(&database.url(), "timeout=20s&connections=2").await;
    assert_eq!(value(&table, "a").await.unwrap(), None);
    database.sql("ALTER TABLE t DROP CONSTRAINT t_pkey");
    let no_index = |error: Error| error.to_string().contains("has no unique index");
    until("reads are refused", async || table.get(b"a").await.is_err_and(no_index)).await;
    database.sql("CREATE UNIQUE INDEX ON t (k)");
    // Nobody asks meanwhile.
    until("the table fits again", async || table.stats().refusal.is_none()).await;
    assert_eq!(value(&table, "a").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_does_not_fit_at_the_start_is_served_when_it_does() {
    let database = Database::new("late");
    let query = "relation=late&key=k&columns=v&timeout=20s&connections=2";
    let table = table_of(&database.url(), query).await;
    let expected = "relation late does not exist; ";
    let told = |error: Error| error.to_string().starts_with(expected);
    assert!(table.connected().await.is_err_and(told));
    assert!(table.get(b"1").await.is_err_and(told));
    database.sql("CREATE TABLE late (k int PRIMARY KEY, v text)");
    until("it is served", async || table.get(b"1").await.is_ok()).await;
    table.connected().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backends_that_are_killed_while_types_change_leave_only_lost_connections() {
    let database = Database::new("killed");
    database.sql(TRIGGER);
    let table = table(&database.url(), "timeout=20s&connections=3").await;
    let load = Load::start(std::slice::from_ref(&table), 5, 5);
    for to in TYPES {
        load.progress().await;
        all_up(&table).await;
        database.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name LIKE 'busload/%' AND datname = current_database()",
        );
        database.sql(&format!("ALTER TABLE t ALTER COLUMN v TYPE {to}"));
    }
    load.progress().await;
    let report = load.check(&table).await;
    let lost = |error: &Error| {
        matches!(
            error,
            Error::OutcomeUnknown(_) | Error::ConnectionLost(_) | Error::CannotConnect(_)
        ) && !error.to_string().contains("SET ")
    };
    let others: Vec<_> = report.errors.into_iter().filter(|error| !lost(error)).collect();
    assert!(others.is_empty(), "{:#?}", by_text(&others));
}
