use busload_pipeline::settings::SyncMode;

use super::*;

const MACHINE: Machine = Machine { processors: 2, memory_bytes: Some(10 << 30) };

fn resolved(change: impl FnOnce(&mut Options)) -> Result<Config, Failure> {
    let mut options = Options::default();
    change(&mut options);
    resolve(options, None, TableChanges::default(), &MACHINE, &Environment::empty())
}

fn refusal(change: impl FnOnce(&mut Options)) -> String {
    match resolved(change) {
        Err(Failure::Usage(message)) => message,
        Err(Failure::Run(message)) => panic!("no failure at run time: {message}"),
        Ok(_) => panic!("accepted"),
    }
}

fn password() -> Option<Password> {
    Some(Password { bytes: b"secret".into(), warning: None })
}

fn with_password(options: Options) -> Result<Config, Failure> {
    resolve(options, password(), TableChanges::default(), &MACHINE, &Environment::empty())
}

#[test]
fn nothing_said_is_a_durable_server_on_loopback() {
    let config = resolved(|_| {}).unwrap();
    assert_eq!(config.data, Path::new("busload-data"));
    assert_eq!(config.resp, ["127.0.0.1:6380".parse().unwrap()]);
    assert_eq!(config.http, Some("127.0.0.1:6381".parse().unwrap()));
    assert_eq!(config.net_threads, 0);
    assert_eq!(config.settings.tables, [TableSettings::default_table()]);
    assert_eq!(config.settings.memory_max, (10 << 30) / 100 * 70);
    assert!(config.warnings.is_empty());
}

#[test]
fn peers_need_http_and_keys_that_all_of_them_make_alike() {
    let peers = |options: &mut Options| {
        options.set("peers", &["http://a:1".into(), "http://b:1".into()]).unwrap();
        options.set("peer_self", &["http://b:1".into()]).unwrap();
    };
    let me = resolved(peers).unwrap().peers.unwrap().me;
    assert_eq!(me, "http://b:1");
    let without_http = refusal(|options| {
        peers(options);
        options.set("http", &["none".into()]).unwrap();
    });
    assert!(without_http.contains("peers without HTTP"), "{without_http}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users.acl");
    std::fs::write(&file, "").unwrap();
    let with_users = |options: &mut Options| {
        peers(options);
        options.acl_file = Some(file.clone());
    };
    let random_keys = refusal(with_users);
    assert!(random_keys.contains("the same password for all peers"), "{random_keys}");
    let mut options = Options::default();
    with_users(&mut options);
    assert!(with_password(options).unwrap().peers.is_some());
}

#[test]
fn sockets_get_a_thread_of_their_own_from_three_processors_on() {
    let on = |processors| {
        let machine = Machine { processors, ..MACHINE };
        resolve(Options::default(), None, TableChanges::default(), &machine, &Environment::empty())
            .unwrap()
            .net_threads
    };
    assert_eq!([1, 2, 3, 64].map(on), [0, 0, 1, 1]);
}

#[test]
fn other_machines_are_let_in_only_with_a_password() {
    for open in ["0.0.0.0:6380", "[::]:6380", "10.1.2.3:6380", "[::ffff:127.0.0.1]:6380"] {
        let resp = |options: &mut Options| options.resp = vec![open.parse().unwrap()];
        let http = |options: &mut Options| options.http = Some(open.parse().unwrap());
        for listen in [&resp as &dyn Fn(&mut Options), &http] {
            let message = refusal(listen);
            for part in [open, "--password-file", "BUSLOAD_PASSWORD", "127.0.0.1"] {
                assert!(message.contains(part), "{message}");
            }
            let mut options = Options::default();
            listen(&mut options);
            assert!(with_password(options).is_ok());
        }
    }
}

