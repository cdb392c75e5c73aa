//! The dashboard in a browser, and `/api/stats` behind it.

mod browser;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use busload_cluster::Cluster;
use serde_json::Value;
use tempfile::tempdir;

use crate::{
    disks::busload_behind,
    support::{Client, Ended, Server, busload, client::command, fixtures, serve},
};
use browser::{Browser, DARK, DESKTOP, PHONE};

/// Rows of the relation that the load reads.
const ROWS: usize = 100;
/// Requests that a client of the load sends at once.
const PIPELINE: usize = 32;
const PASSWORD: &str = "a pass/word";

/// Clients that read and write tables of all kinds until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(resp: SocketAddr, chunks: &[String]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let key = |index: usize| format!("objects:key-{}", index % ROWS);
        let of = |request: &dyn Fn(usize) -> Vec<u8>| (0..PIPELINE).flat_map(request).collect();
        let batches: [Vec<u8>; 4] = [
            of(&|index| command(&["SET", &format!("k{index}"), "value"])),
            of(&|index| command(&["GET", &format!("k{index}")])),
            of(&|index| command(&["GET", &key(index)])),
            of(&|index| command(&["GET", &format!("db:{}", chunks[index % chunks.len()])])),
        ];
        let clients = batches.map(|batch| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let mut client = Client::connect(resp);
                assert_eq!(client.text(&["AUTH", PASSWORD]), "OK");
                while !stop.load(Ordering::Relaxed) {
                    client.send(&batch);
                    (0..PIPELINE).for_each(|_| _ = client.receive().unwrap());
                }
            })
        });
        Self { stop, clients: clients.into() }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
    }
}

/// Starts a server with tables of all kinds and a password, which is asked for because it listens
/// on all addresses.
fn server_with_all_kinds(data: &std::path::Path) -> Server {
    let cluster = Cluster::shared().unwrap();
    let rows = format!(
        "CREATE TABLE dashboard (k text PRIMARY KEY, v text); \
         INSERT INTO dashboard SELECT 'key-' || i, i FROM generate_series(0, {ROWS} - 1) i"
    );
    cluster.execute(&rows).unwrap();
    let url = cluster.url();
    let objects = format!("objects={url}?relation=dashboard&key=k&timeout=60s");
    let chunks = fixtures::table("db", "real-classic", "disk_free=0");
    let arguments = ["--http", "0.0.0.0:0", "--table", &objects, "--table", &chunks];
    let mut command = serve(data, &arguments);
    command.env("BUSLOAD_PASSWORD", PASSWORD);
    Server::try_start(command).unwrap()
}

fn stats_of(browser: &mut Browser) -> Value {
    browser.value("fetch(new URL('api/stats', location.origin)).then((answer) => answer.json())")
}

/// Returns the number of a field of INFO.
fn info(client: &mut Client<std::net::TcpStream>, field: &str) -> f64 {
    let text = client.text(&["INFO"]);
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {field} in {text}")).trim().parse().unwrap()
}

