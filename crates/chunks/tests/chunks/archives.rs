//! Archives of shapes that Dolt writes only now and then, or could write.

use std::collections::HashMap;

use crate::support::{
    archive::{Archive, stored},
    open_archive,
};
use busload_chunks::{
    ChunkAddress, ChunkLocation, Dictionary, EQUAL_PREFIXES_MAX, FormatError, Stored, TableIndex,
    check,
};
use bytes::Bytes;

/// Returns the contents of a chunk; each has its own length.
fn contents(number: u32) -> Vec<u8> {
    format!("chunk {number} ").repeat(1 + number as usize % 90).into_bytes()
}

fn at(file: &Bytes, span: busload_chunks::Span) -> Bytes {
    let offset = usize::try_from(span.offset).unwrap();
    file.slice(offset..offset + span.length as usize)
}

fn read(file: &Bytes, location: &ChunkLocation) -> Result<Bytes, FormatError> {
    let dictionary =
        location.dictionary.map(|span| Dictionary::decode(&at(file, span))).transpose()?;
    Stored::parse(at(file, location.span), location)?.decode(dictionary.as_ref())
}

/// Checks that every entry's contents are those of its address.
fn check_all(file: &Bytes, index: &TableIndex) {
    for position in 0..index.chunk_count() {
        let contents = read(file, &index.location(position)).unwrap();
        check(&index.address(position), &contents).unwrap();
        let found = index.find(&index.address(position)).unwrap();
        assert_eq!(index.address(found), index.address(position));
    }
}

fn malformed(archive: &Archive) -> String {
    match open_archive(&archive.file()) {
        Err(FormatError::Malformed(text)) => text,
        other => panic!("expected a malformed index, got {other:?}"),
    }
}

#[test]
fn dictionaries_may_be_several_anywhere_and_of_any_bytes() {
    for dictionary_count in [1, 2, 3, 300] {
        let mut archive = Archive::new(3);
        let mut dictionaries = HashMap::new();
        for number in 0..1_000u32 {
            let bytes =
                format!("dictionary {} of plain bytes", number % dictionary_count).into_bytes();
            let chunk = archive.ends.len().is_multiple_of(2) && number < 500;
            if chunk {
                archive.record(&contents(number));
            }
            let span = *dictionaries
                .entry(number % dictionary_count)
                .or_insert_with(|| archive.dictionary(&bytes));
            archive.zstd(&contents(number + 10_000), (span, &bytes));
        }
        let file = archive.file();
        let index = open_archive(&file).unwrap();
        assert_eq!(index.chunk_count() as usize, archive.chunks.len());
        check_all(&file, &index);
    }
}

#[test]
fn entries_may_share_spans_and_addresses() {
    let mut archive = Archive::new(2);
    let address = archive.record(b"a chunk");
    let second = archive.span(&crate::support::archive::record(b"a chunk"));
    archive.chunk(address, 0, second);
    archive.chunk(address, 0, second);
    let unused = archive.span(b"bytes nobody refers to");
    archive.record(b"another");
    let file = archive.file();
    let index = open_archive(&file).unwrap();
    assert_eq!((index.chunk_count(), unused), (4, 3));
    check_all(&file, &index);
}

#[test]
fn empty_archives_are_as_short_as_a_footer() {
    for version in [1, 2, 3] {
        let mut archive = Archive::new(version);
        archive.metadata.clear();
        let file = archive.file();
        assert_eq!(file.len(), if version == 3 { 220 } else { 216 });
        let index = open_archive(&file).unwrap();
        assert_eq!((index.chunk_count(), index.find(&ChunkAddress::ZERO)), (0, None));
    }
}

#[test]
fn version_1_has_zstd_chunks_only_and_later_ones_both() {
    let mut archive = Archive::new(1);
    let dictionary = archive.dictionary(b"a dictionary of plain bytes");
    archive.zstd(b"a chunk", (dictionary, b"a dictionary of plain bytes"));
    check_all(&archive.file(), &open_archive(&archive.file()).unwrap());
    archive.record(b"a record");
    assert_eq!(
        malformed(&archive),
        "chunk 1 has no dictionary; in an archive of version 1 all have"
    );
    archive.version = 2;
    check_all(&archive.file(), &open_archive(&archive.file()).unwrap());
}

