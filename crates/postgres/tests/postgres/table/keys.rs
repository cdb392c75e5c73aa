//! Keys of every type, alone and together.

use std::time::Duration;

use busload_postgres::{Error, Table};
use tokio::sync::mpsc;

use crate::table::support::{Answer, ToChannel, settings, sql, table, value};

/// A key as a client writes it, and as SQL does.
type Spelling = (&'static str, &'static str);

#[tokio::test]
async fn keys_of_every_type_find_their_rows_and_are_written() {
    sql("CREATE DOMAIN keys_positive AS int CHECK (VALUE > 0); \
         CREATE DOMAIN keys_name AS varchar(20)");
    let types: [(&str, &[Spelling]); 10] = [
        ("text", &[("a", "'a'"), ("", "''"), ("\u{e4} b:\\", "'\u{e4} b:\\'")]),
        ("varchar", &[("a", "'a'")]),
        ("varchar(30)", &[("a", "'a'")]),
        ("keys_name", &[("a", "'a'")]),
        ("bytea", &[("a\0b", "'\\x610062'"), ("", "''")]),
        (
            "uuid",
            &[("{A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11}", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'")],
        ),
        ("int2", &[("-32768", "-32768"), ("007", "7")]),
        ("int4", &[("2147483647", "2147483647"), ("-1", "-1")]),
        ("keys_positive", &[("5", "5")]),
        ("int8", &[("-9223372036854775808", "-9223372036854775808"), ("0", "0")]),
    ];
    for (number, (key_type, keys)) in types.into_iter().enumerate() {
        sql(&format!("CREATE TABLE keys_{number} (k {key_type} PRIMARY KEY, v text)"));
        let table = table(&format!("relation=keys_{number}&key=k&writable=true")).await;
        for (written, as_sql) in keys {
            sql(&format!("INSERT INTO keys_{number} VALUES ({as_sql}, 'read')"));
            assert_eq!(
                value(&table, written).await.as_deref(),
                Some("read"),
                "{key_type} {written:?}"
            );
            assert_eq!(
                table.set(written.as_bytes(), "set").await,
                Ok(()),
                "{key_type} {written:?}"
            );
            let stored = sql(&format!("SELECT v FROM keys_{number} WHERE k = {as_sql}"));
            assert_eq!(stored, "set", "{key_type} {written:?}");
            assert_eq!(table.delete(written.as_bytes()).await, Ok(true), "{key_type} {written:?}");
            assert_eq!(table.get(written.as_bytes()).await, Ok(None), "{key_type} {written:?}");
        }
    }
}

#[tokio::test]
async fn composite_keys_are_read_and_written_whatever_the_order_of_the_index() {
    sql("CREATE TABLE keys_pair (repo bigint, path text, rest bytea, v text, \
         w int NOT NULL DEFAULT 5);
         CREATE UNIQUE INDEX ON keys_pair (path, rest, repo);
         INSERT INTO keys_pair VALUES (1, 'a:b', 'x', 'first'), (1, 'a', 'b:x', 'second'), (2, \
         'back\\slash', '', 'third')");
    let table = table("relation=keys_pair&key=repo,path,rest&columns=v&writable=true").await;
    assert_eq!(value(&table, "1:a\\:b:x").await.as_deref(), Some("first"));
    assert_eq!(value(&table, "1:a:b\\:x").await.as_deref(), Some("second"));
    assert_eq!(value(&table, "2:back\\\\slash:").await.as_deref(), Some("third"));
    assert_eq!(table.get(b"3:a:x").await, Ok(None));

    assert_eq!(table.set(b"2:back\\\\slash:", "changed").await, Ok(()));
    assert_eq!(table.set_fields(b"9:new:", [("v", "x")]).await, Ok(1));
    assert_eq!(table.set_fields(b"9:new:", [("v", "y")]).await, Ok(0));
    assert_eq!(table.clear_fields(b"1:a\\:b:x", ["v"]).await, Ok(1));
    assert_eq!(table.delete(b"1:a:b\\:x").await, Ok(true));
    let rows = sql("SELECT repo, path, convert_from(rest, 'UTF8'), v FROM keys_pair ORDER BY 1, 2");
    assert_eq!(rows, "1|a:b|x|\n2|back\\slash||changed\n9|new||y");
}

#[tokio::test]
async fn a_bad_key_is_refused_before_it_is_queued() {
    sql("CREATE TABLE keys_bad (a int, b text, v text, PRIMARY KEY (a, b))");
    let table = table("relation=keys_bad&key=a,b&separator=/").await;
    for (key, expected) in [
        ("1", "the key has 1 part, expected 2: a/b"),
        ("1/b/c", "the key has 3 parts, expected 2: a/b"),
        (
            "x/b",
            "the key's part 1 is not a whole number from -2147483648 to 2147483647 (column a is \
             int4)",
        ),
        (
            "1/\0",
            "the key's part 2 holds a NUL byte, which text in Postgres cannot (column b is text)",
        ),
    ] {
        let error = table.get(key.as_bytes()).await.expect_err(key);
        assert!(matches!(error, Error::BadKey(_)), "{error:?}");
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    assert_eq!(table.stats().statements, 0);
}

/// Postgres cuts blanks beyond n, so that such a key would write the row of another one.
#[tokio::test]
async fn a_key_longer_than_its_column_is_refused_and_writes_no_other_row() {
    sql("CREATE DOMAIN keys_short AS varchar(5); CREATE DOMAIN keys_shorter AS keys_short");
    for (number, key_type) in ["varchar(5)", "keys_short", "keys_shorter"].into_iter().enumerate() {
        sql(&format!(
            "CREATE TABLE keys_long_{number} (k {key_type} PRIMARY KEY, v text); \
             INSERT INTO keys_long_{number} VALUES ('abcde', 'kept')"
        ));
        let table = table(&format!("relation=keys_long_{number}&key=k&writable=true")).await;
        for key in ["abcde   ", "abcdef", "\u{e4}bcdef"] {
            let error = table.set(key.as_bytes(), "other").await.expect_err(key);
            assert!(
                error.to_string().starts_with("the key has more than 5 characters"),
                "{key_type}: {error}"
            );
        }
        assert_eq!(table.set("\u{e4}bcde".as_bytes(), "five").await, Ok(()), "{key_type}");
        assert_eq!(value(&table, "abcde").await.as_deref(), Some("kept"), "{key_type}");
    }
}

#[tokio::test]
async fn a_key_parsed_before_its_column_changed_type_finds_and_writes_no_other_row() {
    sql("CREATE TABLE keys_change (k int PRIMARY KEY, v text); \
         INSERT INTO keys_change VALUES (1, 'number')");
    let table: Table<ToChannel> =
        Table::start(settings("relation=keys_change&key=k&connections=1&writable=true"));
    table.connected().await.expect("it connects");
    let old = table.parse_key(b"1").expect("a number");
    sql("ALTER TABLE keys_change ALTER k TYPE text; INSERT INTO keys_change VALUES ('b', 'text')");

    let (sender, mut answers) = mpsc::unbounded_channel();
    let recovered = async {
        loop {
            // Keys parsed for the old type fail until the change has been noticed.
            let key = table.parse_key(b"b").unwrap_or_else(|_| old.clone());
            table.submit_load(key, ToChannel(0, sender.clone()), None).expect("there is room");
            table.flush();
            if let Some((_, Answer::Read(Ok(Some(row))))) = answers.recv().await
                && row.value(0).as_deref() == Some(b"text")
            {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), recovered).await.expect("it looks again");

    let new = table.parse_key(b"1").expect("text");
    let write = || table.write_value("written".into()).expect("it is text");
    for (number, key) in [old, new].into_iter().enumerate() {
        table
            .submit_load(key.clone(), ToChannel(number, sender.clone()), None)
            .expect("there is room");
        table
            .submit_store(key, write(), ToChannel(number, sender.clone()), None)
            .expect("there is room");
    }
    table.flush();
    for _ in 0..4 {
        match answers.recv().await.expect("it is answered") {
            (0, Answer::Read(Err(Error::BadKey(_))) | Answer::Written(Err(Error::BadKey(_)))) => {}
            (1, Answer::Read(Ok(Some(row)))) => {
                assert_eq!(row.value(0).as_deref(), Some(&b"number"[..]))
            }
            (1, Answer::Written(Ok(0))) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sql("SELECT * FROM keys_change ORDER BY k"), "1|written\nb|text");
}
