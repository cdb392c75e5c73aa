//! Walks against an S3 server in this process: everything but location streams, which a server of
//! its own is tested with.

use std::time::Duration;

use busload_bucket::{Bucket, Fault, FaultProxy, Faults, Rule};
use tokio::runtime::{Builder, Runtime};

use super::{Direct, Points, Ranges};
use crate::{
    cleanup::{Cleanup, Directory},
    experiment::dolt::store::{Design, Order, Store, tests::small},
    failures::Failure,
};

struct World {
    store: Store,
    proxy: FaultProxy,
    _bucket: Bucket,
    runtime: Runtime,
    _directory: Directory,
}

impl World {
    fn new(design: &Design) -> Self {
        let directory = Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let bucket = Bucket::start(directory.path()).unwrap();
        let store = Store::make(&bucket.directory().join("store"), design).unwrap();
        let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Self { store, proxy, _bucket: bucket, runtime, _directory: directory }
    }

    fn direct(&self) -> Direct<'_> {
        Direct::new(self.proxy.address(), Bucket::NAME, "store", &self.store)
    }

    fn faults(&self, rule: Rule) {
        self.proxy.set(Faults { rules: vec![rule], ..Faults::default() });
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap()
}

#[test]
fn a_fetch_reads_every_chunk_once() {
    let world = World::new(&small());
    let report = world.runtime.block_on(world.direct().fetch(0)).unwrap();
    assert_eq!(report.counts.chunks, count(world.store.reachable(0)));
    // The two archives have a dictionary each.
    assert_eq!(report.counts.dictionary_gets, 2);
    assert_eq!(report.counts.gets, count(world.proxy.seen().len()));
    let bytes: u64 = world.proxy.seen().iter().map(|seen| seen.bytes).sum();
    assert_eq!(report.counts.body_bytes, bytes);
    assert!(report.counts.connections <= 32 && report.counts.retries == 0, "{report:?}");
}

#[test]
fn a_fetch_reads_only_what_later_pushes_wrote() {
    let world = World::new(&small());
    let report = world.runtime.block_on(world.direct().fetch(2)).unwrap();
    assert_eq!(report.counts.chunks, u64::from(world.store.files[2].chunk_count));
    let paths: Vec<_> = world.proxy.seen().into_iter().map(|seen| seen.path).collect();
    assert!(paths.iter().all(|path| path.contains(&world.store.files[2].name)), "{paths:?}");
}

#[test]
fn a_scan_reads_the_current_version_node_after_node() {
    for order in [Order::Walk, Order::Random] {
        let world = World::new(&Design { order, ..small() });
        let report = world.runtime.block_on(world.direct().scan()).unwrap();
        assert_eq!(report.counts.chunks, count(world.store.current));
        assert_eq!(report.parts_ns.len(), world.store.current - world.store.leaves.len());
    }
}

#[test]
fn a_point_read_is_a_chain_of_single_gets() {
    let world = World::new(&small());
    let points = Points { chains: 10, readers: 3, seed: 7 };
    let direct = world.direct();
    let report = world.runtime.block_on(direct.point(&points)).unwrap();
    assert_eq!(report.parts_ns.len(), 10);
    let counts = report.counts;
    assert_eq!(counts.chunks + counts.dictionary_gets, counts.gets);
    assert!((40..=80).contains(&counts.chunks), "{counts:?}");
    // The same again: dictionaries are known.
    let again = world.runtime.block_on(direct.point(&points)).unwrap().counts;
    assert_eq!((again.chunks, again.gets, again.connections), (counts.chunks, counts.chunks, 0));
}

#[test]
fn a_download_has_all_bytes_of_the_files_and_not_more_than_asked_for() {
    let world = World::new(&small());
    for at_once in [1, 4] {
        let ranges = Ranges { at_once, bytes_max: u64::MAX };
        let report = world.runtime.block_on(world.direct().download(&ranges)).unwrap();
        assert_eq!(report.counts.body_bytes, world.store.bytes());
    }
    let ranges = Ranges { at_once: 1, bytes_max: 1_000_000 };
    let report = world.runtime.block_on(world.direct().download(&ranges)).unwrap();
    assert_eq!(report.counts.body_bytes, 1_000_000);
}

#[test]
fn a_body_that_breaks_is_read_on_where_it_broke() {
    let world = World::new(&small());
    // Less than any body has, so that each of them breaks.
    world.faults(Rule::times(3, Fault::Reset(20)).after(6));
    let report = world.runtime.block_on(world.direct().fetch(0)).unwrap();
    assert_eq!(report.counts.chunks, count(world.store.reachable(0)));
    assert_eq!(report.counts.retries, 3, "{report:?}");
    let ranges: Vec<_> = world.proxy.seen().into_iter().filter_map(|seen| seen.range).collect();
    let again = |end: u64| ranges.iter().filter(|range| range.end == end).count();
    assert!(ranges.iter().any(|range| 1 < again(range.end)));
}

#[test]
fn a_body_that_ends_too_early_in_order_is_wrong() {
    let world = World::new(&small());
    world.faults(Rule::always(Fault::Truncate(10)));
    let failure = world.runtime.block_on(world.direct().fetch(0)).unwrap_err();
    assert!(matches!(&failure, Failure::Wrong(text) if text.contains("too early")), "{failure:?}");
}

#[test]
fn bytes_that_are_not_those_of_the_chunk_are_wrong() {
    let world = World::new(&small());
    world.faults(Rule::always(Fault::Flip(20)));
    let failure = world.runtime.block_on(world.direct().scan()).unwrap_err();
    assert!(matches!(failure, Failure::Wrong(_)), "{failure:?}");
}

#[test]
fn dependent_reads_take_a_batch_each() {
    let world = World::new(&small());
    let first_byte = Duration::from_millis(20);
    world.proxy.set(Faults { first_byte, ..Faults::default() });
    let points = Points { chains: 1, readers: 1, seed: 7 };
    let report = world.runtime.block_on(world.direct().point(&points)).unwrap();
    let batches = u32::try_from(report.counts.chunks).unwrap();
    assert!(first_byte * batches <= Duration::from_nanos(report.elapsed_ns), "{report:?}");
}
