//! A store as Dolt writes it: table files (classic and archives), a manifest, where every chunk
//! lies, and what was read of it.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use busload_bucket::Seen;
use busload_chunks::{
    ChunkAddress, ChunkLocation, FileKind, FileSpec, TableIndex,
    write::{ArchiveWriter, ClassicWriter, manifest},
};
use bytes::Bytes;

use crate::{
    bytes::bytes_text,
    harness::measurement,
    random::Random,
    stats::{float, float_of, mebibytes},
};

/// Bytes of an object in one extent of busload's cache: fills are whole extents.
const EXTENT_BYTES: u64 = 256 * 4_092;

/// Bytes of a piece of filler.
const PIECE_BYTES: usize = 64;

/// Phrases that rows of a table have in common, and a dictionary can learn.
const PHRASES: [&[u8; 36]; 4] = [
    b"{\"state\":\"shipped\",\"country\":\"Norway",
    b"{\"state\":\"ordered\",\"country\":\"Sweden",
    b"{\"state\":\"returned\",\"country\":\"Spain",
    b"{\"state\":\"invoiced\",\"country\":\"Italy",
];

/// Filler of made-up chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filler {
    /// Filler that compresses about 2:1.
    Half,
    Random,
}

/// Fills contents up to so many bytes, unless they are longer.
pub fn fill(contents: &mut Vec<u8>, seed: u64, filler: Filler, bytes: usize) {
    let bytes = bytes.max(contents.len());
    let mut random = Random::new(seed);
    while contents.len() < bytes {
        let phrase = PHRASES[usize::try_from(random.below(4)).expect("below 4")];
        let phrase = if filler == Filler::Half { &phrase[..] } else { &[] };
        let phrase_from = contents.len() + PIECE_BYTES - phrase.len();
        while contents.len() < phrase_from {
            contents.extend_from_slice(&random.next().to_le_bytes());
        }
        contents.truncate(phrase_from);
        contents.extend_from_slice(phrase);
    }
    contents.truncate(bytes);
}

/// A table file of a store.
#[derive(Clone, Debug)]
pub struct TableFile {
    /// The object's name within the store: the id, for archives with `.darc`.
    pub name: String,
    pub id: String,
    pub kind: FileKind,
    pub bytes: u64,
    /// CRC-32C of all its bytes.
    pub crc: u32,
    pub chunk_count: u32,
    /// Offset of its index.
    pub index_from: u64,
}

/// A chunk of a store, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    pub address: ChunkAddress,
    /// Position of its file in the store's list.
    pub file: u32,
    pub location: ChunkLocation,
    /// Bytes of its contents.
    pub contents_bytes: u32,
}

/// Function that takes the contents of a chunk and returns its address.
pub type Push<'a> = dyn FnMut(&[u8]) -> io::Result<ChunkAddress> + 'a;

/// A store on disk, and what everybody who measures knows of it.
#[derive(Debug)]
pub struct Store {
    /// Directory in which its objects are files.
    pub directory: PathBuf,
    pub files: Vec<TableFile>,
    /// Chunks of all files in the order they were written; their numbers are positions.
    pub chunks: Vec<Chunk>,
    by_address: HashMap<ChunkAddress, u32>,
    specs: Vec<FileSpec>,
}

