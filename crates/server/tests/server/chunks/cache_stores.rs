//! `busload cache list|warm|drop` for stores by pattern, run directly and through a server.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
};

use tempfile::TempDir;

use super::{Served, fixtures};
use crate::support::{Ended, TIMEOUT, eventually, run};

/// Stores below a folder, by their names and what they are copies of.
const STORES: [(&str, &str); 3] =
    [("org/a", "real-classic"), ("org/b", "real-archive-v3"), ("other/c", "real-classic")];

/// Folder with [`STORES`], and the directory of a server or a tool that serves them by pattern.
struct Scene {
    stores: TempDir,
    argument: String,
}

impl Scene {
    fn new() -> Self {
        let stores = tempfile::tempdir().unwrap();
        for (name, fixture) in STORES {
            fixtures::copy(fixture, &stores.path().join(name));
        }
        let argument = format!("*/*=file://{}/{{name}}?disk_free=0", stores.path().display());
        Self { stores, argument }
    }

    fn tool<'a>(&'a self, data: &'a TempDir, http: String) -> Tool<'a> {
        Tool { data: data.path().to_str().unwrap(), stores: &self.argument, http }
    }
}

struct Tool<'a> {
    data: &'a str,
    stores: &'a str,
    http: String,
}

impl Tool<'_> {
    fn run(&self, arguments: &[&str]) -> Ended {
        let mut all = vec!["cache"];
        all.extend(arguments);
        all.extend(["--data", self.data, "--http", &self.http, "--stores", self.stores]);
        run(&all)
    }

    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        ended.stdout
    }

    /// Returns the lines of a list that are about one store each.
    #[track_caller]
    fn listed(&self, arguments: &[&str]) -> Vec<String> {
        let listed = self.succeed(&[&["list"], arguments].concat());
        listed.lines().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned).collect()
    }

    /// Returns the names of the stores in a list.
    #[track_caller]
    fn names(&self, arguments: &[&str]) -> Vec<String> {
        let name = |line: String| line.split("  ").next().unwrap().to_owned();
        self.listed(arguments).into_iter().map(name).collect()
    }
}