#[test]
fn http_asks_for_the_password_where_other_machines_can_ask() {
    for (address, asks) in [
        ("127.0.0.1:6381", false),
        ("[::1]:6381", false),
        ("none", false),
        ("0.0.0.0:6381", true),
        ("[::]:6381", true),
        ("10.1.2.3:6381", true),
    ] {
        let options = Options { http: Some(address.parse().unwrap()), ..Options::default() };
        assert_eq!(with_password(options).unwrap().front.access.asks(), asks, "{address}");
    }
    assert!(!resolved(|_| {}).unwrap().front.access.asks());
}

#[test]
fn the_url_of_the_front_is_as_it_was_given() {
    assert_eq!(resolved(|_| {}).unwrap().front.url, None);
    let config =
        resolved(|options| options.http_url = Some("https://cache.example.com/".parse().unwrap()));
    assert_eq!(config.unwrap().front.url.as_deref(), Some("https://cache.example.com"));
}

#[test]
fn a_server_that_nobody_can_reach_is_refused() {
    let none = |options: &mut Options| options.resp = vec![Listen::Nowhere];
    assert!(refusal(none).contains("no client could connect"));
    let with_chunks = |http: &'static str| {
        resolved(move |options| {
            none(options);
            options.http = Some(http.parse().unwrap());
            options.tables = vec!["t=chunks+s3://bucket/db".parse().unwrap()];
        })
    };
    assert!(
        with_chunks("127.0.0.1:6381").unwrap().resp_addresses().is_empty(),
        "Dolt's clients and gRPC can"
    );
    assert!(with_chunks("none").is_err());
    let config = resolved(|options| {
        none(options);
        options.unix = Some("/tmp/s".into());
    });
    assert_eq!(config.unwrap().resp_addresses(), [Address::Unix("/tmp/s".into())]);
}

#[test]
fn the_default_table_comes_first_wherever_it_was_named() {
    let config = resolved(|options| {
        options.tables = ["b=memory:", "a=memory:", "default=memory:?sync=os"]
            .map(|t| t.parse().unwrap())
            .into();
    });
    let tables = config.unwrap().settings.tables;
    let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!((names, tables[0].sync), (vec!["default", "b", "a"], SyncMode::Os));
}

#[test]
fn limits_are_checked_against_each_other() {
    let size = |text: &str| Some(text.parse().unwrap());
    assert!(
        refusal(|options| options.client_reply_bytes = size("1KiB")).contains("expected 64 KiB to")
    );
    assert!(refusal(|options| options.request_bytes = size("4GiB")).contains("out of range"));
    let message = refusal(|options| {
        options.client_reply_bytes = size("2MiB");
        options.reply_bytes_total = size("1MiB");
    });
    assert!(message.contains("expected at least as much"), "{message}");
    // A larger limit for one client alone raises the default for all.
    let config = resolved(|options| options.client_reply_bytes = size("2GiB")).unwrap();
    assert_eq!(config.settings.reply_bytes_total, 2 << 30);
}

#[test]
fn unknown_memory_means_no_limit_and_a_warning() {
    let machine = Machine { memory_bytes: None, ..MACHINE };
    let config =
        resolve(Options::default(), None, TableChanges::default(), &machine, &Environment::empty())
            .unwrap();
    assert_eq!((config.settings.memory_max, config.warnings.len()), (0, 1));
}

#[test]
fn a_table_is_given_once() {
    let table: super::table::TableSpec = "a=memory:".parse().unwrap();
    let flags = Options { tables: vec![table.clone(), table], ..Options::default() };
    let refused = Config::load(None, flags, TableChanges::default(), &MACHINE);
    assert!(matches!(refused, Err(Failure::Usage(message)) if message.contains("given twice")));
}

#[test]
fn a_name_is_used_once_whatever_the_kinds() {
    let given =
        ["a=memory:", "a=postgres://app@db/x?relation=t&key=k"].map(|table| table.parse().unwrap());
    let flags = Options { tables: given.to_vec(), ..Options::default() };
    let refused = Config::load(None, flags, TableChanges::default(), &MACHINE);
    assert!(matches!(
        refused,
        Err(Failure::Usage(message)) if message.contains("--table a is given twice")
    ));
}

