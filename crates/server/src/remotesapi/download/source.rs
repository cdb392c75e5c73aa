//! What is downloaded: a table file, or records.

use std::{ops::Range, time::Duration};

use busload_dolt::FileBytes;
use busload_objects::StreamOptions;
use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::{body::Pieces, plan::Part};
use crate::{
    http::limits::PIECE_BYTES,
    remotesapi::{limits::SENDING_EACH_BYTES_MAX, stats::Download},
};

/// Bytes of a resource, which never change.
#[derive(Clone, Debug)]
pub enum Source {
    /// In the store, or on local disk.
    File(FileBytes),
    /// In memory.
    Records(Bytes),
}

impl Source {
    /// How many.
    pub fn size(&self) -> u64 {
        match self {
            Self::File(file) => file.size(),
            Self::Records(bytes) => u64::try_from(bytes.len()).expect("lengths have at most 64 bits"),
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

    /// Memory that sending a part takes, at most. Records are in memory anyway, and counted there.
    pub fn held(&self, part: &Part) -> u64 {
        match self {
            Self::File(_) => (part.range.end - part.range.start).min(SENDING_EACH_BYTES_MAX),
            Self::Records(_) => 0,
        }
    }

    /// Pieces of a part. Nothing is read before it is polled; a piece that takes longer than `patience` is an error.
    pub fn stream(&self, part: &Part, patience: Duration) -> Pieces {
        match self {
            Self::File(file) => {
                file.stream(part.range.clone(), StreamOptions { purpose: part.purpose, patience })
            }
            Self::Records(bytes) => pieces(bytes, &part.range),
        }
    }
}

/// Of the usual size, so that a slow reader's connection holds one of them and not all.
fn pieces(bytes: &Bytes, range: &Range<u64>) -> Pieces {
    let position = |at: u64| usize::try_from(at).expect("the range is within the bytes");
    let mut rest = bytes.slice(position(range.start)..position(range.end));
    let next = move || (!rest.is_empty()).then(|| Ok(rest.split_to(PIECE_BYTES.min(rest.len()))));
    stream::iter(std::iter::from_fn(next)).boxed()
}
