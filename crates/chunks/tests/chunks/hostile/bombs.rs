//! Few bytes that announce many, or decode to many.

use busload_chunks::{CHUNK_BYTES_MAX, Dictionary, FormatError, Stored};
use busload_hostile::within;

use crate::support::archive::{record, stored};

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Most contents of a block.
const BLOCK_BYTES: usize = 128 << 10;

fn dictionary() -> Dictionary {
    Dictionary::decode(&zstd::bulk::compress(b"a dictionary", 3).unwrap()).unwrap()
}

/// Returns a frame of blocks that each repeat one byte, with a header that announces this length.
fn frame(announced: Option<u64>, blocks: usize) -> Vec<u8> {
    let mut frame = MAGIC.to_vec();
    match announced {
        // A field of 8 bytes, a window of 128 KiB.
        Some(announced) => {
            frame.extend([0b1100_0000, 0b0011_1000]);
            frame.extend(announced.to_le_bytes());
        }
        None => frame.extend([0, 0b0011_1000]),
    }
    for block in 1..=blocks {
        let header = u32::try_from(BLOCK_BYTES).unwrap() << 3 | 1 << 1 | u32::from(block == blocks);
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(b'x');
    }
    frame
}

/// Decodes within this much memory.
fn decode(bytes: &[u8], bytes_max: usize) -> Result<usize, FormatError> {
    let dictionary = dictionary();
    let chunk = stored(bytes, true)?;
    within(bytes_max, "a bomb", || chunk.decode(Some(&dictionary)).map(|contents| contents.len()))
}

fn corruption(bytes: &[u8]) -> String {
    match decode(bytes, 10_000) {
        Err(FormatError::Corrupt(text)) => text,
        other => panic!("expected corruption, got {other:?}"),
    }
}

#[test]
fn frames_that_announce_more_than_their_blocks_hold_are_errors() {
    for announced in [BLOCK_BYTES as u64 + 1, 1 << 30, u64::MAX / 2, u64::MAX] {
        assert!(
            corruption(&frame(Some(announced), 1))
                .ends_with("announces contents longer than it can hold")
        );
    }
    assert_eq!(decode(&frame(Some(BLOCK_BYTES as u64), 1), 2 * BLOCK_BYTES), Ok(BLOCK_BYTES));
}

#[test]
fn frames_that_become_too_much_are_errors_before_they_do() {
    let blocks = CHUNK_BYTES_MAX / BLOCK_BYTES;
    let bomb = frame(Some((blocks + 1) as u64 * BLOCK_BYTES as u64), blocks + 1);
    assert!(bomb.len() < 10_000);
    assert_eq!(
        corruption(&bomb),
        "a zstd frame announces 268566528 bytes, expected at most 268435456"
    );
}

#[test]
fn frames_that_announce_nothing_get_no_more_than_the_limit() {
    let blocks = CHUNK_BYTES_MAX / BLOCK_BYTES;
    let result = decode(&frame(None, blocks * 3), CHUNK_BYTES_MAX + 10_000);
    assert!(matches!(result, Err(FormatError::Corrupt(_))), "{result:?}");
    assert_eq!(decode(&frame(None, 3), 7 * BLOCK_BYTES), Ok(3 * BLOCK_BYTES));
}

#[test]
fn frames_that_announce_less_than_they_hold_are_errors() {
    for announced in [0, 1, BLOCK_BYTES as u64] {
        assert!(matches!(
            decode(&frame(Some(announced), 2), 3 * BLOCK_BYTES),
            Err(FormatError::Corrupt(_))
        ));
    }
}

#[test]
fn dictionaries_that_become_too_much_are_errors_before_they_do() {
    let bomb = frame(Some(200 * BLOCK_BYTES as u64), 200);
    let result = within(10_000, "a dictionary", || Dictionary::decode(&bomb));
    assert!(matches!(result, Err(FormatError::Corrupt(_))));
}

