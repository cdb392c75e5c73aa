//! Effects: their bytes, hostile input, and replay.

use crate::effect::{
    self, ApplyError, Catalogue, Effect, EffectError, OVERHEAD_BYTES_MAX, PartPosition, Replayer,
    decode,
};
use crate::{StringValue, TableId, Tables};
use busload_hostile::{Random, mutate};

fn samples() -> Vec<u8> {
    let mut out = Vec::new();
    let table = TableId(300);
    effect::catalogue_created(&mut out, table, b"sessions", b"sync=os");
    effect::put(&mut out, table, b"key", b"value", None);
    effect::put(&mut out, TableId(0), b"", b"", Some(-2));
    effect::patch(&mut out, table, b"key", 1_000, b"patch");
    effect::delete(&mut out, table, b"key");
    effect::expire(&mut out, table, b"key", 1_700_000_000_000);
    effect::persist(&mut out, table, b"key");
    effect::hash_put_header(&mut out, table, b"hash", 2);
    effect::hash_put_pair(&mut out, b"f1", b"v1");
    effect::hash_put_pair(&mut out, b"", b"");
    effect::hash_delete_header(&mut out, table, b"hash", 1);
    effect::hash_delete_field(&mut out, b"f1");
    effect::flush(&mut out, table);
    effect::catalogue_settings(&mut out, table, b"sync=off");
    effect::catalogue_dropped(&mut out, table);
    out
}

#[test]
fn effects_have_these_bytes() {
    let hex: String = samples().iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = concat!(
        "10ac020873657373696f6e730773796e633d6f73",
        "01ac02036b65790576616c7565",
        "020000feffffffffffffff00",
        "03ac02036b6579e807057061746368",
        "04ac02036b6579",
        "05ac02036b65790068e5cf8b010000",
        "06ac02036b6579",
        "07ac02046861736802026631027631",
        "0000",
        "08ac020468617368010266",
        "31",
        "09ac02",
        "11ac020873796e633d6f6666",
        "12ac02",
    );
    assert_eq!(hex, golden);
}

#[test]
fn decoding_gives_what_was_encoded() {
    let bytes = samples();
    let effects: Vec<_> = decode(&bytes).collect::<Result<_, _>>().expect("our own bytes");
    let table = TableId(300);
    assert_eq!(effects.len(), 12);
    assert_eq!(
        effects[0],
        Effect::Catalogue(Catalogue::Created { table, name: b"sessions", settings: b"sync=os" })
    );
    assert_eq!(effects[1], Effect::Put { table, key: b"key", value: b"value", expiry: None });
    assert_eq!(
        effects[2],
        Effect::Put { table: TableId(0), key: b"", value: b"", expiry: Some(-2) }
    );
    assert_eq!(effects[3], Effect::Patch { table, key: b"key", offset: 1_000, bytes: b"patch" });
    assert_eq!(effects[4], Effect::Delete { table, key: b"key" });
    assert_eq!(effects[5], Effect::Expire { table, key: b"key", expiry: Some(1_700_000_000_000) });
    assert_eq!(effects[6], Effect::Expire { table, key: b"key", expiry: None });
    let Effect::HashPut { pairs, .. } = effects[7].clone() else { panic!() };
    assert_eq!(pairs.collect::<Vec<_>>(), [(&b"f1"[..], &b"v1"[..]), (b"", b"")]);
    let Effect::HashDelete { fields, .. } = effects[8].clone() else { panic!() };
    assert_eq!(fields.collect::<Vec<_>>(), [b"f1"]);
    assert_eq!(effects[9], Effect::Flush { table });
    assert_eq!(effects[11], Effect::Catalogue(Catalogue::Dropped { table }));
}

#[test]
fn overhead_stays_within_its_bound() {
    let mut out = Vec::new();
    effect::put_header(&mut out, TableId(u16::MAX), &[0; 300], Some(1), 512 * 1024 * 1024);
    assert!(out.len() - 300 <= OVERHEAD_BYTES_MAX);
    out.clear();
    effect::patch(&mut out, TableId(u16::MAX), &[0; 300], 512 * 1024 * 1024, &[0; 300]);
    assert!(out.len() - 600 <= OVERHEAD_BYTES_MAX);
}

#[test]
fn cut_records_are_errors() {
    let bytes = samples();
    let whole = decode(&bytes).count();
    for len in 0..bytes.len() {
        let mut effects = decode(&bytes[..len]);
        let decoded = effects.by_ref().take_while(Result::is_ok).count();
        assert!(decoded < whole);
        assert!(effects.next().is_none(), "an error ends the record");
    }
}

#[test]
fn hostile_bytes_are_errors_and_never_panic() {
    let bytes = samples();
    let mut random = Random(5);
    for _ in 0..20_000 {
        let mut mutated = bytes.clone();
        mutate(&mut mutated, &mut random);
        let mut tables = Tables::new(1);
        for effect in decode(&mutated).map_while(Result::ok) {
            let is_long = matches!(effect, Effect::Patch { offset, .. } if 1 << 20 < offset);
            if !is_long {
                _ = effect::apply(&mut tables, effect);
            }
        }
    }
}

#[test]
fn lengths_and_numbers_out_of_range_are_refused() {
    let out_of_range = Some(Err(EffectError::OutOfRange { offset: 0 }));
    // Table 65536; a key of 2^62 bytes; a patch that would end after 512 MiB; a hash put without
    // pairs.
    assert_eq!(decode(&[9, 0x80, 0x80, 4]).next(), out_of_range);
    assert_eq!(
        decode(&[4, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f]).next(),
        out_of_range
    );
    assert_eq!(decode(&[3, 0, 0, 0x80, 0x80, 0x80, 0x80, 2, 1, 7]).next(), out_of_range);
    assert_eq!(decode(&[7, 0, 0, 0]).next(), out_of_range);
    assert_eq!(decode(&[77]).next(), Some(Err(EffectError::UnknownCode { offset: 0, code: 77 })));
    // A count without the bytes for it.
    assert_eq!(
        decode(&[7, 0, 0, 0xff, 0xff, 3, 0, 0]).next(),
        Some(Err(EffectError::Truncated { offset: 0 }))
    );
}

