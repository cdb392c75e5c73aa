//! Many tables in one server.

use std::fs;

use super::{Served, fixtures};
use crate::support::eventually;

/// Number of tables of one server.
const TABLES: usize = 100;
/// Threads of the process: those of the pipeline, the log, HTTP and signals, two that wait for
/// stores, and those that block on disks.
const THREADS_MAX: usize = 50;

fn threads(served: &Served) -> usize {
    fs::read_dir(format!("/proc/{}/task", served.server.process_id())).unwrap().count()
}

/// Each store once had a cache maintenance thread of its own: 123 threads for 100 stores.
#[cfg(target_os = "linux")]
#[test]
fn a_hundred_stores_share_a_few_threads() {
    let chunks = fixtures::listed("real-classic");
    let names: Vec<String> = (0..TABLES).map(|index| format!("db{index}")).collect();
    let tables: Vec<String> = names
        .iter()
        .map(|name| fixtures::table(name, "real-classic", "disk=16MiB&poll=10ms"))
        .collect();
    let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    let mut served = Served::start(&tables, &["--net-threads", "1"]);
    let mut most = threads(&served);
    for (index, name) in names.iter().enumerate() {
        let listed = &chunks[index * 7 % chunks.len()];
        let mut reply = String::new();
        eventually("the store answers", || {
            reply = served.run(&format!("STRLEN {name}:{}", listed.address));
            !reply.starts_with('-')
        });
        assert_eq!(reply, listed.bytes.to_string(), "{name}");
        most = most.max(threads(&served));
    }
    // Each journal is written some time after a fill has reached the disk.
    for name in &names {
        let journal = served.data.path().join(format!("cache/{name}/journal"));
        eventually("the journal says what is on disk", || {
            most = most.max(threads(&served));
            fs::metadata(&journal).is_ok_and(|journal| 0 < journal.len())
        });
    }
    assert!(most <= THREADS_MAX, "{most} threads for {TABLES} stores");
    assert!(served.server.stop().success());
}
