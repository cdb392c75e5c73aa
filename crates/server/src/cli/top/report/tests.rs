//! Reports of made-up readings.

use expect_test::expect;

use super::*;

/// Returns a reading after this many seconds, in each of which the same happened.
fn reading(seconds: u64) -> Reading {
    let text = serde_json::json!({
        "version": "1.2.3",
        "started_ms": 1_700_000_000_000_u64,
        "uptime_ms": seconds * 1_000,
        "state": "ready",
        "health": {"level": "error", "reasons": [{
            "level": "error",
            "subject": "table objects",
            "what": "down: connection\nrefused",
            "action": "busload tries again by itself.",
        }]},
        "connections": {"open": 50, "blocked": 0, "memory_bytes": 2048},
        "commands": {
            "executed": 1_234_567 * seconds,
            "errors": 3 * seconds,
            "hits": 900 * seconds,
            "misses": 100 * seconds,
            "at_sources": 7,
        },
        "calls": {
            "polls": 1_000 * seconds,
            "receives": 50_000 * seconds,
            "sends": 50_000 * seconds,
            "received_bytes": 1_048_576 * seconds,
            "sent_bytes": 2_097_152 * seconds,
        },
        "memory": {
            "resident_bytes": 104_857_600,
            "used_bytes": 52_428_800,
            "max_bytes": 1_073_741_824,
            "keys": 1_000_000,
        },
        "stages": [
            {
                "name": "net",
                "batches": 1_000 * seconds,
                "items": 64_000 * seconds,
                "items_max": 4_096,
            },
            {"name": "log", "batches": 0, "items": 0, "items_max": 0},
        ],
        "tables": [{
            "name": "objects",
            "kind": "postgres",
            "state": "down",
            "error": "connection refused",
            "requests": 10_000 * seconds,
            "round_trips": 100 * seconds,
            "batches": 100 * seconds,
            "entries": 9_000 * seconds,
            "waiting": 12,
            "in_flight": 2,
            "refused": 5 * seconds,
            "expired": 0,
            "tiers": [
                {"name": "joined another", "requests": 1_000 * seconds},
                {"name": "statement", "requests": 9_000 * seconds},
                {"name": "never", "requests": 0},
            ],
        }],
        "saved": [{
            "name": "statements",
            "requests": 10_000 * seconds,
            "round_trips": 100 * seconds,
        }],
        "savings": [{
            "name": "*/*",
            "direct_requests": 5_000 * seconds,
            "store_requests": 50 * seconds,
            "saved_requests": 4_950 * seconds,
            "saved_bytes": 1_048_576 * seconds,
            "saved_usd": 0.00198 * seconds as f64,
        }, {
            "name": "unused",
            "direct_requests": 0,
            "store_requests": seconds,
            "saved_requests": -(seconds as i64),
            "saved_bytes": -2048 * (seconds as i64),
            "saved_usd": -0.000_4 * seconds as f64,
        }],
        "busiest": [{
            "name": "org/a-database-with-a-very-long-name",
            "reads": 4_000 * seconds,
            "hits": 3_000 * seconds,
            "downloads": 7 * seconds,
            "store_bytes": 1_024 * seconds,
            "errors": 1_000 * seconds,
        }],
        "log": {
            "written_lsn": 90, "durable_lsn": 88, "frames": 10 * seconds,
            "written_bytes": 10_240 * seconds, "syncs": 10 * seconds,
            "sync_total_us": 2_500 * seconds, "sync_max_us": 9_999,
            "size_bytes": 4_194_304, "segments": 2,
        },
        "snapshots": {
            "running": true, "progress_percent": 36.7, "made": 3, "failed": 0, "lsn": 80,
            "finished_ms": 1_700_000_000_000_u64, "entries": 1_000, "file_bytes": 65_536,
        },
        "latency": [{
            "what": "queue", "subject": "default", "family": "read", "count": 5, "max_us": 3.5,
            "buckets": [[4.0, 5]],
        }, {
            "what": "sync", "subject": "log", "family": null, "count": 100, "max_us": 9_999.5,
            "buckets": [[256.0, 60], [512.0, 39], [null, 1]],
        }, {
            "what": "request", "subject": "default", "family": "read", "count": 5, "max_us": 50,
            "buckets": [[64.0, 5]],
        }, {
            "what": "request", "subject": "default", "family": "write", "count": 0, "max_us": 0,
            "buckets": [],
        }],
        "slow": [{
            "at_s": 1_700_000_000 + seconds - 2,
            "took_us": 12_345,
            "client": "127.0.0.1:5",
            "command": "KEYS \u{1b}[2J*",
        }],
    });
    Reading::parse(&text.to_string()).unwrap()
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| format!("{}\n", line.text.trim_end())).collect()
}

