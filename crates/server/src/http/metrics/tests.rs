use std::{collections::HashMap, sync::Arc, time::Duration};

use busload_batch::QueueStats;
use busload_calls::TimedCall;
use busload_dolt::{DynamoStats, SetStats, StoreStats, StoreStatus};
use busload_histogram::Histogram;
use busload_log::Stats as LogStats;
use busload_objects::CacheStats;
use busload_pipeline::{command::lookup, latency::Family};
use busload_postgres::TableStats;
use busload_tls::{Files, Identity};

use super::{
    reading::{BusyReading, ChunksReading, LogReading, PeersReading, QueueReading, SetReading},
    table::MetricType,
    *,
};
use crate::{latencies::Latencies, savings::Savings};
use busload_remotesapi::{Download, Method};

fn chunks(name: &str) -> ChunksReading {
    let name = name.to_owned();
    let times = Histogram::default();
    times.record(Duration::from_millis(3), 2);
    let calls = vec![(TimedCall::GetChunk, times.read())];
    ChunksReading {
        name,
        stats: StoreStats::default(),
        status: StoreStatus::Open,
        savings: Savings::default(),
        calls,
    }
}

/// Makes a certificate of a server.
fn identity() -> Identity {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    Identity::load(Files { certificate, key, client_authorities: None }).unwrap()
}

/// Renders the page of a server with tables of every kind and a log that synced three times.
fn full_page() -> String {
    let (status, front) = (Status::default(), FrontMetrics::default());
    front.tls.set(Arc::new(identity())).unwrap();
    status.remotesapi.count_call(Method::Root);
    status.remotesapi.count_sent(Download::Range, 4096);
    let syncs = Histogram::default();
    syncs.record(Duration::from_micros(5), 2);
    syncs.record(Duration::from_micros(90), 1);
    let stats = LogStats { sync_times: syncs.read(), ..LogStats::default() };
    status.stats.latencies.command(lookup(b"get")).unwrap().calls.add(7);
    let mut reading = Reading::new(&status, &front);
    reading.postgres = vec![("objects".to_owned(), TableStats::default())];
    reading.chunks = vec![chunks("db"), chunks("a\"b\\c\nd")];
    let (table, endpoint) = ("manifests".to_owned(), "http://h".to_owned());
    reading.dynamo = vec![DynamoStats { table, endpoint, ..DynamoStats::default() }];
    reading.sets = vec![SetReading {
        pattern: "*/*".to_owned(),
        stats: SetStats::default(),
        savings: Savings::default(),
        cache: CacheStats::default(),
        busiest: ["org/db", "a\"b\\c\nd"]
            .map(|store| BusyReading { store: store.to_owned(), ..BusyReading::default() })
            .into(),
    }];
    reading.queues = ["objects", "db", "a\"b\\c\nd"]
        .map(|table| QueueReading {
            table: table.to_owned(),
            stats: QueueStats::default(),
            waiting: 3,
        })
        .into();
    let times = syncs.read();
    reading.latencies = vec![Latencies {
        table: "objects".to_owned(),
        kind: "postgres",
        family: Family::Write,
        requests: times.clone(),
        queue: times.clone(),
        service: times,
    }];
    reading.peers = Some(PeersReading::default());
    reading.log = Some(LogReading { stats, ..LogReading::default() });
    render_reading(&reading)
}

/// Names of the labels of a sample, given as they are written.
fn label_names(labels: &str) -> Vec<&str> {
    labels.split(",").filter_map(|label| label.split_once("=\"").map(|(name, _)| name)).collect()
}

#[test]
fn every_row_is_a_family_with_its_labels() {
    let page = full_page();
    let families: Vec<&str> = page.split("# HELP ").skip(1).collect();
    assert_eq!(families.len(), TABLE.len());
    for (family, metric) in families.iter().zip(TABLE) {
        let (name, kind) = (metric.name, metric.kind);
        let header = format!("{name} {}\n# TYPE {name} {kind}\n", metric.help);
        let samples = family.strip_prefix(header.as_str()).unwrap();
        assert!(!samples.is_empty(), "{name}");
        for sample in samples.lines() {
            let (series, value) = sample.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{sample}");
            let (series, labels) = series.split_once('{').unwrap_or((series, ""));
            let suffix = series.strip_prefix(name).unwrap();
            match (metric.kind, suffix) {
                (MetricType::Histogram, "_sum" | "_count") => {
                    let all = metric.source.labels();
                    assert_eq!(label_names(labels), all[..all.len() - 1], "{sample}");
                }
                (MetricType::Histogram, "_bucket") | (_, "") => {
                    assert_eq!(label_names(labels), metric.source.labels(), "{sample}");
                }
                _ => panic!("{sample}"),
            }
        }
    }
}

