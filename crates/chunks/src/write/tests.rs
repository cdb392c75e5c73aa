use bytes::Bytes;
use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::{FormatError, Manifest, Stored, TableIndex, check};

/// Returns a file of these chunks, as the writer wrote it.
fn written(chunks: &[Vec<u8>]) -> (FileSpec, Bytes) {
    let mut writer = ClassicWriter::new(Vec::new());
    for chunk in chunks {
        assert_eq!(writer.push(chunk).unwrap(), ChunkAddress::of(chunk));
    }
    let (spec, file) = writer.finish().unwrap();
    (spec, Bytes::from(file))
}

fn index_of(spec: FileSpec, file: &Bytes) -> Result<TableIndex, FormatError> {
    let tail = usize::try_from(TableIndex::classic_tail_bytes(spec.chunk_count)).unwrap();
    TableIndex::parse_classic(file.slice(file.len() - tail..), spec.chunk_count, file.len() as u64)
}

fn contents_at(index: &TableIndex, file: &Bytes, position: u32) -> Bytes {
    let location = index.location(position);
    let start = usize::try_from(location.span.offset).unwrap();
    let span = file.slice(start..start + usize::try_from(location.span.length).unwrap());
    Stored::parse(span, &location).unwrap().decode(None).unwrap()
}

proptest! {
    #[test]
    fn chunks_written_are_read(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..200),
    ) {
        let (spec, file) = written(&chunks);
        let index = index_of(spec, &file).unwrap();
        let mut different = chunks.clone();
        different.sort();
        different.dedup();
        prop_assert_eq!(spec.chunk_count as usize, different.len());
        for chunk in &chunks {
            let address = ChunkAddress::of(chunk);
            let contents = contents_at(&index, &file, index.find(&address).unwrap());
            prop_assert_eq!(&contents, chunk);
            prop_assert!(check(&address, &contents).is_ok());
        }
    }
}

#[test]
fn file_is_byte_for_byte_what_the_format_says() {
    let mut writer = ClassicWriter::new(Vec::new());
    writer.push_as(ChunkAddress([2; 20]), b"two").unwrap();
    writer.push_as(ChunkAddress([1; 20]), b"one").unwrap();
    let (spec, file) = writer.finish().unwrap();
    let hex: String = file.iter().map(|byte| format!("{byte:02x}")).collect();
    // Two records; prefixes with ordinals 1 and 0; lengths; suffixes in file order; count, 6 bytes,
    // magic.
    expect![
        "030874776fc9b9b5fe03086f6e65b1f5b4b401010101010101010000000102020202020202020000\
         00000000000900000009020202020202020202020202010101010101010101010101000000020000\
         000000000006ffb5d8c22463ee50"
    ]
    .assert_eq(&hex);
    expect!["FileSpec { id: ben2ctmks8vflbp4pk4rnadtd79g0kka, chunk_count: 2 }"]
        .assert_eq(&format!("{spec:?}"));
}

#[test]
fn empty_file_has_a_footer_only() {
    let (spec, file) = written(&[]);
    assert_eq!((spec.chunk_count, file.len()), (0, CLASSIC_FOOTER_BYTES));
    assert_eq!(index_of(spec, &file).unwrap().find(&ChunkAddress::ZERO), None);
}

#[test]
fn empty_chunk_is_refused() {
    let error = ClassicWriter::new(Vec::new()).push(b"").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn first_contents_of_an_address_stay() {
    let mut writer = ClassicWriter::new(Vec::new());
    writer.push_as(ChunkAddress::ZERO, b"first").unwrap();
    writer.push_as(ChunkAddress::ZERO, b"second").unwrap();
    let (spec, file) = writer.finish().unwrap();
    let index = index_of(spec, &Bytes::from(file.clone())).unwrap();
    assert_eq!(spec.chunk_count, 1);
    assert_eq!(contents_at(&index, &Bytes::from(file), 0), "first");
}

/// Writer that accepts this many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn errors_of_writing_are_passed_on() {
    let full = |room| ClassicWriter::new(Full(room));
    assert_eq!(full(3).push(b"chunk").unwrap_err().kind(), io::ErrorKind::StorageFull);
    let mut writer = full(100_000);
    writer.push(&[7; 100]).unwrap();
    writer.out.0 = 10;
    assert_eq!(writer.finish().map(drop).unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn manifest_is_read_as_it_was_written() {
    let root = ChunkAddress::of(b"root");
    let (a, _) = written(&[b"a".to_vec()]);
    let (b, _) = written(&[b"b".to_vec(), b"c".to_vec()]);
    for files in [&[][..], &[a], &[b, a]] {
        let text = manifest(root, files);
        let read = Manifest::parse(text.as_bytes()).unwrap();
        assert_eq!((read.root, &*read.files, read.gc_generation), (root, files, Some([0; 20])));
        assert_eq!(read.lock, read.computed_lock());
    }
    expect![
        "5:__DOLT__:g80nofsmvi22u84dku05io3cbqm7m83v:\
         j6ms4cdg8kphskaaa5lkmtk0um4e70hi:00000000000000000000000000000000:\
         u2np1nuce1st9tjaej7lp8i4eeq1u7b0:1"
    ]
    .assert_eq(&manifest(root, &[a]));
}
