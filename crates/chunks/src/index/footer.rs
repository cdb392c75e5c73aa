//! Footers of classic table files and archives.

use crate::{
    FormatError, be,
    error::{malformed, refused},
    limits::METADATA_BYTES_MAX,
};

/// Length of a classic table file's footer: chunk count (4), uncompressed bytes (8), magic (8).
pub(crate) const CLASSIC_FOOTER_BYTES: usize = 20;

/// Last 8 bytes of a classic table file.
pub(crate) const CLASSIC_MAGIC: [u8; 8] = [0xff, 0xb5, 0xd8, 0xc2, 0x24, 0x63, 0xee, 0x50];

/// Footer of a classic table file.
pub(super) struct ClassicFooter {
    chunk_count: u32,
}

impl ClassicFooter {
    /// Parses at least the last [`CLASSIC_FOOTER_BYTES`] of a file.
    pub(super) fn parse(end: &[u8]) -> Result<Self, FormatError> {
        let footer: &[u8; CLASSIC_FOOTER_BYTES] = end
            .last_chunk()
            .ok_or_else(|| malformed!("expected a footer of 20 bytes, got {}", end.len()))?;
        if !footer.ends_with(&CLASSIC_MAGIC) {
            return Err(malformed!("expected a table file, which ends with ffb5d8c22463ee50"));
        }
        // The count of uncompressed bytes between the two is information only.
        Ok(Self { chunk_count: be::u32_at(footer, 0) })
    }

    pub(super) fn check(&self, chunk_count: u32) -> Result<(), FormatError> {
        if self.chunk_count != chunk_count {
            return Err(malformed!(
                "expected a table file with {chunk_count} chunks, its footer says {}",
                self.chunk_count
            ));
        }
        Ok(())
    }
}

/// Length of the footer of a version 3 archive. Earlier ones lack the first four bytes: their index
/// length has 32 bits.
pub(crate) const ARCHIVE_FOOTER_BYTES: usize = 220;

/// Last 7 bytes of an archive.
pub(crate) const ARCHIVE_SIGNATURE: &[u8; 7] = b"DOLTARC";

/// Length of an archive's index per span.
const SPAN_INDEX_BYTES: u64 = 8;

/// Length of an archive's index per chunk.
const CHUNK_INDEX_BYTES: u64 = 28;

/// Footer of an archive. Its numbers agree with each other and with the length of the file.
pub(super) struct ArchiveFooter {
    pub(super) version: u8,
    pub(super) span_count: u32,
    pub(super) chunk_count: u32,
    /// Length of the index.
    pub(super) index_bytes: u64,
    metadata_bytes: u64,
    /// Offset of the index: everything before it is spans.
    pub(super) data_bytes: u64,
    footer_bytes: u64,
}

impl ArchiveFooter {
    /// Parses the end of a file of `file_bytes`: its last [`ARCHIVE_FOOTER_BYTES`] or more, or the
    /// whole file.
    pub(super) fn parse(end: &[u8], file_bytes: u64) -> Result<Self, FormatError> {
        // Fields are counted from the end, where the versions agree. A file may be four bytes
        // shorter than the longest footer.
        let at_end = |offset: usize| end.len().checked_sub(offset);
        if !end.ends_with(ARCHIVE_SIGNATURE) {
            return Err(malformed!("expected an archive, which ends with DOLTARC"));
        }
        let version = at_end(8).map(|at| end[at]).ok_or_else(too_short)?;
        let footer_bytes = match version {
            1 | 2 => ARCHIVE_FOOTER_BYTES - 4,
            3 => ARCHIVE_FOOTER_BYTES,
            _ => {
                return Err(refused!(
                    "an archive of version {version}; versions 1, 2 and 3 are known"
                ));
            }
        };
        let start = at_end(footer_bytes).ok_or_else(too_short)?;
        let index_bytes =
            if version == 3 { be::u64_at(end, start) } else { u64::from(be::u32_at(end, start)) };
        // The three checksums after these are not verified, as in Dolt: newer writers leave zeros
        // there.
        let [span_count, chunk_count, metadata_bytes] =
            [212, 208, 204].map(|from_end| be::u32_at(end, end.len() - from_end));
        Self::checked(
            version,
            [span_count, chunk_count, metadata_bytes],
            index_bytes,
            footer_bytes as u64,
            file_bytes,
        )
    }

    fn checked(
        version: u8,
        [span_count, chunk_count, metadata_bytes]: [u32; 3],
        index_bytes: u64,
        footer_bytes: u64,
        file_bytes: u64,
    ) -> Result<Self, FormatError> {
        let metadata_bytes = u64::from(metadata_bytes);
        let expected =
            SPAN_INDEX_BYTES * u64::from(span_count) + CHUNK_INDEX_BYTES * u64::from(chunk_count);
        if index_bytes != expected {
            return Err(malformed!(
                "an index of {index_bytes} bytes, \
                 expected {expected} for {span_count} spans and {chunk_count} chunks"
            ));
        }
        if metadata_bytes > METADATA_BYTES_MAX {
            return Err(malformed!(
                "metadata of {metadata_bytes} bytes, expected at most {METADATA_BYTES_MAX}"
            ));
        }
        // Three sums of numbers below 2^38 cannot overflow.
        let tail_bytes = index_bytes + metadata_bytes + footer_bytes;
        let data_bytes = file_bytes.checked_sub(tail_bytes).ok_or_else(|| {
            malformed!(
                "an index, metadata and footer of {tail_bytes} bytes in a file of {file_bytes}"
            )
        })?;
        Ok(Self {
            version,
            span_count,
            chunk_count,
            index_bytes,
            metadata_bytes,
            data_bytes,
            footer_bytes,
        })
    }

    /// Returns the length of index, metadata and footer.
    pub(super) fn tail_bytes(&self) -> u64 {
        self.index_bytes + self.metadata_bytes + self.footer_bytes
    }
}

fn too_short() -> FormatError {
    malformed!("expected an archive's footer of {ARCHIVE_FOOTER_BYTES} bytes, got fewer")
}
