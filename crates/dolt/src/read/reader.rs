//! Reads chunks by their addresses: at once where no device is needed, else with waiting.
//!
//! | what is wrong | what the reader tries |
//! |---|---|
//! | no file has the chunk | one refresh that begins now; then the chunk does not exist |
//! | the bytes are not the chunk | the store again, then other files; then not for a while |
//! | the object is gone or was replaced | one refresh, which opens the file again |
//! | a peer owns the file and does not send the chunk | the store |
//! | the store cannot be reached | nothing: `busload_objects` retries until the deadline |

use std::sync::Arc;

use busload_chunks::{ChunkAddress, FileKind};
use bytes::Bytes;
use tokio::task::coop::consume_budget;

use super::{
    decode::{Decoded, Wanted},
    file_chunk_reader::{FileChunkReader, ReadRequest, StartedRead},
    peer_reader::PeerReader,
};
use crate::{
    Attempt, DictionaryId, Error, Peers, Request, Requester,
    fault::Fault,
    lifecycle::Lifecycle,
    limits::{CHUNK_FILES_MAX, LOOKUPS_MAX},
    serve::reference_prefetch::ReferencePrefetcher,
    stats::{Counters, Origin, ReadFrom},
    task::blocking,
    usage::StoreUsage,
    versions::{
        Versions,
        version::{FileChunk, Version},
    },
};

/// Locates chunks in versions and reads them; counts the outcomes.
pub(crate) struct Reader {
    pub versions: Arc<Versions>,
    pub file_chunks: Arc<FileChunkReader>,
    references: Arc<ReferencePrefetcher>,
    pub peers: PeerReader,
    counters: Counters,
    usage: Arc<StoreUsage>,
}

impl Reader {
    pub fn new(
        versions: Arc<Versions>,
        file_chunks: Arc<FileChunkReader>,
        references: Arc<ReferencePrefetcher>,
        peers: Option<Arc<dyn Peers>>,
        usage: Arc<StoreUsage>,
    ) -> Self {
        let peers = PeerReader::new(peers, file_chunks.clone());
        let counters = Counters::default();
        Self { versions, file_chunks, references, peers, counters, usage }
    }

    pub fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.file_chunks.lifecycle
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Reads a chunk that takes no waiting, and counts it. Never says that a chunk does not exist,
    /// which takes a refresh.
    pub fn try_get(
        &self,
        address: &ChunkAddress,
        wanted: Wanted,
        requester: Requester,
    ) -> Attempt<Option<Decoded>> {
        match self.try_find(address, wanted) {
            Some(found) => Attempt::Ready(self.count(address, requester, found.map(Some))),
            None => Attempt::Wait,
        }
    }

    fn try_find(
        &self,
        address: &ChunkAddress,
        wanted: Wanted,
    ) -> Option<Result<(Decoded, ReadFrom), Error>> {
        if self.lifecycle().is_closed() {
            return Some(Err(Error::Closed));
        }
        if let Some((decoded, stored_bytes)) = self.file_chunks.memory.decoded(address, wanted) {
            return Some(Ok((decoded, ReadFrom { origin: Origin::Memory, stored_bytes })));
        }
        let version = self.versions.load();
        let Some(version) = version.as_ref() else {
            return self.lifecycle().failure().map(Err);
        };
        let (file, position) = version.find(address)?;
        let decoded = self.file_chunks.try_read(file, position, address, wanted)?;
        let stored_bytes = file.location(position).span.length;
        Some(Ok((decoded, ReadFrom { origin: Origin::Disk, stored_bytes })))
    }

    /// Reads a chunk; none if the store does not hold it. Callable from any thread.
    pub async fn get(
        self: &Arc<Self>,
        request: ReadRequest,
        requester: Requester,
    ) -> Result<Option<Decoded>, Error> {
        if let Attempt::Ready(found) = self.try_get(&request.address, request.wanted, requester) {
            // A caller in a loop yields now and then, as with other futures.
            consume_budget().await;
            return found;
        }
        let reader = self.clone();
        let get = async move {
            let found = match reader.versions.opened_for(request.local_only).await {
                Ok(version) => reader.get_by_owner(version, request, requester).await,
                Err(error) => Err(error),
            };
            reader.count(&request.address, requester, found)
        };
        self.lifecycle().run(request.deadline, get).await
    }

    /// Reads a chunk of a version from the peer that owns its file, or else as usual.
    async fn get_by_owner(
        &self,
        version: Arc<Version>,
        request: ReadRequest,
        requester: Requester,
    ) -> Result<Option<(Decoded, ReadFrom)>, Error> {
        if let Some(chunk) = version.locate(&request.address)
            && let Some(decoded) = self.peers.read(&chunk, request, requester).await
        {
            return Ok(Some((decoded, chunk.read_from(Origin::Peer))));
        }
        self.get_from(version, None, request).await
    }

