//! Reassembles the messages of a gRPC call from HTTP/2 frames, which cut them anywhere. A message
//! is a byte that says whether it is compressed, its length in four bytes, and its contents.
//!
//! The decoder (tonic) allocates a buffer for a whole message as soon as it sees the length. So it
//! gets a message only when it is complete: a length that a client announces without sending the
//! contents costs nothing.

use std::mem;

use bytes::{Bytes, BytesMut};
use tonic::Status;

/// Length of the header of a message.
const HEADER_BYTES: usize = 5;

/// Reassembler of the messages of one call.
#[derive(Debug)]
pub struct Messages {
    bytes_max: usize,
    /// The beginning of an incomplete message. The buffer's capacity is at most twice its length.
    open: BytesMut,
    /// Unread rest of the last frame.
    data: Bytes,
}

impl Messages {
    /// Reassembler of messages with contents of at most `bytes_max` bytes each.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, open: BytesMut::new(), data: Bytes::new() }
    }

    /// Takes the next frame. The one before has to be read to its end.
    pub fn push(&mut self, data: Bytes) {
        debug_assert!(self.data.is_empty(), "there is a frame");
        self.data = data;
    }

    /// Returns complete messages, or none if the next one is incomplete. Fails on one that is too
    /// long.
    pub fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if self.open.is_empty() {
            // The usual case: complete messages in one frame are not copied.
            let bytes = self.whole_bytes()?;
            if bytes != 0 {
                return Ok(Some(self.data.split_to(bytes)));
            }
        }
        while !self.data.is_empty() {
            let count = self.missing_bytes(&self.open)?.min(self.data.len());
            self.open.extend_from_slice(&self.data.split_to(count));
            if self.missing_bytes(&self.open)? == 0 {
                return Ok(Some(mem::take(&mut self.open).freeze()));
            }
        }
        Ok(None)
    }

    /// Returns how many received bytes were not returned yet.
    pub fn open_bytes(&self) -> usize {
        self.open.len() + self.data.len()
    }

    /// Takes the beginning of a message that the end of the body cut off.
    pub fn end(&mut self) -> Option<Bytes> {
        let open = mem::take(&mut self.open).freeze();
        (!open.is_empty()).then_some(open)
    }

    /// Returns the length of the frame's complete messages.
    fn whole_bytes(&self) -> Result<usize, Status> {
        let mut at = 0;
        while at < self.data.len() {
            let rest = &self.data[at..];
            let missing = self.missing_bytes(&rest[..rest.len().min(HEADER_BYTES)])?;
            if rest.len() < HEADER_BYTES || rest.len() - HEADER_BYTES < missing {
                break;
            }
            at += HEADER_BYTES + missing;
        }
        Ok(at)
    }

    /// Returns how many bytes of the header are missing, or once that is complete, of the contents.
    fn missing_bytes(&self, message: &[u8]) -> Result<usize, Status> {
        let Some((&[_, length @ ..], contents)) = message.split_first_chunk::<HEADER_BYTES>()
        else {
            return Ok(HEADER_BYTES - message.len());
        };
        let length = u32::from_be_bytes(length) as usize;
        if self.bytes_max < length {
            return Err(Status::out_of_range(format!(
                "a message of {length} bytes, expected at most {}",
                self.bytes_max
            )));
        }
        Ok(length - contents.len())
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    const BYTES_MAX: usize = 1000;

    fn message(flag: u8, length: usize) -> Vec<u8> {
        let mut message = vec![flag];
        message.extend(u32::try_from(length).unwrap().to_be_bytes());
        message.extend(vec![0xff; length.min(1 << 20)]);
        message
    }

    /// Returns, for each frame, the bytes that are passed on and how many stay incomplete.
    fn read<'a>(frames: impl IntoIterator<Item = &'a [u8]>) -> Vec<(Vec<u8>, usize)> {
        let mut messages = Messages::new(BYTES_MAX);
        let mut read = |frame: &[u8]| {
            messages.push(Bytes::copy_from_slice(frame));
            let mut all = Vec::new();
            while let Some(whole) = messages.next().unwrap() {
                assert!(!whole.is_empty());
                all.extend(whole);
            }
            (all, messages.open_bytes())
        };
        frames.into_iter().map(&mut read).collect()
    }

    #[test]
    fn a_message_goes_on_with_its_last_byte() {
        let message = message(0, 100);
        assert_eq!(read([&message[..]]), [(message.clone(), 0)]);
        for cut in 1..105 {
            let expected = [(vec![], cut), (message.clone(), 0)];
            assert_eq!(read([&message[..cut], &message[cut..]]), expected, "{cut}");
        }
        let bytes = read(message.chunks(1));
        assert!((1..105).zip(&bytes).all(|(open, byte)| *byte == (vec![], open)));
        assert_eq!(bytes[104], (message, 0));
    }

    #[test]
    fn messages_follow_each_other_in_a_frame_and_over_many() {
        let lengths = [3, 0, 300, 0, 0, 1, 77];
        let all: Vec<u8> = lengths.iter().flat_map(|&length| message(1, length)).collect();
        assert_eq!(read([&all[..]]), [(all.clone(), 0)]);
        for size in 1..all.len() {
            let read = read(all.chunks(size));
            assert_eq!(
                read.iter().flat_map(|(bytes, _)| bytes).copied().collect::<Vec<_>>(),
                all,
                "{size}"
            );
            assert_eq!(read.last().unwrap().1, 0, "{size}");
        }
        let half = &all[..all.len() - 1];
        let whole = all.len() - (77 + HEADER_BYTES);
        assert_eq!(
            read([half]),
            [(all[..whole].to_vec(), 76 + HEADER_BYTES)],
            "only the last one is open"
        );
    }

    #[test]
    fn a_message_without_contents_is_whole_with_its_header() {
        let message = message(0, 0);
        assert_eq!(
            read([&message[..], &[], &message[..4], &message[4..]]),
            [(message.clone(), 0), (vec![], 0), (vec![], 4), (message.clone(), 0)]
        );
    }

    #[test]
    fn a_message_that_ends_in_the_middle_is_shown_to_who_decodes_it() {
        let message = message(0, 100);
        let mut messages = Messages::new(BYTES_MAX);
        messages.push(Bytes::copy_from_slice(&message[..50]));
        assert_eq!(messages.next().unwrap(), None);
        assert_eq!(messages.end().unwrap(), message[..50]);
        assert_eq!((messages.end(), messages.open_bytes()), (None, 0));
    }

    #[test]
    fn a_message_longer_than_any_may_be_is_refused_by_its_header() {
        for length in [BYTES_MAX + 1, u32::MAX as usize] {
            let message = message(0, length);
            for cut in [HEADER_BYTES, 500] {
                let mut messages = Messages::new(BYTES_MAX);
                messages.push(Bytes::copy_from_slice(&message[..cut]));
                let refused = messages.next().unwrap_err();
                assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
                assert!(refused.message().contains(&length.to_string()), "{refused}");
            }
            let mut messages = Messages::new(BYTES_MAX);
            messages.push(Bytes::copy_from_slice(&message[..2]));
            assert_eq!(messages.next().unwrap(), None);
            messages.push(Bytes::copy_from_slice(&message[2..500]));
            messages.next().unwrap_err();
        }
        assert_eq!(read([&message(0, BYTES_MAX)[..]])[0].1, 0);
    }
}
