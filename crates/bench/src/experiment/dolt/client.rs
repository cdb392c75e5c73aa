//! Readers of a store: as Dolt's own client does on the wire, and by ranges of the object store
//! itself.
//!
//! Walks depend on what is read: the addresses asked for next come from the contents of chunks that
//! have arrived. Everything runs on the thread that polls it, which is what decodes and checks, as
//! the stock client's processor would. Unlike the stock client, nothing is tried again: whatever
//! fails here is a failed request of the experiment.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    rc::Rc,
};

use anyhow::Result;
use busload_chunks::{ChunkAddress, FileKind};
use busload_proto::remotesapi::TableFileInfo;
use futures_util::{
    StreamExt, TryStreamExt,
    future::ready,
    stream::{self, iter},
};

use super::{
    arguments::Section,
    cases::Way,
    downloads::{Dictionaries, Http, LocatedChunk, Meter, count, ensure, merge, wrong},
    remotesapi::Remotesapi,
    tree::{TreeStore, children},
};
use crate::{
    clock::now_ns,
    failures::Failure,
    random::Random,
    store::{TableFile, index},
};

/// Gap within one GET, and GETs under way at once: of the stock client, and of reads from the
/// object store.
const LIMITS: (u64, usize) = (8 * 1024, 64);
const STORE_LIMITS: (u64, usize) = (512 * 1024 + 1, 32);

/// Files of a clone under way.
const CLONE_FILES: usize = 3;

/// Ranges of plain downloads at once: as many requests as busload makes.
const DOWNLOADS: usize = 64;

/// Bytes of one range of a plain download.
const DOWNLOAD_RANGE_BYTES: usize = 8 << 20;

/// A client of a store. Runs on the thread that polls it.
pub struct Client<'a> {
    tree: &'a TreeStore,
    http: Http,
    /// Connection to busload; none where the object store itself is read.
    remotesapi: Option<Remotesapi>,
    /// URLs of the files in the object store.
    urls: Vec<Rc<str>>,
    /// Dictionaries read from the object store so far.
    dictionaries: Dictionaries,
}

impl<'a> Client<'a> {
    /// Connects as Dolt's client does; `path` is the path of the remote's URL.
    pub async fn of_busload(
        address: SocketAddr,
        path: &str,
        tree: &'a TreeStore,
        meter: &Meter,
    ) -> Result<Self> {
        let remotesapi = Remotesapi::connect(address, path, meter).await?;
        Ok(Self { remotesapi: Some(remotesapi), ..Self::of_store("", tree, meter) })
    }

    /// Makes a reader of the objects below this URL, which anybody may read; their indexes are
    /// known, as Dolt has them once it has opened a store.
    pub fn of_store(url: &str, tree: &'a TreeStore, meter: &Meter) -> Self {
        let urls = tree.store.files.iter().map(|file| format!("{url}/{}", file.name).into());
        let (urls, dictionaries) = (urls.collect(), Dictionaries::default());
        Self { tree, http: Http::new(meter), remotesapi: None, urls, dictionaries }
    }

    /// Does what a command of Dolt does, or downloads what the command needs. Returns how long each
    /// part took: chains of a point read, nodes of a scan whose children were read, files of a
    /// clone, ranges of a download.
    pub async fn replay(
        &self,
        section: Section,
        way: Way,
        chains: usize,
        seed: u64,
    ) -> Result<Vec<u64>, Failure> {
        let tree = self.tree;
        if let Some(remotesapi) = &self.remotesapi {
            remotesapi.open(tree).await?;
        }
        match (section, way, &self.remotesapi) {
            // As many bytes as the command reads.
            (Section::Scan, Way::Download, None) => self.download(1, tree.leaves_bytes).await,
            (_, Way::Download, None) => self.download(1, tree.store.bytes()).await,
            (_, Way::Downloads, None) => self.download(DOWNLOADS, tree.store.bytes()).await,
            (Section::Clone | Section::Clones, _, Some(remotesapi)) => {
                self.read(&[tree.root]).await?;
                let found = remotesapi.table_files(tree).await?;
                let downloads = iter(&tree.store.files).map(|file| self.file(&found, file));
                downloads.buffer_unordered(CLONE_FILES).try_collect().await
            }
            (Section::Scan, ..) => self.scan().await,
            (Section::Point | Section::Query, ..) => self.point(chains, seed).await,
            (Section::Fetch, _, remotesapi) => {
                if let Some(remotesapi) = remotesapi {
                    // Its rebase.
                    remotesapi.open(tree).await?;
                    let heads = self.read(&[tree.root]).await?.concat();
                    remotesapi.has_chunks(&heads).await?;
                }
                self.fetch().await
            }
            (Section::Clone | Section::Clones, _, None) => Err(wrong("a clone", "no remote")),
        }
    }

