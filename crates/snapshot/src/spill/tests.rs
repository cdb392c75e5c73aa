//! The sorted log gives each partition exactly its effects, in their order, or says that it does
//! not verify.

use busload_io::{
    Disk, DiskErrorKind, Rng,
    sim::{SimDisk, SimRng},
};
use busload_tables::{
    HashPrefix, TableId, Tables,
    effect::{self, PartPosition},
};

use super::Spill;
use crate::{MakeError, format::SPILL_NAME};

const BITS: u32 = 2;

fn spill(disk: &SimDisk) -> Spill<'_, SimDisk> {
    let mut spill = Spill::begin(disk, BITS, 7).expect("nothing fails here");
    // Many chunks of a few effects.
    spill.chunk_bytes = 100;
    spill
}

fn put(key: &str, value: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    effect::put(&mut record, TableId(0), key.as_bytes(), value, None);
    record
}

fn part(position: PartPosition, bytes: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    effect::part_header(&mut record, position);
    record.extend_from_slice(bytes);
    record
}

fn partition_of(tables: &Tables, key: &str) -> usize {
    HashPrefix::of(tables.hash(key.as_bytes()), BITS).value as usize
}

fn contents(spill: &Spill<'_, SimDisk>, partition: usize) -> Result<Vec<u8>, MakeError> {
    let chunks: Result<Vec<_>, _> = spill.chunks(partition).collect();
    Ok(chunks?.concat())
}

#[test]
fn each_partition_gets_its_effects_in_the_order_of_the_log() {
    let (disk, tables) = (SimDisk::new(), Tables::new(1));
    let mut rng = SimRng::new(3);
    let mut spill = spill(&disk);
    let mut expected = vec![Vec::new(); 1 << BITS];
    let mut flush = Vec::new();
    effect::flush(&mut flush, TableId(0));
    for round in 0..400 {
        if round % 50 == 49 {
            spill.push(&flush, &tables).unwrap();
            expected.iter_mut().for_each(|partition| partition.extend_from_slice(&flush));
            continue;
        }
        // Records of several effects are taken apart; some effects are longer than a chunk.
        let mut record = Vec::new();
        for _ in 0..1 + rng.next_u64() % 3 {
            let key = format!("key:{}", rng.next_u64() % 50);
            let one = put(&key, &vec![b'v'; (rng.next_u64() % 150) as usize]);
            expected[partition_of(&tables, &key)].extend_from_slice(&one);
            record.extend_from_slice(&one);
        }
        spill.push(&record, &tables).unwrap();
    }
    spill.end().unwrap();
    for (partition, expected) in expected.iter().enumerate() {
        assert!(10 < spill.chunks(partition).count());
        assert_eq!(contents(&spill, partition).unwrap(), *expected, "partition {partition}");
    }
}

#[test]
fn a_transaction_in_parts_takes_effect_where_its_last_part_is() {
    let (disk, tables) = (SimDisk::new(), Tables::new(1));
    let mut spill = spill(&disk);
    let (whole, between) = (put("key", b"in parts"), put("key", b"between"));
    spill.push(&part(PartPosition::First, b"abandoned"), &tables).unwrap();
    spill.push(&part(PartPosition::First, &whole[..4]), &tables).unwrap();
    spill.push(&between, &tables).unwrap();
    spill.push(&part(PartPosition::Next, &whole[4..6]), &tables).unwrap();
    spill.push(&part(PartPosition::Last, &whole[6..]), &tables).unwrap();
    spill.end().unwrap();
    let partition = partition_of(&tables, "key");
    assert_eq!(contents(&spill, partition).unwrap(), [between, whole].concat());
}

#[test]
fn everything_from_the_first_part_of_an_open_transaction_on_is_left_out() {
    for kept in [0, 1, 2, 3, 10] {
        let (disk, tables) = (SimDisk::new(), Tables::new(1));
        let mut spill = spill(&disk);
        let mut created = Vec::new();
        effect::catalogue_created(&mut created, TableId(20), b"kept", b"");
        spill.push(&created, &tables).unwrap();
        let one = put("key", &[b'v'; 40]);
        (0..kept).for_each(|_| spill.push(&one, &tables).unwrap());
        spill.push(&part(PartPosition::First, &one[..5]), &tables).unwrap();
        (0..10).for_each(|_| spill.push(&one, &tables).unwrap());
        let mut later = Vec::new();
        effect::catalogue_created(&mut later, TableId(21), b"left out", b"");
        spill.push(&later, &tables).unwrap();
        spill.end().unwrap();
        assert_eq!(spill.catalogue(), created);
        let partition = partition_of(&tables, "key");
        let expected = [created, one.repeat(kept)].concat();
        assert_eq!(contents(&spill, partition).unwrap(), expected, "{kept} kept");
    }
}

#[test]
fn every_flipped_bit_is_seen() {
    let (disk, tables) = (SimDisk::new(), Tables::new(1));
    let mut spill = spill(&disk);
    for number in 0..40 {
        spill.push(&put(&format!("key:{number}"), b"value"), &tables).unwrap();
    }
    spill.end().unwrap();
    let all = |spill: &Spill<'_, SimDisk>| {
        (0..1 << BITS).try_for_each(|partition| contents(spill, partition).map(drop))
    };
    all(&spill).unwrap();
    for offset in 0..disk.contents(SPILL_NAME).unwrap().len() as u64 {
        for bit in 0..8 {
            disk.flip_bit(SPILL_NAME, offset, bit);
            let error = all(&spill).unwrap_err();
            assert!(matches!(error, MakeError::Spill(_)), "byte {offset} bit {bit}: {error}");
            disk.flip_bit(SPILL_NAME, offset, bit);
        }
    }
    let file = disk.open(SPILL_NAME).unwrap();
    let length = disk.length(&file).unwrap();
    disk.truncate(&file, length - 1).unwrap();
    assert!(matches!(all(&spill), Err(MakeError::Spill(_))), "a file that is cut short");
}

#[test]
fn the_last_of_the_disk_is_left_to_the_log() {
    let (disk, tables) = (SimDisk::new(), Tables::new(1));
    disk.set_space(Some(20 << 20));
    let mut spill = Spill::begin(&disk, BITS, 7).unwrap();
    let record = put("key", &vec![b'v'; 300 << 10]);
    let full = (0..100).find_map(|_| spill.push(&record, &tables).err()).unwrap();
    let MakeError::Disk(error) = MakeError::from(busload_log::OpenError::Replay {
        path: disk.path(SPILL_NAME),
        offset: 0,
        lsn: busload_log::Lsn(1),
        source: full,
    }) else {
        panic!("another error");
    };
    assert_eq!(error.kind, DiskErrorKind::NoSpace);
    assert!(error.to_string().contains(SPILL_NAME), "{error}");
    assert!((11 << 20) < disk.available_bytes() && disk.available_bytes() < 16 << 20);
}
