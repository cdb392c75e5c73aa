use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{Dictionary, FileKind, Stored, TableIndex, check};

/// Returns `count` different chunks that have much in common.
fn similar(count: usize) -> Vec<Vec<u8>> {
    let words = ["customer", "order", "invoice", "shipment", "warehouse"];
    let text = |number: usize| {
        (0..40)
            .map(|row| format!("{}:{} ", words[(number * 7 + row * row) % 5], number * row))
            .collect()
    };
    (0..count).map(text).map(|text: String| text.into_bytes()).collect()
}

fn written(chunks: &[Vec<u8>]) -> (FileSpec, Bytes) {
    let mut writer = ArchiveWriter::new(Vec::new());
    for chunk in chunks {
        assert_eq!(writer.push(chunk).unwrap(), ChunkAddress::of(chunk));
    }
    let (spec, file) = writer.finish().unwrap();
    (spec, Bytes::from(file))
}

/// Parses the index as a reader does that knows only the file's length.
fn index_of(file: &Bytes) -> TableIndex {
    let footer = usize::try_from(TableIndex::ARCHIVE_FOOTER_BYTES).unwrap();
    let end = &file[file.len() - footer..];
    let tail =
        usize::try_from(TableIndex::archive_tail_bytes(end, file.len() as u64).unwrap()).unwrap();
    TableIndex::parse_archive(file.slice(file.len() - tail..), file.len() as u64).unwrap()
}

fn contents_at(index: &TableIndex, file: &Bytes, position: u32) -> Bytes {
    let slice = |span: crate::Span| {
        let start = usize::try_from(span.offset).unwrap();
        file.slice(start..start + usize::try_from(span.length).unwrap())
    };
    let location = index.location(position);
    let dictionary = location.dictionary.map(|span| Dictionary::decode(&slice(span)).unwrap());
    Stored::parse(slice(location.span), &location).unwrap().decode(dictionary.as_ref()).unwrap()
}

fn assert_holds(file: &Bytes, chunks: &[Vec<u8>]) {
    let index = index_of(file);
    assert_eq!(index.kind(), FileKind::Archive);
    for chunk in chunks {
        let address = ChunkAddress::of(chunk);
        let contents = contents_at(&index, file, index.find(&address).unwrap());
        assert_eq!(&contents, chunk);
        check(&address, &contents).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn chunks_written_to_an_archive_are_read(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..200)
    ) {
        let (spec, file) = written(&chunks);
        let mut different = chunks.clone();
        different.sort();
        different.dedup();
        prop_assert_eq!(spec.chunk_count as usize, different.len());
        assert_holds(&file, &chunks);
    }
}

#[test]
fn a_dictionary_is_trained_once_there_are_enough_chunks() {
    let few = similar(ArchiveWriter::<Vec<u8>>::ZSTD_CHUNKS_MIN - 1);
    let (spec, file) = written(&few);
    let index = index_of(&file);
    assert_eq!(spec.chunk_count, 999);
    assert!((0..999).all(|position| index.location(position).dictionary.is_none()));
    assert_holds(&file, &few);

    let enough = similar(ArchiveWriter::<Vec<u8>>::ZSTD_CHUNKS_MIN + 300);
    let (spec, file) = written(&enough);
    let index = index_of(&file);
    assert_eq!(spec.chunk_count, 1300);
    let dictionary = index.location(0).dictionary.unwrap();
    assert_eq!(dictionary.offset, 0);
    assert!((0..1300).all(|position| index.location(position).dictionary == Some(dictionary)));
    assert_holds(&file, &enough);
}

#[test]
fn the_dictionary_is_a_trained_one_of_the_usual_size() {
    let (_, file) = written(&similar(1000));
    let span = index_of(&file).location(0).dictionary.unwrap();
    let dictionary = Dictionary::decode(&file[..usize::try_from(span.length).unwrap()]).unwrap();
    assert!(
        dictionary.bytes().len() <= 4096
            && dictionary.bytes().starts_with(&[0x37, 0xa4, 0x30, 0xec])
    );
}

#[test]
fn chunks_that_train_no_dictionary_are_written_all_the_same() {
    // Two bytes each: too little for any training.
    let tiny: Vec<Vec<u8>> = (0..1200u16).map(|number| number.to_be_bytes().to_vec()).collect();
    let (spec, file) = written(&tiny);
    assert_eq!(spec.chunk_count, 1200);
    assert_holds(&file, &tiny);
}

#[test]
fn the_file_is_named_after_all_its_bytes() {
    let (spec, file) = written(&similar(1001));
    assert_eq!(spec.id, FileId(digest(&[&file])));
    let (again, _) = written(&similar(1001));
    assert_eq!(spec, again);
}

#[test]
fn an_archive_without_chunks_has_an_index_of_none() {
    let (spec, file) = written(&[]);
    assert_eq!((spec.chunk_count, index_of(&file).chunk_count()), (0, 0));
}

#[test]
fn an_empty_chunk_is_refused_by_archives_too() {
    let error = ArchiveWriter::new(Vec::new()).push(b"").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_chunk_pushed_again_is_not_written_again() {
    let chunks = similar(1100);
    let twice: Vec<Vec<u8>> =
        chunks.iter().flat_map(|chunk| [chunk.clone(), chunk.clone()]).collect();
    assert_eq!(written(&twice), written(&chunks));
}
