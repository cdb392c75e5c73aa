//! INFO, metrics and logs of chunk tables.

use std::fs;

use super::{Served, away, fixtures};
use crate::support::{Server, serve};

#[test]
fn info_and_metrics_show_stores_and_where_answers_came_from() {
    let chunks = fixtures::listed("real-classic");
    let mut served = Served::start(&[&fixtures::table("db", "real-classic", "")], &[]);
    let root = fs::read_to_string(fixtures::store("real-classic").join("manifest")).unwrap();
    let root = root.split(':').nth(3).unwrap().to_owned();
    for listed in &chunks {
        assert_eq!(served.run(&format!("STRLEN db:{}", listed.address)), listed.bytes.to_string());
    }
    assert_eq!(served.run("GET db:00000000000000000000000000000000"), "nil");
    let tables = served.run("INFO tables");
    let line = tables.lines().find_map(|line| line.strip_prefix("table_db:")).unwrap();
    for part in [
        "kind=chunks,state=open,",
        &format!("root={root},"),
        "files=8,chunks=1120,",
        "errors=0,",
        "waiting=0,",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(served.run("INFO stages").contains("table_db_read_batches:"));
    let metric = |name: &str| served.server.metric(&format!("{name}{{table=\"db\"}}"));
    assert_eq!(metric("busload_chunks_files"), 8.0);
    assert_eq!(metric("busload_chunks_stored"), 1120.0);
    assert!(1121.0 <= metric("busload_chunks_requests_total"));
    assert_eq!(metric("busload_chunks_direct_requests_total"), 1120.0);
    let (saved, sent) =
        (metric("busload_chunks_saved_requests"), metric("busload_chunks_store_requests_total"));
    assert!(saved <= 1120.0 && 1120.0 - sent <= saved, "{saved} {sent}");
    assert_eq!(metric("busload_chunks_saved_usd"), 0.0, "a folder costs nothing");
    assert!(
        0.0 < metric("busload_chunks_store_bytes_total")
            && 0.0 < metric("busload_chunks_index_bytes")
    );
    let outcome = |name: &str| {
        served
            .server
            .metric(&format!("busload_chunks_answers_total{{table=\"db\",outcome=\"{name}\"}}"))
    };
    assert_eq!(outcome("absent"), 1.0);
    assert_eq!(outcome("error"), 0.0);
    assert!(1120.0 <= outcome("local") + outcome("remote"));
    let info =
        format!("busload_chunks_info{{table=\"db\",state=\"open\",root=\"{root}\",error=\"\"}}");
    assert_eq!(served.server.metric(&info), 1.0);
    // Without chunk tables there are no metrics of them.
    let directory = tempfile::tempdir().unwrap();
    let plain = Server::start(directory.path(), &[]);
    assert!(!plain.http("/metrics").1.contains("busload_chunks"));
}

#[test]
fn the_log_says_what_is_served_and_the_cache_is_below_the_data() {
    let table = fixtures::table("db", "real-classic", "disk=1GiB&contents=stored");
    let served = Served::start(&[&table], &[]);
    let said = served.server.said().join("\n");
    assert!(said.contains("table db: file:///") && said.contains("1 GiB of disk in"), "{said}");
    assert!(said.contains("chunks as stored"), "{said}");
    assert!(served.data.path().join("cache/db").is_dir());
}

#[test]
fn secrets_are_taken_from_the_environment_and_shown_nowhere() {
    let data = tempfile::tempdir().unwrap();
    let (_held, nobody) = away();
    let table =
        format!("db=chunks+s3://bucket/p?endpoint=http://{nobody}&region=us-east-1&timeout=1s");
    let mut command = serve(data.path(), &["--log-level", "trace", "--table", &table]);
    command
        .env("AWS_ACCESS_KEY_ID", "open-sesame-id")
        .env("AWS_SECRET_ACCESS_KEY", "open-sesame-secret");
    let mut server = Server::try_start(command).unwrap();
    let mut client = server.client();
    let reply = client.text(&["GET", "db:00000000000000000000000000000000"]);
    assert!(reply.starts_with("-ERR table db: "), "{reply}");
    let info = client.text(&["INFO", "everything"]);
    let (_, metrics) = server.http("/metrics");
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success());
    let said = server.said().join("\n");
    for (place, shown) in [("reply", reply), ("info", info), ("metrics", metrics), ("log", said)] {
        assert!(!shown.contains("open-sesame-secret"), "{place}: {shown}");
    }
}
