//! Where the messages of a gRPC call begin and end: each is a byte that says whether it is compressed, its length in four bytes, and as many
//! bytes of contents. Frames cut them anywhere.
//!
//! Who decodes a message makes room for all of it as soon as its length is known, so the whole length counts from then on, and its bytes do not
//! count again when they come.

use crate::http::limits::MESSAGE_BYTES_MAX;

/// Before the contents.
const HEADER_BYTES: usize = 5;

/// How far the messages of a call have come.
#[derive(Debug, Default)]
pub struct Messages {
    header: [u8; HEADER_BYTES],
    /// Those of the header that have come; none of them: the last message is complete.
    header_bytes: usize,
    /// Contents that have not come.
    missing_bytes: usize,
    /// Whether the missing ones count already.
    is_announced: bool,
    /// What counts of the incomplete message.
    open_bytes: usize,
}

impl Messages {
    /// More has come: so many bytes count now that did not before.
    pub fn read(&mut self, mut data: &[u8]) -> usize {
        let mut more = 0;
        while !data.is_empty() {
            let (rest, counted) = if self.header_bytes < HEADER_BYTES {
                self.read_header(data)
            } else {
                self.read_contents(data)
            };
            (data, more) = (rest, more + counted);
            self.open_bytes += counted;
            if self.header_bytes == HEADER_BYTES && self.missing_bytes == 0 {
                *self = Self::default();
            }
        }
        more
    }

    /// What counts of a message of which something is missing.
    pub fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    fn read_header<'a>(&mut self, data: &'a [u8]) -> (&'a [u8], usize) {
        let count = data.len().min(HEADER_BYTES - self.header_bytes);
        let (part, rest) = data.split_at(count);
        self.header[self.header_bytes..][..count].copy_from_slice(part);
        self.header_bytes += count;
        if self.header_bytes < HEADER_BYTES {
            return (rest, count);
        }
        let [_, length @ ..] = self.header;
        self.missing_bytes = u32::from_be_bytes(length) as usize;
        // A longer one is refused by who decodes it before there is room for it.
        self.is_announced = self.missing_bytes <= MESSAGE_BYTES_MAX;
        (rest, count + if self.is_announced { self.missing_bytes } else { 0 })
    }

    fn read_contents<'a>(&mut self, data: &'a [u8]) -> (&'a [u8], usize) {
        let count = data.len().min(self.missing_bytes);
        self.missing_bytes -= count;
        (&data[count..], if self.is_announced { 0 } else { count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(flag: u8, length: usize) -> Vec<u8> {
        let mut message = vec![flag];
        message.extend(u32::try_from(length).unwrap().to_be_bytes());
        message.extend(vec![0xff; length.min(1 << 20)]);
        message
    }

    /// What each of these frames adds, and what is open after it.
    fn read<'a>(frames: impl IntoIterator<Item = &'a [u8]>) -> Vec<(usize, usize)> {
        let mut messages = Messages::default();
        frames.into_iter().map(|frame| (messages.read(frame), messages.open_bytes())).collect()
    }

    #[test]
    fn a_message_counts_whole_when_its_header_is_there_and_is_open_until_its_last_byte() {
        let message = message(0, 100);
        assert_eq!(read([&message[..]]), [(105, 0)]);
        for cut in 1..5 {
            assert_eq!(read([&message[..cut], &message[cut..]]), [(cut, cut), (105 - cut, 0)], "{cut}");
        }
        for cut in 5..105 {
            assert_eq!(read([&message[..cut], &message[cut..]]), [(105, 105), (0, 0)], "{cut}");
        }
        let bytes: Vec<_> = (1..5).map(|open| (1, open)).chain([(101, 105)]).chain([(0, 105); 99]).collect();
        assert_eq!(read(message.chunks(1))[..104], bytes);
        assert_eq!(read(message.chunks(1))[104], (0, 0));
    }

    #[test]
    fn messages_follow_each_other_in_a_frame_and_over_many() {
        let lengths = [3, 0, 300, 0, 0, 1, 77];
        let all: Vec<u8> = lengths.iter().flat_map(|&length| message(1, length)).collect();
        assert_eq!(read([&all[..]]), [(all.len(), 0)]);
        for size in 1..all.len() {
            let read = read(all.chunks(size));
            assert_eq!(read.iter().map(|(more, _)| more).sum::<usize>(), all.len(), "{size}");
            assert_eq!(read.last().unwrap().1, 0, "{size}");
        }
        let half = &all[..all.len() - 1];
        assert_eq!(read([half]), [(all.len(), 77 + HEADER_BYTES)], "only the last one is open");
    }

    #[test]
    fn a_message_without_contents_is_complete_with_its_header() {
        let message = message(0, 0);
        assert_eq!(read([&message[..], &[], &message[..4], &message[4..]]), [(5, 0), (0, 0), (4, 4), (1, 0)]);
    }

    #[test]
    fn a_message_longer_than_any_may_be_counts_as_it_comes() {
        for length in [MESSAGE_BYTES_MAX + 1, u32::MAX as usize] {
            let message = message(0, length);
            assert_eq!(read([&message[..5], &message[5..1005]]), [(5, 5), (1000, 1005)]);
        }
        let message = message(0, MESSAGE_BYTES_MAX);
        assert_eq!(read([&message[..5]]), [(MESSAGE_BYTES_MAX + 5, MESSAGE_BYTES_MAX + 5)]);
    }
}
