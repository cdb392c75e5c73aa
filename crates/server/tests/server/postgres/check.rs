//! Output and exit code of `busload check` on Postgres tables.

use super::Relation;
use crate::support::checked;

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
