use std::fs;

use busload_chunks::{ChunkLocation, Stored, check};
use busload_dolt::Span;
use futures_util::future::join_all;

use super::*;
use crate::testing::{Served, soon};

const ABSENT: ChunkAddress = ChunkAddress([0x5a; 20]);

/// A served store and a cache of its bundles.
struct Harness {
    served: Served,
    bundles: BundleCache,
}

impl Harness {
    fn new(fixture: &str) -> Self {
        Self::with_bytes_max(fixture, RECORDS_BYTES_MAX)
    }

    fn with_bytes_max(fixture: &str, bytes_max: u64) -> Self {
        let served = Served::new(fixture);
        let bundles = cache(&served, bytes_max);
        Self { served, bundles }
    }

    fn addresses(&self, count: usize) -> Vec<ChunkAddress> {
        self.served.addresses[..count].to_vec()
    }

    fn try_encode(&self, addresses: Vec<ChunkAddress>) -> Result<BundleInfo, Error> {
        self.served.wait(self.bundles.encode(self.served.store(), addresses, soon()))
    }

    fn encode(&self, addresses: Vec<ChunkAddress>) -> (BundleId, Vec<Option<u32>>) {
        let encoded = self.try_encode(addresses).unwrap();
        (encoded.bundle.unwrap(), encoded.lengths)
    }

    fn try_get(&self, bundle: &BundleId) -> Result<Option<Bytes>, Error> {
        self.served.wait(self.bundles.get(self.served.store(), bundle, soon()))
    }

    fn get(&self, bundle: &BundleId) -> Option<Bytes> {
        self.try_get(bundle).unwrap()
    }

    /// Returns how many bundles were encoded for locations, encoded again, and found in memory.
    fn counts(&self) -> [u64; 3] {
        RecordsOrigin::ALL.map(|origin| self.served.stats.records(origin))
    }

    /// Empties the cache, as after a restart.
    fn forget(&mut self) {
        self.bundles = cache(&self.served, RECORDS_BYTES_MAX);
    }
}

fn cache(served: &Served, bytes_max: u64) -> BundleCache {
    let stats = Arc::clone(&served.stats);
    BundleCache::with_bytes_max(Arc::clone(&served.host) as _, stats, bytes_max)
}

/// Asserts that the bytes are the records of these chunks, without gaps.
fn check_records(addresses: &[ChunkAddress], lengths: &[Option<u32>], mut bytes: Bytes) {
    assert_eq!(addresses.len(), lengths.len());
    for (address, length) in addresses.iter().zip(lengths) {
        let Some(length) = *length else { continue };
        let location = ChunkLocation { span: Span { offset: 0, length }, dictionary: None };
        let record = Stored::parse(bytes.split_to(length as usize), &location).unwrap();
        check(address, &record.decode(None).unwrap()).unwrap();
    }
    assert!(bytes.is_empty(), "{} bytes too many", bytes.len());
}

#[test]
fn records_lie_one_after_the_other_in_the_order_of_the_addresses() {
    for fixture in
        ["real-classic", "real-archive-v3", "real-archive-conjoined", "synth-sizes-archive-zstd"]
    {
        let harness = Harness::new(fixture);
        let mut addresses = harness.addresses(20);
        addresses.reverse();
        // A chunk that is named twice gets two records.
        addresses.push(addresses[3]);
        let (bundle, lengths) = harness.encode(addresses.clone());
        assert_eq!(bundle.addresses, addresses);
        check_records(&addresses, &lengths, harness.get(&bundle).unwrap());
        assert_eq!(harness.counts(), [1, 0, 1], "{fixture}");
    }
}

#[test]
fn chunks_that_do_not_exist_are_left_out() {
    let harness = Harness::new("real-archive-v3");
    let [first, second] = harness.addresses(2)[..] else { unreachable!() };
    let asked = vec![ABSENT, first, ABSENT, second];
    let (bundle, lengths) = harness.encode(asked.clone());
    assert_eq!(bundle.addresses, [first, second]);
    assert_eq!(lengths.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false, true]);
    check_records(&asked, &lengths, harness.get(&bundle).unwrap());
    // The request without the missing chunks finds the same bundle in memory.
    let (again, lengths) = harness.encode(vec![first, second]);
    assert_eq!((&again, lengths.len(), harness.counts()), (&bundle, 2, [1, 0, 1]));
    let nothing = harness.try_encode(vec![ABSENT]).unwrap();
    assert_eq!((nothing.bundle, nothing.lengths), (None, vec![None]));
    assert_eq!(harness.get(&BundleId { addresses: vec![first, ABSENT], ..bundle }), None);
}

/// Advertised URLs never expire, so a bundle can always be encoded again.
#[test]
fn an_advertised_bundle_is_encoded_again_after_a_restart() {
    let mut harness = Harness::new("real-archive-v3");
    let (bundle, _) = harness.encode(harness.addresses(100));
    let before = harness.get(&bundle).unwrap();
    harness.forget();
    assert_eq!(harness.get(&bundle).unwrap(), before);
    assert_eq!(harness.get(&bundle).unwrap(), before);
    assert_eq!(harness.counts(), [1, 1, 2]);
}