#[test]
fn other_versions_are_refused() {
    for version in (0..=u8::MAX).filter(|version| !(1..=3).contains(version)) {
        let mut archive = Archive::new(3);
        archive.version = version;
        let Err(FormatError::Refused(text)) = open_archive(&archive.file()) else {
            panic!("version {version}")
        };
        assert_eq!(text, format!("an archive of version {version}; versions 1, 2 and 3 are known"));
    }
}

/// Offsets of an archive beyond 4 GiB, without the bytes.
#[test]
fn spans_beyond_four_gigabytes_are_where_they_are() {
    const GIB: u64 = 1 << 30;
    let ends = [
        GIB,
        4 * GIB - 1,
        4 * GIB,
        4 * GIB + 10,
        7 * GIB,
        7 * GIB,
        9 * GIB,
        12 * GIB,
        12 * GIB + 5,
    ];
    let mut archive = Archive { ends: ends.to_vec(), ..Archive::new(3) };
    for number in 0..9u8 {
        archive.chunk(ChunkAddress([number; 20]), 0, u32::from(number) + 1);
    }
    let tail = Bytes::from(archive.tail());
    let file_bytes = ends[8] + tail.len() as u64;
    let index = TableIndex::parse_archive(tail, file_bytes).unwrap();
    let mut start = 0;
    for (position, end) in (0..).zip(ends) {
        let span = index.location(position).span;
        assert_eq!((span.offset, u64::from(span.length)), (start, end - start), "{position}");
        start = end;
    }
}

#[test]
fn spans_of_four_gigabytes_are_no_chunks_but_may_lie_about() {
    let mut archive = Archive { ends: vec![10, 10 + (1 << 32), 30 + (1 << 32)], ..Archive::new(3) };
    archive.chunk(ChunkAddress([1; 20]), 0, 3);
    let parse = |archive: &Archive| {
        let tail = Bytes::from(archive.tail());
        let file_bytes = archive.ends[2] + tail.len() as u64;
        TableIndex::parse_archive(tail, file_bytes)
    };
    assert_eq!(parse(&archive).unwrap().location(0).span.offset, 10 + (1 << 32));
    archive.chunk(ChunkAddress([2; 20]), 0, 2);
    let Err(FormatError::Malformed(text)) = parse(&archive) else { panic!("a chunk of 4 GiB") };
    assert_eq!(text, "chunk 1 is in span 2, expected one of 1 to 3 of less than 4 GiB");
}

#[test]
fn references_to_no_span_are_errors() {
    let with = |dictionary, span| {
        let mut archive = Archive::new(3);
        archive.span(b"12345678");
        archive.chunk(ChunkAddress::ZERO, dictionary, span);
        malformed(&archive)
    };
    assert_eq!(with(0, 0), "chunk 0 is in span 0, expected one of 1 to 1 of less than 4 GiB");
    assert_eq!(with(0, 2), "chunk 0 is in span 2, expected one of 1 to 1 of less than 4 GiB");
    assert_eq!(
        with(0, u32::MAX),
        "chunk 0 is in span 4294967295, expected one of 1 to 1 of less than 4 GiB"
    );
    assert_eq!(
        with(2, 1),
        "the dictionary of chunk 0 is span 2, expected one of 1 to 1 of less than 4 GiB"
    );
}

#[test]
fn spans_out_of_order_or_beside_the_data_are_errors() {
    let mut archive = Archive { data: vec![0; 20], ..Archive::new(3) };
    archive.ends = vec![10, 9, 20];
    assert_eq!(malformed(&archive), "span 2 ends before the one before it");
    for end in [19, 21, u64::MAX] {
        archive.ends = vec![10, end];
        assert_eq!(
            malformed(&archive),
            format!("spans end at {end}, expected 20, where the index begins")
        );
    }
    archive.ends.clear();
    assert_eq!(malformed(&archive), "spans end at 0, expected 20, where the index begins");
}

