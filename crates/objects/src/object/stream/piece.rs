//! One piece of a stream, and where it comes from.

use std::ops::Range;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::{
    Error,
    object::{
        Use,
        fetch::Waiter,
        limits::{PIECE_BYTES, SMALL_RANGE_BYTES},
    },
};

/// See the module.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) range: Range<u64>,
    pub(super) state: State,
}

/// Where it comes from.
#[derive(Debug)]
pub(super) enum State {
    /// From disk, unless it turns out not to be there. Nothing was asked for yet.
    Local,
    /// It is here.
    Here(Bytes),
    /// From a part of the fill that is under way.
    Part(Answer),
    /// From wherever reads have it from.
    Asked(Answer),
}

type Answer = oneshot::Receiver<Result<Bytes, Error>>;

impl Piece {
    /// Waits for an answer from now on.
    pub(super) fn ask(&mut self) -> Waiter {
        let (waiter, answer) = oneshot::channel();
        self.state = State::Asked(answer);
        waiter
    }

    /// Does not wait for a part any more. Who has to be answered instead, if it did and the part
    /// has not brought it.
    pub(super) fn leave_part(&mut self) -> Option<(Range<u64>, Waiter)> {
        let State::Part(answer) = &mut self.state else { return None };
        if let Ok(Ok(bytes)) = answer.try_recv() {
            self.state = State::Here(bytes);
            return None;
        }
        Some((self.range.clone(), self.ask()))
    }
}

/// Takes the next piece. Pieces end at multiples of their size, so that none is in two parts; a
/// small range that is read in the usual way stays whole wherever it is.
pub(super) fn cut(rest: &mut Range<u64>, purpose: Use) -> Option<Range<u64>> {
    if rest.is_empty() {
        return None;
    }
    let start = rest.start;
    let is_small = purpose == Use::Again && rest.end - start <= SMALL_RANGE_BYTES;
    let boundary = (start / PIECE_BYTES + 1).saturating_mul(PIECE_BYTES);
    rest.start = if is_small { rest.end } else { boundary.min(rest.end) };
    Some(start..rest.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(mut rest: Range<u64>, purpose: Use) -> Vec<Range<u64>> {
        std::iter::from_fn(|| cut(&mut rest, purpose)).collect()
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
        for purpose in [Use::Again, Use::Once] {
            for (start, length) in ends.iter().flat_map(|&start| ends.map(|length| (start, length)))
            {
                let (range, mut next) = (start..start + length, start);
                for piece in pieces(range.clone(), purpose) {
                    assert_eq!(piece.start, next);
                    assert!(
                        piece.start < piece.end && piece.end - piece.start <= SMALL_RANGE_BYTES
                    );
                    let is_whole = purpose == Use::Again && piece.end == range.end;
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
        assert_eq!(pieces(range.clone(), Use::Again), [range]);
    }
}