#[test]
fn an_evicted_bundle_is_encoded_again() {
    let harness = Harness::with_bytes_max("real-classic", 0);
    let (bundle, lengths) = harness.encode(harness.addresses(50));
    for _ in 0..2 {
        check_records(&bundle.addresses, &lengths, harness.get(&bundle).unwrap());
    }
    assert_eq!(harness.counts(), [1, 2, 0]);
}

/// The fixtures are one database, pushed as classic files and as archives. Dolt's snappy and ours
/// encode a chunk to the same bytes, so a URL also outlives a `dolt gc`.
#[test]
fn records_are_the_same_however_chunks_are_stored() {
    let (classic, archive) = (Harness::new("real-classic"), Harness::new("real-archive-v3"));
    let of_archive = &archive.served.addresses;
    let common = classic.served.addresses.iter().filter(|address| of_archive.contains(address));
    let common: Vec<_> = common.take(RECORDS_CHUNKS_MAX).copied().collect();
    assert_eq!(common.len(), RECORDS_CHUNKS_MAX);
    let located = archive.served.wait(archive.served.store().locate(&common, soon())).unwrap();
    let is_frame = |location: &&Option<Location>| {
        location.as_ref().is_some_and(|location| location.dictionary.is_some())
    };
    assert!(RECORDS_CHUNKS_MAX / 2 < located.locations.iter().filter(is_frame).count());
    let (bundle, _) = classic.encode(common);
    assert_eq!(archive.get(&bundle), classic.get(&bundle));
}

#[test]
fn a_bundle_that_is_encoded_differently_now_is_not_served() {
    let harness = Harness::new("real-classic");
    let (bundle, _) = harness.encode(harness.addresses(5));
    let other = BundleId { check: [7; 8], ..bundle.clone() };
    assert_eq!(harness.get(&other), None);
    assert!(harness.get(&bundle).is_some());
}

/// The cache key contains the table's name.
#[test]
fn tables_have_bundles_of_their_own() {
    let addresses = [ABSENT];
    assert_ne!(BundleKey::of("a", &addresses), BundleKey::of("b", &addresses));
    assert_eq!(BundleKey::of("a", &addresses), BundleKey::of("a", &addresses));
}

#[test]
fn concurrent_waiters_share_the_work() {
    let mut harness = Harness::new("real-archive-v3");
    let (bundle, _) = harness.encode(harness.addresses(192));
    harness.forget();
    let gets = (0..50).map(|_| harness.bundles.get(harness.served.store(), &bundle, soon()));
    let all = harness.served.wait(join_all(gets));
    let first = all[0].clone().unwrap().unwrap();
    assert!(
        all.iter().all(|got| got.as_ref().unwrap().as_ref().unwrap().as_ptr() == first.as_ptr()),
        "one copy for all"
    );
    assert_eq!(harness.counts()[1], 1);
    assert!(harness.bundles.cache.pending().is_empty());
}

#[test]
fn a_first_waiter_with_little_time_does_not_shorten_that_of_others() {
    let harness = Harness::new("real-archive-v3");
    let addresses = harness.addresses(192);
    // An encoding whose deadline has passed, held as a waiter holds it.
    let passed = tokio::time::Instant::now().into_std();
    let cache = &harness.bundles.cache;
    let first = cache.recent_or_pending(
        harness.served.store(),
        addresses.clone().into(),
        passed,
        RecordsOrigin::Encoded,
    );
    assert!(matches!(first, Ok(Lookup::Pending(_))));
    harness.encode(addresses);
    assert_eq!(harness.counts(), [1, 0, 0], "they shared it");
}

/// Registers another caller's encoding of this bundle that fails only at its deadline.
fn misses_its_deadline(
    harness: &Harness,
    key: BundleKey,
    until: Instant,
) -> PendingEncoding<Encoding> {
    let cache = &harness.bundles.cache;
    let number = cache.next_number.fetch_add(1, Ordering::Relaxed);
    let guard = PendingGuard { cache: Arc::clone(cache), key, number };
    let encoding = async move {
        drop(guard);
        Err(Error::DeadlineExceeded("as meant".to_owned()))
    };
    let encoding = encoding.boxed().shared();
    let weak = encoding.downgrade().unwrap();
    cache.pending().insert(key, PendingEncoding { number, until, encoding: weak });
    PendingEncoding { number, until, encoding }
}

#[test]
fn a_waiter_for_an_encoding_that_had_less_time_has_it_encoded_once_more() {
    let harness = Harness::new("real-archive-v3");
    let addresses = harness.addresses(10);
    let key = BundleKey::of(harness.served.store().name(), &addresses);
    let earlier = misses_its_deadline(&harness, key, tokio::time::Instant::now().into_std());
    let (bundle, lengths) = harness.encode(addresses.clone());
    check_records(&addresses, &lengths, harness.get(&bundle).unwrap());
    drop(earlier);

    // An encoding that had as much time is not repeated: it would miss the deadline again.
    let addresses = harness.addresses(11);
    let key = BundleKey::of(harness.served.store().name(), &addresses);
    let _later = misses_its_deadline(&harness, key, soon() + std::time::Duration::from_secs(60));
    assert_eq!(
        harness.try_encode(addresses).unwrap_err(),
        Error::DeadlineExceeded("as meant".to_owned())
    );
}