    /// Downloads one file of the list and compares it with what was written.
    async fn file(&self, found: &[TableFileInfo], file: &TableFile) -> Result<u64, Failure> {
        // The client names a file after its URL, and counts its chunks.
        let info = found.iter().find(|info| {
            let path = info.url.split('?').next().unwrap_or_default();
            info.file_id == file.id
                && path.ends_with(".darc") == (file.kind == FileKind::Archive)
                && info.num_chunks == file.chunk_count
        });
        let info = info.ok_or_else(|| wrong(&file.name, "it is not listed as it is"))?;
        let mut crc = 0;
        let sum = |data: &[u8]| crc = crc32c::crc32c_append(crc, data);
        let took_ns = self.http.download(&info.url, None, file.bytes, sum).await?;
        ensure(crc == file.crc, &info.url, "bytes that are not those of the file")?;
        Ok(took_ns)
    }

    /// Downloads the files in ranges and drops them.
    async fn download(&self, at_once: usize, bytes_max: u64) -> Result<Vec<u64>, Failure> {
        let mut rest = bytes_max;
        let mut downloads = Vec::new();
        for (url, file) in self.urls.iter().zip(&self.tree.store.files) {
            let end = file.bytes.min(rest);
            rest -= end;
            downloads.extend((0..end).step_by(DOWNLOAD_RANGE_BYTES).map(|start| {
                let range = start..end.min(start + count(DOWNLOAD_RANGE_BYTES));
                let bytes = range.end - range.start;
                self.http.download(url, Some(range), bytes, |_| ())
            }));
        }
        iter(downloads).buffer_unordered(at_once).try_collect().await
    }

    /// Reads everything that the last push wrote, from the root on, level by level.
    async fn fetch(&self) -> Result<Vec<u64>, Failure> {
        let store = &self.tree.store;
        let last = store.files.len() - 1;
        let is_new =
            |address: &_| store.find(address).is_none_or(|chunk| index(chunk.file) == last);
        let mut asked = HashSet::from([self.tree.root]);
        let mut level = vec![self.tree.root];
        while !level.is_empty() {
            let named = self.read(&level).await?.concat().into_iter();
            level = named.filter(|named| is_new(named) && asked.insert(*named)).collect();
        }
        let (found, expected) = (asked.len(), index(store.files[last].chunk_count));
        let why = format_args!("{found} chunks, expected {expected}");
        ensure(found == expected, "fetch", why).map(|()| Vec::new())
    }

    /// Reads the current version as a query over all rows does: for one node after the other all
    /// its children at once.
    async fn scan(&self) -> Result<Vec<u64>, Failure> {
        let mut parts_ns = Vec::new();
        let mut leaves = Vec::with_capacity(self.tree.leaves.len());
        // The next to visit is the last.
        let mut nodes = self.read(&[self.tree.root]).await?;
        while let Some(node) = nodes.pop() {
            let began_ns = now_ns();
            let children = self.read(&node).await?;
            parts_ns.push(now_ns().saturating_sub(began_ns));
            let named = node.iter().zip(&children);
            leaves.extend(named.filter(|(_, child)| child.is_empty()).map(|(address, _)| *address));
            nodes.extend(children.into_iter().rev().filter(|child| !child.is_empty()));
        }
        let expected = &self.tree.leaves;
        let why = format_args!("{} leaves, not the {} of the store", leaves.len(), expected.len());
        ensure(leaves == *expected, "scan", why).map(|()| parts_ns)
    }

    /// Reads chains of chunks from the root to a leaf, each named by the one before.
    async fn point(&self, chains: usize, seed: u64) -> Result<Vec<u64>, Failure> {
        let leaves: HashSet<_> = self.tree.leaves.iter().collect();
        let mut random = Random::new(seed);
        let mut parts_ns = Vec::with_capacity(chains);
        for _ in 0..chains {
            let began_ns = now_ns();
            let mut address = self.tree.root;
            loop {
                let children = self.read(&[address]).await?.concat();
                if children.is_empty() {
                    break;
                }
                let drawn = random.below(count(children.len()));
                address = children[usize::try_from(drawn).expect("below a count")];
            }
            parts_ns.push(now_ns().saturating_sub(began_ns));
            let why = format_args!("{address} is no leaf of the store");
            ensure(leaves.contains(&address), "point", why)?;
        }
        Ok(parts_ns)
    }

