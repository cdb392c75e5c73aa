//! Reads without busload: from the object store itself, by ranges. Indexes are known
//! beforehand, as Dolt has them once it has opened a store.

use std::{net::SocketAddr, ops::Range, rc::Rc};

use busload_chunks::ChunkAddress;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{
    counts::{Meter, Report},
    downloads::{Dictionaries, Downloads, LocatedChunk, Way},
    failure::{refused, wrong},
    http::Http,
    limits::{DIRECT_MERGE_GAP, DIRECT_WORKERS, DOWNLOAD_RANGE_BYTES},
    walks::{self, Points, Reads, Visit},
};
use crate::{clock::now_ns, experiment::dolt::store::Store, failures::Failure};

/// Limits of reads from the object store.
const WAY: Way = Way { gap: DIRECT_MERGE_GAP, workers: DIRECT_WORKERS };

#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    pub at_once: usize,
    /// Bytes at most, from the beginning of the first file on.
    pub bytes_max: u64,
}

/// Reader of the object store itself.
#[derive(Debug)]
pub struct Direct<'a> {
    store: &'a Store,
    /// URLs of the store's files.
    urls: Vec<Rc<str>>,
    http: Http,
    dictionaries: Dictionaries,
    meter: Meter,
}

impl<'a> Direct<'a> {
    /// A store whose files are objects below `prefix` in `bucket`; anybody may read them.
    pub fn new(address: SocketAddr, bucket: &str, prefix: &str, store: &'a Store) -> Self {
        let meter = Meter::default();
        let url = |name: &str| format!("http://{address}/{bucket}/{prefix}/{name}").into();
        let urls = store.files.iter().map(|file| url(&file.name)).collect();
        Self { store, urls, http: Http::new(&meter), dictionaries: Dictionaries::default(), meter }
    }

    /// Reads everything that was not written by the first `had` pushes.
    pub async fn fetch(&self, had: usize) -> Result<Report, Failure> {
        let started = self.meter.begin();
        walks::fetch(self, self.store, self.store.root, had).await?;
        Ok(started.end(Vec::new()))
    }

    /// Reads the current version, node after node.
    pub async fn scan(&self) -> Result<Report, Failure> {
        let started = self.meter.begin();
        let parts_ns = walks::scan(self, self.store, self.store.root).await?;
        Ok(started.end(parts_ns))
    }

    /// Reads chains from the root to leaves.
    pub async fn point(&self, points: &Points) -> Result<Report, Failure> {
        let started = self.meter.begin();
        let parts_ns = walks::point(self, self.store, self.store.root, points).await?;
        Ok(started.end(parts_ns))
    }

    /// Downloads the files in ranges of 8 MiB and drops them.
    pub async fn download(&self, ranges: &Ranges) -> Result<Report, Failure> {
        let started = self.meter.begin();
        let downloads =
            self.ranges(ranges.bytes_max).into_iter().map(|(url, range)| self.range(url, range));
        let parts_ns =
            stream::iter(downloads).buffer_unordered(ranges.at_once.max(1)).try_collect().await?;
        Ok(started.end(parts_ns))
    }

    fn ranges(&self, bytes_max: u64) -> Vec<(Rc<str>, Range<u64>)> {
        let mut rest = bytes_max;
        let mut ranges = Vec::new();
        for (url, file) in self.urls.iter().zip(&self.store.files) {
            let end = file.bytes.min(rest);
            rest -= end;
            let mut start = 0;
            while start < end {
                let next = end.min(start + DOWNLOAD_RANGE_BYTES);
                ranges.push((Rc::clone(url), start..next));
                start = next;
            }
        }
        ranges
    }

    async fn range(&self, url: Rc<str>, range: Range<u64>) -> Result<u64, Failure> {
        let began_ns = now_ns();
        let expected = range.end - range.start;
        let mut answer = self.http.get(&url, Some(range)).await?;
        if answer.status != 206 {
            return Err(refused(&url, format_args!("status {}", answer.status)));
        }
        let mut bytes = 0;
        while let Some(data) = answer.data().await? {
            bytes += u64::try_from(data.len()).expect("a length fits in 64 bits");
        }
        if bytes != expected {
            return Err(wrong(&url, format_args!("{bytes} bytes, expected {expected}")));
        }
        Ok(now_ns().saturating_sub(began_ns))
    }

    fn located_chunk(&self, address: &ChunkAddress) -> Result<LocatedChunk, Failure> {
        let entry =
            self.store.find(address).ok_or_else(|| wrong(address, "it is not in the store"))?;
        let url = Rc::clone(&self.urls[entry.file]);
        Ok(LocatedChunk { url, address: *address, location: entry.location })
    }
}

impl Reads for Direct<'_> {
    async fn walk(
        &self,
        mut wanted: Vec<ChunkAddress>,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        let mut downloads = Downloads::new(&self.http, &self.meter, WAY, self.dictionaries.clone());
        let mut owed = 0;
        loop {
            // All that is known so far, so that as much as possible is merged.
            for address in wanted.drain(..) {
                downloads.want(self.located_chunk(&address)?);
                owed += 1;
            }
            if owed == 0 {
                return Ok(());
            }
            let (address, contents) = downloads.next().await?;
            owed -= 1;
            wanted.extend(visit(address, contents)?);
        }
    }
}
