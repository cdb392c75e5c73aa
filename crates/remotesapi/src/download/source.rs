//! Sources of downloads: a table file, or an encoded chunk bundle.

use std::{ops::Range, sync::Arc, time::Duration};

use busload_dolt::{Error, FileBytes, Store};
use busload_objects::StreamOptions;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::time::timeout_at;

use super::{body::Pieces, plan::Part};
use crate::{
    Remotesapi,
    limits::{
        PIECE_BYTES, RECORDS_SHARED_BYTES_MAX, SENDING_EACH_BYTES_MAX, SENDING_RECORDS_BYTES_MAX,
    },
    stats::Download,
    url::BundleId,
};

/// The bytes of a resource, which never change.
#[derive(Clone, Debug)]
pub enum Source {
    /// A table file, in the store or on local disk.
    File(FileBytes),
    /// A bundle, in memory or to be encoded again.
    Bundle(BundleBytes),
}

/// A bundle that is looked up again for every piece, so that a slow reader holds only its pieces in
/// memory.
#[derive(Clone, Debug)]
pub struct BundleBytes {
    remotesapi: Arc<Remotesapi>,
    store: Store,
    bundle: Arc<BundleId>,
    size: u64,
    /// Bytes of a bundle that is too large for the cache.
    large: Option<Bytes>,
}

impl Source {
    /// Returns the number of bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::File(file) => file.size(),
            Self::Bundle(bundle) => bundle.size,
        }
    }

    /// Returns the kind under which a download of this part is counted.
    pub fn kind(&self, part: &Part) -> Download {
        match self {
            Self::Bundle(_) => Download::Records,
            Self::File(_) if part.range == (0..self.size()) => Download::File,
            Self::File(_) => Download::Range,
        }
    }

    /// Returns the memory that sending a part takes at most, in bytes.
    pub fn reserved_bytes(&self, part: &Part) -> u64 {
        let bytes = part.range.end - part.range.start;
        match self {
            Self::File(_) => bytes.min(SENDING_EACH_BYTES_MAX),
            Self::Bundle(BundleBytes { large: Some(_), size, .. }) => *size,
            Self::Bundle(_) => bytes.min(SENDING_RECORDS_BYTES_MAX),
        }
    }

    /// Returns the pieces of a part. The stream reads nothing before it is polled; a piece that
    /// takes longer than `timeout` is an error.
    pub fn stream(&self, part: &Part, timeout: Duration) -> Pieces {
        match self {
            Self::File(file) => {
                file.stream(part.range.clone(), StreamOptions { hint: part.purpose, timeout })
            }
            Self::Bundle(bundle) => bundle.clone().stream(part.range.clone(), timeout),
        }
    }
}

impl BundleBytes {
    /// Creates the source from its bytes, which it keeps only if they are too large for the cache.
    pub fn new(
        remotesapi: &Arc<Remotesapi>,
        (store, bundle): (&Store, &BundleId),
        bytes: Bytes,
    ) -> Self {
        let size = u64::try_from(bytes.len()).expect("lengths have at most 64 bits");
        Self {
            remotesapi: Arc::clone(remotesapi),
            store: store.clone(),
            bundle: Arc::new(bundle.clone()),
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
                // The stream ends after an error.
                let start = if piece.is_ok() { end } else { rest.end };
                Some((piece, start..rest.end))
            }
        };
        stream::unfold(range, next).boxed()
    }

    /// Returns a copy of the piece: a slice would keep the whole bundle in memory.
    async fn piece(&self, range: Range<u64>, timeout: Duration) -> Result<Bytes, Error> {
        let position = |at: u64| usize::try_from(at).expect("the range is within the bytes");
        let range = position(range.start)..position(range.end);
        if let Some(bytes) = &self.large {
            return Ok(bytes.slice(range));
        }
        let deadline = (tokio::time::Instant::now() + timeout).into_std();
        let bytes = self.remotesapi.bundles.get_rest(&self.store, &self.bundle, deadline);
        let late =
            || Error::DeadlineExceeded(format!("records could not be made again in {timeout:?}"));
        let bytes = timeout_at(deadline.into(), bytes).await.map_err(|_| late())??;
        let gone =
            || Error::Unreachable("the store does not have these chunks any more".to_owned());
        Ok(Bytes::copy_from_slice(&bytes.ok_or_else(gone)?[range]))
    }
}
