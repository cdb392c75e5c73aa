//! Metrics of Dolt's protocol, summed over all tables.

use std::sync::atomic::{AtomicU64, Ordering};

use busload_calls::TimedCall;

/// A method of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Returns format and size of a repository.
    GetRepoMetadata,
    /// Tells which chunks are missing.
    HasChunks,
    /// Returns chunk locations for one request.
    GetDownloadLocations,
    /// Streams chunk locations, request by request.
    StreamDownloadLocations,
    /// Streams the same locations in fewer bytes.
    StreamChunkLocations,
    /// A write, which is refused.
    GetUploadLocations,
    /// Reads the manifest again.
    Rebase,
    /// Returns the root hash.
    Root,
    /// A write, which is refused.
    Commit,
    /// Lists the table files.
    ListTableFiles,
    /// Returns a fresh URL for a table file.
    RefreshTableFileUrl,
    /// A write, which is refused.
    AddTableFiles,
}

impl Method {
    /// All variants, in the order of their discriminants.
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

    /// Returns the name in the method's gRPC path.
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

/// Kind of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Download {
    /// A table file as a whole.
    File,
    /// A range of a table file.
    Range,
    /// A bundle of records, or a range of it.
    Records,
}

impl Download {
    /// All variants, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::File, Self::Range, Self::Records];

    /// Returns the value of the label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Range => "range",
            Self::Records => "records",
        }
    }

    /// Returns the kind under which its time is measured.
    pub fn timed(self) -> TimedCall {
        match self {
            Self::File => TimedCall::File,
            Self::Range => TimedCall::Range,
            Self::Records => TimedCall::Records,
        }
    }
}

/// Outcome of a request for the location of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// A location of the chunk was advertised.
    Found,
    /// The store does not hold it.
    Missing,
}

impl Location {
    /// All variants, in the order of their discriminants.
    pub const ALL: [Self; 2] = [Self::Found, Self::Missing];

    /// Returns the value of the label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Missing => "missing",
        }
    }
}

/// Origin of an encoded chunk bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordsOrigin {
    /// Encoded for an answer with locations.
    Encoded,
    /// Encoded once more for a download, because it was no longer in memory.
    EncodedAgain,
    /// Found in memory by a download.
    Memory,
}

impl RecordsOrigin {
    /// All variants, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Encoded, Self::EncodedAgain, Self::Memory];

    /// Returns the value of the label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Encoded => "made",
            Self::EncodedAgain => "made_again",
            Self::Memory => "memory",
        }
    }
}

/// Counters of calls and downloads. Any thread increments them, and counters that are read together
/// need not be from the same instant.
#[derive(Debug, Default)]
pub struct RemotesapiStats {
    calls: Counters<{ Method::ALL.len() }>,
    failed_calls: Counters<{ Method::ALL.len() }>,
    locations: Counters<{ Location::ALL.len() }>,
    records: Counters<{ RecordsOrigin::ALL.len() }>,
    downloads: Counters<{ Download::ALL.len() }>,
    sent_bytes: Counters<{ Download::ALL.len() }>,
    cut_off: Counters<{ Download::ALL.len() }>,
    peer_urls: AtomicU64,
}

impl RemotesapiStats {
    /// Counts the start of a call.
    pub fn count_call(&self, method: Method) {
        self.calls.add(method as usize, 1);
    }

    /// Counts a call that ended with an error.
    pub fn count_failed_call(&self, method: Method) {
        self.failed_calls.add(method as usize, 1);
    }

    /// Counts chunks whose locations were looked up, by outcome.
    pub fn count_locations(&self, location: Location, chunks: usize) {
        self.locations.add(location as usize, chunks as u64);
    }

    /// Counts a bundle that was encoded, or was still in memory.
    pub fn count_records(&self, origin: RecordsOrigin) {
        self.records.add(origin as usize, 1);
    }

    /// Counts an answered download. HEAD requests are not downloads.
    pub fn count_download(&self, download: Download) {
        self.downloads.add(download as usize, 1);
    }

    /// Counts bytes of downloads that were handed to their connections.
    pub fn count_sent(&self, download: Download, bytes: u64) {
        self.sent_bytes.add(download as usize, bytes);
    }

    /// Counts a URL of a table file that names a peer, to which the client goes for the bytes.
    pub fn count_peer_url(&self) {
        self.peer_urls.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many URLs named a peer.
    pub fn peer_urls(&self) -> u64 {
        self.peer_urls.load(Ordering::Relaxed)
    }

    /// Counts a download that this side cut off before it had sent all announced bytes.
    pub fn count_cut_off(&self, download: Download) {
        self.cut_off.add(download as usize, 1);
    }

    /// Returns the number of calls so far.
    pub fn calls(&self, method: Method) -> u64 {
        self.calls.get(method as usize)
    }

    /// Returns how many of the calls ended with an error.
    pub fn failed_calls(&self, method: Method) -> u64 {
        self.failed_calls.get(method as usize)
    }

    /// Returns how many chunk locations had this outcome.
    pub fn locations(&self, location: Location) -> u64 {
        self.locations.get(location as usize)
    }

    /// Returns the number of bundles of this origin.
    pub fn records(&self, origin: RecordsOrigin) -> u64 {
        self.records.get(origin as usize)
    }

    /// Returns the number of downloads so far.
    pub fn downloads(&self, download: Download) -> u64 {
        self.downloads.get(download as usize)
    }

    /// Returns the bytes sent for downloads of this kind.
    pub fn sent_bytes(&self, download: Download) -> u64 {
        self.sent_bytes.get(download as usize)
    }

    /// Returns how many downloads this side cut off.
    pub fn cut_off(&self, download: Download) -> u64 {
        self.cut_off.get(download as usize)
    }
}

/// Array of counters, read and written with relaxed ordering.
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
    fn every_event_has_a_counter_of_its_own() {
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
        stats.count_records(RecordsOrigin::EncodedAgain);
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
            include_str!("../../proto/proto/dolt/services/remotesapi/v1alpha1/chunkstore.proto");
        let called: Vec<&str> = proto
            .lines()
            .filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next())
            .collect();
        assert_eq!(called, Method::ALL.map(Method::name));
    }
}
