//! Archives as `dolt admin conjoin` makes them: several joined into one, each with its dictionary.

use std::{collections::BTreeMap, fs, path::Path};

use busload_chunks::{ChunkAddress, FileId, FileSpec, Span, TableIndex, write::ArchiveWriter};
use bytes::Bytes;

/// Bytes of an archive's footer before its version and signature: lengths, and three checksums.
const FOOTER_TAIL: [u8; 8] = *b"\x03DOLTARC";

/// Number of chunks from which an archive has a dictionary.
pub const DICTIONARY_CHUNKS_MIN: usize = ArchiveWriter::<Vec<u8>>::ZSTD_CHUNKS_MIN;

/// Writes an archive of chunks, with a dictionary if there are enough of them.
pub fn archive(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = ArchiveWriter::new(Vec::new());
    for chunk in chunks {
        writer.push(chunk).unwrap();
    }
    writer.finish().unwrap().1
}

/// Joins archives into one.
pub fn write_conjoined(store: &Path, archives: &[Vec<u8>]) -> FileSpec {
    let (mut data, mut ends) = (Vec::new(), Vec::new());
    let mut chunks: Vec<(ChunkAddress, u32, u32)> = Vec::new();
    for archive in archives {
        let index = index(archive);
        let mut ids: BTreeMap<Span, u32> = BTreeMap::new();
        for location in (0..index.chunk_count()).map(|position| index.location(position)) {
            ids.insert(location.span, 0);
            ids.extend(location.dictionary.map(|span| (span, 0)));
        }
        for (span, id) in &mut ids {
            let start = usize::try_from(span.offset).unwrap();
            data.extend(&archive[start..start + span.length as usize]);
            ends.push(data.len() as u64);
            *id = u32::try_from(ends.len()).unwrap();
        }
        for position in 0..index.chunk_count() {
            let location = index.location(position);
            let dictionary = location.dictionary.map_or(0, |span| ids[&span]);
            chunks.push((index.address(position), dictionary, ids[&location.span]));
        }
    }
    chunks.sort_unstable();
    write(store, data, &ends, &chunks)
}

fn write(
    store: &Path,
    mut bytes: Vec<u8>,
    ends: &[u64],
    chunks: &[(ChunkAddress, u32, u32)],
) -> FileSpec {
    let data_bytes = bytes.len();
    bytes.extend(ends.iter().flat_map(|end| end.to_be_bytes()));
    bytes.extend(chunks.iter().flat_map(|(address, ..)| address.prefix().to_be_bytes()));
    bytes.extend(
        chunks
            .iter()
            .flat_map(|(_, dictionary, span)| [dictionary.to_be_bytes(), span.to_be_bytes()])
            .flatten(),
    );
    bytes.extend(chunks.iter().flat_map(|(address, ..)| *address.suffix()));
    let index_bytes = bytes.len() - data_bytes;
    let metadata = b"{}";
    bytes.extend(metadata);
    bytes.extend((index_bytes as u64).to_be_bytes());
    for count in [ends.len(), chunks.len(), metadata.len()] {
        bytes.extend(u32::try_from(count).unwrap().to_be_bytes());
    }
    bytes.extend([0; 192]);
    bytes.extend(FOOTER_TAIL);
    let id = FileId(ChunkAddress::of(&bytes).0);
    fs::write(store.join(format!("{id}.darc")), bytes).unwrap();
    FileSpec { id, chunk_count: u32::try_from(chunks.len()).unwrap() }
}

fn index(archive: &[u8]) -> TableIndex {
    let size = archive.len() as u64;
    let tail = usize::try_from(TableIndex::archive_tail_bytes(archive, size).unwrap()).unwrap();
    TableIndex::parse_archive(Bytes::copy_from_slice(&archive[archive.len() - tail..]), size)
        .unwrap()
}
