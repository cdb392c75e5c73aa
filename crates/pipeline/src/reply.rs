//! Writer of one request's reply into the batch.

use busload_resp::{self as resp, Version};
use busload_tables::StringRef;
use bytes::Bytes;

use crate::{
    batch::SharedPart,
    limits::{REPLY_COPIED_BYTES_MAX, REPLY_SMALL_BYTES, SHARED_VALUE_BYTES_MIN},
};

/// Writer of the current reply, at the end of the batch's reply bytes.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    shared: &'a mut Vec<SharedPart>,
    version: Version,
    /// Offset in `out` where the reply begins.
    start: usize,
}

/// Position in the reply to return to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    out: usize,
    shared: usize,
}

impl<'a> Reply<'a> {
    /// Begins a reply behind the bytes in `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, shared: &'a mut Vec<SharedPart>, version: Version) -> Self {
        let start = out.len();
        Self { out, shared, version, start }
    }

    /// Borrows this writer for a nested command.
    pub fn reborrow(&mut self) -> Reply<'_> {
        Reply::new(self.out, self.shared, self.version)
    }

    /// Returns whether the reply is cut off: it is a large one, and all replies of the batch
    /// together passed [`REPLY_COPIED_BYTES_MAX`]. What was written of it is incomplete.
    #[inline]
    pub fn is_cut_off(&self) -> bool {
        REPLY_COPIED_BYTES_MAX < self.out.len() && REPLY_SMALL_BYTES < self.out.len() - self.start
    }

    /// Returns the protocol version of the reply.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Changes the protocol version, as HELLO does between two replies.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Returns the current position.
    pub fn mark(&self) -> Mark {
        Mark { out: self.out.len(), shared: self.shared.len() }
    }

    /// Returns the bytes written since the reply began; large values by reference do not count.
    #[inline]
    pub fn written(&self) -> usize {
        self.out.len() - self.start
    }

    /// Takes out everything behind the mark; positions of shared parts become relative to it.
    pub fn take_since(&mut self, mark: Mark) -> (Vec<u8>, Vec<SharedPart>) {
        let mut shared = self.shared.split_off(mark.shared);
        shared.iter_mut().for_each(|part| part.at -= mark.out);
        (self.out.split_off(mark.out), shared)
    }

    /// Writes bytes of the protocol by reference, whatever their length.
    pub fn raw(&mut self, bytes: Bytes) {
        self.shared.push(SharedPart { at: self.out.len(), bytes });
    }

    /// Discards everything behind the mark.
    pub fn rewind(&mut self, mark: Mark) {
        self.out.truncate(mark.out);
        self.shared.truncate(mark.shared);
    }

    /// Writes the status `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// Writes a status, such as `OK`.
    pub fn simple(&mut self, text: &str) {
        resp::write_simple(self.out, text);
    }

    /// Writes an error, `ERR text` without the leading `-`.
    pub fn error(&mut self, text: &str) {
        resp::write_error(self.out, text.as_bytes());
    }

    /// Writes a 64-bit integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        resp::write_integer(self.out, value);
    }

    /// Writes a decimal number.
    pub fn double(&mut self, value: f64) {
        resp::write_double(self.out, value, self.version);
    }

    /// Writes a count as an integer.
    #[inline]
    pub fn count(&mut self, value: usize) {
        resp::write_integer(self.out, i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Writes a bulk string.
    #[inline]
    pub fn bulk(&mut self, value: &[u8]) {
        if !self.is_cut_off() {
            resp::write_bulk(self.out, value);
        }
    }

    /// Writes a stored string; a large one by reference.
    #[inline]
    pub fn value(&mut self, value: StringRef<'_>) {
        match value.shared() {
            Some(bytes) => self.bulk_bytes(bytes),
            None => self.bulk(value.as_slice()),
        }
    }

    /// Writes a bulk string, by reference when it is large.
    pub fn bulk_bytes(&mut self, bytes: Bytes) {
        if bytes.len() < SHARED_VALUE_BYTES_MIN {
            return self.bulk(&bytes);
        }
        resp::write_bulk_header(self.out, bytes.len());
        self.shared.push(SharedPart { at: self.out.len(), bytes });
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a bulk string or null.
    #[inline]
    pub fn bulk_or_null(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.bulk(value),
            None => self.null(),
        }
    }

    /// Writes null (no value).
    #[inline]
    pub fn null(&mut self) {
        resp::write_null(self.out, self.version);
    }

    /// Writes null in place of an array.
    pub fn null_array(&mut self) {
        resp::write_null_array(self.out, self.version);
    }

    /// Begins an array of `count` elements.
    pub fn array(&mut self, count: usize) {
        resp::write_array(self.out, count);
    }

    /// Begins a map of `count` pairs.
    pub fn map(&mut self, count: usize) {
        resp::write_map(self.out, count, self.version);
    }

    /// Begins a set of `count` members.
    pub fn set(&mut self, count: usize) {
        resp::write_set(self.out, count, self.version);
    }

    /// Begins a push of `count` elements (RESP3).
    pub fn push(&mut self, count: usize) {
        resp::write_push(self.out, count);
    }

    /// Writes text for people, such as INFO's, as a verbatim string.
    pub fn verbatim(&mut self, text: &[u8]) {
        resp::write_verbatim(self.out, "txt", text, self.version);
    }

    /// Writes an array of bulk strings.
    pub fn bulks<'v>(&mut self, values: impl ExactSizeIterator<Item = &'v [u8]>) {
        self.array(values.len());
        for value in values {
            self.bulk(value);
        }
    }
}
