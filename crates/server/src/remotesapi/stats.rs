//! Metrics of Dolt's protocol, of all tables together.

use std::sync::atomic::{AtomicU64, Ordering};

/// A method of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// About a repository.
    GetRepoMetadata,
    /// Which chunks are missing.
    HasChunks,
    /// Locations of one request.
    GetDownloadLocations,
    /// Locations, request by request.
    StreamDownloadLocations,
    /// The same in fewer bytes.
    StreamChunkLocations,
    /// A write, which is refused.
    GetUploadLocations,
    /// Looks at the manifest.
    Rebase,
    /// The root.
    Root,
    /// A write, which is refused.
    Commit,
    /// The table files.
    ListTableFiles,
    /// A newer URL.
    RefreshTableFileUrl,
    /// A write, which is refused.
    AddTableFiles,
}

impl Method {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::GetRepoMetadata,
        Self::HasChunks,
        Self::GetDownloadLocations,
        Self::StreamDownloadLocations,
        Self::StreamChunkLocations,
        Self::GetUploadLocations,
        Self::Rebase,
        Self::Root,
        Self::Commit,
        Self::ListTableFiles,
        Self::RefreshTableFileUrl,
        Self::AddTableFiles,
    ];

    /// As in its path.
    pub fn name(self) -> &'static str {
        match self {
            Self::GetRepoMetadata => "GetRepoMetadata",
            Self::HasChunks => "HasChunks",
            Self::GetDownloadLocations => "GetDownloadLocations",
            Self::StreamDownloadLocations => "StreamDownloadLocations",
            Self::StreamChunkLocations => "StreamChunkLocations",
            Self::GetUploadLocations => "GetUploadLocations",
            Self::Rebase => "Rebase",
            Self::Root => "Root",
            Self::Commit => "Commit",
            Self::ListTableFiles => "ListTableFiles",
            Self::RefreshTableFileUrl => "RefreshTableFileUrl",
            Self::AddTableFiles => "AddTableFiles",
        }
    }
}

/// What is downloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Download {
    /// A table file as a whole.
    File,
    /// A part of one.
    Range,
    /// Records, or a part of them.
    Records,
}

impl Download {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::File, Self::Range, Self::Records];

    /// In metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Range => "range",
            Self::Records => "records",
        }
    }
}

/// What became of a chunk whose place was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// It was told.
    Found,
    /// The store does not hold it.
    Missing,
}

impl Location {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Found, Self::Missing];

    /// In metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Missing => "missing",
        }
    }
}

/// Where a resource of records came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordsOrigin {
    /// Laid out for locations.
    Made,
    /// Made once more for a download, because it was in memory no longer.
    MadeAgain,
    /// A download found it in memory.
    Memory,
}

impl RecordsOrigin {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Made, Self::MadeAgain, Self::Memory];

    /// In metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::MadeAgain => "made_again",
            Self::Memory => "memory",
        }
    }
}

/// What was asked and sent. Any thread counts; metrics that are read together need not be of one
/// moment.
#[derive(Debug, Default)]
pub struct RemotesapiStats {
    calls: Counters<{ Method::ALL.len() }>,
    failed_calls: Counters<{ Method::ALL.len() }>,
    locations: Counters<{ Location::ALL.len() }>,
    records: Counters<{ RecordsOrigin::ALL.len() }>,
    downloads: Counters<{ Download::ALL.len() }>,
    sent_bytes: Counters<{ Download::ALL.len() }>,
    cut_off: Counters<{ Download::ALL.len() }>,
}

impl RemotesapiStats {
    /// A call began.
    pub fn count_call(&self, method: Method) {
        self.calls.add(method as usize, 1);
    }

    /// A call ended with an error.
    pub fn count_failed_call(&self, method: Method) {
        self.failed_calls.add(method as usize, 1);
    }

    /// The places of so many chunks were told, or there is none.
    pub fn count_locations(&self, location: Location, chunks: usize) {
        self.locations.add(location as usize, chunks as u64);
    }

    /// A resource of records was made, or was still there.
    pub fn count_records(&self, origin: RecordsOrigin) {
        self.records.add(origin as usize, 1);
    }

    /// A download is answered; HEAD is not one.
    pub fn count_download(&self, download: Download) {
        self.downloads.add(download as usize, 1);
    }