#[test]
fn a_person_sees_the_load_move_and_agree_with_the_counters() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempdir().unwrap();
    let server = server_with_all_kinds(&directory.path().join("d"));
    for path in ["/", "/api/stats", "/costs"] {
        assert_eq!(server.http(path).0, "HTTP/1.1 401 Unauthorized");
    }

    // A password in the address, as people type it, must not get into the page's own requests.
    let port = server.address("http").port();
    browser.open(&format!("http://busload:a%20pass%2Fword@127.0.0.1:{port}/"));
    browser.until("document.documentElement.dataset.uptime !== undefined");
    browser.show_on(DESKTOP);
    browser.until("document.getElementById('health').className === 'ok'");
    assert_eq!(browser.number("request-total"), 0.0);
    browser.picture("start");

    let chunks: Vec<String> =
        fixtures::listed("real-classic").into_iter().map(|chunk| chunk.address).collect();
    let load = Load::start(server.address("resp"), &chunks);
    browser.until("1000 < Number(document.getElementById('request-rate').dataset.value)");
    browser.until("1 < Number(document.getElementById('batch-mean').dataset.value)");
    // Every stage and source does something, and every table has its line.
    for node in ["clients", "net", "tx", "log", "disk", "objects", "db"] {
        browser.until(&format!(
            "!/^0(\\s|$)/.test(document.querySelector('[data-node={node}] .big').textContent)"
        ));
    }
    browser.until("5 < document.querySelectorAll('#picture .pill:not(.idle)').length");
    for table in ["objects", "db"] {
        browser.until(&format!(
            "document.getElementById('moment-values').textContent.includes('{table}: ')"
        ));
    }
    browser.until("document.querySelectorAll('#chart .series').length === 3");
    browser.until("document.querySelector('#histograms figure') !== null");
    let before = browser.number("request-total");
    browser.until_next_answer();
    assert!(before < browser.number("request-total"), "the numbers move");
    browser.picture("load");
    keys_do_what_a_mouse_does(&mut browser);
    browser.show_on(DARK);
    let dark = browser.value("getComputedStyle(document.body).backgroundColor");
    browser.picture("dark");
    browser.show_on(PHONE);
    let light = browser.value("getComputedStyle(document.body).backgroundColor");
    assert_ne!(dark, light);
    has_no_horizontal_scroll(&mut browser);
    browser.picture("phone");
    browser.show_on(DESKTOP);
    load.stop();
    shows_slow_commands_as_text(&mut browser, &server);
    agrees_with_the_counters(&mut browser, &server);
    pauses_while_nobody_looks(&mut browser);
    assert_eq!(browser.errors(), Vec::<String>::new());
}

/// Asserts that what the page shows is what `/api/stats` serves and what INFO counts.
fn agrees_with_the_counters(browser: &mut Browser, server: &Server) {
    let mut client = server.client();
    assert_eq!(client.text(&["AUTH", PASSWORD]), "OK");
    let fields = ["keyspace_hits", "log_records", "log_syncs", "tx_batches", "net_batches"];
    let counted = fields.map(|field| info(&mut client, field));
    // The last command: what it counts are those before it.
    let commands = info(&mut client, "total_commands_processed");
    let executed = format!(
        "{commands} <= Number(document.getElementById('request-total')\
         .dataset.value) && document.getElementById('request-rate').dataset.value === '0'"
    );
    browser.until(&executed);
    let stats = stats_of(browser);
    let shown = browser.number("request-total");
    assert_eq!(stats["commands"]["executed"].as_f64(), Some(shown));
    assert!((commands..=commands + 1.0).contains(&shown), "{commands} {shown}");
    let [hits, records, syncs, tx_batches, net_batches] = counted;
    assert_eq!(stats["commands"]["hits"].as_f64(), Some(hits));
    assert_eq!(stats["log"]["records"].as_f64(), Some(records));
    assert_eq!(stats["log"]["syncs"].as_f64(), Some(syncs));
    for (name, batches) in [("tx", tx_batches), ("net", net_batches)] {
        let stages = stats["stages"].as_array().unwrap();
        let stage = stages.iter().find(|stage| stage["name"] == name).unwrap();
        // Each INFO was a batch of its own, and so may be the end of a connection.
        let since = stage["batches"].as_f64().unwrap() - batches;
        assert!((0.0..=32.0).contains(&since), "{name}: {since} batches more");
    }
    for saved in stats["saved"].as_array().unwrap() {
        let name = saved["name"].as_str().unwrap();
        assert!(PIPELINE as f64 <= saved["requests"].as_f64().unwrap(), "{saved}");
        for part in ["requests", "round_trips"] {
            let shown = browser.number(&format!("saved-{name}-{part}"));
            assert_eq!(saved[part].as_f64(), Some(shown), "{name} {part}");
        }
    }
    let statements = info(&mut client, "table_objects_read_batches");
    assert_eq!(stats["saved"][0]["round_trips"].as_f64(), Some(statements));
}