#[test]
fn effects_on_unknown_tables_are_refused_one_by_one_and_in_groups() {
    let mut tables = Tables::new(1);
    let table = TableId(99);
    let unknown = Err(ApplyError::UnknownTable(table));
    assert_eq!(effect::apply(&mut tables, Effect::Delete { table, key: b"k" }), unknown);
    let mut record = Vec::new();
    effect::delete(&mut record, table, b"k");
    let mut replayer = Replayer::new(&mut tables);
    assert_eq!(replayer.push(&record), unknown);
}

#[test]
fn grouped_replay_keeps_the_order_of_effects() {
    let mut tables = Tables::new(1);
    let named = TableId(20);
    let mut replayer = Replayer::new(&mut tables);
    let mut record = Vec::new();
    effect::catalogue_created(&mut record, named, b"t", b"");
    for number in 0..1_000_u32 {
        effect::put(&mut record, named, b"same", &number.to_le_bytes(), None);
        effect::put(
            &mut record,
            TableId(1),
            &number.to_le_bytes(),
            &vec![1; number as usize * 10],
            None,
        );
        if number == 500 {
            effect::flush(&mut record, TableId(1));
        }
        if number % 3 == 0 {
            replayer.push(&record).expect("known tables");
            record.clear();
        }
    }
    replayer.push(&record).expect("known tables");
    replayer.finish();
    assert_eq!((tables.len(named), tables.len(TableId(1))), (1, 499));
    let found =
        tables.get(named, tables.hash(b"same"), b"same", 0).and_then(|value| value.string());
    assert_eq!(found.map(|string| string.as_slice()), Some(&999_u32.to_le_bytes()[..]));
}

#[test]
fn replay_of_a_value_by_reference_is_the_same_as_by_copy() {
    let value = vec![9; 100_000];
    let mut by_copy = Vec::new();
    effect::put(&mut by_copy, TableId(0), b"k", &value, Some(5));
    let mut by_reference = Vec::new();
    effect::put_header(&mut by_reference, TableId(0), b"k", Some(5), value.len());
    by_reference.extend_from_slice(&value);
    assert_eq!(by_copy, by_reference);
    let mut tables = Tables::new(1);
    let hash = tables.hash(b"k");
    tables.put(TableId(0), hash, b"k", StringValue::Slice(b"old"), None);
    for effect in decode(&by_copy) {
        effect::apply(&mut tables, effect.expect("our own bytes")).expect("a known table");
    }
    assert_eq!(tables.expiry(TableId(0), hash, b"k", 0), Some(Some(5)));
}

#[test]
fn a_transaction_in_parts_takes_effect_with_its_last_and_not_without_it() {
    let table = TableId(0);
    let mut whole = Vec::new();
    effect::put(&mut whole, table, b"a", b"1", None);
    effect::put(&mut whole, table, b"b", &[b'x'; 500], None);
    let part = |position, bytes: &[u8]| {
        let mut record = Vec::new();
        effect::part_header(&mut record, position);
        record.extend_from_slice(bytes);
        record
    };
    let get = |tables: &Tables, key: &[u8]| {
        let value = tables.get(table, tables.hash(key), key, 0).and_then(|value| value.string());
        value.map(|value| value.as_slice().len())
    };
    let other = |key: &[u8]| {
        let mut record = Vec::new();
        effect::put(&mut record, table, key, b"other", None);
        record
    };
    use PartPosition::{First, Last, Next};
    // Cut anywhere, with records of other transactions in between; what an earlier process left
    // unfinished never took effect.
    for cut in 1..whole.len() - 1 {
        let mut tables = Tables::new(1);
        let mut replayer = Replayer::new(&mut tables);
        replayer.push(&part(First, b"left by a crash")).unwrap();
        replayer.push(&part(First, &whole[..cut])).unwrap();
        replayer.push(&other(b"a")).unwrap();
        replayer.push(&part(Next, &whole[cut..=cut])).unwrap();
        replayer.push(&other(b"c")).unwrap();
        if cut + 1 < whole.len() - 1 {
            replayer.push(&part(Last, &whole[cut + 1..])).unwrap();
            replayer.finish();
            assert_eq!(
                [b"a", b"b", b"c"].map(|key| get(&tables, key)),
                [Some(1), Some(500), Some(5)]
            );
        } else {
            replayer.finish();
            assert_eq!([b"a", b"b", b"c"].map(|key| get(&tables, key)), [Some(5), None, Some(5)]);
        }
    }
    let mut tables = Tables::new(1);
    let mut replayer = Replayer::new(&mut tables);
    assert_eq!(replayer.push(&part(Next, b"x")), Err(ApplyError::MisplacedPart));
    assert_eq!(replayer.push(&part(Last, b"x")), Err(ApplyError::MisplacedPart));
    let nested = [other(b"d"), part(First, b"x")].concat();
    assert_eq!(replayer.push(&nested), Err(ApplyError::MisplacedPart));
    replayer.push(&part(First, &part(First, b"x"))).unwrap();
    assert_eq!(replayer.push(&part(Last, b"x")), Err(ApplyError::MisplacedPart));
    assert!(replayer.push(&part(First, b"")).is_err() && replayer.push(&[10, 3, 1]).is_err());
    replayer.finish();
    assert_eq!(get(&tables, b"d"), None, "nothing of a bad record is applied");
}
