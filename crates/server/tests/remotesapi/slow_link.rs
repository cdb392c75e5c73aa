//! Fetches over a link to the bucket that is slower than clients are patient.

use std::{thread, time::Duration};

use busload_bucket::Faults;
use busload_io::{Clock, RealClock};

use super::{
    client::{Client, Place, Way},
    fixture::{Served, World, classic},
    http::{range_header, target},
};

/// Downloads at once.
const DOWNLOADS: usize = 8;
/// As much comes within five seconds at least, or Dolt's client cancels the download and begins it
/// again, five times.
const BYTES_IN_FIVE_SECONDS: usize = 5 << 10;
/// It waits so long for a head.
const HEAD_TIME: Duration = Duration::from_secs(15);

/// A range was compared with its addresses before its first byte left, in one piece: over such a
/// link that took longer than clients wait, with the fills of all files beside it. Fetches of what
/// was not on disk ended with an error after a minute.
#[test]
fn downloads_of_cold_ranges_move_all_the_time_over_a_slow_link() {
    fetch_over_slow_link("files", 64, 200_000);
}

/// Records were made before anybody was told of one: of more chunks than such a link brings within
/// the timeout, none ever was.
#[test]
fn chunks_are_told_in_their_files_where_a_slow_link_holds_their_records_up() {
    let urls = fetch_over_slow_link("records", 128, 300_000);
    assert!(urls.iter().any(|url| !url.contains("/records/")), "{urls:?}");
}

/// Eight regions of so many chunks of 4 KB each, while nothing is on disk. Gives the URLs that they
/// were downloaded from.
fn fetch_over_slow_link(layout: &str, chunks: usize, line: u64) -> Vec<String> {
    let files = [21, 22].map(|seed| classic(seed, (0..2_400).map(|_| 4_000)));
    let world = World::of_files(&files);
    let served = Served::start(&[world.as_db(&format!("dolt_layout={layout}"))]);
    served.wait_until_open();
    let client = &served.client;
    // Regions of a quarter of a megabyte and more, as a fetch has them.
    let region = |index: usize| files[index % 2].chunks[index * 290..index * 290 + chunks].iter();
    let addresses: Vec<_> = (0..DOWNLOADS).flat_map(region).map(|(address, _)| *address).collect();
    world.proxy.set(Faults { first_byte: Duration::from_millis(30), line, ..Faults::default() });
    let places = client.found("db", Way::Stream, &addresses);
    // A region may be in more than one resource.
    let runs: Vec<_> = places
        .chunks(chunks)
        .flat_map(|places| places.chunk_by(|one, next| one.url == next.url))
        .collect();
    thread::scope(|scope| {
        for run in &runs {
            scope.spawn(|| download(client, run));
        }
    });
    runs.iter().map(|run| run[0].url.clone()).collect()
}

/// All from the first to the last place, as fast as Dolt's client insists on.
fn download(client: &Client, places: &[Place]) {
    let clock = RealClock::new();
    let mut http = client.http();
    let range = places[0].span.start..places[places.len() - 1].span.end;
    http.send("GET", &target(&places[0].url, &client.base()), &range_header(range));
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
