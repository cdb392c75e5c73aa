//! Output and exit code of `busload check` on Postgres tables.

use tempfile::tempdir;

use super::{
    Relation, Served,
    support::{Server, checked, run},
};

#[test]
fn a_table_that_can_be_served_is_described() {
    let relation = Relation::of_rows(&[("a", "1")]);
    relation.execute("ANALYZE @");
    let ended = checked(&[&relation.table("key=pk&writable=true")]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in [
        "objects: postgres://busload@127.0.0.1:",
        "pk text",
        "payload text",
        "_pkey",
        "Index Scan",
        "would succeed",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
}

#[test]
fn a_table_that_could_not_be_served_ends_it_with_1_and_what_would_help() {
    let relation = Relation::new("pk text, payload text");
    let ended = checked(&[&relation.table("key=pk")]);
    let line = ended.failed(1);
    assert!(
        line.contains("table objects could not be served: ")
            && line.contains("CREATE UNIQUE INDEX"),
        "{line}"
    );
    assert!(
        ended.stdout.contains("would succeed"),
        "a start serves the other tables: {}",
        ended.stdout
    );
    let line = checked(&[&relation.table("key=pk&columns=nosuch")]).failed(1).to_owned();
    assert!(line.contains("nosuch"), "{line}");
    let away = "objects=postgres://busload@127.0.0.1:1/busload?relation=t&key=k";
    assert!(checked(&[away]).failed(1).contains("cannot connect to postgres at 127.0.0.1:1"));
    // The message names both tables.
    let other = relation.table("key=pk").replace("objects=", "others=");
    let line = checked(&[away, &other]).failed(1).to_owned();
    assert!(
        line.contains("table objects could not") && line.contains("table others could not"),
        "{line}"
    );
}

#[test]
fn a_table_that_is_configured_wrongly_ends_it_with_2() {
    for (query, part) in [
        ("relation=t", "key is missing"),
        ("relation=t&key=k&colums=v", "did you mean `columns`?"),
        ("relation=t&key=k&connections=1000", "expected 1 to"),
    ] {
        let line =
            checked(&[&format!("objects=postgres://app@db/lake?{query}")]).failed(2).to_owned();
        assert!(line.contains("table objects: ") && line.contains(part), "{line}");
    }
    let table = "objects=postgres://app@db/lake?relation=t&key=k";
    assert!(checked(&[table, "objects=memory:"]).failed(2).contains("given twice"));
}

#[test]
fn keys_that_a_table_would_hide_are_in_the_way_of_a_start() {
    let directory = tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let server = Server::start(directory.path(), &[]);
    assert_eq!(server.client().text(&["SET", "objects:a", "1"]), "OK");
    assert!(server.stop().success());
    let relation = Relation::of_rows(&[("a", "1")]);
    let table = relation.table("key=pk");
    for what in ["serve", "check"] {
        let ended = run(&[
            what,
            "--data",
            data,
            "--http",
            "none",
            "--resp",
            "127.0.0.1:0",
            "--table",
            &table,
        ]);
        let line = ended.failed(2);
        assert!(line.contains("1 keys that begin with `objects:`"), "{line}");
    }
    // With --adopt-tables the keys became the table's.
    let mut served = Served::start(&[&table], &[]);
    served.check("GET objects:a -> 1\nSET m 1 -> OK");
}
