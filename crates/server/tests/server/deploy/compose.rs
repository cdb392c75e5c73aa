//! The Compose file: its own configuration, on a real Postgres and a real S3 server.

use std::{collections::BTreeSet, fs};

use busload_bucket::Bucket;
use busload_cluster::Cluster;
use yaml_rust2::Yaml;

use super::{CONFIGURATION, DATA, assert_taken, checked, file, parsed, path, port, texts, yaml};
use crate::support::{Server, busload, eventually, fixtures};

const FILE: &str = "deploy/compose/compose.yaml";
const SETTINGS: &str = "deploy/compose/busload.toml";

fn service(name: &str) -> Yaml {
    yaml(FILE)[0]["services"][name].clone()
}

/// Returns the value of a variable of a service.
#[track_caller]
fn variable(service: &Yaml, name: &str) -> String {
    let value = service["environment"][name].as_str().unwrap_or_else(|| panic!("no {name}"));
    // `${NAME:-default}`
    let default = value.strip_prefix("${").and_then(|rest| rest.split_once(":-"));
    default.map_or(value, |(_, default)| default.trim_end_matches('}')).to_owned()
}

#[test]
fn services_fit_together() {
    let busload = service("busload");
    let arguments = texts(&busload["command"]);
    assert_eq!(arguments, ["serve", "--config", CONFIGURATION]);
    assert_taken(&arguments);
    let settings = parsed(&file(SETTINGS));
    let published: BTreeSet<String> =
        texts(&busload["ports"]).into_iter().map(str::to_owned).collect();
    let ports = ["resp", "http"].map(|front| port(&settings, front));
    // For this machine only.
    assert_eq!(published, ports.map(|port| format!("127.0.0.1:{port}:{port}")).into());
    assert_eq!(settings["data"].as_str(), Some(DATA));
    assert_eq!(busload["image"].as_str(), Some(concat!("busload:", env!("CARGO_PKG_VERSION"))));

    let kinds: BTreeSet<&str> = settings["tables"]
        .as_table()
        .unwrap()
        .values()
        .map(|table| table["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["chunks", "memory", "postgres"].into());
    let postgres = service("postgres");
    let url = format!(
        "postgres://{}@postgres:5432/{}",
        variable(&postgres, "POSTGRES_USER"),
        variable(&postgres, "POSTGRES_DB")
    );
    assert_eq!(settings["tables"]["objects"]["url"].as_str(), Some(&*url));
    for (ours, theirs) in [
        ("BUSLOAD_TABLE_OBJECTS_PASSWORD", variable(&postgres, "POSTGRES_PASSWORD")),
        ("AWS_ACCESS_KEY_ID", variable(&service("s3"), "MINIO_ROOT_USER")),
        ("AWS_SECRET_ACCESS_KEY", variable(&service("s3"), "MINIO_ROOT_PASSWORD")),
    ] {
        assert_eq!(variable(&busload, ours), theirs, "{ours}");
    }
    // Everything that is mounted from here is here, and every other volume is declared.
    let document = &yaml(FILE)[0];
    for (name, service) in document["services"].as_hash().unwrap() {
        for mount in service["volumes"].as_vec().into_iter().flatten() {
            let (source, _) = mount.as_str().unwrap().split_once(':').unwrap();
            let there = match source.starts_with('.') {
                true => path("deploy/compose").join(source).exists(),
                false => !document["volumes"].as_hash().unwrap()[&Yaml::String(source.into())]
                    .is_badvalue(),
            };
            assert!(there, "{name:?}: {source}");
        }
        for other in service["depends_on"].as_hash().into_iter().flat_map(|hash| hash.keys()) {
            assert!(!document["services"][other.as_str().unwrap()].is_badvalue(), "{other:?}");
        }
    }
    let ended = checked(&file(SETTINGS), &[]);
    assert!(ended.failed(2).contains("without a password"), "{ended:?}");
}

/// Tries the commands at the head of the file, with the databases of the file replaced by those of
/// this test.
#[test]
fn all_three_kinds_of_tables_answer() {
    let settings = file(SETTINGS);
    let cluster = Cluster::shared().unwrap();
    cluster.execute(&file("deploy/compose/init.sql")).unwrap();
    let busload_service = service("busload");
    let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
    let [access, secret] = keys.map(|name| variable(&busload_service, name));
    let directory = tempfile::tempdir().unwrap();
    let bucket = Bucket::with_credentials(directory.path(), &access, &secret).unwrap();
    fixtures::copy("real-classic", &bucket.directory().join("dolt"));

    let (database, store) = ("postgres://app@postgres:5432/lake", "s3://demo/");
    let endpoint = "endpoint=http://s3:9000";
    for part in [database, store, endpoint] {
        assert!(settings.contains(part), "{part}");
    }
    let settings = settings
        .replace(database, &cluster.url())
        .replace(store, &format!("s3://{}/", Bucket::NAME))
        .replace(endpoint, &format!("endpoint=http://{}", bucket.address()));
    let path = directory.path().join("busload.toml");
    fs::write(&path, settings).unwrap();
    let mut command = busload();
    command.arg("serve").arg("--config").arg(&path);
    command.arg("--data").arg(directory.path().join("data"));
    command.args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    for name in ["BUSLOAD_PASSWORD", "BUSLOAD_TABLE_OBJECTS_PASSWORD"].into_iter().chain(keys) {
        command.env(name, variable(&busload_service, name));
    }
    let server = Server::try_start(command).unwrap();
    let mut client = server.client();
    assert_eq!(client.text(&["AUTH", &variable(&busload_service, "BUSLOAD_PASSWORD")]), "OK");

    let text = file(FILE);
    let mut answered = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.split_once(" -a demo ")) {
        let words: Vec<&str> = line.1.split(' ').collect();
        let expected = match words[1].split_once(':').unwrap() {
            ("sessions", _) => "OK".to_owned(),
            ("objects", _) => "hello from Postgres".to_owned(),
            ("db", address) => {
                let listed = fixtures::listed("real-classic");
                let chunk = listed.iter().find(|chunk| chunk.address == address).unwrap();
                let length = chunk.bytes.to_string();
                eventually("the chunk", || client.text(&["STRLEN", words[1]]) == length);
                answered.insert(words[1]);
                continue;
            }
            _ => panic!("{words:?}"),
        };
        eventually("an answer", || client.text(&words) == expected);
        answered.insert(words[1]);
    }
    assert_eq!(answered.len(), 3, "{answered:?}");
    assert!(server.stop().success());
}
