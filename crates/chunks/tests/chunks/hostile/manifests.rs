//! Hostile manifests, as text and as DynamoDB items.

use std::fs;

use busload_chunks::{ChunkAddress, DynamoItem, FileId, Manifest};
use busload_hostile::{Random, mutate, within};

use crate::support;

fn texts() -> Vec<Vec<u8>> {
    let mut texts = vec![fs::read(support::root().join("manifest-v4.txt")).unwrap()];
    for fixture in support::all().iter().filter(|fixture| fixture.name != "aws-appendix") {
        let name = if fixture.name == "real-localbs" { "manifest.bs" } else { "manifest" };
        texts.push(fs::read(fixture.store.join(name)).unwrap());
    }
    texts
}

/// Parses a text and checks that a parsed manifest is usable.
fn exercise(text: &[u8]) -> bool {
    let parsed = within(20 * text.len() + 10_000, "a manifest", || Manifest::parse(text));
    let Ok(manifest) = parsed else { return false };
    assert!(manifest.files.len() <= text.len() / 33);
    assert!(manifest.lookup_order().all(|file| file.id != FileId::JOURNAL));
    true
}

#[test]
fn changed_manifests_are_errors_or_manifests() {
    let mut parsed = 0;
    for (number, text) in (0..).zip(texts()) {
        assert!(exercise(&text));
        for seed in 0..3_000u64 {
            let mut bytes = text.clone();
            mutate(&mut bytes, &mut Random(number << 32 | seed));
            parsed += u32::from(exercise(&bytes));
        }
    }
    assert!(parsed > 100, "{parsed}");
}

#[test]
fn manifests_cut_off_anywhere_are_errors_but_after_a_count() {
    for text in texts() {
        let is_after_count = |length: usize| {
            let fields: Vec<&[u8]> = text[..length].split(|&byte| byte == b':').collect();
            let header = if text[0] == b'4' { 4 } else { 5 };
            let is_whole =
                fields.len() >= header && fields[2..header].iter().all(|field| field.len() == 32);
            is_whole
                && (fields.len() - header).is_multiple_of(2)
                && !fields[fields.len() - 1].is_empty()
        };
        for length in 0..text.len() {
            assert_eq!(exercise(&text[..length]), is_after_count(length), "{length} of {text:?}");
        }
    }
}

#[test]
fn changed_items_are_errors_or_manifests() {
    let item = support::dynamo_item();
    let mut parsed = 0;
    for seed in 0..5_000 {
        let mut random = Random(seed);
        let mut changed = |text: &Option<String>| {
            let mut bytes = text.clone().unwrap().into_bytes();
            if random.below(2) == 0 {
                mutate(&mut bytes, &mut random);
            }
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let item = DynamoItem {
            specs: changed(&item.specs),
            appendix: changed(&item.appendix),
            ..item.clone()
        };
        let Ok(manifest) = within(40_000, "an item", || Manifest::from_dynamo(&item)) else {
            continue;
        };
        parsed += 1;
        let mut ids: Vec<FileId> = manifest.lookup_order().map(|file| file.id).collect();
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count, "a file is named twice, seed {seed}");
    }
    assert!(parsed > 100, "{parsed}");
}

#[test]
fn keys_of_any_bytes_are_addresses_or_errors() {
    let mut random = Random(1);
    for _ in 0..20_000 {
        let mut key = vec![0; random.below(40)];
        key.iter_mut().for_each(|byte| *byte = u8::try_from(random.below(256)).unwrap());
        let is_text =
            key.len() == 32 && key.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'v'));
        assert_eq!(ChunkAddress::from_key(&key).is_ok(), key.len() == 20 || is_text, "{key:?}");
    }
}
