//! Assembles a part of a range from chunks that come in any order.

use std::{collections::BTreeSet, ops::Range};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use crate::{
    Chunk, Error,
    limits::PIECE_BYTES_MAX,
    read::{decode::Decoded, window::PlannedRead},
    versions::table_file::range,
};

/// Part of a range while its chunks come.
pub(super) struct RangeAssembly {
    /// Range that has not been sent.
    rest: Range<u64>,
    bytes: BytesMut,
    /// Chunks that are to come, by offset and index position.
    missing: BTreeSet<(u64, u32)>,
}

impl RangeAssembly {
    pub fn new(part: &Range<u64>) -> Self {
        let bytes = BytesMut::zeroed(offset(part.end - part.start));
        Self { rest: part.clone(), bytes, missing: BTreeSet::new() }
    }

    /// Notes that a chunk is to come: nothing from its offset on is sent before.
    pub fn expect(&mut self, read: &PlannedRead) {
        self.missing.insert((read.location.span.offset, read.chunk.position));
    }

    /// Adds a chunk, which may begin before the part or end behind it.
    pub fn put(&mut self, read: &PlannedRead, decoded: &Decoded) -> Result<(), Error> {
        self.missing.remove(&(read.location.span.offset, read.chunk.position));
        let span = range(read.location.span);
        let Decoded::Chunk(Chunk::Contents(bytes) | Chunk::Snappy(bytes) | Chunk::Zstd(bytes, _)) =
            decoded
        else {
            unreachable!("the read wanted a chunk");
        };
        if bytes.len() as u64 != span.end - span.start {
            let (name, length) = (read.chunk.file.name(), bytes.len());
            return Err(Error::Corrupt(format!("{name}: {length} bytes for the span {span:?}")));
        }
        let (start, end) = (span.start.max(self.rest.start), span.end.min(self.rest.end));
        // Chunks of a malformed file may overlap, so the bytes may have been sent with another
        // chunk.
        if start < end {
            let part = &bytes[offset(start - span.start)..offset(end - span.start)];
            self.bytes[offset(start - self.rest.start)..offset(end - self.rest.start)]
                .copy_from_slice(part);
        }
        Ok(())
    }

    /// Adds the bytes of a gap. All gaps come before anything is sent.
    pub fn put_gap(&mut self, gap: &Range<u64>, bytes: &[u8]) {
        let start = offset(gap.start - self.rest.start);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Sends all bytes before the first missing chunk. Fails if the receiver is gone.
    pub async fn send(
        &mut self,
        sender: &mpsc::Sender<Result<Bytes, Error>>,
    ) -> Result<(), mpsc::error::SendError<Result<Bytes, Error>>> {
        let until = self.missing.first().map_or(self.rest.end, |(start, _)| *start);
        while self.rest.start < until {
            let piece = self.bytes.split_to(offset(until - self.rest.start).min(PIECE_BYTES_MAX));
            self.rest.start += piece.len() as u64;
            sender.send(Ok(piece.freeze())).await?;
        }
        Ok(())
    }
}

fn offset(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a part of a range fits into memory")
}
