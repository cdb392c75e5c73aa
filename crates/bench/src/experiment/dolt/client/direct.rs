//! Reads without busload: from the object store itself, by ranges. Indexes are known
//! beforehand, as Dolt has them once it has opened a store.

use std::{ops::Range, rc::Rc};

use busload_chunks::ChunkAddress;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{
    Report,
    downloads::{Dictionaries, DownloadLimits, Downloads, LocatedChunk},
    http::{Http, count, wrong},
    report, since,
    walks::{self, Reads, Visit, Work},
};
use crate::{clock::now_ns, experiment::dolt::tree::TreeStore, failures::Failure};

/// Limits of reads from the object store.
const LIMITS: DownloadLimits = DownloadLimits { gap: 512 * 1024 + 1, workers: 32 };

/// Bytes of one range of a plain download.
const DOWNLOAD_RANGE_BYTES: usize = 8 << 20;

/// A plain download of the files in ranges of 8 MiB.
#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    pub at_once: usize,
    /// Bytes at most, from the beginning of the first file on.
    pub bytes_max: u64,
}

/// Reader of the object store itself.
#[derive(Debug)]
pub struct Direct<'a> {
    tree: &'a TreeStore,
    /// URLs of the store's files.
    urls: Vec<Rc<str>>,
    http: Http,
    dictionaries: Dictionaries,
}

impl<'a> Direct<'a> {
    /// Makes a reader of a store whose files are objects below this URL; anybody may read them.
    pub fn new(url: &str, tree: &'a TreeStore) -> Self {
        let urls = tree.store.files.iter().map(|file| format!("{url}/{}", file.name).into());
        let (urls, http) = (urls.collect(), Http::new());
        Self { tree, urls, http, dictionaries: Dictionaries::default() }
    }

    /// Reads what a command of Dolt reads.
    pub async fn replay(&self, work: Work) -> Result<Report, Failure> {
        report(&self.http, walks::walk(self, self.tree, work)).await
    }

    /// Downloads the files in ranges and drops them.
    pub async fn download(&self, ranges: Ranges) -> Result<Report, Failure> {
        let mut rest = ranges.bytes_max;
        let mut downloads = Vec::new();
        for (url, file) in self.urls.iter().zip(&self.tree.store.files) {
            let end = file.bytes.min(rest);
            rest -= end;
            let starts = (0..end).step_by(DOWNLOAD_RANGE_BYTES);
            let range = |start| start..end.min(start + count(DOWNLOAD_RANGE_BYTES));
            downloads.extend(starts.map(|start| self.range(url, range(start))));
        }
        let downloads = stream::iter(downloads).buffer_unordered(ranges.at_once.max(1));
        report(&self.http, downloads.try_collect()).await
    }

    async fn range(&self, url: &str, range: Range<u64>) -> Result<u64, Failure> {
        let began_ns = now_ns();
        let expected = range.end - range.start;
        let mut body = self.http.get(url, Some(range)).await?;
        let mut bytes = 0;
        while let Some(data) = body.data().await? {
            bytes += count(data.len());
        }
        if bytes != expected {
            return Err(wrong(url, format_args!("{bytes} bytes, expected {expected}")));
        }
        Ok(since(began_ns))
    }
}

impl Reads for Direct<'_> {
    async fn walk(
        &self,
        mut wanted: Vec<ChunkAddress>,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        let mut downloads = Downloads::new(&self.http, LIMITS, self.dictionaries.clone());
        let mut owed = 0;
        loop {
            // All that is known so far, so that as much as possible is merged.
            for address in wanted.drain(..) {
                let chunk = self.tree.store.find(&address);
                let chunk = chunk.ok_or_else(|| wrong(address, "it is not in the store"))?;
                let file = usize::try_from(chunk.file).expect("32 bits fit");
                let (url, location) = (Rc::clone(&self.urls[file]), chunk.location);
                downloads.want(LocatedChunk { url, address, location });
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