/// Asserts that a slow command is shown, and as text, whatever it contains.
fn shows_slow_commands_as_text(browser: &mut Browser, server: &Server) {
    let mut client = server.client();
    assert_eq!(client.text(&["AUTH", PASSWORD]), "OK");
    let threshold = ["CONFIG", "SET", "slowlog-log-slower-than"];
    assert_eq!(client.text(&[&threshold[..], &["0"]].concat()), "OK");
    assert_eq!(client.text(&["SET", "<img src=x onerror=alert(1)>", "<b>"]), "OK");
    assert_eq!(client.text(&[&threshold[..], &["10000"]].concat()), "OK");
    let rows = "document.getElementById('slow-rows')";
    browser.until(&format!("{rows}.textContent.includes('SET <img src=x onerror=alert(1)> <b>')"));
    assert_eq!(browser.value(&format!("{rows}.querySelector('img, b')")), Value::Null);
}

/// Asserts that everything that can be changed can be changed with keys, and is kept.
fn keys_do_what_a_mouse_does(browser: &mut Browser) {
    browser.value("document.activeElement.blur()");
    browser.press(&["Tab"]);
    assert_eq!(browser.value("document.activeElement.className"), "skip");
    browser.press(&["Tab"]);
    assert_eq!(browser.value("document.activeElement.name"), "measure");
    browser.press(&["ArrowRight"]);
    assert_eq!(browser.value("document.activeElement.value"), "batch");
    browser.until("document.getElementById('moment-values').textContent.includes('in a batch')");
    browser.press(&["Tab", "ArrowLeft", "ArrowLeft"]);
    browser.until("document.getElementById('moment-values').textContent.startsWith('2 s ago')");

    browser.press(&["Tab"]);
    assert_eq!(browser.value("document.activeElement.id"), "price-statements");
    let price = "document.getElementById('price-statements')";
    browser.value(&format!("{price}.select()"));
    browser.call("Input.insertText", serde_json::json!({"text": "2000000"}));
    browser.until_next_answer();
    let [requests, round_trips, saved] = ["requests", "round_trips", "money"].map(|part| {
        format!("Number(document.getElementById('saved-statements-{part}').dataset.value)")
    });
    browser.until(&format!("({requests} - {round_trips}) * 2 === {saved} && 0 < {saved}"));
    browser.open_again();
    browser.until(&format!("{price}.value === '2000000'"));
    browser.until("document.documentElement.dataset.uptime !== undefined");
}

fn has_no_horizontal_scroll(browser: &mut Browser) {
    let wide = "[document.documentElement.scrollWidth, ...[...document.querySelectorAll('main *')]\
         .map((part) => Math.floor(part.getBoundingClientRect().right))]";
    let right = browser.value(&format!("Math.max(...{wide})"));
    assert!(right.as_f64().unwrap() <= f64::from(PHONE.width), "{right}");
}

/// Asserts that a page in the background says that it is paused, and goes on when it is seen.
fn pauses_while_nobody_looks(browser: &mut Browser) {
    let hide = |hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}}); \
             document.dispatchEvent(new Event('visibilitychange'))"
        )
    };
    browser.value(&hide(true));
    browser.until("document.getElementById('live').textContent === 'paused'");
    browser.value(&hide(false));
    browser.until_next_answer();
    browser.until("document.getElementById('live').textContent === 'live'");
}

/// Asserts that the health is an error that names this, and the largest text on the page.
fn is_the_largest(browser: &mut Browser, named: &str) {
    let health = "document.getElementById('health')";
    browser.until(&format!(
        "{health}.className === 'error' && {health}.innerText.includes('{named}')"
    ));
    let largest = browser.value(
        "[...document.querySelectorAll('body *')]
            .filter((part) => part.textContent.trim() !== '')
            .map((part) => [parseFloat(getComputedStyle(part).fontSize), part.id])
            .sort(([a], [b]) => b - a)[0][1]",
    );
    assert_eq!(largest, "health-title");
}