#[test]
fn a_report_shows_what_happened_in_between() {
    let lines = report(&reading(100), &reading(102));
    expect![[r#"
        busload 1.2.3, up 1m 42s, ready
        health: error
          table objects: down: connection refused
            busload tries again by itself.

        1,234,567 requests/s, 3.0 errors/s
        50 connections, 0 wait for the log, 2 KiB in buffers, 7 requests at sources
        1,000,000 keys take 50 MiB of 1 GiB, resident 100 MiB; 90.0% of reads find their key
        1 MiB/s in, 2 MiB/s out, 0.082 system calls per request

        STAGE            batches/s      items/s   mean batch      largest
        net                  1,000       64,000         64.0        4,096
        log                      0            0          0.0            0

        TABLE            kind     state     requests/s    sent/s    mean  waiting in flight
        objects          postgres down          10,000       100    90.0       12         2
          10 requests were refused or timed out
          answers: 2,000 joined another, 18,000 statement

        SAVED since start    asked for        sent       saved   share
        statements           1,020,000      10,200   1,009,800   99.0%

        BUCKETS since start without us        sent       saved   saved bytes    saved USD
        */*                    510,000       5,100     504,900       102 MiB       0.2020
        unused                       0         102        -102      -204 KiB      -0.0408

        BUSIEST STORES                     reads/s    hits   downloads/s     fetched    errors
        org/a-database-with-a-very-l..       4,000   75.0%           7.0       2 KiB     2,000

        LOG
        10 KiB/s in 10 writes/s, 10 syncs/s of 250 us on average, 9,999 us at most
        durable up to LSN 88 of 90; 4 MiB in 2 segments
        3 snapshots made, 0 failed, another 37 % done
          the last 1m 42s ago: 1,000 entries, 64 KiB, up to LSN 80

        LATENCY since start                          times        p50        p99        max
        request  default read                           5    < 50 us    < 50 us      50 us
        sync     log                                  100   < 256 us   < 512 us    10.0 ms
        queue    default read                           5     < 4 us     < 4 us       4 us

        SLOW COMMANDS, the newest (SLOWLOG GET)
           12.3 ms       2s ago  127.0.0.1:5            KEYS  [2J*
    "#]]
    .assert_eq(&text(&lines));
    assert_eq!(lines[1].tone, Tone::Bad);
}

#[test]
fn counters_that_start_again_are_counted_from_zero() {
    let lines = text(&report(&reading(100), &reading(3)));
    assert!(lines.contains("\n0 requests/s"), "no time between them: {lines}");
    assert!(lines.contains("of 250 us on average"), "{lines}");
}

#[test]
fn an_answer_without_most_fields_makes_a_report() {
    let reading = Reading::parse(r#"{"uptime_ms": 5}"#).unwrap();
    assert!(text(&report(&reading, &reading)).contains("0 requests/s, 0 errors/s"));
    for wrong in ["", "{}", "[1]", "{\"uptime_ms\": \"5\"}", "<html>"] {
        assert!(Reading::parse(wrong).is_none(), "{wrong}");
    }
}

#[test]
fn numbers_are_shown_to_people() {
    assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1_000, 1_234_567].map(whole));
    assert_eq!(["0", "0.3", "9.9", "10"], [0.0, 0.26, 9.9, 10.2].map(number));
    assert_eq!(["5 us", "1.5 ms", "2.0 s"], [5.0, 1_500.0, 2_000_000.0].map(time));
    assert_eq!(["0s", "1m 5s", "1d 0h 0m 1s"], [0, 65, 86_401].map(duration));
    let buckets = [(1.0, 50), (2.0, 49), (f64::INFINITY, 1)];
    assert_eq!([0.5, 0.99].map(|share| quantile(&buckets, share)), [1.0, 2.0]);
    assert!(quantile(&buckets, 1.0).is_infinite());
    assert_eq!(quantile(&[], 0.5), 0.0);
}