#[test]
fn what_is_no_single_frame_is_an_error() {
    let one = frame(Some(BLOCK_BYTES as u64), 1);
    assert_eq!(corruption(&[&*one, &one].concat()), "18 bytes follow a zstd frame, expected none");
    assert_eq!(corruption(&[&*one, b"x"].concat()), "1 bytes follow a zstd frame, expected none");
    // A skippable frame.
    assert_eq!(
        corruption(&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4]),
        "expected a zstd frame, found other bytes"
    );
    for length in 1..one.len() {
        assert!(matches!(decode(&one[..length], 10_000), Err(FormatError::Corrupt(_))), "{length}");
    }
}

#[test]
fn blocks_of_impossible_kinds_and_sizes_are_errors() {
    let with_header =
        |header: u32| [&MAGIC[..], &[0, 0b0011_1000], &header.to_le_bytes()[..3], b"x"].concat();
    assert_eq!(corruption(&with_header(1 << 3 | 3 << 1 | 1)), "a zstd block of a reserved kind");
    assert_eq!(
        corruption(&with_header(131_073 << 3 | 1 << 1 | 1)),
        "a zstd block of 131073 bytes, expected at most 131072"
    );
    assert_eq!(
        corruption(&with_header(131_073 << 3 | 1)),
        "a zstd block of 131073 bytes, expected at most 131072"
    );
    assert_eq!(corruption(&with_header(2 << 3 | 2 << 1 | 1)), "a zstd frame ends too early");
}

/// Returns a snappy block with a correct CRC that announces this length.
fn snappy(announced: u64, elements: &[u8]) -> Result<Stored, FormatError> {
    let mut block = Vec::new();
    let mut rest = announced;
    while rest >= 0x80 {
        block.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    block.push(u8::try_from(rest).unwrap());
    block.extend(elements);
    block.extend(crc32c::crc32c(&block).to_be_bytes());
    stored(&block, false)
}

#[test]
fn snappy_blocks_that_announce_more_than_they_hold_are_errors() {
    for announced in [100, 1 << 20, u64::from(u32::MAX), 1 << 40] {
        let chunk = snappy(announced, b"\x00x").unwrap();
        let results = within(10_000, "a block", || {
            [chunk.decode(None).map(drop), chunk.contents_bytes().map(drop)]
        });
        assert!(
            results.iter().all(|result| matches!(result, Err(FormatError::Corrupt(_)))),
            "{results:?}"
        );
    }
}

#[test]
fn densest_snappy_block_is_no_error() {
    // One literal, then copies of 64 bytes from one byte back, 3 bytes each.
    let copies = 10_000;
    let elements: Vec<u8> = [0x00, b'x'].into_iter().chain([0xfe, 1, 0].repeat(copies)).collect();
    let contents = snappy(64 * copies as u64 + 1, &elements).unwrap().decode(None).unwrap();
    assert!(contents.len() == 64 * copies + 1 && contents.iter().all(|&byte| byte == b'x'));
}

#[test]
fn snappy_blocks_beyond_the_limit_are_errors() {
    let chunk = stored(&record(&vec![0; CHUNK_BYTES_MAX + 1]), false).unwrap();
    let result = within(10_000, "a block", || chunk.decode(None));
    assert_eq!(
        result,
        Err(FormatError::Corrupt("a chunk of 268435457 bytes, expected at most 268435456".into()))
    );
    assert_eq!(chunk.contents_bytes(), Ok(CHUNK_BYTES_MAX as u64 + 1));
}

#[test]
fn decoding_allocates_the_contents_and_little_else() {
    let contents: Vec<u8> =
        (0..4096u32).map(|number| u8::try_from(number % 251 / 3).unwrap()).collect();
    let dictionary = dictionary();
    let plain = stored(&record(&contents), false).unwrap();
    let frame = zstd::bulk::compress(&contents, 3).unwrap();
    let zstd = stored(&frame, true).unwrap();
    for (what, chunk) in [("snappy", plain), ("zstd", zstd)] {
        // The first decoding creates the thread's context.
        chunk.decode(Some(&dictionary)).unwrap();
        let decoded = within(4096 + 64, what, || chunk.decode(Some(&dictionary)).unwrap());
        assert_eq!(decoded, contents);
    }
}