#[test]
fn postgres_tables_become_sources_beside_the_default_table() {
    let config = resolved(|options| {
        let tables = ["b=memory:", "objects=postgres://app@db/x?relation=t&key=k"];
        options.tables = tables.map(|table| table.parse().unwrap()).into();
    });
    let config = config.unwrap();
    let names: Vec<&str> = config.settings.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["default", "b"]);
    assert_eq!(config.settings.sources, [SourceTable { name: "objects".into(), kind: "postgres" }]);
    assert_eq!(config.postgres[0].name, "objects");
    let wrong = |options: &mut Options| {
        options.tables = vec!["objects=postgres://app@db/x?relation=t".parse().unwrap()];
    };
    assert!(refusal(wrong).contains("table objects: key is missing"));
}

#[test]
fn chunk_tables_become_sources_with_a_cache_below_the_data() {
    let config = resolved(|options| {
        options.data = Some("/var/lib/busload".into());
        options.tables =
            ["db=chunks+s3://b/p", "b=memory:"].map(|table| table.parse().unwrap()).into();
    });
    let config = config.unwrap();
    assert_eq!(config.settings.sources, [SourceTable { name: "db".into(), kind: "chunks" }]);
    assert_eq!(config.chunks[0].directory, Path::new("/var/lib/busload/cache/db"));
}

#[test]
fn two_caches_cannot_share_a_directory() {
    let message = refusal(|options| {
        let tables = ["a=chunks+s3://b/p?directory=/c", "b=chunks+s3://b/q?directory=/c"];
        options.tables = tables.map(|table| table.parse().unwrap()).into();
    });
    assert!(message.contains("tables a and b have one directory, /c"), "{message}");
}

#[test]
fn a_path_for_dolt_leads_to_one_table() {
    let of_tables = |tables: &[&str]| {
        let tables: Vec<_> = tables.iter().map(|table| table.parse().unwrap()).collect();
        resolved(|options| options.tables = tables)
    };
    let chunks =
        |name: &str, paths: &str| format!("{name}=chunks+file:///{name}?dolt_paths={paths}");
    for (tables, parts) in [
        (
            [chunks("a", "x/y"), chunks("b", "z,x/y")],
            ["table b", "`x/y` of dolt_paths is also one of table a"],
        ),
        (
            [chunks("a", "x,x"), chunks("b", "z")],
            ["table a", "`x` of dolt_paths is also one of table a"],
        ),
        (
            [chunks("a", "b"), chunks("b", "z")],
            ["table a", "`b` of dolt_paths is the name of table b"],
        ),
        (
            [chunks("a", "z"), chunks("b", "a")],
            ["table b", "`a` of dolt_paths is the name of table a"],
        ),
        ([chunks("a", "m"), "m=memory:".to_owned()], ["table a", "is the name of table m"]),
        (
            [chunks("a", "default"), "m=memory:".to_owned()],
            ["table a", "is the name of table default"],
        ),
    ] {
        match of_tables(&tables.each_ref().map(String::as_str)) {
            Err(Failure::Usage(message)) => {
                assert!(parts.iter().all(|part| message.contains(part)), "{tables:?}: {message}");
            }
            _ => panic!("{tables:?} are accepted"),
        }
    }
    // A table's own name is a path to it anyway.
    let config = of_tables(&[&chunks("a", "x/y,a"), &chunks("b", "x/z")]).unwrap();
    assert_eq!(config.chunks[0].dolt_paths, ["x/y", "a"]);
}

#[test]
fn levels_of_the_log_come_from_the_environment_unless_they_are_nonsense() {
    let read = |value: &str| log_levels_of_environment(Some(value.into()));
    let levels = read("warn,busload_log=debug").unwrap().log_level.unwrap();
    assert_eq!(levels.to_string(), "warn,busload_log=debug");
    assert_eq!(read("").unwrap(), Options::default());
    let error = read("loud").unwrap_err().to_string();
    assert!(error.contains("BUSLOAD_LOG") && error.contains("expected error"), "{error}");
}
