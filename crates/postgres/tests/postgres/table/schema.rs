//! Requirements of a table on its relation, and the errors when they are not met.

use busload_postgres::{Error, check};

use crate::table::support::{settings, settings_as, sql};

async fn refused(query: &str) -> String {
    refused_as("busload", query).await
}

async fn refused_as(user: &str, query: &str) -> String {
    match check(&settings_as(user, query)).await {
        Err(Error::Schema(text)) => text.to_string(),
        other => panic!("expected the schema to be refused, got {other:?}"),
    }
}

#[tokio::test]
async fn a_report_says_what_was_found() {
    sql("CREATE TABLE schema_good (repo int, path varchar(40) COLLATE \"C\", \
         v jsonb, \"Odd\" bytea, PRIMARY KEY (repo, path));
         INSERT INTO schema_good SELECT n, n FROM generate_series(1, 1000) n; ANALYZE schema_good");
    let report = check(&settings("relation=schema_good&key=repo,path&writable=true"))
        .await
        .expect("it is good");
    let text = report.to_string();
    let version = sql("SHOW server_version");
    assert_eq!(
        text,
        format!(
            "server    postgres {version}\n\
             relation  public.schema_good (table, about 1000 rows)\n\
             key       repo integer, path character varying(40)\n\
             columns   v jsonb, \"Odd\" bytea\n\
             index     schema_good_pkey\n\
             plan      Index Scan using schema_good_pkey on schema_good t\n\
             writes    allowed"
        )
    );
}

#[tokio::test]
async fn what_surprises_is_a_warning() {
    sql("CREATE TABLE schema_warn (k text, v text, g text GENERATED ALWAYS AS (v || 'x') STORED);
         CREATE UNIQUE INDEX ON schema_warn (k);
         CREATE ROLE no_delete LOGIN; GRANT SELECT, INSERT, UPDATE ON schema_warn TO no_delete");
    let report = check(&settings_as("no_delete", "relation=schema_warn&key=k&writable=true"))
        .await
        .expect("it is good");
    assert_eq!(
        report.warnings,
        [
            "column g is generated: it can be read, not written",
            "no_delete may not DELETE from public.schema_warn",
            "key column k allows NULL; rows without a key cannot be asked for",
        ]
    );
}

#[tokio::test]
async fn without_a_unique_index_on_the_key_it_says_what_would_help() {
    sql("CREATE TABLE schema_index (a int, b text, c text, v text, UNIQUE (a, b, c));
         CREATE INDEX ON schema_index (a, b); CREATE UNIQUE INDEX schema_partial ON schema_index \
         (a, b) WHERE a > 0;
         CREATE UNIQUE INDEX ON schema_index (lower(b), a); \
         CREATE UNIQUE INDEX ON schema_index (b) INCLUDE (a)");
    let text = refused("relation=schema_index&key=a,b").await;
    assert_eq!(
        text,
        "public.schema_index has no unique index on exactly its key (a, b), \
         which every read would need; \
         schema_partial covers only some rows (it has a WHERE); \
         this would help: CREATE UNIQUE INDEX CONCURRENTLY ON public.schema_index (a, b)"
    );
    sql(text.split("this would help: ").last().expect("it is there"));
    check(&settings("relation=schema_index&key=a,b")).await.expect("it helped");
    check(&settings("relation=schema_index&key=b"))
        .await
        .expect("INCLUDE columns are not of the key");
}

#[tokio::test]
async fn the_statement_that_would_help_works_for_partitioned_tables_too() {
    sql("CREATE TABLE schema_parts (a int, v text) PARTITION BY HASH (a);
         CREATE TABLE schema_parts_0 PARTITION OF schema_parts FOR VALUES WITH (MODULUS 1, \
         REMAINDER 0)");
    let text = refused("relation=schema_parts&key=a").await;
    let help = text.split("this would help: ").last().expect("it is there");
    assert_eq!(help, "CREATE UNIQUE INDEX ON public.schema_parts (a)");
    sql(help);
    check(&settings("relation=schema_parts&key=a")).await.expect("it helped");
}

#[tokio::test]
async fn an_index_that_is_not_valid_or_not_immediate_does_not_do() {
    sql("CREATE TABLE schema_invalid (k int, v text); INSERT INTO schema_invalid VALUES (1), (1)");
    crate::table::support::cluster()
        .execute("CREATE UNIQUE INDEX CONCURRENTLY schema_failed ON schema_invalid (k)")
        .expect_err("keys are there twice");
    let text = refused("relation=schema_invalid&key=k").await;
    assert!(text.contains("schema_failed is not valid: building it has failed"), "{text}");

    sql("CREATE TABLE schema_deferrable (k int PRIMARY KEY DEFERRABLE, v text)");
    check(&settings("relation=schema_deferrable&key=k")).await.expect("reads do not mind");
    let text = refused("relation=schema_deferrable&key=k&writable=true").await;
    assert!(
        text.contains("schema_deferrable_pkey is deferrable, which writes cannot use"),
        "{text}"
    );
}

#[tokio::test]
async fn an_index_that_the_plan_does_not_use_is_refused() {
    sql("CREATE TABLE schema_scan (k text COLLATE \"C\", v text); \
         CREATE UNIQUE INDEX ON schema_scan (k COLLATE \"POSIX\")");
    let text = refused("relation=schema_scan&key=k").await;
    assert!(
        text.contains(
            "reading public.schema_scan by its key would read all of it (Seq Scan on schema_scan t)"
        ),
        "{text}"
    );
}

#[tokio::test]
async fn names_that_do_not_exist_bring_the_nearest_that_do() {
    sql("CREATE TABLE schema_names (id int PRIMARY KEY, payload text); CREATE SCHEMA other; \
         CREATE TABLE other.far (id int)");
    let text = refused("relation=schema_nmaes&key=id").await;
    assert!(
        text.starts_with("relation schema_nmaes does not exist; did you mean schema_names?"),
        "{text}"
    );
    let text = refused("relation=others.far&key=id").await;
    assert!(
        text.starts_with("relation others.far does not exist; did you mean other.far?"),
        "{text}"
    );
    let text = refused("relation=schema_names&key=id&columns=paylod").await;
    assert_eq!(
        text,
        "public.schema_names has no column paylod; did you mean payload? There are: id, payload"
    );
    let text = refused("relation=schema_names&key=number").await;
    assert_eq!(text, "public.schema_names has no column number; there are: id, payload");
}

#[tokio::test]
async fn relations_without_an_index_of_their_own_are_refused() {
    sql("CREATE TABLE schema_base (k int PRIMARY KEY, v text); \
         CREATE VIEW schema_view AS SELECT * FROM schema_base;
         CREATE SEQUENCE schema_sequence;
         CREATE MATERIALIZED VIEW schema_mat AS SELECT * FROM schema_base; \
         CREATE UNIQUE INDEX ON schema_mat (k)");
    let text = refused("relation=schema_view&key=k").await;
    assert!(
        text.starts_with("public.schema_view is a view, which has no index of its own"),
        "{text}"
    );
    let text = refused("relation=schema_sequence&key=k").await;
    assert_eq!(text, "public.schema_sequence is no table");
    let text = refused("relation=schema_mat&key=k&writable=true").await;
    assert_eq!(text, "public.schema_mat is a materialized view and cannot be writable");
}

#[tokio::test]
async fn key_types_under_which_different_keys_are_one_are_refused() {
    sql("CREATE COLLATION schema_loose (provider = icu, locale = 'und-u-ks-level2', \
         deterministic = false);
         CREATE TABLE schema_types (c char(4) UNIQUE, n numeric UNIQUE, \
         l text COLLATE schema_loose UNIQUE, v text)");
    for (column, expected) in [
        (
            "c",
            "character(4): char(n) ignores trailing blanks, so that different keys would be one; \
             use varchar or text",
        ),
        (
            "n",
            "numeric: keys can be text, varchar, bytea, uuid, smallint, integer, \
             bigint and domains over them",
        ),
        ("l", "text: its collation is not deterministic, so that different keys would be one"),
    ] {
        let text = refused(&format!("relation=schema_types&columns=v&key={column}")).await;
        assert_eq!(text, format!("key column {column} of public.schema_types is {expected}"));
    }
}

#[tokio::test]
async fn what_the_role_may_not_do_is_said_with_the_grant_that_would_help() {
    sql("CREATE TABLE schema_rights (k int PRIMARY KEY, v text, w text);
         CREATE ROLE weak LOGIN; GRANT SELECT (k, v) ON schema_rights TO weak");
    check(&settings_as("weak", "relation=schema_rights&key=k&columns=v"))
        .await
        .expect("two columns suffice");
    let text = refused_as("weak", "relation=schema_rights&key=k").await;
    assert_eq!(
        text,
        "weak may not SELECT w of public.schema_rights; \
         GRANT SELECT ON public.schema_rights TO weak would allow it"
    );
    let text = refused_as("weak", "relation=schema_rights&key=k&columns=v&writable=true").await;
    assert_eq!(
        text,
        "weak may not INSERT k, v of public.schema_rights; \
         GRANT INSERT ON public.schema_rights TO weak would allow it"
    );
}
