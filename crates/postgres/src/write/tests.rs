use std::collections::{BTreeMap, BTreeSet};

use busload_batch::Write;
use bytes::Bytes;
use proptest::prelude::*;

use super::{Change, ColumnSet, Outcome, RowWrite, WriteKind};

fn fields(fields: &[(usize, &'static str)]) -> RowWrite {
    RowWrite::new(Change::set_fields(
        fields
            .iter()
            .map(|&(column, text)| (column, Bytes::from_static(text.as_bytes())))
            .collect(),
    ))
}

fn clear(columns: &[usize]) -> RowWrite {
    RowWrite::new(Change::ClearFields(columns.iter().copied().collect()))
}

fn set(text: &'static str) -> RowWrite {
    RowWrite::new(Change::Set(Bytes::from_static(text.as_bytes())))
}

fn delete() -> RowWrite {
    RowWrite::new(Change::Delete)
}

#[test]
fn of_values_the_last_wins() {
    let mut write = set("a");
    write.merge(set("b")).expect("values join");
    assert_eq!(write.change(), set("b").change());
}

#[test]
fn fields_join_and_of_one_column_the_last_value_wins() {
    let mut write = fields(&[(3, "a"), (1, "b"), (3, "c")]);
    assert_eq!(write.change(), fields(&[(1, "b"), (3, "c")]).change());
    write.merge(fields(&[(1, "d"), (0, "e")])).expect("fields join");
    assert_eq!(write.change(), fields(&[(0, "e"), (1, "d"), (3, "c")]).change());
    assert_eq!(write.kind(), WriteKind::SetFields([0, 1, 3].into_iter().collect()));
}

#[test]
fn different_families_do_not_join_and_nothing_is_changed() {
    let families = [set("a"), fields(&[(0, "a")]), clear(&[0]), delete()];
    for (one, earlier) in families.iter().enumerate() {
        for (other, later) in families.iter().enumerate() {
            let mut write = earlier.clone();
            let merged = write.merge(later.clone());
            assert_eq!(merged.is_ok(), one == other);
            if let Err(back) = merged {
                assert_eq!((&write, &back), (earlier, later));
            }
        }
    }
}

#[test]
fn each_request_counts_what_it_was_the_first_to_do() {
    let mut write = fields(&[(0, "a"), (1, "b")]);
    let first = write.receipt();
    let second = write.merge(fields(&[(1, "c"), (2, "d")])).expect("fields join");
    let inserted = Outcome::FieldsSet { inserted: true };
    assert_eq!((inserted.count(&first), inserted.count(&second)), (Ok(2), Ok(1)));
    let updated = Outcome::FieldsSet { inserted: false };
    assert_eq!((updated.count(&first), updated.count(&second)), (Ok(0), Ok(0)));

    let mut write = clear(&[0, 1]);
    let first = write.receipt();
    let second = write.merge(clear(&[1, 2])).expect("they join");
    let cleared = Outcome::FieldsCleared { existed: [1, 2].into_iter().collect() };
    assert_eq!((cleared.count(&first), cleared.count(&second)), (Ok(1), Ok(1)));

    let mut write = delete();
    let first = write.receipt();
    let second = write.merge(delete()).expect("they join");
    let deleted = Outcome::Deleted { existed: true };
    assert_eq!((deleted.count(&first), deleted.count(&second)), (Ok(1), Ok(0)));
    let absent = Outcome::Deleted { existed: false };
    assert_eq!(absent.count(&first), Ok(0));
}

#[test]
fn joined_writes_are_not_larger_than_one_by_one() {
    for (earlier, later) in [
        (set("aaa"), set("b")),
        (set("a"), set("bbb")),
        (fields(&[(0, "aaaa")]), fields(&[(1, "b")])),
        (delete(), delete()),
    ] {
        let sum = earlier.bytes() + later.bytes();
        let mut write = earlier;
        write.merge(later).expect("they join");
        assert!(write.bytes() <= sum, "{} > {sum}", write.bytes());
    }
}

/// The columns of a row: a map from column to value; `None` is no row.
type Model = Option<BTreeMap<usize, u8>>;

/// Does what `HSET` does, and returns what it answers.
fn apply(model: &mut Model, request: &BTreeMap<usize, u8>) -> u64 {
    let inserted = model.is_none();
    model.get_or_insert_default().extend(request);
    if inserted { u64::try_from(request.len()).expect("few") } else { 0 }
}

proptest! {
    #[test]
    fn sets_of_columns_are_sets(one: BTreeSet<u8>, other: BTreeSet<u8>) {
        let set = |columns: &BTreeSet<u8>| {
            columns.iter().map(|&column| usize::from(column)).collect::<ColumnSet>()
        };
        let list = |columns: &mut dyn Iterator<Item = &u8>| {
            columns.map(|&column| usize::from(column)).collect::<Vec<_>>()
        };
        let (left, right) = (set(&one), set(&other));
        prop_assert_eq!(left.iter().collect::<Vec<_>>(), list(&mut one.iter()));
        prop_assert_eq!(
            left.union(&right).iter().collect::<Vec<_>>(),
            list(&mut one.union(&other))
        );
        prop_assert_eq!(
            left.intersection(&right).iter().collect::<Vec<_>>(),
            list(&mut one.intersection(&other))
        );
        prop_assert_eq!(
            left.without(&right).iter().collect::<Vec<_>>(),
            list(&mut one.difference(&other))
        );
        prop_assert_eq!(left == right, one == other);
        prop_assert_eq!((left.len(), left.is_empty()), (one.len(), one.is_empty()));
        let same = (0..300).all(|column| {
            let found = left.contains(column);
            found == u8::try_from(column).is_ok_and(|column| one.contains(&column))
        });
        prop_assert!(same);
    }

    /// The counts of a new row add up to its number of columns, whichever request was first. Only
    /// the first request's count follows Redis' own rule: the later ones would find the row if they
    /// were not merged with it.
    #[test]
    fn a_joined_entry_leaves_what_its_requests_leave_one_by_one(
        requests in
            prop::collection::vec(prop::collection::btree_map(0_usize..80, 0_u8..9, 1..5), 1..6),
    ) {
        let write = |request: &BTreeMap<usize, u8>| RowWrite::new(Change::set_fields(
            request
                .iter()
                .map(|(&column, &value)| (column, Bytes::copy_from_slice(&[value])))
                .collect(),
        ));
        let mut model = None;
        requests.iter().for_each(|request| { apply(&mut model, request); });
        let mut entry = write(&requests[0]);
        let mut receipts = vec![entry.receipt()];
        for request in &requests[1..] {
            receipts.push(entry.merge(write(request)).expect("fields join"));
        }
        let expected = write(&model.clone().unwrap_or_default());
        prop_assert_eq!(entry.change(), expected.change());
        let outcome = Outcome::FieldsSet { inserted: true };
        let counts: u64 =
            receipts.iter().map(|receipt| outcome.count(receipt).expect("it is set")).sum();
        prop_assert_eq!(counts, u64::try_from(model.unwrap_or_default().len()).expect("few"));
    }
}