#[test]
fn an_encoding_without_waiters_is_cancelled_and_can_be_asked_for_again() {
    let harness = Harness::new("real-archive-v3");
    // The encoding may be so fast, and this thread so slow, that the first lookup already finds
    // the bundle.
    let addresses = (100..=192).rev().map(|count| harness.addresses(count)).find(|addresses| {
        harness.served.wait(async {
            let mut encode =
                Box::pin(harness.bundles.encode(harness.served.store(), addresses.clone(), soon()));
            futures_util::poll!(&mut encode).is_pending()
        })
    });
    let addresses = addresses.expect("one that is waited for");
    let (bundle, lengths) = harness.encode(addresses);
    check_records(&bundle.addresses, &lengths, harness.get(&bundle).unwrap());
}

/// The URL names the chunks, and every client that may download can make up such a URL.
#[test]
fn a_bundle_that_was_never_advertised_is_not_encoded() {
    let harness = Harness::new("synth-sizes-classic");
    let address = |length| {
        let asked = harness.served.addresses.clone();
        let located = harness.served.wait(harness.served.store().locate(&asked, soon())).unwrap();
        let is_it = |location: &Option<Location>| {
            location.as_ref().is_some_and(|location| length < location.span.length)
        };
        let index = located.locations.iter().position(is_it).unwrap();
        asked[index]
    };
    let large = address(1 << 20);
    for (addresses, fits) in [
        (vec![large; 3], true),
        (vec![large; 4], false),
        (vec![address(0); RECORDS_CHUNKS_MAX], true),
        (vec![address(0); RECORDS_CHUNKS_MAX + 1], false),
    ] {
        let count = addresses.len();
        let located =
            harness.served.wait(harness.served.store().locate(&addresses, soon())).unwrap();
        assert_eq!(advertisable_bytes(&located).is_some(), fits, "{count}");
        let before = harness.counts();
        assert_eq!(harness.get(&BundleId { check: [0; 8], addresses }), None, "another check");
        assert_eq!(harness.counts() != before, fits, "{count}");
    }
}

#[test]
fn a_large_frame_is_encoded_for_whoever_asks() {
    let harness = Harness::new("synth-sizes-archive-zstd");
    let addresses = harness.addresses(harness.served.addresses.len().min(RECORDS_CHUNKS_MAX));
    let mut located =
        harness.served.wait(harness.served.store().locate(&addresses, soon())).unwrap();
    located
        .locations
        .retain(|location| location.as_ref().is_some_and(|location| location.dictionary.is_some()));
    located.locations.truncate(1);
    let stored_bytes = u32::MAX;
    located.locations[0].as_mut().unwrap().span.length = stored_bytes;
    assert_eq!(advertisable_bytes(&located), Some(stored_bytes.into()));
    located.locations[0].as_mut().unwrap().dictionary = None;
    assert_eq!(advertisable_bytes(&located), None, "it would be advertised in its file");
}

#[test]
fn one_corrupt_chunk_is_an_error_of_all() {
    let harness = Harness::new("real-classic");
    let addresses = harness.addresses(10);
    let located = harness.served.wait(harness.served.store().locate(&addresses, soon())).unwrap();
    let Location { file, span, .. } = located.locations[5].as_ref().unwrap();
    let path = harness.served.path(&file.id.to_string());
    let mut bytes = fs::read(&path).unwrap();
    bytes[usize::try_from(span.offset).unwrap() + 2] ^= 1;
    fs::write(&path, bytes).unwrap();
    let outcome = harness.try_encode(addresses);
    // The rewritten file has another version, and the error may say that instead.
    assert!(matches!(outcome, Err(Error::Corrupt(_) | Error::Unreachable(_))), "{outcome:?}");
    assert!(harness.bundles.cache.pending().is_empty());
}

#[test]
fn after_the_stores_have_stopped_there_is_an_error() {
    let harness = Harness::new("real-classic");
    let (bundle, _) = harness.encode(harness.addresses(2));
    harness.served.host.stop();
    assert_eq!(harness.try_encode(harness.addresses(3)).unwrap_err(), Error::Closed);
    let other = BundleId { addresses: harness.addresses(3), ..bundle };
    assert_eq!(harness.try_get(&other).unwrap_err(), Error::Closed);
}

/// The checks are in advertised URLs, so other processes and versions must compute the same.
#[test]
fn checks_are_the_same_everywhere() {
    let harness = Harness::new("real-classic");
    let (bundle, lengths) = harness.encode(harness.addresses(3));
    let found = (u64::from_be_bytes(bundle.check), lengths, digest(&bundle).to_string());
    let lengths = vec![Some(4301), Some(1656), Some(199)];
    assert_eq!(
        found,
        (0xb09b_3bd1_76df_8ff3, lengths, "17rsso16eid94i96j4s5lj32qgkkmol4".to_owned())
    );
}