#[test]
fn a_postgres_that_is_down_and_a_server_that_is_gone_are_the_largest_thing() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempdir().unwrap();
    let table = "objects=postgres://app@127.0.0.1:1/lake?relation=objects&key=path";
    let server = Server::start(&directory.path().join("d"), &["--table", table]);
    browser.open_dashboard(server.address("http"));
    for screen in [DESKTOP, PHONE] {
        browser.show_on(screen);
        is_the_largest(&mut browser, "table objects: down");
        is_the_largest(&mut browser, "cannot connect to postgres at 127.0.0.1:1");
    }
    has_no_horizontal_scroll(&mut browser);
    browser.show_on(DESKTOP);
    browser.until("document.querySelector('.error[data-node=objects]') !== null");
    browser.picture("postgres-down");
    assert_eq!(browser.errors(), Vec::<String>::new());

    server.kill();
    is_the_largest(&mut browser, "server: no answer");
    assert_eq!(browser.value("document.getElementById('live').textContent"), "no answer");
    let errors = browser.errors();
    let is_refused = |error: &String| error.contains("ERR_CONNECTION_");
    assert!(errors.iter().all(is_refused), "only requests failed: {errors:?}");
}

#[test]
fn the_page_of_costs_is_a_link_away_and_fits_a_phone() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempdir().unwrap();
    let server = Server::start(&directory.path().join("d"), &[]);
    browser.open_dashboard(server.address("http"));
    let link = browser.value("document.querySelector('#saved a').href");
    browser.open(link.as_str().unwrap());
    browser.until("document.title === 'busload: Why batches'");
    // The price list, and the naive server beside ours.
    assert_eq!(browser.value("document.querySelectorAll('tbody tr').length"), 15 + 4);
    let background = "getComputedStyle(document.body).backgroundColor";
    browser.change_screen(DARK);
    let dark = browser.value(background);
    browser.picture("costs-dark");
    browser.change_screen(PHONE);
    assert_ne!(dark, browser.value(background));
    has_no_horizontal_scroll(&mut browser);
    browser.picture("costs-phone");
    assert_eq!(
        browser.value("document.querySelector('header a').href"),
        browser.value("location.origin + '/'")
    );
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn a_full_disk_is_the_largest_thing_and_goes_away() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempdir().unwrap();
    let small = "mount -t tmpfs -o size=24m tmpfs \"$dir\"";
    let Some(mut command) = busload_behind(small, directory.path()) else { return };
    command.args(["serve", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"]);
    command.arg(directory.path());
    let server = Server::try_start(command).unwrap();
    let seen = format!("/proc/{}/root{}", server.process_id(), directory.path().display());
    let filler = std::path::Path::new(&seen).join("filler");
    let mut client = server.client();
    let value = "x".repeat(64 << 10);
    std::fs::write(&filler, vec![0; 4 << 20]).unwrap();
    while client.text(&["SET", "key", &value]) == "OK" {}
    browser.open_dashboard(server.address("http"));
    browser.show_on(DESKTOP);
    is_the_largest(&mut browser, "log: the disk is full");
    is_the_largest(&mut browser, "No space left on device");
    browser.until("document.querySelector('.error[data-node=log]') !== null");
    browser.picture("disk-full");

    std::fs::remove_file(&filler).unwrap();
    browser.until("document.getElementById('health').className === 'ok'");
    assert_eq!(client.text(&["SET", "key", "small"]), "OK");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn keys_and_values_of_slow_commands_are_for_those_who_know_the_password() {
    let directory = tempdir().unwrap();
    let start = |http: &str| {
        let mut command = serve(&directory.path().join(http), &["--http", http]);
        command.env("BUSLOAD_PASSWORD", PASSWORD);
        let server = Server::try_start(command).unwrap();
        let mut client = server.client();
        for request in [
            &["AUTH", PASSWORD][..],
            &["CONFIG", "SET", "slowlog-log-slower-than", "0"],
            &["SET", "card:7", "4242"],
        ] {
            assert_eq!(client.text(request), "OK");
        }
        server
    };
    let top = |server: &Server| {
        let http = format!("127.0.0.1:{}", server.address("http").port());
        let mut command = busload();
        command.args(["top", "--once", "--http", &http]).env("BUSLOAD_PASSWORD", PASSWORD);
        Ended::of(command.output().unwrap()).stdout
    };

    // On a loopback address HTTP asks for no password.
    let server = start("127.0.0.1:0");
    let stats: Value = serde_json::from_str(&server.http("/api/stats").1).unwrap();
    let commands: Vec<&str> = stats["slow"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slow| slow["command"].as_str().unwrap().split(' ').next().unwrap())
        .collect();
    assert_eq!(commands, ["SET", "CONFIG"]);
    for shown in [stats.to_string(), top(&server)] {
        assert!(shown.contains("SET (arguments need the password: SLOWLOG GET)"), "{shown}");
        assert!(!shown.contains("card:7") && !shown.contains("4242"), "{shown}");
    }

    let shown = top(&start("0.0.0.0:0"));
    assert!(shown.contains("SET card:7 4242"), "{shown}");
}

/// Adds the paths of all fields of a document: `a.b`, `a[].b`; numbers in lists have none.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                paths(value, &format!("{path}{dot}{name}"), found);
            }
        }
        // An empty list does not tell what it is of.
        Value::Array(values) if values.is_empty() => {}
        Value::Array(values) if values.iter().any(Value::is_object) => {
            values.iter().for_each(|value| paths(value, &format!("{path}[]"), found));
        }
        _ => _ = found.insert(path.to_owned()),
    }
}

