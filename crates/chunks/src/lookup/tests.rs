use bytes::Bytes;

use super::*;
use crate::{
    limits::{RUN_ENTRIES_MIN, SEARCHED_RUN_ENTRIES_MAX},
    write::ClassicWriter,
};

/// Creates a file with chunks of these numbers, under addresses made of them.
fn file(numbers: impl IntoIterator<Item = u64>) -> Arc<TableIndex> {
    let mut writer = ClassicWriter::new(Vec::new());
    for number in numbers {
        writer.push_as(address(number), &[1]).unwrap();
    }
    let (spec, file) = writer.finish().unwrap();
    let tail = usize::try_from(TableIndex::classic_tail_bytes(spec.chunk_count)).unwrap();
    let end = Bytes::copy_from_slice(&file[file.len() - tail..]);
    Arc::new(TableIndex::parse_classic(end, spec.chunk_count, file.len() as u64).unwrap())
}

/// Returns an address that looks random, as real ones do, and differs for each number.
fn address(number: u64) -> ChunkAddress {
    ChunkAddress::of(&number.to_be_bytes())
}

fn file_of(lookup: &Lookup, number: u64) -> Option<u32> {
    lookup.find(&address(number)).map(|found| found.file)
}

#[test]
fn runs_of_a_new_version_are_those_of_the_last_one_as_far_as_possible() {
    let large = file(0..RUN_ENTRIES_MIN * 2);
    let first = Lookup::new(std::slice::from_ref(&large), None);
    let small = file(1_000_000..1_000_010);
    let second = Lookup::new(&[small.clone(), large.clone()], Some(&first));
    assert_eq!(second.members.len(), 2);
    assert!(
        Arc::ptr_eq(&second.members[1].run, &first.members[0].run),
        "the large run was built again"
    );
    assert_eq!((file_of(&second, 7), file_of(&second, 1_000_007)), (Some(1), Some(0)));

    let third = Lookup::new(&[large.clone(), small], Some(&second));
    assert!(Arc::ptr_eq(&third.members[0].run, &first.members[0].run));
    assert_eq!((file_of(&third, 7), file_of(&third, 1_000_007)), (Some(0), Some(1)));

    let fourth = Lookup::new(&[large], Some(&third));
    assert!(Arc::ptr_eq(&fourth.members[0].run, &first.members[0].run));
    assert_eq!((file_of(&fourth, 7), file_of(&fourth, 1_000_007)), (Some(0), None));
}

#[test]
fn copy_that_lost_is_found_when_the_file_that_won_is_gone() {
    // Without a hash table, and with one.
    for scale in [1, SEARCHED_RUN_ENTRIES_MAX / 10] {
        let [early, late] = [file(0..20 * scale), file(10 * scale..30 * scale)];
        let [first, shared, last] = [5, 15, 25].map(|number| number * scale);
        let both = Lookup::new(&[early.clone(), late.clone()], None);
        assert_eq!((file_of(&both, shared), file_of(&both, last)), (Some(0), Some(1)));
        assert_eq!(file_of(&both, 30 * scale), None);
        // The table over both has no entry for the shared chunk of the later file, so it must not
        // be used without the earlier one.
        let rest = Lookup::new(std::slice::from_ref(&late), Some(&both));
        assert_eq!((file_of(&rest, shared), file_of(&rest, first)), (Some(0), None));
        let swapped = Lookup::new(&[late, early], Some(&both));
        assert_eq!((file_of(&swapped, shared), file_of(&swapped, first)), (Some(0), Some(1)));
    }
}

