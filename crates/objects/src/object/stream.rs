//! Bytes of an object in order, for who takes all of them.

use std::{
    fmt,
    ops::Range,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::Stream;

use super::Object;
use crate::Error;

/// What the bytes are likely to be wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Parts of them again and again: they count as read, as with [`Object::read`].
    Again,
    /// All of them once, as a copy of the object is made: they are not to drive out what is read again.
    Once,
}

/// How to stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// See there.
    pub purpose: Use,
    /// A piece that takes longer is an error.
    pub patience: Duration,
}

/// Pieces of a range, in order, none empty. After an error there is nothing.
pub struct ObjectStream {
    _private: (),
}

impl Object {
    /// Streams a range. Nothing is read before it is polled, from any thread; dropping it gives up what nobody else waits for.
    ///
    /// # Errors
    /// Of the stream: as [`Object::read_many`].
    pub fn stream(&self, range: Range<u64>, options: StreamOptions) -> ObjectStream {
        let _ = (range, options);
        ObjectStream { _private: () }
    }
}

impl Stream for ObjectStream {
    type Item = Result<Bytes, Error>;

    fn poll_next(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(Some(Err(Error::Unreachable("not written yet".to_owned()))))
    }
}

impl fmt::Debug for ObjectStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ObjectStream").finish_non_exhaustive()
    }
}
