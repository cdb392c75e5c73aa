use super::*;
use crate::config::{OPTION_KEYS, Options, TableChanges, resolve};
use crate::machine::Machine;
use busload_postgres::Environment;

const MACHINE: Machine = Machine { processors: 2, memory_bytes: Some(10 << 30) };

fn config(change: impl FnOnce(&mut Options)) -> Config {
    let mut options = Options::default();
    change(&mut options);
    let resolved = resolve(options, None, TableChanges::default(), &MACHINE, &Environment::empty());
    resolved.unwrap_or_else(|failure| panic!("{failure}"))
}

fn with_tables(tables: &[&str]) -> Config {
    config(|options| options.tables = tables.iter().map(|table| table.parse().unwrap()).collect())
}

/// Returns the differences of tables as people see them.
fn tables_differ(before: &[&str], after: &[&str]) -> Vec<String> {
    let found = changes(&with_tables(before), &with_tables(after));
    assert_eq!((found.applicable, found.fixed), (vec![], vec![]));
    found.tables.iter().map(ToString::to_string).collect()
}

#[test]
fn every_setting_of_the_file_is_compared() {
    let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    assert_eq!(names, OPTION_KEYS);
    assert!(OPTION_KEYS.iter().all(|name| on_reload(name).is_some()));
    assert_eq!(on_reload("tables"), None);
}

#[test]
fn a_change_of_each_setting_is_found_alone() {
    // Those of the certificate need files, those of users, too: tests of the server have them.
    let with_files = [
        "acl_file",
        "password_file",
        "tls_cert",
        "tls_client_ca",
        "tls_key",
        "token_audience",
        "token_file",
        "token_url",
    ];
    // Those of peers and those of traces need each other, and traces a build with the feature.
    let is_alone = |setting: &&Compared| {
        !with_files.contains(&setting.name)
            && !setting.name.starts_with("peer")
            && !setting.name.starts_with("otel_")
    };
    for setting in SETTINGS.iter().filter(is_alone) {
        let value = match setting.name {
            "data" | "unix" => "x",
            "resp" | "http" => "127.0.0.1:1",
            "http_hosts" => "cache.internal",
            "http_threads" => "2",
            "http_url" => "https://cache.example.com",
            "http_url_lifetime" => "12h",
            "log_format" => "json",
            "log_level" => "info,busload_postgres=debug",
            "maxclients" => "17",
            "net_threads" => "1",
            "price_dynamodb" | "price_egress" | "price_get" | "price_list" => "0.07",
            "reply_bytes_total" => "3GiB",
            "snapshot_cpu" => "11%",
            _ => "1MiB",
        };
        let (before, after) =
            (config(|_| {}), config(|options| options.set(setting.name, &[value.into()]).unwrap()));
        let found = changes(&before, &after);
        let expected = match setting.on_reload {
            OnReload::Applied => (vec![setting.name], vec![]),
            OnReload::ContentsRead | OnReload::Restart => (vec![], vec![setting.name]),
        };
        assert_eq!((found.applicable, found.fixed), expected);
        assert_eq!(found.tables, [], "{}", setting.name);
        assert_eq!(changes(&after, &after.clone()), Changes::default(), "{}", setting.name);
    }
}

#[test]
fn changes_of_peers_need_a_restart() {
    let peers = |urls: &[&str], me: &str| {
        config(|options| {
            let urls: Vec<String> = urls.iter().map(|&url| url.to_owned()).collect();
            options.set("peers", &urls).unwrap();
            options.set("peer_self", &[me.to_owned()]).unwrap();
        })
    };
    let [a, b, c] = ["http://a:1", "http://b:1", "http://c:1"];
    let before = peers(&[a, b], a);
    assert_eq!(changes(&before, &peers(&[a, b, c], a)).fixed, ["peers"]);
    assert_eq!(changes(&before, &peers(&[a, b], b)).fixed, ["peer_self"]);
}

#[cfg(feature = "otel")]
#[test]
fn changes_of_traces_need_a_restart() {
    let traced = |name: &str, value: &str| {
        config(|options| {
            options.set("otel_endpoint", &["http://127.0.0.1:1".into()]).unwrap();
            options.set(name, &[value.into()]).unwrap();
        })
    };
    let before = traced("otel_sample", "1%");
    assert_eq!(changes(&before, &traced("otel_sample", "1.0%")), Changes::default());
    for (name, value) in
        [("otel_endpoint", "http://127.0.0.1:2"), ("otel_sample", "2%"), ("otel_service", "x")]
    {
        assert_eq!(changes(&before, &traced(name, value)).fixed, [name]);
    }
}