impl Store {
    /// Makes a store without files.
    pub fn create(directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Self {
            directory: directory.to_owned(),
            files: Vec::new(),
            chunks: Vec::new(),
            by_address: HashMap::new(),
            specs: Vec::new(),
        })
    }

    /// Writes a table file, made in memory, with all chunks that `push_all` pushes, in their order.
    pub fn add_file(
        &mut self,
        kind: FileKind,
        push_all: impl FnOnce(&mut Push<'_>) -> io::Result<()>,
    ) -> Result<()> {
        let mut pushed = Vec::new();
        let (spec, contents) =
            write(kind, &mut pushed, push_all).context("writing a table file")?;
        let id = spec.id.to_string();
        let name = match kind {
            FileKind::Classic => id.clone(),
            FileKind::Archive => format!("{id}.darc"),
        };
        fs::write(self.directory.join(&name), &contents).context("cannot write a table file")?;
        let (crc, chunk_count) = (crc32c::crc32c(&contents), spec.chunk_count);
        let bytes = u64::try_from(contents.len())?;
        let (index, index_from) = index_of(&contents.into(), kind, spec)?;
        let file = u32::try_from(self.files.len()).context("a count of files")?;
        for (address, contents_bytes) in pushed {
            let position = index.find(&address);
            let position = position.context("a chunk just written is not in its file's index")?;
            let location = index.location(position);
            let number = u32::try_from(self.chunks.len()).context("a count of chunks")?;
            let contents_bytes = u32::try_from(contents_bytes).context("a chunk's size")?;
            self.chunks.push(Chunk { address, file, location, contents_bytes });
            if self.by_address.insert(address, number).is_some() {
                bail!("two chunks of the store have the address {address}");
            }
        }
        self.files.push(TableFile { name, id, kind, bytes, crc, chunk_count, index_from });
        self.specs.push(spec);
        Ok(())
    }

    /// Writes the manifest, without which nobody sees the files, in place of the one before.
    pub fn write_manifest(&self, root: ChunkAddress) -> Result<()> {
        let new = self.directory.join("manifest.new");
        fs::write(&new, manifest(root, &self.specs)).context("cannot write a manifest")?;
        fs::rename(&new, self.directory.join("manifest")).context("cannot replace a manifest")
    }

    /// Returns the chunk with this address.
    pub fn find(&self, address: &ChunkAddress) -> Option<&Chunk> {
        self.by_address.get(address).map(|number| self.chunk(*number))
    }

    /// Returns a chunk by its number.
    pub fn chunk(&self, number: u32) -> &Chunk {
        &self.chunks[index(number)]
    }

    /// Returns the file that has a chunk.
    pub fn file_of(&self, chunk: &Chunk) -> &TableFile {
        &self.files[index(chunk.file)]
    }

    pub fn count(&self) -> u32 {
        u32::try_from(self.chunks.len()).expect("checked when it was made")
    }

    /// Returns the bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the bytes of all contents.
    pub fn contents_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| u64::from(chunk.contents_bytes)).sum()
    }

    /// Returns the addresses of these chunks, one after the other.
    pub fn addresses(&self, numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
        numbers.into_iter().flat_map(|number| self.chunk(number).address.0).collect()
    }

    /// Describes its size and how well it is compressed.
    pub fn text(&self) -> String {
        let (count, contents_bytes) = (self.chunks.len(), float(self.contents_bytes()));
        format!(
            "{count} chunks of {} B on average in {} table files, {}, stored at {:.0}%",
            measurement(contents_bytes / float_of(count.max(1))),
            self.files.len(),
            bytes_text(self.bytes()),
            float(self.bytes()) / contents_bytes.max(1.0) * 100.0
        )
    }
}

/// Returns a number as a position.
pub fn index(number: u32) -> usize {
    usize::try_from(number).expect("32 bits fit")
}

