//! Buffers of received plaintext. Within a poll they are filled one after the other.

use std::mem;

use busload_io::{Buffer, Span};

use super::{PLAINTEXT_BUFFER_BYTES, PLAINTEXT_BUFFER_COUNT_MAX};

/// Buffers of a poll. All keep their full length, and spans tell which part is filled.
#[derive(Debug, Default)]
pub struct PlaintextBuffers {
    filled: Vec<Buffer>,
    /// Filled bytes of the last of `filled`.
    bytes: usize,
    idle: Vec<Buffer>,
}

impl PlaintextBuffers {
    /// Begins a new poll and reuses the buffers that nobody took.
    pub fn begin(&mut self) {
        for buffer in mem::take(&mut self.filled) {
            self.recycle(buffer);
        }
        self.bytes = 0;
    }

    /// Returns space for at least `needed` bytes.
    pub fn unfilled(&mut self, needed: usize) -> &mut [u8] {
        let full = self.filled.last().is_none_or(|buffer| buffer.len() < self.bytes + needed);
        if full {
            let bytes = PLAINTEXT_BUFFER_BYTES.max(needed);
            let idle = self.idle.pop().filter(|buffer| bytes <= buffer.len());
            self.filled.push(idle.unwrap_or_else(|| vec![0; bytes]));
            self.bytes = 0;
        }
        let last = self.filled.last_mut().expect("there is one by now");
        &mut last[self.bytes..]
    }

    /// Records that the first `count` bytes of [`PlaintextBuffers::unfilled`] are filled.
    pub fn fill(&mut self, count: usize) -> Span {
        let start = self.bytes;
        self.bytes += count;
        let buffer = self.filled.len() - 1;
        Span { buffer: buffer as u32, start: start as u32, end: self.bytes as u32 }
    }

    /// Appends bytes that were not encrypted.
    pub fn copy(&mut self, bytes: &[u8]) -> Span {
        self.unfilled(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.fill(bytes.len())
    }

    /// Moves the buffers of this poll to the end of `buffers`.
    pub fn take(&mut self, buffers: &mut Vec<Buffer>) {
        buffers.append(&mut self.filled);
        self.bytes = 0;
    }

    /// Takes a buffer back for reuse.
    pub fn recycle(&mut self, buffer: Buffer) {
        if buffer.len() == PLAINTEXT_BUFFER_BYTES && self.idle.len() < PLAINTEXT_BUFFER_COUNT_MAX {
            self.idle.push(buffer);
        }
    }
}