    /// Reads these chunks with one fetch object; returns the children of each, in order. It
    /// downloads some while it asks where others are. The stock client keeps dictionaries for one
    /// fetch object.
    async fn read(&self, addresses: &[ChunkAddress]) -> Result<Vec<Vec<ChunkAddress>>, Failure> {
        let own = Dictionaries::default();
        let (located, (gap, workers), dictionaries) = match &self.remotesapi {
            Some(remotesapi) => (remotesapi.locations(addresses), LIMITS, &own),
            None => {
                let known = addresses.iter().map(|address| {
                    let chunk = self.tree.store.find(address);
                    let chunk = chunk.ok_or_else(|| wrong(address, "it is not in the store"))?;
                    let (url, location) =
                        (Rc::clone(&self.urls[index(chunk.file)]), chunk.location);
                    Ok(LocatedChunk { url, address: *address, location })
                });
                let known = stream::once(ready(known.collect())).boxed_local();
                (known, STORE_LIMITS, &self.dictionaries)
            }
        };
        let regions = located.map_ok(|chunks| iter(merge(chunks, gap)).map(Ok)).try_flatten();
        let regions = regions.map_ok(|region| self.http.region(region, dictionaries));
        let mut regions = regions.try_buffer_unordered(workers);
        let mut found = HashMap::with_capacity(addresses.len());
        while let Some(chunks) = regions.try_next().await? {
            for (address, contents) in chunks {
                let children = children(&contents);
                found.insert(address, children.ok_or_else(|| wrong(address, "no such chunk"))?);
            }
        }
        let of = |address| found.remove(address).ok_or_else(|| wrong(address, "it did not come"));
        addresses.iter().map(of).collect()
    }
}

/// Walks against an S3 server in this process: everything but the calls of a remote, which the
/// whole experiment is tested with.
#[cfg(test)]
mod tests {
    use busload_bucket::{Bucket, Fault, FaultProxy, Faults, Rule};
    use tokio::runtime::Builder;

    use super::*;
    use crate::{
        cleanup::{Cleanup, Directory},
        experiment::dolt::{arguments::Design, downloads::Counts},
    };

    /// Three files with some 1,300 small leaves each, two of them archives with dictionaries.
    const DESIGN: Design =
        Design { pushes: 3, leaves: 1_300, leaf_bytes: 700, classic: 0.34, seed: 1 };

    /// Makes a small store, an S3 server that has it, and a proxy in front of it.
    fn world() -> (TreeStore, FaultProxy, (Bucket, Directory)) {
        let directory = Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let bucket = Bucket::start(directory.path()).unwrap();
        let tree = TreeStore::make(&bucket.directory().join("store"), &DESIGN).unwrap();
        let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
        (tree, proxy, (bucket, directory))
    }

    /// Replays with one client; returns the counts of parts, and what was counted.
    fn replay(
        tree: &TreeStore,
        proxy: &FaultProxy,
        replays: &[(Section, Way)],
    ) -> Result<Vec<(usize, Counts)>, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let url = format!("http://{}/{}/store", proxy.address(), Bucket::NAME);
        let meter = Meter::default();
        let client = Client::of_store(&url, tree, &meter);
        let replay = |(section, way): &(Section, Way)| {
            let parts = runtime.block_on(client.replay(*section, *way, 10, 7))?;
            Ok((parts.len(), meter.take()))
        };
        replays.iter().map(replay).collect()
    }

    #[test]
    fn walks_read_every_chunk_once_and_only_those_they_need() {
        let (tree, proxy, _served) = world();
        let walks = [(Section::Scan, Way::Direct), (Section::Point, Way::Direct)];
        let done = replay(&tree, &proxy, &walks).unwrap();
        let [(nodes, scan), (chains, point)] = &done[..] else { panic!("{done:?}") };
        assert_eq!(scan.chunks, count(tree.current));
        assert_eq!(*nodes, tree.current - tree.leaves.len());
        // The two archives have a dictionary each; then they are known. A chain is seven chunks.
        assert_eq!(scan.dictionary_gets, 2);
        assert_eq!((*chains, point.chunks, point.gets), (10, 70, 70));
        let seen = proxy.seen();
        let bytes: u64 = seen.iter().map(|seen| seen.bytes).sum();
        assert_eq!(scan.gets + point.gets, count(seen.len()));
        assert_eq!(scan.body_bytes + point.body_bytes, bytes);
        proxy.forget();
        let done = replay(&tree, &proxy, &[(Section::Fetch, Way::Direct)]).unwrap();
        let last = &tree.store.files[2];
        assert_eq!(done[0].1.chunks, u64::from(last.chunk_count));
        // The leaves of a push, some that it replaces, and all nodes above them.
        assert!((1_301..1_400).contains(&last.chunk_count), "{last:?}");
        assert!(proxy.seen().iter().all(|seen| seen.path.contains(&last.name)));
        // A download that is compared with the leaves is as long as they are.
        let downloads = [(Section::Scan, Way::Download), (Section::Clone, Way::Downloads)];
        let done = replay(&tree, &proxy, &downloads).unwrap();
        let bytes = [done[0].1.body_bytes, done[1].1.body_bytes];
        assert_eq!(bytes, [tree.leaves_bytes, tree.store.bytes()]);
    }

    #[test]
    fn bytes_that_are_not_those_asked_for_fail_the_replay() {
        let (tree, proxy, _served) = world();
        for fault in [Fault::Truncate(10), Fault::Reset(10), Fault::Flip(20)] {
            proxy.set(Faults { rules: vec![Rule::always(fault)], ..Faults::default() });
            for section in [Section::Fetch, Section::Point] {
                replay(&tree, &proxy, &[(section, Way::Direct)]).unwrap_err();
            }
        }
    }
}
