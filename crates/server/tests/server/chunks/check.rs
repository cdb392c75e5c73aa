//! Output and exit codes of `busload check` and of refused starts, for chunk stores.

use tempfile::tempdir;

use super::{Served, away, fixtures};
use crate::support::{Server, checked, run};

#[test]
fn a_store_that_can_be_opened_is_described() {
    let ended = checked(&[&fixtures::table("db", "real-archive-v3", "")]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in
        ["db: file:///", "10 GiB of disk in", "root ", "8 files, 1120 chunks", "would succeed"]
    {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
}

#[test]
fn a_store_that_could_not_be_served_ends_it_with_1_and_its_reason() {
    let (_held, nobody) = away();
    let away = format!(
        "away=chunks+s3://bucket/p?endpoint=http://{nobody}&region=us-east-1&anonymous=true"
    );
    let journal = fixtures::table("journal", "real-journal", "");
    let ended = checked(&[&away, &journal, &fixtures::table("db", "real-classic", "")]);
    let line = ended.failed(1);
    assert!(line.contains("table away could not be served: "), "{line}");
    assert!(
        line.contains("table journal could not be served: ") && line.contains("journal"),
        "{line}"
    );
    assert!(ended.stdout.contains("8 files, 1120 chunks"), "the others are told: {}", ended.stdout);
    assert!(ended.stdout.contains("would succeed"), "a start serves the others: {}", ended.stdout);
}

#[test]
fn what_is_configured_wrongly_ends_it_with_2() {
    for (table, part) in [
        ("db=chunks+s3://bucket/p?dsk=1GiB", "did you mean `disk`?"),
        ("db=chunks+ftp://bucket/p", "expected file, s3, aws, gs, az"),
        ("db=chunks+aws://t:b/p", "expected aws://[TABLE:BUCKET]/DATABASE"),
        ("db=chunks+s3://bucket/p?poll=0", "table db: poll = 0ns is out of range"),
        ("default=chunks+s3://bucket/p", "which only a memory table can"),
        ("db=chunks+s3://key:hush@bucket/p", "AWS_SECRET_ACCESS_KEY"),
        (
            "db=chunks+s3://bucket/p?endpoint=nonsense",
            "table db: endpoint nonsense: expected a URL",
        ),
        ("db=chunks+file:///d?region=x", "table db: unknown key region for file://"),
    ] {
        for what in ["serve", "check"] {
            let directory = tempdir().unwrap();
            let data = directory.path().to_str().unwrap();
            let ended = run(&[what, "--data", data, "--table", table]);
            assert_eq!(ended.code, Some(2), "{what} {table}: {ended:?}");
            let line = ended.stderr.lines().last().unwrap();
            assert!(line.contains(part) && !line.contains("hush"), "{what} {table}: {line}");
        }
    }
}

#[test]
fn a_file_says_the_same_as_flags() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("busload.toml");
    let chunks = fixtures::listed("real-classic");
    let url = fixtures::url("real-classic");
    let text =
        format!("[tables.db]\nkind = \"chunks\"\nurl = \"{url}\"\ndisk = 0\nmemory = \"1MiB\"\n");
    std::fs::write(&file, text).unwrap();
    let mut served = Served::start(&[], &["--config", file.to_str().unwrap()]);
    assert_eq!(
        served.run(&format!("STRLEN db:{}", chunks[0].address)),
        chunks[0].bytes.to_string()
    );
    assert!(!served.data.path().join("cache").exists(), "no disk, no directory");
    std::fs::write(&file, format!("[tables.db]\nkind = \"chunks\"\nurl = \"{url}\"\ndsk = 0\n"))
        .unwrap();
    let line = run(&["check", "--config", file.to_str().unwrap()]).failed(2).to_owned();
    assert!(line.contains("busload.toml:4: ") && line.contains("did you mean `disk`?"), "{line}");
}

#[test]
fn two_servers_cannot_have_one_cache() {
    let (first, second, cache) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    let query = format!("directory={}", cache.path().display());
    let table = fixtures::table("db", "real-classic", &query);
    let server = Server::start(first.path(), &["--table", &table]);
    let data = second.path().to_str().unwrap();
    let ended = run(&["serve", "--data", data, "--table", &table]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let line = ended.stderr.lines().last().unwrap();
    assert!(line.contains(&cache.path().display().to_string()), "{line}");
    assert!(line.contains(&server.process_id().to_string()), "{line}");
    let checked = run(&["check", "--data", data, "--table", &table]);
    assert_eq!((checked.code, checked.stderr.lines().last()), (Some(1), Some(line)), "{checked:?}");
    assert!(server.stop().success());
    assert_eq!(run(&["check", "--data", data, "--table", &table]).code, Some(0));
}

#[test]
fn keys_that_a_table_would_hide_are_in_the_way_of_a_start() {
    let data = tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    assert_eq!(server.client().text(&["SET", "db:a", "1"]), "OK");
    assert!(server.stop().success());
    let table = fixtures::table("db", "real-classic", "");
    let data = data.path().to_str().unwrap();
    for what in ["serve", "check"] {
        let ended = run(&[what, "--data", data, "--table", &table]);
        let line = ended.failed(2);
        assert!(line.contains("1 keys that begin with `db:`"), "{line}");
    }
}
