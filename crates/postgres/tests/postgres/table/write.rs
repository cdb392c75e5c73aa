//! Writes: values and columns, counts, joined writes, and bad items that fail alone.

use busload_postgres::{Error, Table, limits};
use bytes::Bytes;

use crate::table::support::{connected, settings_as, sql, sqlstate, table, texts, value};

#[tokio::test]
async fn a_value_is_set_read_and_deleted() {
    sql("CREATE TABLE write_value (k text PRIMARY KEY, v text)");
    let table = table("relation=write_value&key=k&writable=true").await;
    assert_eq!(table.delete(b"a").await, Ok(false));
    assert_eq!(table.set(b"a", "one").await, Ok(()));
    assert_eq!(table.set(b"a", "").await, Ok(()));
    assert_eq!(value(&table, "a").await.as_deref(), Some(""));
    assert_eq!(table.delete(b"a").await, Ok(true));
    assert_eq!(table.get(b"a").await, Ok(None));
}

#[tokio::test]
async fn columns_of_every_type_are_set_from_text_and_read_back() {
    sql("CREATE TYPE write_mood AS ENUM ('sad', 'ok'); \
         CREATE DOMAIN write_short AS varchar(5) CHECK (VALUE <> 'bad');
         CREATE TYPE write_pair AS (x int, y text);
         CREATE TABLE write_types (k text PRIMARY KEY, t text, vc varchar(5), n numeric(10,2), \
         j jsonb, b bytea, ts timestamptz,
             yes bool, ints int[], mood write_mood, short write_short, pair write_pair, c char(4), \
             bits bit(3), f float8)");
    let table = table("relation=write_types&key=k&writable=true&options=-c%20timezone%3DUTC").await;
    let fields = [
        ("t", "h\u{e9}\n", "h\u{e9}\n"),
        ("vc", "abcde", "abcde"),
        ("n", "1.555", "1.56"),
        ("j", "{\"a\":1}", "{\"a\": 1}"),
        ("b", "\\x61", "\\x61"),
        ("ts", "2026-01-02T03:04:05Z", "2026-01-02 03:04:05+00"),
        ("yes", "t", "true"),
        ("ints", "{1,NULL,3}", "{1,NULL,3}"),
        ("mood", "ok", "ok"),
        ("short", "abc", "abc"),
        ("pair", "(1,x)", "(1,x)"),
        ("c", "ab", "ab"),
        ("bits", "101", "101"),
        ("f", "1e3", "1000"),
    ];
    let count = table.set_fields(b"a", fields.map(|(name, written, _)| (name, written))).await;
    assert_eq!(count, Ok(14));
    let row = table.get(b"a").await.expect("it is read").expect("it is there");
    let expected: Vec<_> = fields.iter().map(|&(_, _, read)| Some(read.to_owned())).collect();
    assert_eq!(texts(&row), expected);
    // The bytes themselves, without escapes of the text form.
    assert_eq!(sql("SELECT octet_length(b) FROM write_types"), "4");

    for (name, value, state) in [
        ("vc", "abcdef", "22001"),
        ("short", "abcdef", "22001"),
        ("short", "bad", "23514"),
        ("c", "abcde", "22001"),
        ("bits", "1", "22026"),
        ("n", "123456789.12", "22003"),
        ("n", "x", "22P02"),
        ("j", "{", "22P02"),
        ("mood", "glad", "22P02"),
        ("ints", "{1", "22P02"),
        ("ts", "yesterday evening", "22007"),
    ] {
        assert_eq!(
            sqlstate(table.set_fields(b"a", [(name, value)]).await),
            state,
            "{name} = {value}"
        );
    }
    let after = table.get(b"a").await.expect("it is read").expect("it is there");
    assert_eq!(after, row);
}

#[tokio::test]
async fn columns_of_an_existing_row_are_set_although_others_allow_no_null() {
    sql("CREATE TABLE write_fields (k text PRIMARY KEY, a text, b text, c int NOT NULL, \
         d text DEFAULT 'given');
         INSERT INTO write_fields VALUES ('old', 'a', 'b', 3)");
    let table = table("relation=write_fields&key=k&columns=a,b,c,d&writable=true").await;
    assert_eq!(table.set_fields(b"old", [("a", "x"), ("b", "y")]).await, Ok(0));
    assert_eq!(sqlstate(table.set_fields(b"new", [("a", "x")]).await), "23502");
    assert_eq!(table.set_fields(b"new", [("a", "x"), ("c", "4")]).await, Ok(2));
    let rows = sql("SELECT * FROM write_fields ORDER BY k");
    assert_eq!(rows, "new|x||4|given\nold|x|y|3|given");
    assert_eq!(table.clear_fields(b"old", ["a", "d"]).await, Ok(2));
    assert_eq!(table.clear_fields(b"old", ["a", "b"]).await, Ok(1));
    assert_eq!(table.clear_fields(b"missing", ["a"]).await, Ok(0));
    assert_eq!(sqlstate(table.clear_fields(b"old", ["c"]).await), "23502");
    assert_eq!(sql("SELECT * FROM write_fields WHERE k = 'old'"), "old|||3|");
    assert_eq!(table.delete(b"old").await, Ok(true));
}

#[tokio::test]
async fn a_partitioned_table_is_written() {
    sql("CREATE TABLE write_parts (k text PRIMARY KEY, a text, b text) PARTITION BY HASH (k);
         CREATE TABLE write_parts_0 PARTITION OF write_parts FOR VALUES WITH (MODULUS 2, \
         REMAINDER 0);
         CREATE TABLE write_parts_1 (b text, k text NOT NULL, gone int, a text); \
         ALTER TABLE write_parts_1 DROP gone;
         ALTER TABLE write_parts ATTACH PARTITION write_parts_1 FOR VALUES WITH (MODULUS 2, \
         REMAINDER 1)");
    let fields = table("relation=write_parts&key=k&writable=true").await;
    let single = table("relation=write_parts&key=k&columns=a&writable=true").await;
    for key in ["one", "two", "three", "four", "five"].map(str::as_bytes) {
        assert_eq!(single.set(key, "x").await, Ok(()));
        assert_eq!(fields.set_fields(key, [("a", "y"), ("b", "z")]).await, Ok(0));
        assert_eq!(fields.clear_fields(key, ["a"]).await, Ok(1));
        assert_eq!(value(&single, std::str::from_utf8(key).expect("ASCII")).await, None);
        assert_eq!(fields.delete(key).await, Ok(true));
        assert_eq!(fields.set_fields(key, [("b", "z")]).await, Ok(1));
    }
    assert_eq!(sql("SELECT count(*), count(DISTINCT tableoid) FROM write_parts"), "5|2");
}

/// Runs writes so that they are queued together: a first one, of the row `held`, keeps the write
/// partition busy.
async fn together<F, T>(table: &Table, relation: &str, writes: Vec<F>) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let (holder, looker) = hold(relation).await;
    let first = tokio::spawn({
        let table = table.clone();
        async move { table.set_fields(b"held", [("v", "x")]).await }
    });
    until(|| blocked(&looker)).await;
    let asking: Vec<_> = writes.into_iter().map(tokio::spawn).collect();
    until(|| async { table.stats().waiting == asking.len() }).await;
    holder.batch_execute("COMMIT").await.expect("it ends");
    first.await.expect("no panic").expect("it is written");
    let mut answers = Vec::new();
    for asked in asking {
        answers.push(asked.await.expect("no panic"));
    }
    answers
}

/// Returns a transaction that has locked the row `held`, and a connection to observe with.
async fn hold(relation: &str) -> (tokio_postgres::Client, tokio_postgres::Client) {
    let connect = || async {
        let url = crate::table::support::cluster().url();
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("it connects");
        tokio::spawn(connection);
        client
    };
    let (holder, looker) = (connect().await, connect().await);
    let lock = format!("INSERT INTO {relation} (k) VALUES ('held') ON CONFLICT DO NOTHING");
    holder.batch_execute(&lock).await.expect("it is inserted");
    holder
        .batch_execute(&format!("BEGIN; UPDATE {relation} SET k = k WHERE k = 'held'"))
        .await
        .expect("it is locked");
    let pid: i32 = holder.query_one("SELECT pg_backend_pid()", &[]).await.expect("a row").get(0);
    looker.batch_execute(&format!("SET busload.holder = {pid}")).await.expect("it is set");
    (holder, looker)
}

/// Returns whether someone waits for the transaction.
async fn blocked(looker: &tokio_postgres::Client) -> bool {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE \
                   current_setting('busload.holder')::int = ANY (pg_blocking_pids(pid))";
    looker.query_one(waiting, &[]).await.expect("a row").get::<_, i64>(0) > 0
}

async fn until<F: Future<Output = bool>>(mut done: impl FnMut() -> F) {
    let wait = async {
        while !done().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), wait).await.expect("it comes to pass");
}

#[tokio::test]
async fn a_bad_value_is_no_error_of_another_request_for_the_same_key() {
    sql("CREATE TABLE write_joined (k text PRIMARY KEY, v varchar(5))");
    let table = table("relation=write_joined&key=k&writable=true&connections=1").await;
    let writes = ["one", "two", "too long"].map(|value| {
        let table = table.clone();
        async move { table.set(b"a", value).await }
    });
    let mut answers = together(&table, "write_joined", writes.into()).await;
    assert_eq!(sqlstate(answers.remove(2)), "22001");
    assert_eq!(answers, [Ok(()), Ok(())]);
    assert_eq!(value(&table, "a").await.as_deref(), Some("two"));
}

#[tokio::test]
async fn writes_of_one_key_join_and_each_request_gets_its_own_count() {
    sql(
        "CREATE TABLE write_join (k text PRIMARY KEY, v text, w text, x text NOT NULL DEFAULT 'x')",
    );
    let single = table("relation=write_join&key=k&columns=v&writable=true&connections=1").await;
    let sets = (0..10).map(|number| {
        let table = single.clone();
        async move { table.set(b"a", number.to_string()).await }
    });
    assert_eq!(together(&single, "write_join", sets.collect()).await, vec![Ok(()); 10]);
    assert_eq!(value(&single, "a").await.as_deref(), Some("9"));
    assert_eq!(
        single.stats().rows_written,
        2,
        "one row for all of them, and the one that held the partition"
    );
    let deletes = (0..3).map(|_| {
        let table = single.clone();
        async move { table.delete(b"a").await }
    });
    assert_eq!(
        together(&single, "write_join", deletes.collect()).await,
        [Ok(true), Ok(false), Ok(false)]
    );
}

#[tokio::test]
async fn columns_of_one_key_join_and_each_request_counts_those_it_added() {
    sql("CREATE TABLE write_union (k text PRIMARY KEY, v text, w text, x text)");
    let table = table("relation=write_union&key=k&columns=v,w,x&writable=true&connections=1").await;
    let requests: [&[(&str, &str)]; 3] =
        [&[("v", "1"), ("w", "1")], &[("w", "2")], &[("w", "3"), ("x", "3")]];
    let writes = requests.map(|fields| {
        let table = table.clone();
        async move { table.set_fields(b"a", fields.iter().copied()).await }
    });
    let answers = together(&table, "write_union", writes.into()).await;
    assert_eq!(answers, [Ok(2), Ok(0), Ok(1)]);
    assert_eq!(sql("SELECT v, w, x FROM write_union WHERE k = 'a'"), "1|3|3");
    let clears = [["v", "w"], ["w", "x"]].map(|columns| {
        let table = table.clone();
        async move { table.clear_fields(b"a", columns).await }
    });
    assert_eq!(together(&table, "write_union", clears.into()).await, [Ok(2), Ok(1)]);
}

#[tokio::test]
async fn many_rows_are_written_by_few_statements() {
    sql("CREATE TABLE write_many (k int PRIMARY KEY, v bytea)");
    let table = table("relation=write_many&key=k&writable=true").await;
    let asking: Vec<_> = (0..2000)
        .map(|number: u32| {
            let table = table.clone();
            tokio::spawn(async move {
                table.set(number.to_string().as_bytes(), number.to_be_bytes().to_vec()).await
            })
        })
        .collect();
    for asked in asking {
        assert_eq!(asked.await.expect("no panic"), Ok(()));
    }
    assert_eq!(
        sql("SELECT count(*), count(DISTINCT v), min(octet_length(v)) FROM write_many"),
        "2000|2000|4"
    );
    assert!(table.stats().statements < 100, "{:?}", table.stats());
}

#[tokio::test]
async fn writers_of_several_processes_in_any_order_do_not_lose_a_write() {
    sql("CREATE TABLE write_race (k text COLLATE \"und-x-icu\" PRIMARY KEY, v text, w text)");
    let query = "relation=write_race&key=k&writable=true";
    let tables = [table(query).await, table(query).await, table(query).await];
    let mut asking = Vec::new();
    for round in 0..20 {
        for (number, table) in tables.iter().enumerate() {
            for key in ["a", "B", "c", "D", "e", "F", "\u{e4}", "_"] {
                let (table, value) = (table.clone(), format!("{round}.{number}"));
                asking.push(tokio::spawn(async move {
                    match (round + number) % 4 {
                        0 => table.delete(key.as_bytes()).await.map(|_| ()),
                        1 => table.clear_fields(key.as_bytes(), ["w"]).await.map(|_| ()),
                        _ => table
                            .set_fields(key.as_bytes(), [("v", value.clone()), ("w", value)])
                            .await
                            .map(|_| ()),
                    }
                }));
            }
        }
    }
    for asked in asking {
        assert_eq!(asked.await.expect("no panic"), Ok(()));
    }
}

#[tokio::test]
async fn what_a_table_cannot_do_is_said_before_anything_is_sent() {
    sql("CREATE TABLE write_not (k text PRIMARY KEY, v text, w text)");
    let reading = table("relation=write_not&key=k").await;
    assert_eq!(reading.set_fields(b"a", [("v", "x")]).await, Err(Error::ReadOnly));
    assert_eq!(reading.delete(b"a").await, Err(Error::ReadOnly));
    let table = table("relation=write_not&key=k&writable=true").await;
    let error = table.set(b"a", "x").await.expect_err("there are two").to_string();
    assert_eq!(error, "there are several value columns (v, w): set them by name");
    let error = table.set_fields(b"a", [("vv", "x")]).await.expect_err("there is none").to_string();
    assert_eq!(error, "there is no value column vv; did you mean v? There are: v, w");
    let error = table.set_fields::<&str>(b"a", []).await.expect_err("nothing to do").to_string();
    assert_eq!(error, "no column is named");
    let error = table.set_fields(b"a", [("v", "\0")]).await.expect_err("no text").to_string();
    assert_eq!(error, "the value of v holds a NUL byte, which text in Postgres cannot");
    assert_eq!(table.stats().statements, 0);
}

#[tokio::test]
async fn a_row_that_a_trigger_or_a_policy_withholds_is_an_error_of_its_own() {
    sql("CREATE TABLE write_trigger (k text PRIMARY KEY, v text);
         CREATE FUNCTION write_skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF NEW.v = 'skip' THEN RETURN NULL; ELSIF NEW.v = 'raise' THEN RAISE 'no %', NEW.k; \
             END IF; RETURN NEW; END $$;
         CREATE TRIGGER skip BEFORE INSERT OR UPDATE ON write_trigger FOR EACH ROW EXECUTE \
         FUNCTION write_skip();
         CREATE ROLE writer LOGIN; GRANT ALL ON write_trigger TO writer; \
         ALTER TABLE write_trigger ENABLE ROW LEVEL SECURITY;
         CREATE POLICY all_rows ON write_trigger USING (true) WITH CHECK (v <> 'forbidden')");
    let table =
        connected(settings_as("writer", "relation=write_trigger&key=k&writable=true")).await;
    assert_eq!(sqlstate(table.set(b"a", "skip").await), "02000");
    assert_eq!(sqlstate(table.set_fields(b"a", [("v", "skip")]).await), "02000");
    let raised = table.set(b"a", "raise").await.expect_err("it is raised").to_string();
    assert_eq!(raised, "no a (SQLSTATE P0001)");
    assert_eq!(sqlstate(table.set(b"a", "forbidden").await), "42501");
    assert_eq!(table.set(b"a", "good").await, Ok(()));
}

#[tokio::test]
async fn a_row_that_appears_while_its_columns_are_set_keeps_both() {
    sql("CREATE TABLE write_appear (k text PRIMARY KEY, v text, w text)");
    let table = table("relation=write_appear&key=k&writable=true").await;
    let (holder, looker) = hold("write_appear").await;
    holder
        .batch_execute("INSERT INTO write_appear VALUES ('a', 'theirs', 'theirs')")
        .await
        .expect("it is inserted");
    let ours = tokio::spawn({
        let table = table.clone();
        async move { table.set_fields(b"a", [("v", "ours")]).await }
    });
    until(|| blocked(&looker)).await;
    holder.batch_execute("COMMIT").await.expect("it ends");
    assert_eq!(ours.await.expect("no panic"), Ok(0));
    assert_eq!(sql("SELECT v, w FROM write_appear WHERE k = 'a'"), "ours|theirs");
}

#[tokio::test]
async fn a_write_that_waited_for_others_acts_on_what_they_left() {
    sql("CREATE TABLE write_wait (k text PRIMARY KEY, v text, w text)");
    let table = table("relation=write_wait&key=k&writable=true").await;
    let before = "INSERT INTO write_wait VALUES ('a', 'v', \
                  'w') ON CONFLICT (k) DO UPDATE SET v = 'v', w = 'w'";
    for (theirs, count, left) in [
        ("UPDATE write_wait SET w = 'theirs' WHERE k = 'a'", 0, "ours|theirs"),
        ("DELETE FROM write_wait WHERE k = 'a'", 1, "ours|"),
    ] {
        sql(before);
        let answer =
            behind(
                &table,
                theirs,
                |table| async move { table.set_fields(b"a", [("v", "ours")]).await },
            )
            .await;
        assert_eq!(answer, Ok(count), "{theirs}");
        assert_eq!(sql("SELECT v, w FROM write_wait WHERE k = 'a'"), left, "{theirs}");
    }
    for (theirs, count) in [
        ("UPDATE write_wait SET w = NULL WHERE k = 'a'", 1),
        ("DELETE FROM write_wait WHERE k = 'a'", 0),
    ] {
        sql(before);
        let answer =
            behind(
                &table,
                theirs,
                |table| async move { table.clear_fields(b"a", ["v", "w"]).await },
            )
            .await;
        assert_eq!(answer, Ok(count), "{theirs}");
    }
    for (theirs, deleted) in [
        ("UPDATE write_wait SET w = NULL WHERE k = 'a'", true),
        ("DELETE FROM write_wait WHERE k = 'a'", false),
    ] {
        sql(before);
        let answer = behind(&table, theirs, |table| async move { table.delete(b"a").await }).await;
        assert_eq!(answer, Ok(deleted), "{theirs}");
        assert_eq!(sql("SELECT count(*) FROM write_wait WHERE k = 'a'"), "0", "{theirs}");
    }
}

/// Starts a write that has to wait for a transaction that does `theirs` and then commits.
async fn behind<T, F>(table: &Table, theirs: &str, write: impl FnOnce(Table) -> F) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let (holder, looker) = hold("write_wait").await;
    holder.batch_execute(theirs).await.expect(theirs);
    let ours = tokio::spawn(write(table.clone()));
    until(|| blocked(&looker)).await;
    holder.batch_execute("COMMIT").await.expect("it ends");
    ours.await.expect("no panic")
}

#[tokio::test]
async fn an_error_that_looks_like_a_changed_relation_does_not_cost_a_connection_for_each_write() {
    sql("CREATE TABLE write_broken (k text PRIMARY KEY, v text);
         CREATE FUNCTION write_gone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM count(*) FROM write_gone_table; RETURN NEW; END $$;
         CREATE TRIGGER gone BEFORE INSERT ON write_broken FOR EACH ROW EXECUTE FUNCTION \
         write_gone()");
    let started = tokio::time::Instant::now();
    let table = table("relation=write_broken&key=k&writable=true&connections=2").await;
    for _ in 0..100 {
        let error = table.set(b"a", "x").await.expect_err("the trigger fails").to_string();
        assert_eq!(error, "relation \"write_gone_table\" does not exist (SQLSTATE 42P01)");
    }
    // Both are reopened once they are a second old, however slow the machine is.
    let rounds = started.elapsed().as_secs() / limits::REOPEN_AGE_MIN.as_secs();
    assert!(
        table.stats().pool.opened <= 2 * (1 + rounds),
        "{:?}, {rounds} rounds",
        table.stats().pool
    );
    sql("CREATE TABLE write_gone_table ()");
    assert_eq!(table.set(b"a", "x").await, Ok(()));
}

#[tokio::test]
async fn ever_other_sets_of_columns_do_not_fill_the_server_with_statements() {
    sql("CREATE TABLE write_sets (k text PRIMARY KEY, a text, b text, c text, d text, e text, \
         f text, g text, prepared int);
         CREATE FUNCTION write_count() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             NEW.prepared = (SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE \
             '%write_sets%'); RETURN NEW; END $$;
         CREATE TRIGGER count BEFORE INSERT OR UPDATE ON write_sets FOR EACH ROW EXECUTE FUNCTION \
         write_count()");
    let table = table(
        "relation=write_sets&key=k&columns=a,b,c,d,e,f,g,prepared&writable=true&connections=1",
    )
    .await;
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    for set in (1..128).chain(1..128) {
        let fields = names.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1);
        let fields: Vec<_> = fields.map(|(_, &name)| (name, "x")).collect();
        let expected = if set == 1 { Ok(1) } else { Ok(0) };
        let answer = table.set_fields(b"a", fields).await;
        assert!(answer == expected || answer == Ok(0), "{answer:?}");
    }
    let row = table.get(b"a").await.expect("it is read").expect("it is there");
    let prepared: usize =
        texts(&row)[7].as_ref().and_then(|text| text.parse().ok()).expect("a number");
    // Those kept, the read, and one whose Close was sent but not processed yet.
    assert!((60..=66).contains(&prepared), "{prepared}");
}

#[tokio::test]
async fn columns_beyond_the_sixty_fourth_are_written_like_others() {
    let columns: Vec<_> = (0..100).map(|number| format!("c{number} text")).collect();
    sql(&format!("CREATE TABLE write_wide (k int PRIMARY KEY, {})", columns.join(", ")));
    let table = table("relation=write_wide&key=k&writable=true").await;
    assert_eq!(
        table
            .set_fields(b"1", [("c99", "last"), ("c0", "first"), ("c64", "x"), ("c63", "y")])
            .await,
        Ok(4)
    );
    assert_eq!(table.clear_fields(b"1", ["c64", "c98", "c0"]).await, Ok(2));
    assert_eq!(sql("SELECT c0, c63, c64, c98, c99 FROM write_wide"), "|y|||last");
    let row = table.get(b"1").await.expect("it is read").expect("it is there");
    assert_eq!(row.value(99), Some(Bytes::from_static(b"last")));
    assert_eq!(row.values().flatten().count(), 2);
}

#[tokio::test]
async fn a_column_that_changes_its_type_takes_values_of_the_new_one_after_a_while() {
    sql("CREATE TABLE write_type (k text PRIMARY KEY, v int)");
    let table = table("relation=write_type&key=k&writable=true&connections=1").await;
    assert_eq!(table.set(b"a", "1").await, Ok(()));
    sql("ALTER TABLE write_type ALTER v TYPE text");
    let recovered = async {
        while let Err(error) = table.set(b"a", "no number").await {
            assert_eq!(
                error.to_string(),
                "invalid input syntax for type integer: \"no number\" (SQLSTATE 22P02)"
            );
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), recovered)
        .await
        .expect("it looks again");
    assert_eq!(value(&table, "a").await.as_deref(), Some("no number"));
    assert!(table.stats().pool.opened <= 3, "{:?}", table.stats().pool);
}