#[test]
fn a_default_that_is_written_down_is_no_change() {
    let written = config(|options| {
        for (name, value) in [
            ("maxclients", "10000"),
            ("memory_max", "70%"),
            ("resp", "127.0.0.1:6380"),
            ("http_url_lifetime", "1d"),
            ("data", "busload-data"),
            ("log_level", "info"),
        ] {
            options.set(name, &[value.into()]).unwrap();
        }
        options.tables = vec!["default=memory:?sync=always".parse().unwrap()];
    });
    assert_eq!(changes(&config(|_| {}), &written), Changes::default());
}

#[test]
fn another_password_counts_wherever_it_comes_from() {
    let (mut before, after) = (config(|_| {}), config(|_| {}));
    before.settings.password = Some(b"secret".into());
    assert_eq!(changes(&before, &after).fixed, ["password_file"]);
}

#[test]
fn tables_come_go_and_change() {
    let memory = "a=memory:?sync=os";
    let chunks = "b=chunks+file:///store?poll=1s";
    let rows = "c=postgres://app@db/lake?relation=t&key=k";
    assert!(tables_differ(&[memory, chunks, rows], &[memory, chunks, rows]).is_empty());
    assert!(tables_differ(&[memory, chunks, rows], &[rows, chunks, memory]).is_empty(), "order");
    assert_eq!(
        tables_differ(&[memory], &[chunks, rows]),
        ["table a (gone)", "table c (new)", "table b (new)"]
    );
    for (before, after, expected) in [
        (memory, "a=memory:?sync=off&memory_max=1GiB&evict=s3-fifo", "sync, memory_max, evict"),
        (memory, "a=chunks+file:///store", "kind"),
        (chunks, "b=chunks+file:///other?poll=1s", "url"),
        (chunks, "b=chunks+file:///store?poll=1s&fill=touched", "fill, fill_whole_max"),
        (
            chunks,
            "b=chunks+file:///store?disk=1GiB&disk_free=2GiB&directory=d&fill_whole_max=2GiB\
             &fill_memory=32MiB&memory=1MiB&requests=3&hedge=false&timeout=3s&grace_period=1m\
             &contents=stored&queue_requests=7&dolt_paths=o/r&dolt_layout=records",
            "disk, disk_free, directory, fill_whole_max, fill_memory, poll, memory, requests, \
             hedge, timeout, grace_period, contents, queue_requests, dolt_paths, dolt_layout",
        ),
        (rows, "c=postgres://app@db2/lake?relation=t&key=k", "url"),
        (rows, "c=postgres://app:x@db/lake?relation=t&key=k", "url, password"),
        (
            "c=postgres://app:x@db/lake?relation=t&key=k",
            "c=postgres://app:y@db/lake?relation=t&key=k",
            "password",
        ),
        (
            rows,
            "c=postgres://app@db/lake?relation=u&key=k,l&columns=v&separator=/&writable=true\
             &connections=3&timeout=2s&batch=7&queue_requests=9&queue_bytes=1MiB\
             &join_in_flight=true",
            "relation, key, columns, separator, writable, connections, timeout, batch, \
             queue_requests, queue_bytes, join_in_flight",
        ),
    ] {
        let name = &before[..1];
        let expected = format!("table {name} ({expected})");
        assert_eq!(tables_differ(&[before], &[after]), [expected], "{after}");
    }
}

#[test]
fn stores_by_pattern_come_go_and_change_as_tables_do() {
    let with = |stores: &[&str]| {
        config(|options| options.stores = stores.iter().map(|text| text.parse().unwrap()).collect())
    };
    let differ = |before: &[&str], after: &[&str]| -> Vec<String> {
        let found = changes(&with(before), &with(after));
        assert_eq!((found.applicable, found.fixed), (vec![], vec![]));
        found.tables.iter().map(ToString::to_string).collect()
    };
    let (all, one) = ("*/*=s3://b/{name}?disk=1GiB", "team-*/x=s3://c/{name}");
    assert!(differ(&[all, one], &[one, all]).is_empty());
    assert_eq!(differ(&[all], &[one]), ["stores */* (gone)", "stores team-*/x (new)"]);
    let other = "*/*=s3://b2/{name}?disk=1GiB&timeout=7s&stores_max=9&index_memory=2GiB&idle=1m\
                 &store_disk_min=10MiB&store_disk_max=20MiB&busiest_stores=3";
    assert_eq!(
        differ(&[all], &[other]),
        ["stores */* (url, timeout, stores_max, index_memory, idle, store_disk_min, \
          store_disk_max, busiest_stores)"]
    );
}
