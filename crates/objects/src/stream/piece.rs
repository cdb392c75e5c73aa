//! One piece of a stream and its source.

use std::ops::Range;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::{
    AccessHint, Error,
    fetch::Waiter,
    limits::{PIECE_BYTES, SMALL_RANGE_BYTES},
};

/// A piece of a stream, from when it is cut until it is returned.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) range: Range<u64>,
    pub(crate) source: PieceSource,
}

/// Source of the bytes of a piece.
#[derive(Debug)]
pub(crate) enum PieceSource {
    /// The disk, unless the bytes turn out not to be there. Nothing was asked for yet.
    Disk,
    /// The bytes are in memory.
    Ready(Bytes),
    /// A fetch ahead of the stream, under way.
    Part(Answer),
    /// A read as others make it: from disk, from a fetch under way, from the store.
    Read(Answer),
}

type Answer = oneshot::Receiver<Result<Bytes, Error>>;

impl Piece {
    /// Makes the piece wait for an answer, which the returned waiter takes.
    pub(crate) fn await_read(&mut self) -> Waiter {
        let (waiter, answer) = oneshot::channel();
        self.source = PieceSource::Read(answer);
        waiter
    }

    /// Stops waiting for a part. Returns the read to make instead, if the part has not brought the
    /// piece.
    pub(crate) fn leave_part(&mut self) -> Option<(Range<u64>, Waiter)> {
        let PieceSource::Part(answer) = &mut self.source else { return None };
        if let Ok(Ok(bytes)) = answer.try_recv() {
            self.source = PieceSource::Ready(bytes);
            return None;
        }
        Some((self.range.clone(), self.await_read()))
    }
}

/// Takes the next piece off the rest. Pieces end at multiples of their size, so that none is in two
/// parts; a small range with [`AccessHint::Random`] stays whole wherever it is.
pub(crate) fn cut(rest: &mut Range<u64>, hint: AccessHint) -> Option<Range<u64>> {
    if rest.is_empty() {
        return None;
    }
    let start = rest.start;
    let is_small = hint == AccessHint::Random && rest.end - start <= SMALL_RANGE_BYTES;
    let boundary = (start / PIECE_BYTES + 1).saturating_mul(PIECE_BYTES);
    rest.start = if is_small { rest.end } else { boundary.min(rest.end) };
    Some(start..rest.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(mut rest: Range<u64>, hint: AccessHint) -> Vec<Range<u64>> {
        std::iter::from_fn(|| cut(&mut rest, hint)).collect()
    }

    #[test]
    fn pieces_follow_each_other_and_none_is_in_two_parts() {
        let ends = [
            0,
            1,
            5_000,
            PIECE_BYTES - 1,
            PIECE_BYTES,
            PIECE_BYTES + 1,
            SMALL_RANGE_BYTES,
            3_000_000,
        ];
        for hint in [AccessHint::Random, AccessHint::Sequential] {
            for (start, length) in ends.iter().flat_map(|&start| ends.map(|length| (start, length)))
            {
                let (range, mut next) = (start..start + length, start);
                for piece in pieces(range.clone(), hint) {
                    assert_eq!(piece.start, next);
                    assert!(
                        piece.start < piece.end && piece.end - piece.start <= SMALL_RANGE_BYTES
                    );
                    let is_whole = hint == AccessHint::Random && piece.end == range.end;
                    assert!(is_whole || piece.start / PIECE_BYTES == (piece.end - 1) / PIECE_BYTES);
                    next = piece.end;
                }
                assert_eq!(next, range.end);
            }
        }
    }

    #[test]
    fn a_small_range_is_one_read() {
        let range = PIECE_BYTES - 7..PIECE_BYTES - 7 + SMALL_RANGE_BYTES;
        assert_eq!(pieces(range.clone(), AccessHint::Random), [range]);
    }
}
