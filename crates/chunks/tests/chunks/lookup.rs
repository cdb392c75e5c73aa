//! The lookup against a map, over versions of a store that gains, loses and reorders files.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use crate::support::{Fixture, archive::Archive, open_archive, open_classic};
use busload_chunks::{ChunkAddress, FileKind, Lookup, TableIndex, write::ClassicWriter};
use bytes::Bytes;
use proptest::{prelude::*, sample::Index};

/// Returns one of few addresses, so that files share many; some of them differ only in their last
/// or first bytes.
fn address(number: u16) -> ChunkAddress {
    let mut address = ChunkAddress([if number.is_multiple_of(3) { 0 } else { 0xff }; 20]);
    let place = [0, 6, 8, 18][usize::from(number % 4)];
    address.0[place..place + 2].copy_from_slice(&number.to_be_bytes());
    address
}

const ADDRESSES: u16 = 400;

/// Creates a file whose chunk under an address is that address's number.
fn file(kind: FileKind, numbers: &[u16]) -> Arc<TableIndex> {
    let index = match kind {
        FileKind::Classic => {
            let mut writer = ClassicWriter::new(Vec::new());
            for &number in numbers {
                writer.push_as(address(number), &number.to_be_bytes()).unwrap();
            }
            let (spec, file) = writer.finish().unwrap();
            open_classic(&Bytes::from(file), spec.chunk_count)
        }
        FileKind::Archive => {
            let mut archive = Archive::new(3);
            for &number in numbers {
                let span = archive.span(&crate::support::archive::record(&number.to_be_bytes()));
                archive.chunk(address(number), 0, span);
            }
            open_archive(&archive.file())
        }
    };
    Arc::new(index.unwrap())
}

/// Step from one version of a store to the next.
#[derive(Clone, Debug)]
enum Change {
    Add { kind: FileKind, numbers: Vec<u16>, at: Index },
    Remove(Index),
    Swap(Index, Index),
    Again(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let kind = prop_oneof![Just(FileKind::Classic), Just(FileKind::Archive)];
    let numbers = prop::collection::vec(0..ADDRESSES, 0..60);
    prop_oneof![
        4 => (kind, numbers, any::<Index>())
            .prop_map(|(kind, numbers, at)| Change::Add { kind, numbers, at }),
        1 => any::<Index>().prop_map(Change::Remove),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Change::Swap(a, b)),
        1 => any::<Index>().prop_map(Change::Again),
    ]
}

fn apply(change: Change, files: &mut Vec<Arc<TableIndex>>) {
    let count = files.len();
    match change {
        Change::Add { kind, numbers, at } => {
            files.insert(at.index(count + 1), file(kind, &numbers))
        }
        _ if count == 0 => {}
        Change::Remove(at) => drop(files.remove(at.index(count))),
        Change::Swap(a, b) => files.swap(a.index(count), b.index(count)),
        Change::Again(at) => files.push(files[at.index(count)].clone()),
    }
}

/// Returns the first file that holds each address.
fn model(files: &[Arc<TableIndex>]) -> BTreeMap<ChunkAddress, u32> {
    let mut first = BTreeMap::new();
    for (place, file) in (0..).zip(files) {
        for position in 0..file.chunk_count() {
            first.entry(file.address(position)).or_insert(place);
        }
    }
    first
}

fn check_against_model(
    lookup: &Lookup,
    files: &[Arc<TableIndex>],
    addresses: impl IntoIterator<Item = ChunkAddress>,
) {
    let model = model(files);
    for address in addresses {
        let found = lookup.find(&address);
        assert_eq!(found.map(|found| found.file), model.get(&address).copied(), "{address}");
        if let Some(found) = found {
            assert_eq!(files[found.file as usize].address(found.position), address);
        }
    }
}

proptest! {
    #[test]
    fn every_version_finds_what_a_map_does(changes in prop::collection::vec(change(), 1..40)) {
        let mut files = Vec::new();
        let mut lookup = Lookup::new(&files, None);
        for change in changes {
            apply(change, &mut files);
            lookup = Lookup::new(&files, Some(&lookup));
            check_against_model(&lookup, &files, (0..ADDRESSES).map(address));
        }
        let afresh = Lookup::new(&files, None);
        check_against_model(&afresh, &files, (0..ADDRESSES).map(address));
        prop_assert_eq!(afresh.chunk_count(), lookup.chunk_count());
    }
}

/// Returns four thousand files, as a store has that is never conjoined.
fn many_files() -> &'static [Arc<TableIndex>] {
    static FILES: OnceLock<Vec<Arc<TableIndex>>> = OnceLock::new();
    FILES.get_or_init(|| {
        (0..4_000u32)
            .map(|number| {
                let mut writer = ClassicWriter::new(Vec::new());
                // Every file shares one chunk with the next.
                for chunk in [number, number + 1, number + 1_000_000] {
                    writer.push(&chunk.to_be_bytes()).unwrap();
                }
                let (spec, file) = writer.finish().unwrap();
                Arc::new(open_classic(&Bytes::from(file), spec.chunk_count).unwrap())
            })
            .collect()
    })
}

#[test]
fn thousands_of_files_are_searched_as_one() {
    let files = many_files();
    let lookup = Lookup::new(files, None);
    let present = model(files).into_keys();
    check_against_model(&lookup, files, present);
    check_against_model(&lookup, files, (0..1_000u16).map(address));
    assert_eq!(lookup.chunk_count(), 12_000);
}

#[test]
fn thousands_of_files_one_by_one_are_the_same_as_all_at_once() {
    let files = many_files();
    let mut lookup = Lookup::new(&files[..3_000], None);
    for count in (3_000..=4_000).step_by(7) {
        lookup = Lookup::new(&files[..count], Some(&lookup));
    }
    let count = (3_000..=4_000).step_by(7).last().unwrap();
    check_against_model(&lookup, &files[..count], model(files).into_keys());
}

#[test]
fn addresses_that_share_a_prefix_are_told_apart() {
    let fixtures =
        ["synth-collide-classic", "synth-collide-archive", "synth-many-classic"].map(Fixture::open);
    let files: Vec<_> = fixtures.iter().flat_map(Fixture::files).map(|file| file.index).collect();
    let of_one = Lookup::new(&files[1..2], None);
    for lookup in [Lookup::new(&files, None), Lookup::new(&files, Some(&of_one))] {
        let listed = fixtures.iter().flat_map(|fixture| &fixture.chunks);
        check_against_model(&lookup, &files, listed.map(|listed| listed.address.parse().unwrap()));
        for listed in &fixtures[0].chunks {
            let mut absent: ChunkAddress = listed.address.parse().unwrap();
            absent.0[19] ^= 0x55;
            check_against_model(&lookup, &files, [absent]);
        }
    }
}