fn write(
    kind: FileKind,
    pushed: &mut Vec<(ChunkAddress, usize)>,
    push_all: impl FnOnce(&mut Push<'_>) -> io::Result<()>,
) -> io::Result<(FileSpec, Vec<u8>)> {
    let mut noted = |contents: &[u8], address| {
        pushed.push((address, contents.len()));
        address
    };
    match kind {
        FileKind::Classic => {
            let mut writer = ClassicWriter::new(Vec::new());
            push_all(&mut |contents| Ok(noted(contents, writer.push(contents)?)))?;
            writer.finish()
        }
        FileKind::Archive => {
            let mut writer = ArchiveWriter::new(Vec::new());
            push_all(&mut |contents| Ok(noted(contents, writer.push(contents)?)))?;
            writer.finish()
        }
    }
}

/// Parses the index of a whole table file, and says where it begins.
fn index_of(file: &Bytes, kind: FileKind, spec: FileSpec) -> Result<(TableIndex, u64)> {
    let bytes = u64::try_from(file.len())?;
    let from = |tail_bytes| bytes.checked_sub(tail_bytes).context("a file shorter than its index");
    let tail = |from| anyhow::Ok(file.slice(usize::try_from(from)?..));
    match kind {
        FileKind::Classic => {
            let from = from(TableIndex::classic_tail_bytes(spec.chunk_count))?;
            Ok((TableIndex::parse_classic(tail(from)?, spec.chunk_count, bytes)?, from))
        }
        FileKind::Archive => {
            let footer = tail(from(TableIndex::ARCHIVE_FOOTER_BYTES)?)?;
            let from = from(TableIndex::archive_tail_bytes(&footer, bytes)?)?;
            Ok((TableIndex::parse_archive(tail(from)?, bytes)?, from))
        }
    }
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCount {
    pub requests: u64,
    /// Bytes sent for them.
    pub bytes: u64,
}

/// Requests to the object store, classified by range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Ranges of table files that somebody waits for.
    pub foreground: RequestCount,
    /// Foreground ranges asked for again, to the byte.
    pub repeated: u64,
    /// Whole extents of table files.
    pub fills: RequestCount,
    /// Indexes of table files.
    pub indexes: RequestCount,
    /// Manifests, listings and what else there is.
    pub others: RequestCount,
}

impl Traffic {
    /// Sorts requests by what they asked for.
    pub fn of(seen: &[Seen], files: &[TableFile]) -> Self {
        let mut traffic = Self::default();
        let mut ranges = HashSet::new();
        for request in seen {
            let file = files.iter().find(|file| request.path.contains(&file.id));
            let kind = match file.filter(|_| request.method == "GET") {
                None => &mut traffic.others,
                Some(file) => {
                    let range = request.range.clone().unwrap_or(0..file.bytes);
                    let (from, to) = (range.start, range.end.min(file.bytes));
                    let is_long = from + EXTENT_BYTES <= to || to == file.bytes;
                    if file.index_from <= from {
                        &mut traffic.indexes
                    } else if from % EXTENT_BYTES == 0 && is_long {
                        &mut traffic.fills
                    } else {
                        traffic.repeated += u64::from(!ranges.insert((&file.id, from, to)));
                        &mut traffic.foreground
                    }
                }
            };
            kind.requests += 1;
            kind.bytes += request.bytes;
        }
        traffic
    }

    /// Returns the requests for table files.
    pub fn of_files(&self) -> RequestCount {
        let kinds = [self.foreground, self.fills, self.indexes];
        let requests = kinds.iter().map(|kind| kind.requests).sum();
        RequestCount { requests, bytes: kinds.iter().map(|kind| kind.bytes).sum() }
    }

    pub fn text(&self) -> String {
        let text = |name: &str, RequestCount { requests, bytes }| {
            format!("{requests} {name} ({:.1} MiB)", mebibytes(float(bytes)))
        };
        let (foreground, fills) = (text("foreground", self.foreground), text("fills", self.fills));
        let (repeated, indexes) = (self.repeated, self.indexes.requests);
        format!("{foreground}, {repeated} repeated, {fills}, {indexes} of indexes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_their_ranges() {
        let id = "4r0lqmqprihmm1ok8d7b93l2i5lfl2ug".to_owned();
        let (kind, bytes, index_from) = (FileKind::Classic, 2_000_000, 1_900_000);
        let name = id.clone();
        let file = TableFile { name, id, kind, bytes, crc: 0, chunk_count: 1, index_from };
        let get = |path: &str, range: std::ops::Range<u64>| Seen {
            method: "GET".to_owned(),
            path: format!("/bucket/store/{path}"),
            bytes: range.end - range.start,
            range: Some(range),
            status: 206,
        };
        let ranges = [index_from..bytes, 4_092..8_184, 4_092..8_184, 0..4_092, 0..bytes];
        let mut seen = ranges.map(|range| get(&file.name, range)).to_vec();
        seen.push(get("manifest", 0..100));
        let count = |requests, bytes| RequestCount { requests, bytes };
        let expected = Traffic {
            foreground: count(3, 3 * 4_092),
            repeated: 1,
            fills: count(1, 2_000_000),
            indexes: count(1, 100_000),
            others: count(1, 100),
        };
        let traffic = Traffic::of(&seen, &[file]);
        assert_eq!(traffic, expected);
        assert_eq!(traffic.of_files(), count(5, 100_000 + 2_000_000 + 3 * 4_092));
    }
}
