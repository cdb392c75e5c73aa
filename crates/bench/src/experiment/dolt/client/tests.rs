//! Walks against an S3 server in this process: everything but location streams, which the whole
//! experiment is tested with.

use busload_bucket::{Bucket, Fault, FaultProxy, Faults, Rule};
use tokio::runtime::{Builder, Runtime};

use super::{Direct, Ranges, Report, Work, count};
use crate::{
    cleanup::{Cleanup, Directory},
    experiment::dolt::tree::{Design, Order, TreeStore, tests::small},
    failures::Failure,
};

struct World {
    tree: TreeStore,
    proxy: FaultProxy,
    _bucket: Bucket,
    runtime: Runtime,
    _directory: Directory,
}

impl World {
    fn new(design: &Design) -> Self {
        let directory = Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let bucket = Bucket::start(directory.path()).unwrap();
        let tree = TreeStore::make(&bucket.directory().join("store"), design).unwrap();
        let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Self { tree, proxy, _bucket: bucket, runtime, _directory: directory }
    }

    fn direct(&self) -> Direct<'_> {
        let url = format!("http://{}/{}/store", self.proxy.address(), Bucket::NAME);
        Direct::new(&url, &self.tree)
    }

    fn replay(&self, work: Work) -> Result<Report, Failure> {
        self.runtime.block_on(self.direct().replay(work))
    }
}

#[test]
fn a_fetch_reads_every_chunk_once_and_only_those_of_later_pushes() {
    let world = World::new(&small());
    let counts = world.replay(Work::Fetch { had: 0 }).unwrap().counts;
    assert_eq!(counts.chunks, count(world.tree.store.chunks.len() - 2));
    // The two archives have a dictionary each.
    assert_eq!(counts.dictionary_gets, 2);
    let seen = world.proxy.seen();
    assert_eq!(counts.gets, count(seen.len()));
    assert_eq!(counts.body_bytes, seen.iter().map(|seen| seen.bytes).sum::<u64>());
    world.proxy.forget();
    let last = &world.tree.store.files[2];
    let counts = world.replay(Work::Fetch { had: 2 }).unwrap().counts;
    assert_eq!(counts.chunks, u64::from(last.chunk_count));
    assert!(world.proxy.seen().iter().all(|seen| seen.path.contains(&last.name)));
}

#[test]
fn a_scan_reads_the_current_version_node_after_node() {
    for order in [Order::Walk, Order::Random] {
        let world = World::new(&Design { order, ..small() });
        let report = world.replay(Work::Scan).unwrap();
        assert_eq!(report.counts.chunks, count(world.tree.current));
        assert_eq!(report.parts_ns.len(), world.tree.current - world.tree.leaves.len());
    }
}

#[test]
fn a_point_read_is_a_chain_of_single_gets() {
    let world = World::new(&small());
    let (direct, work) = (world.direct(), Work::Point { chains: 10, seed: 7 });
    let report = world.runtime.block_on(direct.replay(work)).unwrap();
    let counts = report.counts;
    assert_eq!((report.parts_ns.len(), counts.chunks + counts.dictionary_gets), (10, counts.gets));
    assert!((40..=80).contains(&counts.chunks), "{counts:?}");
    // The same again: dictionaries are known.
    let again = world.runtime.block_on(direct.replay(work)).unwrap().counts;
    assert_eq!((again.chunks, again.gets), (counts.chunks, counts.chunks));
}

#[test]
fn a_download_has_all_bytes_of_the_files_and_not_more_than_asked_for() {
    let world = World::new(&small());
    for (at_once, bytes_max) in [(1, u64::MAX), (4, u64::MAX), (1, 1_000_000)] {
        let direct = world.direct();
        let download = direct.download(Ranges { at_once, bytes_max });
        let counts = world.runtime.block_on(download).unwrap().counts;
        assert_eq!(counts.body_bytes, world.tree.store.bytes().min(bytes_max));
    }
}

#[test]
fn bytes_that_are_not_those_asked_for_fail_the_replay() {
    let world = World::new(&small());
    for fault in [Fault::Truncate(10), Fault::Reset(10), Fault::Flip(20)] {
        world.proxy.set(Faults { rules: vec![Rule::always(fault)], ..Faults::default() });
        world.replay(Work::Fetch { had: 0 }).unwrap_err();
    }
}