#[test]
fn every_field_of_the_statistics_is_documented_and_no_other() {
    let directory = tempdir().unwrap();
    let postgres = "objects=postgres://app@127.0.0.1:1/lake?relation=objects&key=path";
    let chunks = fixtures::table("db", "real-classic", "disk_free=0");
    let dolt = directory.path().join("dolt");
    fixtures::copy("real-classic", &dolt.join("org/db"));
    let stores = format!("*/*=file://{}/{{name}}?disk=0", dolt.display());
    let tables = ["--table", postgres, "--table", &chunks, "--stores", &stores];
    let server = Server::start(&directory.path().join("d"), &tables);
    let mut client = server.client();
    let chunk = format!("org/db:{}", fixtures::listed("real-classic")[0].address);
    assert_ne!(client.text(&["STRLEN", &chunk]), "0");
    assert_eq!(client.text(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]), "OK");
    assert_eq!(client.text(&["SET", "a", "1"]), "OK");
    let stats = loop {
        let stats: Value = serde_json::from_str(&server.http("/api/stats").1).unwrap();
        let is_there = |list: &Value| *list != Value::Array(Vec::new());
        if is_there(&stats["history"]["samples"]) && is_there(&stats["busiest"]) {
            break stats;
        }
    };
    let mut served = BTreeSet::new();
    paths(&stats, "", &mut served);
    let page = include_str!("../../../../docs/dashboard.md");
    let names = |begin: &str| -> BTreeSet<String> {
        let (_, section) = page.split_once(begin).unwrap();
        let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let rows = rows.filter_map(|row| row.split_once("` |"));
        rows.flat_map(|(names, _)| names.split("`, `").map(str::to_owned)).collect()
    };
    assert_eq!(served, names("\n## Fields"));
    let columns = |field: &str| -> BTreeSet<String> {
        let columns = stats["history"][field].as_array().unwrap();
        columns.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(columns("columns"), names("\n## Columns of the history"));
    assert_eq!(columns("table_columns"), names("\n## Columns of a table"));

    let at_ms = stats["history"]["samples"][0]["at_ms"].as_u64().unwrap();
    let younger: Value =
        serde_json::from_str(&server.http(&format!("/api/stats?since={at_ms}")).1).unwrap();
    let samples = younger["history"]["samples"].as_array().unwrap();
    assert!(samples.iter().all(|sample| at_ms < sample["at_ms"].as_u64().unwrap()), "{younger}");
    assert!(server.http("/api/stats?since=x").0.ends_with("400 Bad Request"));
}
