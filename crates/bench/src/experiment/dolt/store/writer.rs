//! One table file on disk, and what its own index says of it.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use anyhow::{Context, Result};
use busload_chunks::{
    FileKind, FileSpec, TableIndex,
    write::{ArchiveWriter, ClassicWriter},
};
use bytes::Bytes;

use super::{TableFile, tree::Chunk};

/// What objects of archives end with.
const ARCHIVE_SUFFIX: &str = ".darc";

/// A table file just written.
pub struct Written {
    pub spec: FileSpec,
    pub file: TableFile,
    pub index: TableIndex,
}

/// Writes these chunks in this order.
pub fn write(directory: &Path, kind: FileKind, chunks: &[Chunk]) -> Result<Written> {
    let named = || format!("cannot write a table file in {}", directory.display());
    let unnamed = directory.join("unnamed");
    let out = Summing { out: BufWriter::new(File::create(&unnamed).with_context(named)?), crc: 0 };
    let (spec, mut out) = match kind {
        FileKind::Classic => classic(out, chunks),
        FileKind::Archive => archive(out, chunks),
    }
    .with_context(named)?;
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
    let file = TableFile {
        name,
        id,
        kind,
        bytes,
        crc: out.crc,
        chunk_count: spec.chunk_count,
        index_from,
    };
    Ok(Written { spec, file, index })
}

fn classic(out: Summing, chunks: &[Chunk]) -> io::Result<(FileSpec, Summing)> {
    let mut writer = ClassicWriter::new(out);
    chunks.iter().try_for_each(|chunk| writer.push(&chunk.contents).map(drop))?;
    writer.finish()
}

fn archive(out: Summing, chunks: &[Chunk]) -> io::Result<(FileSpec, Summing)> {
    let mut writer = ArchiveWriter::new(out);
    chunks.iter().try_for_each(|chunk| writer.push(&chunk.contents).map(drop))?;
    writer.finish()
}

/// The index, the file's size, and where the index begins.
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

/// Where the file goes; sums up what is written.
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
