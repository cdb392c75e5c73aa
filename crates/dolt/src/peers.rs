//! Other caches of the same stores, as a store sees them: whose a table file is, and the chunks in
//! it that its owner has on disk.

use std::time::Instant;

use futures_util::future::BoxFuture;

use crate::{Chunk, ChunkAddress, FileId, Form};

/// Caches side by side, each of which has some of the table files on its disk. No method blocks.
pub trait Peers: Send + Sync + 'static {
    /// Returns whether a table file of a store belongs to this process, which brings it to its
    /// disk.
    fn is_mine(&self, store: &str, file: &FileId) -> bool;

    /// Asks the peer that owns a table file for chunks in it, and returns an answer for each. None
    /// if the file is this process's own, or the peer is not to be asked now. Called on the
    /// store's runtime; who drops an answer no longer waits for it.
    fn ask(&self, question: PeerQuestion<'_>) -> Option<Vec<PeerAnswer>>;
}

/// Chunks that a store wants from the owner of a file.
#[derive(Clone, Copy, Debug)]
pub struct PeerQuestion<'a> {
    /// Name of the store, which all peers have under this name.
    pub store: &'a str,
    /// Table file that holds the chunks.
    pub file: &'a FileId,
    /// Addresses, each with [`Form::Contents`] or [`Form::Stored`].
    pub chunks: &'a [(ChunkAddress, Form)],
    /// Deadline of the request for which the store asks.
    pub deadline: Instant,
}

/// A chunk as a peer sent it, not verified yet. None if the peer did not send it in time, for
/// whatever reason.
pub type PeerAnswer = BoxFuture<'static, Option<Chunk>>;
