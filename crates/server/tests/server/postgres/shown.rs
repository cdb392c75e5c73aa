//! INFO and metrics of Postgres tables.

use super::{Relation, Served};

#[test]
fn info_and_metrics_show_tables_and_their_batches() {
    let relation = Relation::of_rows(&[("a", "1")]);
    let table = relation.table("key=pk&writable=true&connections=2");
    // The table shares the pipeline's thread, so no batch is sent in the middle of a command, and
    // its keys are in one batch.
    let mut served = Served::start(&[&table], &["--net-threads", "0"]);
    served.check(
        "GET objects:a -> 1\nGET objects:b -> nil\nSET objects:b 2 -> OK\n\
         MGET objects:a objects:a -> 1 1",
    );
    while served.server.metric("busload_postgres_connections{table=\"objects\"}") < 2.0 {}
    let tables = served.run("INFO tables");
    let line = tables.lines().find_map(|line| line.strip_prefix("table_objects:")).unwrap();
    for part in [
        "kind=postgres,state=up,connections=2/2,",
        "reads=4,",
        "writes=1,",
        "waiting=0,",
        "deduplicated=1,",
        "refused=0,",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let stages = served.run("INFO stages");
    for part in [
        "table_objects_read_batches:3",
        "table_objects_read_batch_max:1",
        "table_objects_write_batch_mean:1.00",
    ] {
        assert!(stages.contains(part), "{part}: {stages}");
    }
    let labels = "{table=\"objects\",operation=\"read\"}";
    for (name, value) in [
        ("busload_queue_requests_total", 4.0),
        ("busload_queue_joined_total", 1.0),
        ("busload_queue_batches_total", 3.0),
        ("busload_queue_batch_entries_total", 3.0),
        ("busload_queue_batch_entries_max", 1.0),
    ] {
        assert_eq!(served.server.metric(&format!("{name}{labels}")), value, "{name}");
    }
    let info = "busload_postgres_info{table=\"objects\",state=\"up\",error=\"\"}";
    assert_eq!(served.server.metric(info), 1.0);
    // Without Postgres tables these metrics do not appear.
    let directory = tempfile::tempdir().unwrap();
    let plain = crate::support::Server::start(directory.path(), &[]);
    assert!(!plain.http("/metrics").1.contains("postgres"));
}