#[test]
fn earlier_file_wins_across_runs_that_overlap() {
    let [a, b, c] = [file((0..40_000).chain([99_999])), file([99_999, 99_998]), file([99_998])];
    let of_two = Lookup::new(&[a.clone(), c.clone()], None);
    let of_a = Lookup::new(std::slice::from_ref(&a), None);
    for previous in [&of_two, &of_a] {
        let lookup = Lookup::new(&[a.clone(), b.clone(), c.clone()], Some(previous));
        assert_eq!((file_of(&lookup, 99_999), file_of(&lookup, 99_998)), (Some(0), Some(1)));
        let lookup = Lookup::new(&[c.clone(), b.clone(), a.clone()], Some(previous));
        assert_eq!((file_of(&lookup, 99_999), file_of(&lookup, 99_998)), (Some(1), Some(0)));
    }
}

/// A store that gets a small file with each of thousands of pushes must neither be hashed anew each
/// time nor end up with thousands of runs.
#[test]
fn runs_stay_few_and_are_rarely_built_over_thousands_of_pushes() {
    let mut files = vec![file(0..40_000)];
    let mut lookup = Lookup::new(&files, None);
    let mut built = 0;
    for push in 0..2_000 {
        let new = file([1_000_000 + 2 * push, 1_000_001 + 2 * push]);
        if push % 2 == 0 {
            files.push(new)
        } else {
            files.insert(0, new)
        }
        let next = Lookup::new(&files, Some(&lookup));
        assert!(next.members.len() <= 3, "{} runs after {push} pushes", next.members.len());
        let is_new =
            |member: &&Member| !lookup.members.iter().any(|old| Arc::ptr_eq(&old.run, &member.run));
        built +=
            next.members.iter().filter(is_new).map(|member| member.run.entry_count()).sum::<u64>();
        lookup = next;
    }
    assert_eq!(lookup.chunk_count(), 44_000);
    // Building everything at each push would be 84 million.
    assert!(built < 10_000_000, "{built} entries were hashed for 4,000 new ones");
    for (place, file) in files.iter().enumerate() {
        let found = lookup.find(&file.address(0)).unwrap();
        assert_eq!(found.file as usize, place);
    }
}

#[test]
fn files_that_are_given_twice_or_empty_do_no_harm() {
    let [empty, some] = [file([]), file([1, 2])];
    let lookup = Lookup::new(&[empty.clone(), some.clone(), empty, some], None);
    assert_eq!((file_of(&lookup, 1), lookup.chunk_count()), (Some(1), 2));
    let nothing = Lookup::new(&[], Some(&lookup));
    assert_eq!((file_of(&nothing, 1), nothing.chunk_count()), (None, 0));
    assert_eq!(file_of(&Lookup::new(&[], None), 1), None);
}

#[test]
fn memory_is_at_most_ten_bytes_per_chunk() {
    let files: Vec<_> = (0..10).map(|part| file(part * 5_000..(part + 1) * 5_000)).collect();
    let lookup = Lookup::new(&files, None);
    assert!(lookup.memory_bytes() <= 10 * 50_000, "{}", lookup.memory_bytes());
    let index_bytes: u64 = files.iter().map(|file| file.memory_bytes()).sum();
    assert!(index_bytes + lookup.memory_bytes() <= 40 * 50_000, "{index_bytes}");
}

#[test]
fn lookup_of_a_small_store_has_no_hash_table() {
    let lookup = Lookup::new(&[file(0..1_000), file(1_000..2_000)], None);
    assert!(lookup.memory_bytes() < 500, "{}", lookup.memory_bytes());
}

/// Addresses that share all but their last bytes spread over a whole run, so a search among them is
/// as short as any.
#[test]
fn addresses_that_look_alike_do_not_meet() {
    let seed = Seed::random();
    let mut homes = std::collections::BTreeSet::new();
    for number in 0..10_000u32 {
        let mut address = ChunkAddress([7; 20]);
        address.0[16..].copy_from_slice(&number.to_be_bytes());
        homes.insert(seed.hash(&address) >> 48);
    }
    // 10,000 balls into 65,536 boxes: about 9,270 boxes are hit, 30 more or less.
    assert!((9_100..9_450).contains(&homes.len()), "{}", homes.len());
    assert_ne!(Seed::random().hash(&ChunkAddress::ZERO), seed.hash(&ChunkAddress::ZERO));
}
