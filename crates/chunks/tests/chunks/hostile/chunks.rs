//! Hostile records, frames and dictionaries.

use busload_chunks::{ChunkAddress, Dictionary, FormatError, check};
use busload_hostile::{Random, mutate, within};

use crate::support::{self, File, archive::stored};

/// Number of changes per chunk.
const MUTATIONS: u64 = 40;

/// Number of chunks tested per file.
const CHUNKS: u32 = 30;

/// Returns the most memory that decoding these bytes may take: a snappy copy turns 3 bytes into 64,
/// a zstd block 4 bytes into 128 KiB; and the stored bytes once more.
fn memory_for(stored: &[u8], is_zstd: bool) -> usize {
    let contents = if is_zstd { (stored.len() / 4 + 1) << 17 } else { stored.len() * 64 / 3 };
    contents + stored.len() + 40_000
}

struct Chunk {
    name: String,
    address: ChunkAddress,
    /// True if the address is the hash of the fixture's contents.
    is_hash: bool,
    span: Vec<u8>,
}

fn chunks_of(file: &File) -> impl Iterator<Item = (Chunk, Option<Dictionary>)> {
    let step = (file.index.chunk_count() / CHUNKS).max(1);
    (0..file.index.chunk_count()).step_by(step as usize).map(move |position| {
        let location = file.index.location(position);
        let address = file.index.address(position);
        let span = file.span(location.span).to_vec();
        let dictionary = file.dictionary(&location);
        let contents = file.stored(&location).unwrap().decode(dictionary.as_ref()).unwrap();
        let is_hash = check(&address, &contents).is_ok();
        (Chunk { name: format!("{} {address}", file.name), address, is_hash, span }, dictionary)
    })
}

/// Decodes the bytes and checks that the result is right or an error.
fn exercise(what: &str, chunk: &Chunk, bytes: &[u8], dictionary: Option<&Dictionary>) {
    let limit = memory_for(bytes, dictionary.is_some());
    let contents = within(limit, what, || {
        let stored = stored(bytes, dictionary.is_some())?;
        let announced = stored.contents_bytes();
        let contents = stored.decode(dictionary)?;
        if let Ok(announced) = announced {
            assert_eq!(announced, contents.len() as u64, "{what}");
        }
        Ok::<_, FormatError>(contents)
    });
    match contents {
        Ok(contents) => assert!(
            bytes == chunk.span
                || !chunk.is_hash
                || check(&chunk.address, &contents).is_err()
                || is_same(chunk, &contents, dictionary),
            "{what}: wrong contents pass"
        ),
        Err(FormatError::Corrupt(text)) => assert!(!text.is_empty()),
        Err(other) => panic!("{what}: expected corruption, got {other:?}"),
    }
}

/// Returns whether a change left the contents the same, for example that of a bit without a
/// meaning.
fn is_same(chunk: &Chunk, contents: &[u8], dictionary: Option<&Dictionary>) -> bool {
    stored(&chunk.span, dictionary.is_some()).unwrap().decode(dictionary).unwrap() == contents
}

/// Corrects the CRC of a record, so that the code after the check is reached.
fn with_crc(mut record: Vec<u8>) -> Vec<u8> {
    let Some(block) = record.len().checked_sub(4) else { return record };
    let crc = crc32c::crc32c(&record[..block]);
    record[block..].copy_from_slice(&crc.to_be_bytes());
    record
}

#[test]
fn changed_chunks_are_errors_or_have_the_same_contents() {
    for file in support::all().iter().flat_map(support::Fixture::files) {
        for (chunk, dictionary) in chunks_of(&file) {
            // A large chunk takes long and shows nothing new.
            let mutations = if chunk.span.len() < 20_000 { MUTATIONS } else { 2 };
            for seed in 0..mutations {
                let mut bytes = chunk.span.clone();
                mutate(&mut bytes, &mut Random(chunk.address.prefix() ^ seed));
                let what = format!("{} seed {seed}", chunk.name);
                exercise(&what, &chunk, &bytes, dictionary.as_ref());
                if dictionary.is_none() {
                    exercise(&what, &chunk, &with_crc(bytes), None);
                }
            }
        }
    }
}

#[test]
fn chunks_cut_off_anywhere_are_errors() {
    for file in support::all().iter().flat_map(support::Fixture::files) {
        for (chunk, dictionary) in
            chunks_of(&file).filter(|(chunk, _)| chunk.span.len() < 2_000).take(5)
        {
            for length in 0..chunk.span.len() {
                for bytes in
                    [chunk.span[..length].to_vec(), with_crc(chunk.span[..length].to_vec())]
                {
                    exercise(
                        &format!("{} at {length}", chunk.name),
                        &chunk,
                        &bytes,
                        dictionary.as_ref(),
                    );
                }
            }
        }
    }
}

#[test]
fn changed_dictionaries_are_errors_or_decode_nothing_wrong() {
    for name in [
        "real-archive-v3",
        "rewritten-archive-v1",
        "synth-many-archive",
        "synth-sizes-archive-zstd",
    ] {
        let fixture = support::Fixture::open(name);
        let files = fixture.files();
        let (file, location) = files
            .iter()
            .find_map(|file| {
                Some((file, file.index.location(0))).filter(|(_, at)| at.dictionary.is_some())
            })
            .unwrap();
        let span = file.span(location.dictionary.unwrap());
        let address = file.index.address(0);
        let right =
            file.stored(&location).unwrap().decode(file.dictionary(&location).as_ref()).unwrap();
        for seed in 0..500 {
            let mut bytes = span.to_vec();
            mutate(&mut bytes, &mut Random(seed));
            let what = format!("{name} seed {seed}");
            let dictionary = within(memory_for(&bytes, true), &what, || Dictionary::decode(&bytes));
            let Ok(dictionary) = dictionary else { continue };
            assert!(dictionary.bytes().len() <= 16 << 20 && dictionary.memory_bytes() < 33 << 20);
            if let Ok(contents) = file.stored(&location).unwrap().decode(Some(&dictionary)) {
                assert!(check(&address, &contents).is_err() || contents == right, "{what}");
            }
        }
    }
}

#[test]
fn spans_of_another_length_are_errors() {
    let fixture = support::Fixture::open("real-archive-v3");
    for file in fixture.files() {
        let location = file.index.location(0);
        let span = file.span(location.span);
        for length in [0, 1, 4, span.len() - 1] {
            let result = busload_chunks::Stored::parse(span.slice(..length), &location);
            let text = format!("expected {} bytes of a chunk, got {length}", span.len());
            assert_eq!(result.map(drop), Err(FormatError::Corrupt(text)));
        }
    }
}

#[test]
fn records_too_short_for_their_crc_are_errors() {
    for length in 0..=4 {
        let text = format!("expected a snappy block and its CRC, got {length} bytes");
        assert_eq!(stored(&vec![0; length], false).map(drop), Err(FormatError::Corrupt(text)));
    }
    assert_eq!(stored(&[0; 4], true).unwrap().bytes.len(), 4);
}

#[test]
fn wrong_crc_is_said() {
    let mut record = support::archive::record(b"contents");
    *record.last_mut().unwrap() ^= 1;
    let Err(FormatError::Corrupt(text)) = stored(&record, false) else { panic!("parsed") };
    assert!(
        text.starts_with("a record says its CRC-32C is ") && text.contains(", it is "),
        "{text}"
    );
}