    /// So many bytes of it were given to its connection.
    pub fn count_sent(&self, download: Download, bytes: u64) {
        self.sent_bytes.add(download as usize, bytes);
    }

    /// It was ended before all that was announced was sent, by a failure of this side.
    pub fn count_cut_off(&self, download: Download) {
        self.cut_off.add(download as usize, 1);
    }

    /// Calls so far.
    pub fn calls(&self, method: Method) -> u64 {
        self.calls.get(method as usize)
    }

    /// Of those, the ones that ended with an error.
    pub fn failed_calls(&self, method: Method) -> u64 {
        self.failed_calls.get(method as usize)
    }

    /// Chunks whose places were asked for.
    pub fn locations(&self, location: Location) -> u64 {
        self.locations.get(location as usize)
    }

    /// Resources of records.
    pub fn records(&self, origin: RecordsOrigin) -> u64 {
        self.records.get(origin as usize)
    }

    /// Downloads so far.
    pub fn downloads(&self, download: Download) -> u64 {
        self.downloads.get(download as usize)
    }

    /// Bytes sent for them.
    pub fn sent_bytes(&self, download: Download) -> u64 {
        self.sent_bytes.get(download as usize)
    }

    /// Downloads that this side ended early.
    pub fn cut_off(&self, download: Download) -> u64 {
        self.cut_off.get(download as usize)
    }
}

/// Counters that nothing is ordered by.
#[derive(Debug)]
struct Counters<const COUNT: usize>([AtomicU64; COUNT]);

impl<const COUNT: usize> Counters<COUNT> {
    fn add(&self, index: usize, amount: u64) {
        self.0[index].fetch_add(amount, Ordering::Relaxed);
    }

    fn get(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }
}

impl<const COUNT: usize> Default for Counters<COUNT> {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; COUNT])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn everything_counts_in_a_place_of_its_own() {
        let stats = RemotesapiStats::default();
        for (index, method) in (0..).zip(Method::ALL) {
            (0..=index).for_each(|_| stats.count_call(method));
            (0..2 * index).for_each(|_| stats.count_failed_call(method));
        }
        for (index, download) in (0..).zip(Download::ALL) {
            (0..=index).for_each(|_| stats.count_download(download));
            stats.count_sent(download, 10 * index);
            (0..3 * index).for_each(|_| stats.count_cut_off(download));
        }
        for (index, method) in (0..).zip(Method::ALL) {
            assert_eq!(
                (stats.calls(method), stats.failed_calls(method)),
                (index + 1, 2 * index),
                "{method:?}"
            );
        }
        for (index, download) in (0..).zip(Download::ALL) {
            let counted =
                (stats.downloads(download), stats.sent_bytes(download), stats.cut_off(download));
            assert_eq!(counted, (index + 1, 10 * index, 3 * index), "{download:?}");
        }
        stats.count_locations(Location::Found, 7);
        stats.count_locations(Location::Missing, 3);
        assert_eq!(Location::ALL.map(|location| stats.locations(location)), [7, 3]);
        stats.count_records(RecordsOrigin::MadeAgain);
        assert_eq!(RecordsOrigin::ALL.map(|origin| stats.records(origin)), [0, 1, 0]);
    }

    #[test]
    fn lists_are_whole_and_names_differ() {
        fn check<T: Copy>(
            all: &[T],
            number: impl Fn(T) -> usize,
            name: impl Fn(T) -> &'static str,
        ) {
            let names: HashSet<&str> = all.iter().map(|item| name(*item)).collect();
            assert_eq!(names.len(), all.len());
            assert!(all.iter().enumerate().all(|(index, item)| number(*item) == index));
        }
        check(&Method::ALL, |method| method as usize, Method::name);
        check(&Download::ALL, |download| download as usize, Download::name);
        check(&Location::ALL, |location| location as usize, Location::name);
        check(&RecordsOrigin::ALL, |origin| origin as usize, RecordsOrigin::name);
    }

    /// The names are those that clients call.
    #[test]
    fn methods_are_those_of_the_protocol() {
        let proto =
            include_str!("../../../proto/proto/dolt/services/remotesapi/v1alpha1/chunkstore.proto");
        let called: Vec<&str> = proto
            .lines()
            .filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next())
            .collect();
        assert_eq!(called, Method::ALL.map(Method::name));
    }
}
