//! `dolt fetch` over a link to the bucket that is too slow for the clients' timeouts.

use std::{thread, time::Duration};

use busload_bucket::Faults;
use busload_io::{Clock, RealClock};

use super::{
    client::{ChunkLocation, Client, Way},
    fixture::{Served, World, classic},
    http::{range_header, target},
};

/// Number of downloads at once.
const DOWNLOADS: usize = 8;
/// Bytes that must arrive within five seconds, or Dolt's client cancels the download and starts it
/// again, up to five times.
const BYTES_IN_FIVE_SECONDS: usize = 5 << 10;
/// Time that Dolt's client waits for a head.
const HEAD_TIME: Duration = Duration::from_secs(15);

/// The server once verified a whole range before it sent the first byte. Beside the fills of all
/// files, that took longer over such a link than clients wait, and a fetch of chunks that were not
/// on disk failed after a minute.
#[test]
#[ignore = "waits for a slow link, 20 s: `cargo xtask soak` runs it"]
fn downloads_of_cold_ranges_move_all_the_time_over_a_slow_link() {
    fetch_over_slow_link("files", 64, 200_000);
}

/// The server once encoded all bundles before it advertised any, so a client that asked for more
/// chunks than such a link brings within the timeout never got an answer.
#[test]
#[ignore = "waits for a slow link, 20 s: `cargo xtask soak` runs it"]
fn chunks_are_told_in_their_files_where_a_slow_link_holds_their_records_up() {
    let urls = fetch_over_slow_link("records", 128, 300_000);
    assert!(urls.iter().any(|url| !url.contains("/records/")), "{urls:?}");
}

/// Downloads eight regions of this many chunks of 4 KB each with an empty cache, and returns their
/// URLs.
fn fetch_over_slow_link(layout: &str, chunks: usize, line: u64) -> Vec<String> {
    let files = [21, 22].map(|seed| classic(seed, (0..2_400).map(|_| 4_000)));
    let world = World::of_files(&files);
    let served = Served::start(&[world.as_db(&format!("dolt_layout={layout}"))]);
    served.wait_until_open();
    let client = &served.client;
    // Regions of a quarter of a megabyte and more, as a fetch asks for them.
    let region = |index: usize| files[index % 2].chunks[index * 290..index * 290 + chunks].iter();
    let addresses: Vec<_> = (0..DOWNLOADS).flat_map(region).map(|(address, _)| *address).collect();
    world.proxy.set(Faults { first_byte: Duration::from_millis(30), line, ..Faults::default() });
    let locations = client.found("db", Way::Stream, &addresses);
    // A region may be spread over several resources.
    let runs: Vec<_> = locations
        .chunks(chunks)
        .flat_map(|locations| locations.chunk_by(|one, next| one.url == next.url))
        .collect();
    thread::scope(|scope| {
        for run in &runs {
            scope.spawn(|| download(client, run));
        }
    });
    runs.iter().map(|run| run[0].url.clone()).collect()
}

/// Downloads from the first location to the last, and asserts the speed that Dolt's client needs.
fn download(client: &Client, locations: &[ChunkLocation]) {
    let clock = RealClock::new();
    let mut http = client.http();
    let range = locations[0].span.start..locations[locations.len() - 1].span.end;
    http.send("GET", &target(&locations[0].url, &client.base()), &range_header(range));
    let head = http.try_head().unwrap();
    assert_eq!(head.status, 206, "{head:?}");
    let mut since = clock.now();
    assert!(since < HEAD_TIME, "no head for {since:?}");
    let mut left = head.length();
    while 0 < left {
        let wanted = left.min(BYTES_IN_FIVE_SECONDS);
        assert_eq!(
            http.body(wanted).unwrap().len(),
            wanted,
            "cut off, {left} bytes before its end"
        );
        let (took, now) = (clock.now() - since, clock.now());
        assert!(took < Duration::from_secs(5), "too few bytes in {took:?}, {left} before the end");
        (left, since) = (left - wanted, now);
    }
}
