//! Fetches over a link to the bucket that is slower than clients are patient.

use std::{thread, time::Duration};

use busload_bucket::Faults;
use busload_io::{Clock, RealClock};

use super::{
    client::Way,
    fixture::{Served, World, classic},
    http::{range_header, target},
};

/// Downloads at once.
const DOWNLOADS: usize = 8;
/// As much comes within five seconds at least, or Dolt's client cancels the download and begins it again, five times.
const BYTES_IN_FIVE_SECONDS: usize = 5 << 10;
/// It waits so long for a head.
const HEAD_TIME: Duration = Duration::from_secs(15);

/// A range was compared with its addresses before its first byte left, in one piece: over such a link that took longer than clients wait, with the fills of
/// all files beside it. Fetches of what was not on disk ended with an error after a minute.
#[test]
fn downloads_of_cold_ranges_move_all_the_time_over_a_slow_link() {
    let files = [21, 22].map(|seed| classic(seed, (0..2_400).map(|_| 4_000)));
    let world = World::of_files(&files);
    let served = Served::start(&[world.as_db("dolt_layout=files")]);
    served.wait_until_open();
    let client = &served.client;
    // Regions of a quarter of a megabyte, as a fetch has them.
    let regions: Vec<_> =
        (0..DOWNLOADS).map(|index| files[index % 2].chunks[index * 300..index * 300 + 64].to_vec()).collect();
    world.proxy.set(Faults { first_byte: Duration::from_millis(30), line: 200_000, ..Faults::default() });
    let addresses: Vec<_> = regions.iter().flatten().map(|(address, _)| *address).collect();
    let places = client.found("db", Way::Stream, &addresses);
    thread::scope(|scope| {
        for places in places.chunks(64) {
            scope.spawn(move || {
                let clock = RealClock::new();
                let (first, last) = (&places[0], &places[63]);
                let mut http = client.http();
                http.send(
                    "GET",
                    &target(&first.url, &client.base()),
                    &range_header(first.span.start..last.span.end),
                );
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
                    assert!(
                        took < Duration::from_secs(5),
                        "too few bytes in {took:?}, {left} before the end"
                    );
                    (left, since) = (left - wanted, now);
                }
            });
        }
    });
}