#[test]
fn more_equal_prefixes_than_a_search_goes_through_are_an_error() {
    let with = |count: usize| {
        let mut archive = Archive::new(3);
        let span = archive.span(b"12345678");
        for number in 0..u32::try_from(count).unwrap() {
            let mut address = ChunkAddress([7; 20]);
            address.0[16..].copy_from_slice(&number.to_be_bytes());
            archive.chunk(address, 0, span);
        }
        archive
    };
    let index = open_archive(&with(EQUAL_PREFIXES_MAX).file()).unwrap();
    assert!(
        (0..index.chunk_count())
            .all(|position| index.find(&index.address(position)) == Some(position))
    );
    let text = malformed(&with(EQUAL_PREFIXES_MAX + 1));
    assert!(
        text.starts_with("more than 4096 addresses of the index begin with 0707070707070707"),
        "{text}"
    );
}

#[test]
fn index_takes_at_most_thirty_bytes_per_chunk() {
    for dictionary_count in [0, 1, 2, 500] {
        let mut archive = Archive::new(3);
        let dictionaries: Vec<u32> = (0..dictionary_count).map(|_| archive.span(b"")).collect();
        for number in 0..20_000usize {
            let span = archive.span(b"");
            let dictionary =
                dictionaries.get(number % dictionaries.len().max(1)).copied().unwrap_or(0);
            archive.chunk(ChunkAddress::of(&number.to_be_bytes()), dictionary, span);
        }
        let bytes = open_archive(&archive.file()).unwrap().memory_bytes();
        let own = 4 * 2 * dictionary_count + 1_000;
        assert!(bytes <= 30 * 20_000 + own, "{bytes} bytes with {dictionary_count} dictionaries");
    }
}

#[test]
fn dictionaries_that_are_none_are_corrupt() {
    let corrupt = |span: &[u8]| match Dictionary::decode(span) {
        Err(FormatError::Corrupt(text)) => text,
        other => panic!("expected corruption, got {other:?}"),
    };
    assert_eq!(corrupt(b""), "a zstd frame ends too early");
    assert_eq!(corrupt(b"something else"), "expected a zstd frame, found other bytes");
    // Begins like a trained dictionary but does not continue as one.
    let trained = [&[0x37, 0xa4, 0x30, 0xec][..], &[0xff; 200]].concat();
    let frame = zstd::bulk::compress(&trained, 3).unwrap();
    assert_eq!(corrupt(&frame), "expected a zstd dictionary, found 204 bytes that are none");
    let large = zstd::bulk::compress(&vec![0; (16 << 20) + 1], 3).unwrap();
    assert_eq!(corrupt(&large), "a zstd frame announces 16777217 bytes, expected at most 16777216");
}

#[test]
fn zstd_chunks_need_their_own_dictionary() {
    let file = crate::support::Fixture::open("synth-many-archive").files().remove(0);
    let location = file.index.location(0);
    let chunk = file.stored(&location).unwrap();
    assert!(matches!(chunk.decode(None), Err(FormatError::Malformed(_))));
    let other = zstd::bulk::compress(b"other bytes that could be a dictionary", 3).unwrap();
    let other = Dictionary::decode(&other).unwrap();
    assert!(matches!(chunk.decode(Some(&other)), Err(FormatError::Corrupt(_))));
    let own = file.dictionary(&location).unwrap();
    assert_eq!((own.bytes().len(), &own.bytes()[..4]), (4096, &[0x37, 0xa4, 0x30, 0xec][..]));
    check(&file.index.address(0), &chunk.decode(Some(&own)).unwrap()).unwrap();
}

#[test]
fn frames_that_do_not_announce_their_length_are_decoded() {
    let dictionary =
        Dictionary::decode(&zstd::bulk::compress(b"a dictionary", 3).unwrap()).unwrap();
    let contents = contents(80);
    // The streaming encoder does not know the length when it writes the header.
    let frame = zstd::stream::encode_all(&*contents, 3).unwrap();
    let chunk = stored(&frame, true).unwrap();
    assert_eq!(chunk.decode(Some(&dictionary)).unwrap(), contents);
    assert!(matches!(chunk.contents_bytes(), Err(FormatError::Corrupt(_))));
}
