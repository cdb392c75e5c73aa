//! Reads: rows, values, and missing rows.

use std::sync::Arc;

use bytes::Bytes;

use crate::table::support::{
    Answer, ToChannel, connected, settings, settings_as, sql, table, texts, value,
};
use busload_postgres::Table;

#[tokio::test]
async fn a_row_without_a_value_a_missing_row_and_an_empty_value_are_three_things() {
    sql("CREATE TABLE read_absent (k text PRIMARY KEY, v text); \
         INSERT INTO read_absent VALUES ('null', NULL), ('empty', '')");
    let table = table("relation=read_absent&key=k").await;
    assert_eq!(value(&table, "null").await, None);
    assert_eq!(value(&table, "empty").await, Some(String::new()));
    assert_eq!(table.get(b"missing").await, Ok(None));
    assert_eq!(table.columns().to_vec(), ["v"]);
}

#[tokio::test]
async fn values_of_every_type_come_as_text_and_bytea_as_it_is() {
    sql("CREATE TYPE read_mood AS ENUM ('sad', 'ok'); CREATE DOMAIN read_short AS varchar(5);
         CREATE TYPE read_pair AS (x int, y text);
         CREATE TABLE read_types (k text PRIMARY KEY, t text, vc varchar(10), n numeric(10,2), \
         j jsonb, b bytea, ts timestamptz,
             yes bool, ints int[], mood read_mood, short read_short, pair read_pair, f float8, \
             d date, ip inet, u uuid, c char(4));
         INSERT INTO read_types VALUES ('a', E'h\u{e9}\n', 'vc', 1.5, '{\"a\": [1, null]}', \
         '\\x00ff', '2026-01-02 03:04:05+00',
             true, '{1,NULL,3}', 'ok', 'dom', '(1,\"x y\")', 0.1, '2026-01-02', '10.0.0.1', \
             'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'ab')");
    let query = "relation=read_types&key=k&options=-c%20timezone%3DUTC&columns=";
    let columns = "t,vc,n,j,b,ts,yes,ints,mood,short,pair,f,d,ip,u,c";
    let table = table(&format!("{query}{columns}")).await;
    let row = table.get(b"a").await.expect("it is read").expect("it is there");
    assert_eq!(row.value(4), Some(Bytes::from_static(b"\x00\xff")));
    let texts: Vec<_> = texts(&row).into_iter().flatten().collect();
    let expected = [
        "h\u{e9}\n",
        "vc",
        "1.50",
        "{\"a\": [1, null]}",
        "\0\u{fffd}",
        "2026-01-02 03:04:05+00",
        "true",
        "{1,NULL,3}",
        "ok",
        "dom",
        "(1,\"x y\")",
        "0.1",
        "2026-01-02",
        "10.0.0.1/32",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "ab",
    ];
    assert_eq!(texts, expected);
}

#[tokio::test]
async fn many_callers_share_statements_and_each_gets_its_own_row() {
    sql("CREATE TABLE read_many (k text PRIMARY KEY, v int); \
         INSERT INTO read_many SELECT 'k' || n, n FROM generate_series(1, 1000) n");
    let table = table("relation=read_many&key=k").await;
    let asking: Vec<_> = (1..=2000)
        .map(|number| {
            let table = table.clone();
            tokio::spawn(async move { (number, table.get(format!("k{number}").as_bytes()).await) })
        })
        .collect();
    for asked in asking {
        let (number, row) = asked.await.expect("no panic");
        let text = row.expect("it is read").map(|row| texts(&row));
        assert_eq!(text, (number <= 1000).then(|| vec![Some(number.to_string())]), "k{number}");
    }
    let stats = table.stats();
    assert_eq!(stats.rows_read, 1000);
    assert!(stats.statements < 100, "{stats:?}");
}

#[tokio::test]
async fn rows_of_a_partitioned_table_and_of_a_materialized_view_are_read() {
    sql("CREATE TABLE read_parts (k int, v text, PRIMARY KEY (k)) PARTITION BY RANGE (k);
         CREATE TABLE read_parts_low PARTITION OF read_parts FOR VALUES FROM (0) TO (10);
         CREATE TABLE read_parts_high PARTITION OF read_parts FOR VALUES FROM (10) TO (20);
         INSERT INTO read_parts VALUES (1, 'low'), (15, 'high');
         CREATE MATERIALIZED VIEW read_view AS SELECT k, v FROM read_parts; \
         CREATE UNIQUE INDEX ON read_view (k)");
    for relation in ["read_parts", "read_view"] {
        let table = table(&format!("relation={relation}&key=k")).await;
        assert_eq!(value(&table, "1").await.as_deref(), Some("low"));
        assert_eq!(value(&table, "15").await.as_deref(), Some("high"));
        assert_eq!(table.get(b"25").await, Ok(None));
    }
}

#[tokio::test]
async fn rows_that_come_in_another_order_than_their_keys_find_them() {
    sql("CREATE COLLATION read_icu (provider = icu, locale = 'en-u-kf-upper');
         CREATE TABLE read_order (k text COLLATE read_icu PRIMARY KEY, v text);
         INSERT INTO read_order SELECT k, 'v' || k FROM unnest('{b,B,a,A,\u{e4},Z,z,_,1}'::text[]) \
         k");
    let table = table("relation=read_order&key=k").await;
    let table = Arc::new(table);
    let asking: Vec<_> = ["z", "\u{e4}", "B", "a", "_", "Z", "A", "1", "b", "missing"]
        .map(|key| {
            let table = Arc::clone(&table);
            tokio::spawn(async move { (key, table.get(key.as_bytes()).await) })
        })
        .into();
    for asked in asking {
        let (key, row) = asked.await.expect("no panic");
        let expected = (key != "missing").then(|| vec![Some(format!("v{key}"))]);
        assert_eq!(row.expect("it is read").map(|row| texts(&row)), expected, "{key}");
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_fails_alone() {
    sql("CREATE TABLE read_policy (k int PRIMARY KEY, v int); \
         INSERT INTO read_policy SELECT n, n FROM generate_series(0, 20) n;
         CREATE ROLE reader LOGIN; GRANT SELECT ON read_policy TO reader;
         ALTER TABLE read_policy ENABLE ROW LEVEL SECURITY;
         CREATE POLICY divides ON read_policy USING (100 / (v - 7) IS NOT NULL)");
    let table = connected(settings_as("reader", "relation=read_policy&key=k")).await;
    let asking: Vec<_> = (0..=20)
        .map(|key: i32| {
            let table = table.clone();
            tokio::spawn(async move { (key, table.get(key.to_string().as_bytes()).await) })
        })
        .collect();
    for asked in asking {
        let (key, row) = asked.await.expect("no panic");
        if key == 7 {
            assert_eq!(crate::table::support::sqlstate(row), "22012");
        } else {
            assert_eq!(
                row.expect("it is read").map(|row| texts(&row)),
                Some(vec![Some(key.to_string())])
            );
        }
    }
}

#[tokio::test]
async fn a_column_that_is_dropped_is_named_and_its_return_is_noticed() {
    sql("CREATE TABLE read_drop (k text PRIMARY KEY, v text, w text); \
         INSERT INTO read_drop VALUES ('a', 'x', 'y')");
    let table = table("relation=read_drop&key=k&columns=v&connections=2").await;
    assert_eq!(value(&table, "a").await.as_deref(), Some("x"));
    sql("ALTER TABLE read_drop DROP COLUMN v");
    let error = table.get(b"a").await.expect_err("the column is gone").to_string();
    assert!(error.contains('v') && error.contains("column"), "{error}");
    sql("ALTER TABLE read_drop ADD COLUMN v text DEFAULT 'back'");
    let recovered = async {
        loop {
            match table.get(b"a").await {
                Ok(row) => return row.map(|row| texts(&row)),
                Err(error) => assert!(error.to_string().contains('v'), "{error}"),
            }
            tokio::task::yield_now().await;
        }
    };
    let row = tokio::time::timeout(std::time::Duration::from_secs(60), recovered)
        .await
        .expect("it recovers by itself");
    assert_eq!(row, Some(vec![Some("back".to_owned())]));
}

#[tokio::test]
async fn the_columns_of_a_table_stay_when_its_relation_gets_more() {
    sql("CREATE TABLE read_grow (k text PRIMARY KEY, v text); \
         INSERT INTO read_grow VALUES ('a', 'x')");
    let table = table("relation=read_grow&key=k&connections=1").await;
    assert_eq!(value(&table, "a").await.as_deref(), Some("x"));
    sql("ALTER TABLE read_grow ADD COLUMN a text DEFAULT 'more', ADD COLUMN z text");
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE query LIKE '%read_grow AS t%' AND pid <> pg_backend_pid()";
    assert_eq!(sql(ended), "1");
    let opened_anew = async {
        while table.stats().pool.opened < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), opened_anew)
        .await
        .expect("it connects again");
    assert_eq!(value(&table, "a").await.as_deref(), Some("x"));
    assert_eq!(table.stats().pool.opened, 2);
}

#[tokio::test]
async fn a_program_with_replies_of_its_own_gets_each_answer_once() {
    sql("CREATE TABLE read_reply (k int PRIMARY KEY, v int); \
         INSERT INTO read_reply SELECT n, n FROM generate_series(0, 49) n");
    let table: Table<ToChannel> = Table::start(settings("relation=read_reply&key=k"));
    table.connected().await.expect("it connects");
    let (sender, mut answers) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..100 {
        let key = table.parse_key(number.to_string().as_bytes()).expect("a number");
        table.submit_load(key, ToChannel(number, sender.clone()), None).expect("there is room");
    }
    table.flush();
    drop(sender);
    let mut seen = vec![false; 100];
    while let Some((number, answer)) = answers.recv().await {
        assert!(!std::mem::replace(&mut seen[number], true));
        let expected = (number < 50).then(|| vec![Some(number.to_string())]);
        let Answer::Read(row) = answer else { panic!("it was a read") };
        assert_eq!(row.expect("it is read").map(|row| texts(&row)), expected);
    }
    assert_eq!(seen, [true; 100]);
}