    /// Reads a chunk from a version, perhaps with a read that was started already; refreshes if no
    /// file has the chunk, or its object is gone. Does not count.
    pub async fn get_from(
        &self,
        mut version: Arc<Version>,
        mut started: Option<StartedRead>,
        request: ReadRequest,
    ) -> Result<Option<(Decoded, ReadFrom)>, Error> {
        let mut is_refreshed = false;
        for _ in 0..LOOKUPS_MAX {
            match version.locate(&request.address) {
                None if is_refreshed => return Ok(None),
                // A local read cannot ask the store for its manifest.
                None if request.local_only => return Err(Error::NotLocal),
                None => {}
                Some(chunk) => {
                    match self.read_verified(&version, &chunk, started.take(), request).await {
                        Ok((decoded, origin)) => {
                            return Ok(Some((decoded, chunk.read_from(origin))));
                        }
                        Err(Fault::Error(error)) => return Err(error),
                        Err(Fault::Corrupt(text)) => return Err(Error::Corrupt(text)),
                        Err(Fault::Gone) if request.local_only => return Err(Error::NotLocal),
                        Err(Fault::Gone) => {}
                    }
                }
            }
            version = self.versions.refreshed(&request.address).await?;
            is_refreshed = true;
        }
        Err(Error::Unreachable(format!(
            "{}: the table file of chunk {} is replaced again and again",
            self.lifecycle().url(),
            request.address
        )))
    }

    /// Reads a chunk from one file, or from other files that hold it if it is corrupt there.
    async fn read_verified(
        &self,
        version: &Version,
        chunk: &FileChunk,
        started: Option<StartedRead>,
        request: ReadRequest,
    ) -> Result<(Decoded, Origin), Fault> {
        let first = self.file_chunks.read_verified(chunk, started, request).await;
        let Err(Fault::Corrupt(_)) = first else {
            return first;
        };
        let others = version.files().filter(|file| file.serial != chunk.file.serial);
        let others = others.filter_map(|file| {
            let position = file.index.find(&request.address)?;
            Some(FileChunk { file: file.clone(), position })
        });
        for other in others.take(CHUNK_FILES_MAX - 1) {
            match self.file_chunks.read_verified(&other, None, request).await {
                Err(Fault::Corrupt(_) | Fault::Gone) => {}
                outcome => return outcome,
            }
        }
        first
    }

    /// Counts the outcome of a read of a chunk.
    pub fn count(
        &self,
        address: &ChunkAddress,
        requester: Requester,
        found: Result<Option<(Decoded, ReadFrom)>, Error>,
    ) -> Result<Option<Decoded>, Error> {
        match found {
            Ok(Some((decoded, from))) => {
                self.counters.count_found(from.origin);
                self.usage.count_found(requester, from);
                self.references.handle_read(address, (&decoded, from.origin));
                Ok(Some(decoded))
            }
            Ok(None) => {
                self.counters.count_other(None);
                self.usage.count_other(requester, None);
                Ok(None)
            }
            Err(error) => {
                self.counters.count_other(Some(&error));
                self.usage.count_other(requester, Some(&error));
                Err(error)
            }
        }
    }

    /// Returns whether a chunk and its dictionary can be read without the object store.
    pub fn is_local(&self, version: &Version, address: &ChunkAddress) -> bool {
        version
            .find(address)
            .is_some_and(|(file, position)| self.file_chunks.is_local(file, position))
    }

    /// Reads a dictionary. A dictionary has no address of its own, so this first reads a chunk that
    /// needs it, which verifies both.
    pub async fn dictionary(
        &self,
        id: DictionaryId,
        request: Request,
    ) -> Result<Option<Bytes>, Error> {
        let version = self.versions.opened().await?;
        let (wanted, span) = (id.file(), id.span());
        let candidates =
            version.files().filter(|file| file.id == wanted && file.kind == FileKind::Archive);
        for file in candidates.cloned().collect::<Vec<_>>() {
            let searched = file.clone();
            let find_chunk = move || {
                let has = searched.has_dictionary(span);
                has.then(|| searched.chunk_with_dictionary(span)).flatten()
            };
            let Some((address, position)) = blocking(find_chunk).await? else { continue };
            let request = ReadRequest::new(address, Wanted::Length, request);
            let chunk = FileChunk { file: file.clone(), position };
            let dictionary = match self
                .file_chunks
                .read_even_if_known_corrupt(&chunk, None, request)
                .await
            {
                Ok(_) => {
                    self.file_chunks.dictionaries.load(&file, span, request.read_options()).await
                }
                Err(fault) => Err(fault),
            };
            return dictionary
                .map(|dictionary| Some(dictionary.dictionary().bytes().clone()))
                .map_err(|fault| match fault {
                    Fault::Error(error) => error,
                    Fault::Corrupt(text) => Error::Corrupt(text),
                    Fault::Gone => {
                        Error::Unreachable(format!("{} is being replaced: ask again", file.name()))
                    }
                });
        }
        Ok(None)
    }
}
