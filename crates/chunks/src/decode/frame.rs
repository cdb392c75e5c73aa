//! Headers of a zstd frame (RFC 8878, section 3.1.1), read to bound the length of its contents
//! before anything is allocated.

use crate::{FormatError, error::corrupt};

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Most bytes that a block decodes to.
const BLOCK_CONTENTS_BYTES_MAX: u64 = 128 << 10;

/// Length of a block's header.
const BLOCK_HEADER_BYTES: usize = 3;

/// Lengths of one whole frame.
pub(crate) struct Frame {
    /// Length of the contents, if the header announces it. Never more than `contents_bytes_max`.
    pub(crate) contents_bytes: Option<u64>,
    /// Length that the contents of a frame with these blocks cannot exceed.
    contents_bytes_max: u64,
}

impl Frame {
    /// Parses exactly the bytes of one frame.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader { rest: bytes };
        if reader.take()? != MAGIC {
            return Err(corrupt!("expected a zstd frame, found other bytes"));
        }
        let [descriptor] = reader.take()?;
        let single_segment = descriptor & 0x20 != 0;
        if !single_segment {
            let _window: [u8; 1] = reader.take()?;
        }
        let dictionary_id_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
        reader.skip(dictionary_id_bytes)?;
        let contents_bytes = reader.contents_bytes(descriptor >> 6, single_segment)?;
        let contents_bytes_max = reader.blocks()?;
        let checksum_bytes = if descriptor & 4 == 0 { 0 } else { 4 };
        reader.skip(checksum_bytes)?;
        if !reader.rest.is_empty() {
            return Err(corrupt!("{} bytes follow a zstd frame, expected none", reader.rest.len()));
        }
        if contents_bytes.is_some_and(|announced| announced > contents_bytes_max) {
            return Err(corrupt!(
                "a zstd frame of {} bytes announces contents longer than it can hold",
                bytes.len()
            ));
        }
        Ok(Self { contents_bytes, contents_bytes_max })
    }

    /// Returns the buffer length that the contents need; an error if that is more than `bytes_max`.
    pub(crate) fn capacity(&self, bytes_max: usize) -> Result<usize, FormatError> {
        let announced =
            self.contents_bytes.unwrap_or(self.contents_bytes_max.min(bytes_max as u64));
        usize::try_from(announced).ok().filter(|&bytes| bytes <= bytes_max).ok_or_else(|| {
            corrupt!("a zstd frame announces {announced} bytes, expected at most {bytes_max}")
        })
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (first, rest) = self.rest.split_first_chunk().ok_or_else(too_short)?;
        self.rest = rest;
        Ok(*first)
    }

    fn skip(&mut self, bytes: usize) -> Result<(), FormatError> {
        self.rest = self.rest.get(bytes..).ok_or_else(too_short)?;
        Ok(())
    }

    /// Reads the field of the announced length, whose size the descriptor's two bits give.
    fn contents_bytes(
        &mut self,
        flag: u8,
        single_segment: bool,
    ) -> Result<Option<u64>, FormatError> {
        Ok(Some(match flag {
            0 if !single_segment => return Ok(None),
            0 => u64::from(u8::from_le_bytes(self.take()?)),
            // The format adds 256, because lengths below that fit into the field of one byte.
            1 => u64::from(u16::from_le_bytes(self.take()?)) + 256,
            2 => u64::from(u32::from_le_bytes(self.take()?)),
            _ => u64::from_le_bytes(self.take()?),
        }))
    }

    /// Walks over all blocks and returns the most that they decode to.
    fn blocks(&mut self) -> Result<u64, FormatError> {
        let mut contents_bytes_max = 0;
        loop {
            let [a, b, c]: [u8; BLOCK_HEADER_BYTES] = self.take()?;
            let header = u32::from_le_bytes([a, b, c, 0]);
            let size = u64::from(header >> 3);
            let (stored, contents) = match header >> 1 & 3 {
                // Raw; one byte repeated; compressed.
                0 => (size, size),
                1 => (1, size),
                2 => (size, BLOCK_CONTENTS_BYTES_MAX),
                _ => return Err(corrupt!("a zstd block of a reserved kind")),
            };
            if contents > BLOCK_CONTENTS_BYTES_MAX {
                return Err(corrupt!(
                    "a zstd block of {size} bytes, expected at most {BLOCK_CONTENTS_BYTES_MAX}"
                ));
            }
            self.skip(usize::try_from(stored).map_err(|_| too_short())?)?;
            // Each block has a header, so there are too few blocks for an overflow.
            contents_bytes_max += contents;
            if header & 1 != 0 {
                return Ok(contents_bytes_max);
            }
        }
    }
}

fn too_short() -> FormatError {
    corrupt!("a zstd frame ends too early")
}
