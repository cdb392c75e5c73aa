//! State of an open connection, and its end.

use std::{
    sync::{Arc, Mutex, Once},
    time::Duration,
};

use busload_postgres::{Settings, connect::connect};

use crate::connecting::{
    fake,
    servers::{PLAIN, ask, open, settings},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_set_up() {
    let connected = open(&format!("{}?timeout=2s&options=-c%20search_path%3Dpg_temp", PLAIN.url()))
        .await
        .unwrap();
    for (name, expected) in [
        ("plan_cache_mode", "force_generic_plan"),
        ("jit", "off"),
        ("statement_timeout", "2500ms"),
        ("application_name", "busload/objects"),
        ("search_path", "pg_temp"),
        ("client_encoding", "UTF8"),
    ] {
        assert_eq!(ask(&connected, &format!("SHOW {name}")).await, expected, "{name}");
    }
    let named = open(&format!("{}?application_name=mine", PLAIN.url())).await.unwrap();
    assert_eq!(ask(&named, "SHOW application_name").await, "mine");
}

async fn within_seconds<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_connection_is_told_with_its_reason() {
    let connected = open(&format!("{}?application_name=doomed", PLAIN.url())).await.unwrap();
    let ended = connected.ended.clone();
    assert!(!ended.is_over());
    assert_eq!(PLAIN.terminate_backends("doomed").unwrap(), 1);
    let expected = format!(
        "connection to postgres at 127.0.0.1:{} lost: terminating connection due to administrator \
         command",
        PLAIN.port()
    );
    assert_eq!(&*within_seconds(ended.wait()).await, expected);
    assert!(ended.is_over() && connected.ended.is_over());
    // Later callers get the same.
    assert_eq!(&*within_seconds(ended.wait()).await, expected);
    assert!(connected.client.query("SELECT 1", &[]).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_connection_ends_it() {
    const COUNT: &str =
        "SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'dropped'";
    let watcher = open(&PLAIN.url()).await.unwrap();
    let connected = open(&format!("{}?application_name=dropped", PLAIN.url())).await.unwrap();
    assert_eq!(ask(&watcher, COUNT).await, "1");
    drop(connected);
    within_seconds(async { while ask(&watcher, COUNT).await != "0" {} }).await;
}

/// A stopped server does not close a connection after its Terminate message.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_nobody_needs_does_not_wait_for_a_stopped_server() {
    let server = fake::Server::start(fake::PeerKind::Silent).await;
    let connected = open(&server.url()).await.unwrap();
    let client = Arc::new(connected.client);
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.query("SELECT 1", &[]).await.map(|rows| rows.len()) }
    });
    drop(connected.ended);
    assert!(within_seconds(asking).await.unwrap().is_err());
    within_seconds(server.closed()).await;
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Capture;

impl log::Log for Capture {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.lock().unwrap().push(format!("{} {}", record.level(), record.args()));
    }

    fn flush(&self) {}
}

fn capture() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Capture).unwrap();
        log::set_max_level(log::LevelFilter::Debug);
    });
}

fn lines_with(part: &str) -> Vec<String> {
    LINES.lock().unwrap().iter().filter(|line| line.contains(part)).cloned().collect()
}

fn named(name: &str, url: &str) -> Settings {
    let mut settings = settings(url);
    settings.name = name.to_owned();
    settings
}

/// Poolers refuse settings that they do not track.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_setting_is_told_once_and_tolerated() {
    capture();
    let server = fake::Server::start(fake::PeerKind::RefusesSettings).await;
    let settings = named("behind_pooler", &server.url());
    for _ in 0..3 {
        connect(&settings).await.unwrap();
    }
    let mut lines = lines_with("behind_pooler: the server refuses");
    for statement in [
        "SET plan_cache_mode = force_generic_plan",
        "SET jit = off",
        "SET statement_timeout = 1500",
    ] {
        let line = format!("WARN table behind_pooler: the server refuses `{statement}`: not by me");
        assert!(lines.contains(&line), "{line} of {lines:?}");
    }
    lines.sort();
    let logged = lines.len();
    lines.dedup();
    assert_eq!(lines.len(), logged, "each once");
}

/// Once, the log said that the server refuses `SET statement_timeout`.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_while_it_is_set_up_is_lost_and_no_setting_is_refused() {
    capture();
    let server = fake::Server::start(fake::PeerKind::EndsInSetUp).await;
    let settings = named("killed_early", &server.url());
    for _ in 0..50 {
        let error = connect(&settings).await.expect_err("the server ends it").to_string();
        let (_, cause) = error.split_once(": ").expect("a cause");
        assert_eq!(cause, "connection lost while its session was set up: terminating connection");
    }
    assert_eq!(lines_with("killed_early: the server refuses"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_says_unasked_is_logged_without_its_text_which_may_show_rows() {
    capture();
    let connected = connect(&named("noticed", &PLAIN.url())).await.unwrap();
    connected
        .client
        .batch_execute("DO $$ BEGIN RAISE WARNING 'mind the gap'; END $$")
        .await
        .unwrap();
    let lines = lines_with("says WARNING 01000");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("DEBUG table noticed: 127.0.0.1:"), "{lines:?}");
    // The driver logs the statement of this test, which the server would never send.
    assert!(!lines[0].contains("mind the gap"), "{lines:?}");
}