/// Runs all commands on stores of which nothing is on disk.
fn live(tool: &Tool<'_>) {
    assert_eq!(tool.names(&[]), [""; 0]);
    let said = failure(&tool.run(&["warm", "org/*"]));
    assert!(said.contains("no store that is open or on disk matches `org/*`"), "{said}");
    // A store is opened by its name though nobody has asked for it.
    let said = tool.succeed(&["warm", "org/a"]);
    assert!(said.starts_with("store org/a: ") && said.ends_with(" are on disk\n"), "{said}");
    for name in ["org/b", "other/c"] {
        tool.succeed(&["warm", name]);
    }
    assert_eq!(tool.names(&[]), ["org/a", "org/b", "other/c"]);
    assert_eq!(tool.names(&["org/*"]), ["org/a", "org/b"]);
    let [one] = &tool.listed(&["org/a"])[..] else { panic!("one store") };
    assert!(one.contains(", 8 files, ") && one.contains(" on disk"), "{one}");
    let said = tool.succeed(&["warm", "*/*"]);
    assert!(said.starts_with("stores */*: 3 stores, "), "{said}");

    let said = tool.succeed(&["drop", "org/a"]);
    assert!(said.starts_with("store org/a: ") && said.contains("of disk are free"), "{said}");
    // A server has it open still.
    let is_empty = |line: &String| line.contains(", 0 files, 0 B on disk");
    assert!(tool.listed(&[]).iter().filter(|line| line.starts_with("org/a")).all(is_empty));
    assert!(tool.listed(&["other/*"])[0].contains(", 8 files, "));
    tool.succeed(&["warm", "org/a"]);
    let said = tool.succeed(&["drop", "o*/*"]);
    assert!(said.starts_with("stores o*/*: 3 stores, "), "{said}");
    assert!(tool.listed(&[]).iter().all(is_empty));
    tool.succeed(&["warm", "other/c"]);
    tool.succeed(&["drop", "*/*"]);

    for (arguments, part) in [
        (["warm", "org/missing"], "there is no store org/missing"),
        (["drop", "org/missing"], "no store that is open or on disk is called `org/missing`"),
        (["verify", "org/a"], "verify takes a table"),
        (["warm", "a/b/c"], "`a/b/c` is no table of kind chunks and fits no pattern of stores"),
        (["drop", "a*b*/x"], "`a*b*/x` is no pattern of names"),
    ] {
        let said = failure(&tool.run(&arguments));
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
}

/// Returns the last line of the errors of a command that failed, by itself or at the server.
#[track_caller]
fn failure(ended: &Ended) -> String {
    assert!(matches!(ended.code, Some(1 | 2)), "{ended:?}");
    ended.stderr.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn stores_are_worked_on_without_a_server() {
    let (scene, data) = (Scene::new(), tempfile::tempdir().unwrap());
    let tool = scene.tool(&data, "none".into());
    assert_eq!(tool.names(&[]), [""; 0]);
    assert!(!data.path().join("cache").exists(), "to look at it makes nothing");
    live(&tool);
    assert!(tool.run(&["list", "org/*"]).failed(2).contains("there are none yet"));
}

#[test]
fn stores_are_worked_on_by_the_server_that_has_them() {
    let scene = Scene::new();
    let mut served = Served::start(&[], &["--stores", &scene.argument]);
    let data = served.data.path().to_str().unwrap().to_owned();
    let http = served.server.address("http").to_string();
    let tool = Tool { data: &data, stores: &scene.argument, http };
    live(&tool);
    // Stores that were dropped are still open, and read their files again.
    for (name, fixture) in STORES {
        for listed in fixtures::listed(fixture) {
            let reply = served.run(&format!("STRLEN {name}:{}", listed.address));
            assert_eq!(reply, listed.bytes.to_string(), "{name}");
        }
    }
    let open = tool.listed(&[]);
    assert!(open.iter().all(|line| line.contains("  open, ")), "{open:?}");
    assert!(open.iter().all(|line| line.contains(" of index memory, used ")), "{open:?}");
}

/// The names of closed stores come from what is on disk: here the index of a store of which nothing
/// else is there.
#[test]
fn stores_of_a_process_before_are_known_by_their_names() {
    let scene = Scene::new();
    let argument = format!("{}&fill=touched", scene.argument);
    let mut served = Served::start(&[], &["--stores", &argument]);
    let chunk = fixtures::listed("real-archive-v3").remove(0);
    assert_eq!(served.run(&format!("EXISTS org/b:{}", chunk.address)), "1");
    let shown = |served: &Served| {
        let (status, body) = served.server.http("/api/cache/stores");
        assert!(status.contains("200"), "{status}");
        serde_json::from_str::<serde_json::Value>(&body).unwrap()[0].clone()
    };
    let has_index = |served: &Served| {
        let store = shown(served)["stores"][0].clone();
        store["name"] == "org/b" && store["files"] == 0 && store["bytes"] != 0
    };
    eventually("its index is on disk", || has_index(&served));
    assert_ne!(shown(&served)["stores"][0]["open"], serde_json::Value::Null);
    let Served { server, client, data } = served;
    drop(client);
    assert!(server.stop().success());
    let served = Served::start_in(data, &[], &["--stores", &argument]);
    assert!(has_index(&served), "{}", shown(&served));
    let store = &shown(&served)["stores"][0];
    assert_eq!(store["open"], serde_json::Value::Null, "nobody has asked for it");
    assert!(store["url"].as_str().unwrap().ends_with("/org/b"), "{store}");
}

#[test]
fn a_warming_of_many_ends_with_those_that_failed() {
    let (scene, data) = (Scene::new(), tempfile::tempdir().unwrap());
    let tool = scene.tool(&data, "none".into());
    STORES.iter().for_each(|(name, _)| drop(tool.succeed(&["warm", name])));
    fs::write(scene.stores.path().join("org/b/manifest"), "5:nonsense").unwrap();
    let ended = tool.run(&["warm", "*/*"]);
    assert!(ended.stdout.starts_with("stores */*: 2 stores, "), "{ended:?}");
    let line = failure(&ended);
    assert!(line.contains("stores */*: 1 of 3 stores failed: org/b: "), "{line}");
}

/// Sends a request to warm a store, and returns its connection and the status.
fn warm(served: &Served) -> (BufReader<TcpStream>, String) {
    let mut stream = TcpStream::connect(served.server.address("http")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let head = "POST /api/cache/org%2Fa/warm HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let (mut stream, mut status) = (BufReader::new(stream), String::new());
    stream.read_line(&mut status).unwrap();
    (stream, status)
}

/// At most four pieces of work run at once, so one that went on without its client would keep
/// others from running.
#[test]
fn a_client_that_hangs_up_cancels_the_warming_of_a_store_that_hangs() {
    // A bucket that takes connections and never answers.
    let bucket = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = busload_bucket::url(bucket.local_addr().unwrap(), "{name}");
    let served = Served::start(&[], &["--stores", &format!("*/*={url}")]);
    let mut under_way: Vec<_> = (0..4).map(|_| warm(&served)).collect();
    assert!(under_way.iter().all(|(_, status)| status.contains("200")));
    let (mut refused, status) = warm(&served);
    assert!(status.contains("429"), "{status}");
    let mut said = vec![0; 1024];
    let count = refused.read(&mut said).unwrap();
    assert!(count != 0);
    under_way.clear();
    eventually("the work has ended", || warm(&served).1.contains("200"));
}
