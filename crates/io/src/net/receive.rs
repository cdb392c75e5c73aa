//! Receive buffers. Within a poll they are filled one after the other; they are reused last in,
//! first out, so that the hottest memory is written again.

use std::{io, mem};

use super::{Buffer, Span};
use crate::limits::POOLED_BUFFER_COUNT_MAX;

/// Receive buffers of a driver. All buffers keep their full length and spans tell which part is
/// filled, so no byte is cleared between uses.
#[derive(Debug)]
pub(crate) struct ReceiveBuffers {
    buffer_bytes: usize,
    receive_bytes_min: usize,
    /// Buffer being filled; empty when there is none.
    current: Buffer,
    current_bytes: usize,
    /// Buffers filled in this poll before `current`.
    filled: Vec<Buffer>,
    idle: Vec<Buffer>,
}

impl ReceiveBuffers {
    pub(crate) fn new(buffer_bytes: usize, receive_bytes_min: usize) -> io::Result<Self> {
        if receive_bytes_min == 0
            || buffer_bytes < receive_bytes_min
            || u32::try_from(buffer_bytes).is_err()
        {
            let message = format!(
                "receive buffers of {buffer_bytes} bytes cannot offer {receive_bytes_min} \
                 to a receive"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let (filled, idle) = (Vec::new(), Vec::new());
        Ok(Self {
            buffer_bytes,
            receive_bytes_min,
            current: Vec::new(),
            current_bytes: 0,
            filled,
            idle,
        })
    }

    /// Begins a new poll and reuses the filled buffers that nobody took.
    pub(crate) fn begin(&mut self) {
        while let Some(buffer) = self.filled.pop() {
            self.recycle(buffer);
        }
        self.current_bytes = 0;
    }

    /// Returns the space for the next receive.
    #[inline]
    pub(crate) fn unfilled(&mut self) -> &mut [u8] {
        if self.current.len() < self.current_bytes + self.receive_bytes_min {
            self.next_buffer();
        }
        &mut self.current[self.current_bytes..]
    }

    fn next_buffer(&mut self) {
        let next = self.idle.pop().unwrap_or_else(|| vec![0; self.buffer_bytes]);
        let full = mem::replace(&mut self.current, next);
        if 0 < mem::take(&mut self.current_bytes) {
            self.filled.push(full);
        }
    }

    /// Records that the first `count` bytes of [`ReceiveBuffers::unfilled`] were received.
    #[inline]
    pub(crate) fn fill(&mut self, count: usize) -> Span {
        let start = self.current_bytes;
        self.current_bytes += count;
        assert!(self.current_bytes <= self.current.len(), "more received than there was room");
        Span {
            buffer: self.filled.len() as u32,
            start: start as u32,
            end: self.current_bytes as u32,
        }
    }

    pub(crate) fn take(&mut self, buffers: &mut Vec<Buffer>) {
        buffers.append(&mut self.filled);
        if 0 < mem::take(&mut self.current_bytes) {
            buffers.push(mem::take(&mut self.current));
        }
    }

    pub(crate) fn recycle(&mut self, buffer: Buffer) {
        if buffer.len() == self.buffer_bytes && self.idle.len() < POOLED_BUFFER_COUNT_MAX {
            self.idle.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(buffers: &mut ReceiveBuffers, bytes: &[u8]) -> Span {
        buffers.unfilled()[..bytes.len()].copy_from_slice(bytes);
        buffers.fill(bytes.len())
    }

    #[test]
    fn receives_of_one_poll_lie_behind_each_other_until_too_little_room_is_left() {
        let mut buffers = ReceiveBuffers::new(10, 4).unwrap();
        let spans = [&b"abc"[..], b"defg", b"hi"].map(|bytes| receive(&mut buffers, bytes));
        assert_eq!(
            spans.map(|span| (span.buffer, span.start, span.end)),
            [(0, 0, 3), (0, 3, 7), (1, 0, 2)]
        );
        let mut taken = Vec::new();
        buffers.take(&mut taken);
        assert_eq!((&taken[0][..7], &taken[1][..2]), (&b"abcdefg"[..], &b"hi"[..]));
        assert_eq!(taken.len(), 2);
    }

    #[test]
    fn a_recycled_buffer_is_the_next_one_used_and_foreign_ones_are_not() {
        let mut buffers = ReceiveBuffers::new(10, 4).unwrap();
        receive(&mut buffers, b"a");
        let mut taken = Vec::new();
        buffers.take(&mut taken);
        let address = taken[0].as_ptr();
        buffers.recycle(taken.remove(0));
        buffers.recycle(vec![0; 9]);
        receive(&mut buffers, b"b");
        buffers.take(&mut taken);
        assert_eq!(taken[0].as_ptr(), address);
    }

    #[test]
    fn buffers_nobody_took_are_used_again() {
        let mut buffers = ReceiveBuffers::new(10, 4).unwrap();
        receive(&mut buffers, b"abcdefgh");
        receive(&mut buffers, b"i");
        buffers.begin();
        assert_eq!(receive(&mut buffers, b"j"), Span { buffer: 0, start: 0, end: 1 });
        let mut taken = Vec::new();
        buffers.take(&mut taken);
        assert_eq!(taken.len(), 1);
    }

    #[test]
    fn sizes_that_cannot_work_are_refused() {
        for (buffer_bytes, receive_bytes_min) in [(0, 0), (10, 0), (10, 11), (1 << 40, 1)] {
            let error = ReceiveBuffers::new(buffer_bytes, receive_bytes_min).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
