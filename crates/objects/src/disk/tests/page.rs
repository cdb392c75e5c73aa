//! Checks `docs/cache-format.md` against the code.

use super::*;
use crate::disk::{
    BLOCK_BYTES, BLOCK_DATA_BYTES, EXTENT_BLOCKS,
    block::Seal,
    cache_file::DATA_SUFFIX,
    journal::{self, FileRecord},
    journal_file::{JOURNAL_NAME, NEW_JOURNAL_NAME},
    load::LOCK_NAME,
    sidecar::{self, NEW_SIDECAR_SUFFIX, SIDECAR_SUFFIX},
};

const PAGE: &str = include_str!("../../../../../docs/cache-format.md");

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_page_says_what_the_constants_say() {
    for text in [
        format!("`{LOCK_NAME}`"),
        format!("`{JOURNAL_NAME}`"),
        format!("`{NEW_JOURNAL_NAME}`"),
        format!("`xxxxxxxx{DATA_SUFFIX}`"),
        format!("`KEY-NAME{SIDECAR_SUFFIX}`"),
        format!("`KEY-NAME{NEW_SIDECAR_SUFFIX}`"),
        format!("`n * {BLOCK_BYTES}` and holds bytes `n * {BLOCK_DATA_BYTES}`"),
        format!("| 0 | {BLOCK_DATA_BYTES} |"),
        format!("| {BLOCK_DATA_BYTES} | 4 | CRC"),
        format!("{EXTENT_BLOCKS} blocks are an extent"),
        format!("marker `{}`", hexadecimal(&journal::MARKER)),
        format!("| {} | file |", journal::FILE),
        format!("| {} | present |", journal::PRESENT),
        format!("| {} | absent |", journal::ABSENT),
        format!("| {} | gone |", journal::GONE),
        format!("marker `{}`", hexadecimal(&sidecar::MARKER)),
    ] {
        assert!(PAGE.contains(&text), "the page lacks {text}");
    }
}

/// A block as the page describes it: data, then the CRC of generation, number and data.
#[test]
fn a_block_is_as_the_page_says() {
    let mut block = Vec::new();
    Seal::new(7).close(5, b"object", &mut block);
    let (data, stored) = block.split_at(BLOCK_DATA_BYTES);
    let described = [&7_u64.to_le_bytes()[..], &5_u64.to_le_bytes(), data].concat();
    assert_eq!(stored, crc32c::crc32c(&described).max(1).to_le_bytes());
}

/// A record as the page describes it: marker, kind, length, body, CRC from the kind on.
#[test]
fn a_record_of_the_journal_is_as_the_page_says() {
    let file = FileRecord { id: 1, generation: 2, size: 3, store: "s", name: "nn", etag: "e" };
    let mut record = Vec::new();
    journal::write_file(&mut record, &file);
    let mut body = Vec::new();
    body.extend_from_slice(&1_u32.to_le_bytes());
    body.extend_from_slice(&2_u64.to_le_bytes());
    body.extend_from_slice(&3_u64.to_le_bytes());
    for text in ["s", "nn", "e"] {
        body.extend_from_slice(&u16::try_from(text.len()).unwrap().to_le_bytes());
        body.extend_from_slice(text.as_bytes());
    }
    let mut checked = vec![1];
    checked.extend_from_slice(&u16::try_from(body.len()).unwrap().to_le_bytes());
    checked.extend_from_slice(&body);
    let checksum = crc32c::crc32c(&checked).to_le_bytes();
    assert_eq!(record, [&[0xff, 0xfe, 0x4a, 0x01][..], &checked, &checksum].concat());
}

/// A sidecar as the page describes it: marker, both lengths, URL, content, CRC.
#[test]
fn a_sidecar_is_as_the_page_says() {
    let scene = Scene::new(16);
    let disk = scene.open();
    disk.write_sidecar("s3://b/p", "files", b"content");
    let path = scene
        .options
        .directory
        .join(format!("{}{SIDECAR_SUFFIX}", StoreKey::of("s3://b/p").file_name("files")));
    let mut described = sidecar::MARKER.to_vec();
    described.extend_from_slice(&7_u64.to_le_bytes());
    described.extend_from_slice(&8_u16.to_le_bytes());
    described.extend_from_slice(b"s3://b/pcontent");
    let checked = b"s3://b/p\0files\0content";
    described.extend_from_slice(&crc32c::crc32c(checked).to_le_bytes());
    assert_eq!(std::fs::read(path).unwrap(), described);
}
