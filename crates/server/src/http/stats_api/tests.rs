use serde_json::Value;

use super::{document::document, *};
use busload_postgres::TableStats;

use crate::{http::front_metrics::FrontMetrics, status::ServerState};

fn of(status: &Status, change: impl FnOnce(&mut Reading<'_>)) -> Value {
    let (front, history) = (FrontMetrics::default(), History::default());
    history.add(&Reading::new(status, &front));
    let mut reading = Reading::new(status, &front);
    change(&mut reading);
    document(&reading, &history, None, SlowArguments::Shown)
}

fn reasons(document: &Value) -> Vec<(&str, &str, &str)> {
    let reasons = document["health"]["reasons"].as_array().unwrap();
    assert!(
        reasons.iter().all(|reason| reason["action"].is_string() && reason["why"].is_string()),
        "{reasons:?}"
    );
    reasons
        .iter()
        .map(|reason| {
            let field = |name: &str| reason[name].as_str().unwrap();
            (field("level"), field("subject"), field("what"))
        })
        .collect()
}

#[test]
fn the_query_is_empty_or_names_an_uptime() {
    assert_eq!(since(None), Ok(None));
    assert_eq!(since(Some("")), Ok(None));
    assert_eq!(since(Some("since=0")), Ok(Some(0)));
    assert_eq!(since(Some("since=1234")), Ok(Some(1234)));
    for wrong in ["since", "since=", "since=-1", "since=1&a=b", "until=1"] {
        assert!(since(Some(wrong)).unwrap_err().starts_with("expected ?since="), "{wrong}");
    }
}

#[test]
fn a_server_that_serves_is_healthy() {
    let status = Status::default();
    status.serve();
    let document = of(&status, |_| {});
    assert_eq!((&document["ready"], &document["health"]["level"]), (&true.into(), &"ok".into()));
    assert_eq!(reasons(&document), []);
    // `busload top` and others read bytes as whole numbers.
    let resident = &document["memory"]["resident_bytes"];
    assert!(resident.is_u64() || resident.is_null(), "{resident}");
}

#[test]
fn the_worst_reason_comes_first() {
    let status = Status::default();
    status.serve();
    status.stats.memory_max_bytes.set(100);
    status.stats.memory_used_bytes.set(95);
    let document = of(&status, |reading| {
        reading.state = ServerState::NoSpace("the disk is full".into());
        reading.status.stats.connections_rejected_total.add(7);
        reading.postgres = vec![("objects".to_owned(), TableStats::default())];
    });
    assert_eq!(
        reasons(&document),
        [
            ("error", "log", "the disk is full"),
            ("warning", "table objects", "connecting"),
            ("warning", "memory", "nearly full"),
            ("warning", "connections", "7 refused in the last minute"),
        ]
    );
    assert_eq!(document["health"]["level"], "error");
}

/// Every write to a table at its memory_max was refused, and the health was ok: the table is far
/// below the limit of all tables.
#[test]
fn writes_that_are_refused_for_memory_are_an_error() {
    let status = Status::default();
    status.serve();
    status.stats.memory_max_bytes.set(1_000);
    status.stats.memory_used_bytes.set(10);
    let document = of(&status, |reading| {
        reading.status.stats.memory_refused_total.add(5);
    });
    assert_eq!(reasons(&document), [("error", "memory", "5 commands refused in the last minute")]);
    assert_eq!(document["health"]["level"], "error");
}

#[test]
fn what_is_saved_are_requests_less_round_trips() {
    let status = Status::default();
    let mut stats = TableStats { statements: 4, ..TableStats::default() };
    stats.queue.reads.requests = 90;
    stats.queue.writes.requests = 10;
    let document = of(&status, |reading| reading.postgres = vec![("objects".to_owned(), stats)]);
    let saved = &document["saved"][0];
    assert_eq!(saved["name"], "statements");
    assert_eq!((&saved["requests"], &saved["round_trips"]), (&100.into(), &4.into()));
}
