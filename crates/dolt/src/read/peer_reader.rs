//! Reads chunks from the peers that own their files, and verifies them like bytes of the store.
//!
//! ```text
//!  chunks of a file --> on local disk? mine? asked by a peer? --> not asked: read as usual
//!                         | no
//!                         v
//!                       Peers::ask --> decode, verify --> Decoded
//!                                        | wrong, or no answer in time
//!                                        +--> none: read as usual
//! ```
//!
//! Nothing that a peer sends comes to the disk of this process.

use std::sync::Arc;

use busload_chunks::ChunkLocation;
use futures_util::{FutureExt, future::BoxFuture};

use super::{
    chunk::DictionaryId,
    decode::{Decoded, Wanted, decode_sent},
    dictionaries::LoadedDictionary,
    file_chunk_reader::{FileChunkReader, ReadRequest, origin},
};
use crate::{
    Chunk, Form, PeerAnswer, PeerQuestion, Peers, Requester,
    fault::Fault,
    limits::INLINE_STORED_BYTES_MAX,
    stats::Origin,
    task::blocking,
    versions::{
        table_file::{TableFile, range},
        version::FileChunk,
    },
};

/// Reader of chunks in files of other caches; without peers it asks nobody.
pub(crate) struct PeerReader {
    peers: Option<Arc<dyn Peers>>,
    file_chunks: Arc<FileChunkReader>,
}

/// A chunk that a peer has sent and that is right; otherwise none.
pub(crate) type PeerRead = BoxFuture<'static, Option<Decoded>>;

impl PeerReader {
    pub fn new(peers: Option<Arc<dyn Peers>>, file_chunks: Arc<FileChunkReader>) -> Self {
        Self { peers, file_chunks }
    }

    /// Returns whether the owner of a file is to be asked for what is not on local disk.
    pub fn asks_for(&self, file: &TableFile, requester: Requester) -> bool {
        let is_of_other = |peers: &Arc<dyn Peers>| !peers.is_mine(self.store(), &file.id);
        requester != Requester::Peer && self.peers.as_ref().is_some_and(is_of_other)
    }

    /// Reads one chunk from the peer that owns its file. None: it has to be read as usual.
    pub async fn read(
        &self,
        chunk: &FileChunk,
        request: ReadRequest,
        requester: Requester,
    ) -> Option<Decoded> {
        let is_near = || origin(&chunk.file, &range(chunk.location().span)) == Origin::Disk;
        if request.local_only || !self.asks_for(&chunk.file, requester) || is_near() {
            return None;
        }
        let mut reads = self.ask(&chunk.file, &[(chunk.clone(), request)])?;
        reads.pop()?.await
    }

    /// Asks the owner of a file for chunks in it, all at once. None: nobody was asked.
    pub fn ask(
        &self,
        file: &Arc<TableFile>,
        chunks: &[(FileChunk, ReadRequest)],
    ) -> Option<Vec<PeerRead>> {
        let peers = self.peers.as_ref()?;
        let (_, first) = chunks.first()?;
        let asked: Vec<_> = chunks
            .iter()
            .map(|(chunk, request)| {
                (request.address, asked_form(request.wanted, &chunk.location()))
            })
            .collect();
        let question = PeerQuestion {
            store: self.store(),
            file: &file.id,
            chunks: &asked,
            deadline: first.deadline,
        };
        let answers = peers.ask(question)?;
        assert_eq!(answers.len(), chunks.len(), "there is an answer for each chunk");
        let read = |(answer, (chunk, request)): (PeerAnswer, &(FileChunk, ReadRequest))| {
            verified(self.file_chunks.clone(), chunk.clone(), *request, answer).boxed()
        };
        Some(answers.into_iter().zip(chunks).map(read).collect())
    }

    fn store(&self) -> &str {
        self.file_chunks.lifecycle.name()
    }
}

/// Returns the form to ask a peer for. Contents of archives come decoded, because the dictionary is
/// where the file is; a snappy block is shorter.
fn asked_form(wanted: Wanted, location: &ChunkLocation) -> Form {
    match (wanted, location.dictionary) {
        (Wanted::Chunk(Form::Stored), _) | (_, None) => Form::Stored,
        (_, Some(_)) => Form::Contents,
    }
}

async fn verified(
    file_chunks: Arc<FileChunkReader>,
    chunk: FileChunk,
    request: ReadRequest,
    answer: PeerAnswer,
) -> Option<Decoded> {
    let sent = answer.await?;
    match decode(&file_chunks, &chunk, request, sent).await {
        Ok(decoded) => {
            let stored_bytes = chunk.location().span.length;
            file_chunks.memory.insert_decoded(&request.address, &decoded, stored_bytes);
            Some(decoded)
        }
        Err(fault) => {
            if let Fault::Corrupt(text) = fault {
                file_chunks.count_corrupt();
                let (table, address) = (file_chunks.lifecycle.name(), request.address);
                log::warn!("table {table}: a peer sent a wrong chunk for {address}: {text}");
            }
            None
        }
    }
}

async fn decode(
    file_chunks: &FileChunkReader,
    chunk: &FileChunk,
    request: ReadRequest,
    sent: Chunk,
) -> Result<Decoded, Fault> {
    let ReadRequest { address, wanted, .. } = request;
    let dictionary = match (&sent, chunk.location().dictionary) {
        (Chunk::Zstd(_, id), Some(span)) if *id == DictionaryId::new(&chunk.file.id, span) => {
            let options = request.read_options();
            Some(file_chunks.dictionaries.load(&chunk.file, span, options).await?)
        }
        // The peer has the chunk in another file as well, with another dictionary.
        (Chunk::Zstd(..), _) => return Err(Fault::Gone),
        (Chunk::Contents(_) | Chunk::Snappy(_), _) => None,
    };
    let is_short = sent.bytes().len() as u64 <= u64::from(INLINE_STORED_BYTES_MAX);
    let decode = move || {
        let with = dictionary.as_deref().map(LoadedDictionary::dictionary);
        decode_sent(sent, &address, with, wanted)
    };
    Ok(if is_short { decode()? } else { blocking(decode).await?? })
}
