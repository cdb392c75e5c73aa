//! Ordering guarantees for one client and for several.

use std::{collections::HashMap, thread};

use busload_io::sim::SimRng;

use super::{Relation, Served};
use crate::support::client::{command, text};

/// Compares a pipeline over a few keys with a plain map.
#[test]
fn a_pipeline_takes_effect_in_its_order() {
    for net_threads in ["0", "1"] {
        let relation = Relation::of_rows(&[]);
        let table = relation.table("key=pk&writable=true&timeout=60s");
        let mut served = Served::start(&[&table], &["--net-threads", net_threads]);
        let mut rng = SimRng::new(5);
        let (mut model, mut requests, mut expected) = (HashMap::new(), Vec::new(), Vec::new());
        for number in 0..3000 {
            let table = if rng.chance(1, 4) { "" } else { "objects:" };
            let key = format!("{table}k{}", rng.below(6));
            match rng.below(4) {
                0 => {
                    requests.extend(command(&["SET", &key, &number.to_string()]));
                    expected.push("OK".to_owned());
                    model.insert(key, number.to_string());
                }
                1 => {
                    requests.extend(command(&["DEL", &key]));
                    expected.push(u8::from(model.remove(&key).is_some()).to_string());
                }
                _ => {
                    requests.extend(command(&["GET", &key]));
                    expected.push(model.get(&key).cloned().unwrap_or("nil".into()));
                }
            }
        }
        served.client.send(&requests);
        for (index, expected) in expected.iter().enumerate() {
            assert_eq!(text(&served.client.receive().unwrap()), *expected, "request {index}");
        }
    }
}

#[test]
fn a_read_asked_after_a_write_was_acknowledged_sees_it_whoever_asks() {
    let relation = Relation::of_rows(&[]);
    let served = Served::start(&[&relation.table("key=pk&writable=true&timeout=60s")], &[]);
    thread::scope(|scope| {
        for who in 0..8 {
            let (mut writer, mut reader) = (served.server.client(), served.server.client());
            scope.spawn(move || {
                // Two writers share each key. A read returns its own writer's value, or a later one
                // of the other writer.
                let key = format!("objects:{}", who % 4);
                for round in 0..150_u32 {
                    assert_eq!(writer.text(&["SET", &key, &format!("{who}-{round}")]), "OK");
                    let seen = reader.text(&["GET", &key]);
                    let (by, seen_round) = seen.split_once('-').unwrap();
                    let is_own = by == who.to_string();
                    assert!(
                        !is_own || seen_round == round.to_string(),
                        "{seen} after {who}-{round}"
                    );
                }
            });
        }
    });
    let reads =
        served.server.metric("busload_queue_requests_total{table=\"objects\",operation=\"read\"}");
    let batches =
        served.server.metric("busload_queue_batches_total{table=\"objects\",operation=\"read\"}");
    assert_eq!(reads, 1200.0);
    assert!(batches < reads, "{batches} batches for {reads} reads");
}

#[test]
fn many_clients_share_statements() {
    const KEYS: usize = 200;
    let relation = Relation::of_rows(&[]);
    relation.execute("INSERT INTO @ SELECT g::text, 'v' || g FROM generate_series(0, 199) g");
    let mut served =
        Served::start(&[&relation.table("key=pk&timeout=60s")], &["--net-threads", "1"]);
    let pipeline: Vec<u8> =
        (0..KEYS).flat_map(|key| command(&["GET", &format!("objects:{key}")])).collect();
    for _ in 0..20 {
        served.client.send(&pipeline);
        for key in 0..KEYS {
            assert_eq!(text(&served.client.receive().unwrap()), format!("v{key}"));
        }
    }
    let statements = served.server.metric("busload_postgres_statements_total{table=\"objects\"}");
    assert!(statements <= 400.0, "{statements} statements for {} reads", 20 * KEYS);
    let stages = served.run("INFO stages");
    let metric = |name: &str| -> f64 {
        stages
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
            .unwrap()
    };
    assert!(10.0 <= metric("table_objects_read_batch_mean"), "{stages}");
    assert!(
        metric("table_objects_read_batch_mean") <= metric("table_objects_read_batch_max"),
        "{stages}"
    );
}

/// Late answers once filled the queue between two threads, so that batches of requests did not fit
/// and were lost.
#[test]
fn many_pipelining_clients_get_all_their_answers_whoever_has_the_sockets() {
    const CLIENTS: usize = 32;
    const PIPELINE: usize = 20;
    for net_threads in ["0", "1"] {
        let relation = Relation::of_rows(&[]);
        relation.execute("INSERT INTO @ SELECT g::text, 'v' || g FROM generate_series(0, 499) g");
        let served = Served::start(
            &[&relation.table("key=pk&timeout=60s")],
            &["--net-threads", net_threads],
        );
        thread::scope(|scope| {
            for who in 0..CLIENTS {
                let mut client = served.server.client();
                scope.spawn(move || {
                    for round in 0..60 {
                        let keys: Vec<_> =
                            (0..PIPELINE).map(|n| (who * 31 + round * 7 + n) % 500).collect();
                        let requests = keys
                            .iter()
                            .flat_map(|key| command(&["GET", &format!("objects:{key}")]));
                        client.send(&requests.collect::<Vec<u8>>());
                        for key in keys {
                            assert_eq!(
                                text(&client.receive().unwrap()),
                                format!("v{key}"),
                                "{who} {round}"
                            );
                        }
                    }
                });
            }
        });
        assert_eq!(served.server.metric("busload_source_requests"), 0.0);
    }
}
