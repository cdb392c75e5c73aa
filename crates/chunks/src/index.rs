//! The index of one table file.
//!
//! The index of a classic file is kept as it is in the file, 28 bytes per chunk, with a running sum
//! of lengths per 64 records. That of an archive is rearranged into 28 to 30 bytes per chunk. Both
//! are checked once, when parsed: no position, ordinal or span id in them points anywhere outside,
//! so the methods here cannot fail.

mod archive;
mod classic;
mod footer;
mod palette;

use bytes::Bytes;

use crate::{ChunkAddress, FormatError, error::malformed, limits::EQUAL_PREFIXES_MAX};
use archive::Archive;
use classic::Classic;
use footer::ArchiveFooter;
pub(crate) use footer::{
    ARCHIVE_FOOTER_BYTES, ARCHIVE_SIGNATURE, CLASSIC_FOOTER_BYTES, CLASSIC_MAGIC,
};

/// Kind of a table file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A classic table file, whose name has no suffix.
    Classic,
    /// An archive, whose name ends with `.darc`.
    Archive,
}

/// Range of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Length of the range in bytes.
    pub length: u32,
}

/// Location of a chunk in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLocation {
    /// Span of the stored bytes: a classic record (snappy block and CRC) without a dictionary, a
    /// zstd frame with one.
    pub span: Span,
    /// Span of the compressed dictionary.
    pub dictionary: Option<Span>,
}

/// Index of one table file, checked when it was parsed.
#[derive(Debug)]
pub struct TableIndex {
    form: Form,
    file_bytes: u64,
}

#[derive(Debug)]
enum Form {
    Classic(Classic),
    Archive(Archive),
}

impl TableIndex {
    /// Most bytes that an archive's footer has.
    pub const ARCHIVE_FOOTER_BYTES: u64 = footer::ARCHIVE_FOOTER_BYTES as u64;

    /// Returns how many bytes at the end of a classic table file hold the index and the footer.
    pub fn classic_tail_bytes(chunk_count: u32) -> u64 {
        classic::tail_bytes(chunk_count)
    }

    /// Parses exactly the last [`TableIndex::classic_tail_bytes`] of a file of `file_bytes`. Keeps
    /// `tail`, and so the whole buffer that it is a part of.
    ///
    /// # Errors
    /// [`FormatError::Malformed`] if they are not the index and footer of a file with this many
    /// chunks and bytes.
    pub fn parse_classic(
        tail: Bytes,
        chunk_count: u32,
        file_bytes: u64,
    ) -> Result<Self, FormatError> {
        let classic = Classic::parse(tail, chunk_count, file_bytes)?;
        Ok(Self { form: Form::Classic(classic), file_bytes })
    }

    /// Returns how many bytes at the end of an archive hold the index, the metadata and the footer.
    /// `end` is (at least) the last [`TableIndex::ARCHIVE_FOOTER_BYTES`] of the file, or the whole
    /// file if it is shorter. The result is never more than `file_bytes`.
    ///
    /// # Errors
    /// [`FormatError::Malformed`] if there is no footer of an archive, or one of a longer file;
    /// [`FormatError::Refused`] if the version is not one of 1, 2 and 3.
    pub fn archive_tail_bytes(end: &[u8], file_bytes: u64) -> Result<u64, FormatError> {
        Ok(ArchiveFooter::parse(end, file_bytes)?.tail_bytes())
    }

    /// Parses exactly the last [`TableIndex::archive_tail_bytes`] of a file of `file_bytes`. Does
    /// not keep `tail`.
    ///
    /// # Errors
    /// Those of [`TableIndex::archive_tail_bytes`], and [`FormatError::Malformed`] if the index is
    /// not that of such a file.
    pub fn parse_archive(tail: Bytes, file_bytes: u64) -> Result<Self, FormatError> {
        let archive = Archive::parse(&tail, file_bytes)?;
        Ok(Self { form: Form::Archive(archive), file_bytes })
    }

    /// Returns whether the file is classic or an archive.
    pub fn kind(&self) -> FileKind {
        match self.form {
            Form::Classic(_) => FileKind::Classic,
            Form::Archive(_) => FileKind::Archive,
        }
    }

    /// Returns the number of entries; an archive may hold an address twice.
    pub fn chunk_count(&self) -> u32 {
        match &self.form {
            Form::Classic(classic) => classic.chunk_count(),
            Form::Archive(archive) => archive.chunk_count(),
        }
    }

    /// Returns the length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Finds the position of a chunk, which the other methods take; that of any one of several
    /// copies.
    pub fn find(&self, address: &ChunkAddress) -> Option<u32> {
        let prefix = address.prefix();
        let first = partition_point(self.chunk_count(), |position| self.prefix(position) < prefix);
        (first..self.chunk_count())
            .take_while(|&position| self.prefix(position) == prefix)
            .find(|&position| self.suffix(position) == address.suffix())
    }

    /// Returns the address at a position below [`TableIndex::chunk_count`]. Positions are in the
    /// order of the addresses' prefixes.
    ///
    /// # Panics
    /// If there is no such position, like the other methods that take one.
    pub fn address(&self, position: u32) -> ChunkAddress {
        ChunkAddress::from_parts(self.prefix(position), self.suffix(position))
    }

    /// Returns whether the address at a position is this one.
    pub(crate) fn holds(&self, position: u32, address: &ChunkAddress) -> bool {
        self.prefix(position) == address.prefix() && self.suffix(position) == address.suffix()
    }

    /// Returns the location of the chunk at a position.
    pub fn location(&self, position: u32) -> ChunkLocation {
        match &self.form {
            Form::Classic(classic) => classic.location(position),
            Form::Archive(archive) => archive.location(position),
        }
    }

    /// Returns the memory that this index takes, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        size_of::<Self>() as u64
            + match &self.form {
                Form::Classic(classic) => classic.memory_bytes(),
                Form::Archive(archive) => archive.memory_bytes(),
            }
    }

    fn prefix(&self, position: u32) -> u64 {
        match &self.form {
            Form::Classic(classic) => classic.prefix(position),
            Form::Archive(archive) => archive.prefix(position),
        }
    }

    fn suffix(&self, position: u32) -> &[u8; 12] {
        match &self.form {
            Form::Classic(classic) => classic.suffix(position),
            Form::Archive(archive) => archive.suffix(position),
        }
    }
}

/// Returns the first position below `count` for which `before` is false.
fn partition_point(count: u32, before: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Checks that prefixes ascend and that only few are equal.
fn check_prefixes(prefixes: impl Iterator<Item = u64>) -> Result<(), FormatError> {
    let mut last = 0;
    let mut equal = 0;
    for (position, prefix) in prefixes.enumerate() {
        if prefix < last {
            return Err(malformed!(
                "the index is not sorted: entry {position} is less than the one before"
            ));
        }
        equal = if prefix == last { equal + 1 } else { 1 };
        if equal > EQUAL_PREFIXES_MAX {
            return Err(malformed!(
                "more than {EQUAL_PREFIXES_MAX} addresses of the index begin with {prefix:016x}; \
                 those of real chunks do not"
            ));
        }
        last = prefix;
    }
    Ok(())
}

/// Converts a length from a file into a length in memory, or returns an error that names it.
fn length_in_memory(bytes: u64, what: &str) -> Result<usize, FormatError> {
    usize::try_from(bytes).map_err(|_| malformed!("{what} of {bytes} bytes does not fit in memory"))
}
