//! Every chunk of every fixture is found where its list says and decodes to what the list says.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::support::{File, Fixture, Listed, ListedPlace};
use busload_chunks::{
    ChunkAddress, ChunkLocation, Dictionary, FileKind, FormatError, Lookup, Manifest, Span, Stored,
    TableIndex, check,
};
use sha2::{Digest, Sha256};

/// Dictionaries of a store, decoded once.
#[derive(Default)]
struct Dictionaries(HashMap<(usize, Span), Dictionary>);

impl Dictionaries {
    fn of(&mut self, files: &[File], file: usize, location: &ChunkLocation) -> Option<&Dictionary> {
        location.dictionary.map(|span| {
            &*self
                .0
                .entry((file, span))
                .or_insert_with(|| files[file].dictionary(location).unwrap())
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn lookup_of(files: &[File]) -> Lookup {
    let indexes: Vec<Arc<TableIndex>> = files.iter().map(|file| file.index.clone()).collect();
    Lookup::new(&indexes, None)
}

/// Checks that the file has an entry for the chunk at the place in the list.
fn check_place(what: &str, files: &[File], place: &ListedPlace, address: &ChunkAddress) {
    let file = files.iter().find(|file| file.name == place.file).unwrap();
    let found =
        file.index.find(address).unwrap_or_else(|| panic!("{what} is not in {}", file.name));
    assert_eq!(file.index.address(found), *address, "{what}");
    let mut entries =
        (0..file.index.chunk_count()).filter(|&entry| file.index.address(entry) == *address);
    assert!(entries.any(|entry| file.index.location(entry) == place.location), "{what}");
}

fn check_contents(
    what: &str,
    stored: &Stored,
    dictionary: Option<&Dictionary>,
    listed: &Listed,
    address: &ChunkAddress,
) {
    let contents = stored.decode(dictionary).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(contents.len() as u64, listed.length, "{what}");
    assert_eq!(hex(&Sha256::digest(&contents)), listed.sha256, "{what}");
    assert_eq!(stored.contents_bytes(), Ok(listed.length), "{what}");
    assert_eq!(check(address, &contents).is_ok(), listed.address_is_hash, "{what}");
    let record = stored.to_record(dictionary).unwrap();
    let location = ChunkLocation {
        span: Span { offset: 0, length: u32::try_from(record.len()).unwrap() },
        dictionary: None,
    };
    assert_eq!(Stored::parse(record, &location).unwrap().decode(None).unwrap(), contents, "{what}");
}

fn check_fixture(fixture: &Fixture) {
    let files = fixture.files();
    let lookup = lookup_of(&files);
    let mut dictionaries = Dictionaries::default();
    for listed in &fixture.chunks {
        let what = format!("{}: {}", fixture.name, listed.address);
        let address: ChunkAddress = listed.address.parse().unwrap();
        assert_eq!(address.to_string(), listed.address);
        let found = lookup.find(&address).unwrap_or_else(|| panic!("{what} is not found"));
        let place = usize::try_from(found.file).unwrap();
        if let Some(listed) = &listed.place {
            check_place(&what, &files, listed, &address);
        }
        let location = files[place].index.location(found.position);
        let stored =
            files[place].stored(&location).unwrap_or_else(|error| panic!("{what}: {error}"));
        check_contents(&what, &stored, dictionaries.of(&files, place, &location), listed, &address);
    }
}

/// Checks that the entries of all files are the chunks of the list and no others.
fn check_entries(fixture: &Fixture) {
    let listed: BTreeMap<&str, u32> =
        fixture.chunks.iter().map(|listed| (&*listed.address, 0)).collect();
    let mut seen = listed.clone();
    let mut entries = 0;
    for file in fixture.files() {
        assert_eq!(file.index.chunk_count(), file.spec.chunk_count, "{}", fixture.name);
        for position in 0..file.index.chunk_count() {
            let address = file.index.address(position).to_string();
            *seen
                .get_mut(&*address)
                .unwrap_or_else(|| panic!("{}: {address} is not listed", fixture.name)) += 1;
            entries += 1;
        }
    }
    assert!(seen.values().all(|&count| count > 0), "{}", fixture.name);
    assert_eq!(lookup_of(&fixture.files()).chunk_count(), entries, "{}", fixture.name);
}

#[test]
fn every_chunk_is_as_listed() {
    let fixtures = crate::support::all();
    assert_eq!(fixtures.len(), 17);
    assert_eq!(fixtures.iter().map(|fixture| fixture.chunks.len()).sum::<usize>(), 15_248);
    for fixture in &fixtures {
        check_fixture(fixture);
    }
}

#[test]
fn entries_are_those_listed_and_no_others() {
    for fixture in &crate::support::all() {
        check_entries(fixture);
    }
}

#[test]
fn addresses_of_no_chunk_are_not_found() {
    for fixture in &crate::support::all() {
        let files = fixture.files();
        let lookup = lookup_of(&files);
        for listed in fixture.chunks.iter().take(200) {
            let address: ChunkAddress = listed.address.parse().unwrap();
            // Another last bit: the prefix is the same, so searches come close.
            for byte in [8, 19] {
                let mut other = address;
                other.0[byte] ^= 1;
                if fixture.chunks.iter().any(|listed| listed.address == other.to_string()) {
                    continue;
                }
                assert_eq!(lookup.find(&other), None, "{}: {other}", fixture.name);
                assert!(
                    files.iter().all(|file| file.index.find(&other).is_none()),
                    "{}: {other}",
                    fixture.name
                );
            }
        }
    }
}

#[test]
fn made_up_addresses_are_found_and_disagree_with_their_contents() {
    for name in ["synth-collide-classic", "synth-collide-archive"] {
        let fixture = Fixture::open(name);
        let file = &fixture.files()[0];
        let mut prefixes = BTreeMap::new();
        for listed in &fixture.chunks {
            let address: ChunkAddress = listed.address.parse().unwrap();
            *prefixes.entry(address.prefix()).or_insert(0) += 1;
            let location = file.index.location(file.index.find(&address).unwrap());
            let contents = file
                .stored(&location)
                .unwrap()
                .decode(file.dictionary(&location).as_ref())
                .unwrap();
            let Err(FormatError::Corrupt(text)) = check(&address, &contents) else {
                panic!("{name}: {address}")
            };
            assert!(
                text.contains("contents and address disagree")
                    && text.contains(&address.to_string()),
                "{text}"
            );
        }
        assert_eq!(prefixes.values().filter(|&&count| count == 5).count(), 3, "{name}");
    }
}

#[test]
fn kinds_and_duplicates_are_those_of_the_readme() {
    let kinds = |name| {
        let files = Fixture::open(name).files();
        let archives = files.iter().filter(|file| file.index.kind() == FileKind::Archive).count();
        (files.len() - archives, archives)
    };
    assert_eq!(kinds("real-classic"), (8, 0));
    assert_eq!(kinds("real-archive-v3"), (4, 4));
    assert_eq!(kinds("rewritten-archive-v2"), (2, 2));
    assert_eq!(kinds("real-archive-conjoined"), (0, 1));
    let conjoined = Fixture::open("real-archive-conjoined");
    let entries = conjoined.files()[0].index.chunk_count();
    assert_eq!(entries as usize - conjoined.chunks.len(), 10);
}

#[test]
fn journal_is_refused_with_its_reason() {
    let text = std::fs::read(crate::support::root().join("real-journal/store/manifest")).unwrap();
    let Err(FormatError::Refused(reason)) = Manifest::parse(&text) else {
        panic!("a journal is served")
    };
    assert!(reason.contains("the store has a journal"), "{reason}");
}

#[test]
fn appendix_comes_first_and_only_there() {
    let fixture = Fixture::open("aws-appendix");
    let names: Vec<String> =
        fixture.manifest.lookup_order().map(|file| file.id.to_string()).collect();
    assert_eq!(
        names,
        [
            "7pnng09hiq5lfetr4gfqb537tv9u7ovs",
            "0g5h7qe2fvtb0uknoapnkr71rktlgsh6",
            "ga1rqldua89cikaib15p18n1cvrpib23",
            "uhgqb3fpd9ajkmtkpcod8t4a78etmcjm",
            "3fcm83v40282d1h7t7k58db5njqfgpcm",
        ]
    );
    assert_eq!(fixture.manifest.appendix.len(), 1);
    assert_eq!(fixture.manifest.root.to_string(), "l20qdi1toaqvu0hlqtdivecve20mg9hn");
    let files = fixture.files();
    let lookup = lookup_of(&files);
    for position in 0..files[0].index.chunk_count() {
        assert_eq!(lookup.find(&files[0].index.address(position)).unwrap().file, 0);
    }
}

#[test]
fn reads_to_open_the_aws_store_are_those_of_dolt() {
    let text =
        std::fs::read_to_string(crate::support::root().join("aws-appendix/expected.json")).unwrap();
    let fixture = Fixture::open("aws-appendix");
    let appendix = &fixture.manifest.appendix[0];
    let tail = TableIndex::classic_tail_bytes(appendix.chunk_count);
    assert!(text.contains(&format!("{} bytes=-{tail}", appendix.id)), "{tail}");
}

#[test]
fn locks_are_what_the_ids_give() {
    for fixture in &crate::support::all() {
        assert_eq!(fixture.manifest.computed_lock(), fixture.manifest.lock, "{}", fixture.name);
    }
}

#[test]
fn version_4_differs_from_5_in_the_generation_only() {
    let four =
        Manifest::parse(&std::fs::read(crate::support::root().join("manifest-v4.txt")).unwrap())
            .unwrap();
    let five = Fixture::open("real-classic").manifest;
    assert_eq!(five.gc_generation, Some([0; 20]));
    assert_eq!(four, Manifest { gc_generation: None, ..five });
}
