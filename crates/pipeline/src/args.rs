//! Arguments of one request, and the cursor with which every command reads its options.

use std::ops::Index;

use busload_resp::{ArgRange, parse_i64};
use bytes::Bytes;

use crate::{error::CommandError, limits::SHARED_VALUE_BYTES_MIN};

/// Arguments of one request, the command's name first.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    /// Bytes from the request's first byte on.
    bytes: &'a [u8],
    ranges: &'a [ArgRange],
    /// Collected buffer of this request, when it has one of its own.
    owner: Option<&'a Bytes>,
}

impl<'a> Args<'a> {
    /// Creates arguments that lie at `ranges` of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8], ranges: &'a [ArgRange], owner: Option<&'a Bytes>) -> Self {
        Self { bytes, ranges, owner }
    }

    /// Returns the number of arguments, the name included.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "there is always the name")]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the argument, or `None` when there are fewer.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.ranges.get(index).map(|range| &self.bytes[range.start as usize..range.end as usize])
    }

    /// Returns the argument; panics when there are fewer.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        let range = self.ranges[index];
        &self.bytes[range.start as usize..range.end as usize]
    }

    /// Iterates over the arguments from this one on.
    pub fn iter_from(
        &self,
        first: usize,
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let bytes = self.bytes;
        self.ranges[first.min(self.ranges.len())..]
            .iter()
            .map(move |range| &bytes[range.start as usize..range.end as usize])
    }

    /// Returns the argument by reference to the received bytes, if it is large and most of what was
    /// received with it (so that keeping it keeps little else).
    pub fn shared(&self, index: usize) -> Option<Bytes> {
        let owner = self.owner?;
        let value = self.at(index);
        let worth_it = SHARED_VALUE_BYTES_MIN <= value.len() && owner.len() / 4 * 3 <= value.len();
        worth_it.then(|| owner.slice_ref(value))
    }

    /// Returns the arguments from this one on, which is then the first. There must be one.
    pub(crate) fn behind(&self, first: usize) -> Args<'a> {
        Args { ranges: &self.ranges[first..], ..*self }
    }

    /// Parses the argument as an integer.
    pub fn integer(&self, index: usize) -> Result<i64, CommandError> {
        parse_i64(self.at(index)).ok_or(CommandError::NotInteger)
    }

    /// Returns a cursor that starts at this argument.
    pub fn cursor(&self, first: usize) -> Cursor<'a> {
        Cursor { args: *self, next: first }
    }

    /// Returns the size of the whole request in bytes, protocol included.
    pub fn request_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes and ranges of the arguments, by reference where the request has a buffer
    /// of its own.
    pub(crate) fn to_owned_parts(self) -> (Bytes, Vec<ArgRange>) {
        let bytes = match self.owner {
            Some(owner) => owner.slice_ref(self.bytes),
            None => Bytes::copy_from_slice(self.bytes),
        };
        (bytes, self.ranges.to_vec())
    }

    pub(crate) fn raw(&self) -> (&'a [u8], &'a [ArgRange]) {
        (self.bytes, self.ranges)
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        self.at(index)
    }
}

/// Cursor that reads arguments one after the other.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    args: Args<'a>,
    next: usize,
}

impl<'a> Cursor<'a> {
    /// Returns how many arguments are left.
    pub fn left(&self) -> usize {
        self.args.len() - self.next.min(self.args.len())
    }

    /// Returns the index of the next argument.
    pub fn position(&self) -> usize {
        self.next
    }

    /// Returns the next argument without taking it.
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.args.get(self.next)
    }

    /// Takes the next argument.
    #[allow(clippy::should_implement_trait, reason = "a cursor is not iterated over")]
    pub fn next(&mut self) -> Option<&'a [u8]> {
        let arg = self.args.get(self.next)?;
        self.next += 1;
        Some(arg)
    }

    /// Takes the next argument, or fails with a syntax error.
    pub fn expect(&mut self) -> Result<&'a [u8], CommandError> {
        self.next().ok_or(CommandError::Syntax)
    }

    /// Takes the next argument as an integer; a syntax error when there is none.
    pub fn expect_integer(&mut self) -> Result<i64, CommandError> {
        parse_i64(self.expect()?).ok_or(CommandError::NotInteger)
    }

    /// Takes the next argument if it is this word, in any case, and returns whether it was.
    pub fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek().is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
        if found {
            self.next += 1;
        }
        found
    }
}
