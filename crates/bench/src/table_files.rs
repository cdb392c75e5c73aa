//! Table files as Dolt writes them, classic and archives, and what their own indexes say of them.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use anyhow::{Context, Result};
use busload_chunks::{
    ChunkAddress, FileKind, FileSpec, TableIndex,
    write::{ArchiveWriter, ClassicWriter, manifest},
};
use bytes::Bytes;

/// The end of an archive's object name.
const ARCHIVE_SUFFIX: &str = ".darc";

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

/// A table file just written.
pub struct Written {
    pub spec: FileSpec,
    pub file: TableFile,
    pub index: TableIndex,
}

/// Takes the contents of a chunk; its address.
pub type Push<'a> = dyn FnMut(&[u8]) -> io::Result<ChunkAddress> + 'a;

/// Writes a table file with all chunks that `push_all` pushes, in their order.
pub fn write(
    directory: &Path,
    kind: FileKind,
    push_all: impl FnOnce(&mut Push<'_>) -> io::Result<()>,
) -> Result<Written> {
    let named = || format!("cannot write a table file in {}", directory.display());
    let unnamed = directory.join("unnamed");
    let out = Summing { out: BufWriter::new(File::create(&unnamed).with_context(named)?), crc: 0 };
    let (spec, mut out) = write_to(out, kind, push_all).with_context(named)?;
    out.flush().with_context(named)?;
    let id = spec.id.to_string();
    let name = match kind {
        FileKind::Classic => id.clone(),
        FileKind::Archive => format!("{id}{ARCHIVE_SUFFIX}"),
    };
    let path = directory.join(&name);
    fs::rename(&unnamed, &path).with_context(named)?;
    let (index, bytes, index_from) =
        index_of(&path, kind, spec).context("a table file just written")?;
    let (crc, chunk_count) = (out.crc, spec.chunk_count);
    let file = TableFile { name, id, kind, bytes, crc, chunk_count, index_from };
    Ok(Written { spec, file, index })
}

fn write_to(
    out: Summing,
    kind: FileKind,
    push_all: impl FnOnce(&mut Push<'_>) -> io::Result<()>,
) -> io::Result<(FileSpec, Summing)> {
    match kind {
        FileKind::Classic => {
            let mut writer = ClassicWriter::new(out);
            push_all(&mut |contents| writer.push(contents))?;
            writer.finish()
        }
        FileKind::Archive => {
            let mut writer = ArchiveWriter::new(out);
            push_all(&mut |contents| writer.push(contents))?;
            writer.finish()
        }
    }
}

/// Writes a store's manifest.
pub fn write_manifest(directory: &Path, root: ChunkAddress, specs: &[FileSpec]) -> Result<()> {
    fs::write(directory.join("manifest"), manifest(root, specs)).context("cannot write a manifest")
}

/// Reads a file's index: the index, the file's size, and where the index begins.
fn index_of(path: &Path, kind: FileKind, spec: FileSpec) -> Result<(TableIndex, u64, u64)> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let tail_bytes = match kind {
        FileKind::Classic => TableIndex::classic_tail_bytes(spec.chunk_count),
        FileKind::Archive => {
            let footer = tail(&file, bytes, TableIndex::ARCHIVE_FOOTER_BYTES)?;
            TableIndex::archive_tail_bytes(&footer, bytes)?
        }
    };
    let tail = tail(&file, bytes, tail_bytes)?;
    let index = match kind {
        FileKind::Classic => TableIndex::parse_classic(tail, spec.chunk_count, bytes)?,
        FileKind::Archive => TableIndex::parse_archive(tail, bytes)?,
    };
    Ok((index, bytes, bytes - tail_bytes))
}

fn tail(file: &File, bytes: u64, tail_bytes: u64) -> Result<Bytes> {
    let from = bytes.checked_sub(tail_bytes).context("a table file shorter than its index")?;
    let mut tail = vec![0; usize::try_from(tail_bytes).context("an index")?];
    file.read_exact_at(&mut tail, from)?;
    Ok(Bytes::from(tail))
}

/// A writer that sums up what it writes.
struct Summing {
    out: BufWriter<File>,
    crc: u32,
}

impl Write for Summing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.crc = crc32c::crc32c_append(self.crc, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