#[test]
fn names_tell_the_type_and_are_told_apart() {
    let mut seen = HashMap::new();
    for metric in TABLE {
        assert!(seen.insert(metric.name, ()).is_none(), "{} is there twice", metric.name);
        let is_counter = metric.kind == MetricType::Counter;
        assert_eq!(metric.name.ends_with("_total"), is_counter, "{}", metric.name);
        assert!(metric.help.ends_with('.') && !metric.help.contains('\n'), "{}", metric.help);
    }
}

#[test]
fn samples_are_written_in_the_format_of_prometheus() {
    let page = full_page();
    for line in [
        "busload_stage_batches_total{stage=\"net\"} 0\n",
        "busload_queue_requests_total{table=\"objects\",operation=\"write\"} 0\n",
        "busload_postgres_info{table=\"objects\",state=\"connecting\",error=\"\"} 1\n",
        "busload_queue_waiting{table=\"db\"} 3\n",
        "busload_queue_waiting{table=\"a\\\"b\\\\c\\nd\"} 3\n",
        "busload_stores_saved_usd{pattern=\"*/*\"} 0\n",
        "busload_store_reads_total{pattern=\"*/*\",store=\"org/db\"} 0\n",
        "busload_store_hits_total{pattern=\"*/*\",store=\"a\\\"b\\\\c\\nd\"} 0\n",
        "busload_dolt_calls_total{method=\"Root\"} 1\n",
        "busload_dolt_calls_total{method=\"Commit\"} 0\n",
        "busload_dolt_sent_bytes_total{kind=\"range\"} 4096\n",
        "busload_log_sync_duration_seconds_bucket{le=\"0.000008\"} 2\n",
        "busload_log_sync_duration_seconds_bucket{le=\"+Inf\"} 3\n",
        "busload_log_sync_duration_seconds_sum 0.0001\n",
        "busload_command_calls_total{command=\"get\"} 7\n",
        "busload_request_duration_seconds_bucket{table=\"objects\",kind=\"postgres\",\
         family=\"write\",le=\"0.000008\"} 2\n",
        "busload_request_service_duration_seconds_count{table=\"objects\",kind=\"postgres\",\
         family=\"write\"} 3\n",
        "busload_log_sync_duration_seconds_count 3\n",
        "busload_chunks_call_duration_seconds_count{table=\"db\",call=\"GetChunk\"} 2\n",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
}

/// Series once ended at their longest duration, so a sum by `le` was less behind that of the
/// fastest table than before it.
#[test]
fn all_series_of_a_histogram_have_the_same_bounds() {
    let (status, front) = (Status::default(), FrontMetrics::default());
    let mut reading = Reading::new(&status, &front);
    reading.latencies = [("fast", 5), ("slow", 5_000_000)]
        .map(|(table, us)| {
            let times = Histogram::default();
            times.record(Duration::from_micros(us), 1);
            let times = times.read();
            let [requests, queue, service] = [times.clone(), times.clone(), times];
            let (table, kind, family) = (table.to_owned(), "memory", Family::Read);
            Latencies { table, kind, family, requests, queue, service }
        })
        .into();
    let page = render_reading(&reading);
    let bounds = |table: &str| -> Vec<String> {
        let begin = format!("busload_request_duration_seconds_bucket{{table=\"{table}\"");
        let lines = page.lines().filter(|line| line.starts_with(&begin));
        lines
            .map(|line| line.split(",le=").nth(1).unwrap().split('}').next().unwrap().into())
            .collect()
    };
    assert_eq!(bounds("fast"), bounds("slow"));
    assert_eq!(bounds("fast").len(), busload_histogram::OCTAVE_COUNT + 1);
}

#[test]
fn metrics_without_samples_are_left_out() {
    let page = render(&Status::default(), &FrontMetrics::default());
    assert!(page.contains("busload_ready 0\n"));
    for absent in ["busload_postgres_", "busload_chunks_", "busload_dolt_", "busload_log_frames"] {
        assert!(!page.contains(absent), "{absent} in {page}");
    }
}
