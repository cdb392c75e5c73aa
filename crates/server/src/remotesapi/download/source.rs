//! What is downloaded: a table file, or records.

use std::{ops::Range, sync::Arc, time::Duration};

use busload_dolt::{Error, FileBytes, Store};
use busload_objects::StreamOptions;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::time::timeout_at;

use super::{body::Pieces, plan::Part};
use crate::{
    http::limits::PIECE_BYTES,
    remotesapi::{
        Remotesapi,
        limits::{RECORDS_SHARED_BYTES_MAX, SENDING_EACH_BYTES_MAX, SENDING_RECORDS_BYTES_MAX},
        stats::Download,
        url::Recipe,
    },
};

/// Bytes of a resource, which never change.
#[derive(Clone, Debug)]
pub enum Source {
    /// In the store, or on local disk.
    File(FileBytes),
    /// In memory, or made again.
    Records(Records),
}

/// Asked for again for every piece, so that nothing else is in memory for a slow reader.
#[derive(Clone, Debug)]
pub struct Records {
    remotesapi: Arc<Remotesapi>,
    store: Store,
    recipe: Arc<Recipe>,
    size: u64,
    /// One that would not stay in memory.
    large: Option<Bytes>,
}

impl Source {
    /// How many.
    pub fn size(&self) -> u64 {
        match self {
            Self::File(file) => file.size(),
            Self::Records(records) => records.size,
        }
    }

    /// A download of this part is counted as.
    pub fn kind(&self, part: &Part) -> Download {
        match self {
            Self::Records(_) => Download::Records,
            Self::File(_) if part.range == (0..self.size()) => Download::File,
            Self::File(_) => Download::Range,
        }
    }

    /// Memory that sending a part takes, at most.
    pub fn held(&self, part: &Part) -> u64 {
        let bytes = part.range.end - part.range.start;
        match self {
            Self::File(_) => bytes.min(SENDING_EACH_BYTES_MAX),
            Self::Records(Records { large: Some(_), size, .. }) => *size,
            Self::Records(_) => bytes.min(SENDING_RECORDS_BYTES_MAX),
        }
    }

    /// Pieces of a part. Nothing is read before it is polled; a piece that takes longer than
    /// `timeout` is an error.
    pub fn stream(&self, part: &Part, timeout: Duration) -> Pieces {
        match self {
            Self::File(file) => {
                file.stream(part.range.clone(), StreamOptions { purpose: part.purpose, timeout })
            }
            Self::Records(records) => records.clone().stream(part.range.clone(), timeout),
        }
    }
}

impl Records {
    /// Of these bytes, which are not kept.
    pub fn new(
        remotesapi: &Arc<Remotesapi>,
        (store, recipe): (&Store, &Recipe),
        bytes: Bytes,
    ) -> Self {
        let size = u64::try_from(bytes.len()).expect("lengths have at most 64 bits");
        Self {
            remotesapi: Arc::clone(remotesapi),
            store: store.clone(),
            recipe: Arc::new(recipe.clone()),
            size,
            large: (RECORDS_SHARED_BYTES_MAX < size).then_some(bytes),
        }
    }

    fn stream(self, range: Range<u64>, timeout: Duration) -> Pieces {
        let next = move |rest: Range<u64>| {
            let this = self.clone();
            async move {
                if rest.is_empty() {
                    return None;
                }
                let end = rest.end.min(rest.start + PIECE_BYTES as u64);
                let piece = this.piece(rest.start..end, timeout).await;
                // After an error nothing follows.
                let start = if piece.is_ok() { end } else { rest.end };
                Some((piece, start..rest.end))
            }
        };
        stream::unfold(range, next).boxed()
    }

    /// A copy: a slice would keep all of them in memory.
    async fn piece(&self, range: Range<u64>, timeout: Duration) -> Result<Bytes, Error> {
        let position = |at: u64| usize::try_from(at).expect("the range is within the bytes");
        let range = position(range.start)..position(range.end);
        if let Some(bytes) = &self.large {
            return Ok(bytes.slice(range));
        }
        let deadline = (tokio::time::Instant::now() + timeout).into_std();
        let bytes = self.remotesapi.records.get_rest(&self.store, &self.recipe, deadline);
        let late =
            || Error::DeadlineExceeded(format!("records could not be made again in {timeout:?}"));
        let bytes = timeout_at(deadline.into(), bytes).await.map_err(|_| late())??;
        let gone =
            || Error::Unreachable("the store does not have these chunks any more".to_owned());
        Ok(Bytes::copy_from_slice(&bytes.ok_or_else(gone)?[range]))
    }
}
