use std::{collections::HashSet, os::unix::fs::FileExt};

use busload_chunks::{Dictionary, Manifest, Span, Stored, check};
use bytes::Bytes;

use super::{
    contents::{Kind, Node},
    *,
};
use crate::cleanup::{Cleanup, Directory};

/// A store that is alone in a directory of its own.
fn made(design: &Design) -> (Directory, Store) {
    let directory = Cleanup::default().directory(&std::env::temp_dir()).unwrap();
    let store = Store::make(directory.path(), design).unwrap();
    (directory, store)
}

/// Three files with some 1,300 small leaves each, two of them archives with dictionaries.
pub fn small() -> Design {
    Design {
        pushes: 3,
        leaves_per_push: 1_300,
        replaced: 0.02,
        leaf_bytes: 700,
        classic: 0.34,
        ..Design::default()
    }
}

/// The contents of a chunk, read from its file.
fn read(directory: &Directory, store: &Store, address: &ChunkAddress) -> Bytes {
    let entry = store.find(address).unwrap();
    let file = fs::File::open(directory.path().join(&store.files[entry.file].name)).unwrap();
    let bytes = |span: Span| {
        let mut bytes = vec![0; usize::try_from(span.length).unwrap()];
        file.read_exact_at(&mut bytes, span.offset).unwrap();
        Bytes::from(bytes)
    };
    let dictionary =
        entry.location.dictionary.map(|span| Dictionary::decode(&bytes(span)).unwrap());
    let stored = Stored::parse(bytes(entry.location.span), &entry.location).unwrap();
    stored.decode(dictionary.as_ref()).unwrap()
}

#[test]
fn everything_can_be_reached_from_the_root_and_is_where_the_store_says() {
    let (directory, store) = made(&small());
    let (mut next, mut seen) = (vec![store.root], HashSet::from([store.root]));
    while let Some(address) = next.pop() {
        let contents = read(&directory, &store, &address);
        check(&address, &contents).unwrap();
        assert_eq!(contents.len(), store.find(&address).unwrap().contents_bytes);
        let children = Node::parse(&contents).unwrap().children;
        next.extend(children.into_iter().filter(|child| seen.insert(*child)));
    }
    // The roots of the two earlier pushes are named by nothing.
    assert_eq!((seen.len(), store.reachable(0)), (store.count() - 2, store.count() - 2));
    assert!(store.leaves.iter().all(|leaf| seen.contains(leaf)));
    let chunks: u32 = store.files.iter().map(|file| file.chunk_count).sum();
    assert_eq!(usize::try_from(chunks).unwrap(), store.count());
}

#[test]
fn the_manifest_names_every_file_and_the_root() {
    let (directory, store) = made(&small());
    let manifest = Manifest::parse(&fs::read(directory.path().join("manifest")).unwrap()).unwrap();
    assert_eq!(manifest.root, store.root);
    let named: Vec<_> =
        manifest.files.iter().map(|file| (file.id.to_string(), file.chunk_count)).collect();
    let files: Vec<_> =
        store.files.iter().map(|file| (file.id.clone(), file.chunk_count)).collect();
    assert_eq!(named, files);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), files.len() + 1);
    for file in &store.files {
        let bytes = fs::read(directory.path().join(&file.name)).unwrap();
        assert_eq!(
            (u64::try_from(bytes.len()).unwrap(), crc32c::crc32c(&bytes)),
            (file.bytes, file.crc)
        );
        assert!(file.index_from < file.bytes);
    }
}

#[test]
fn contents_are_stored_at_about_half_their_size() {
    let (_directory, store) = made(&Design { leaf_bytes: 4_096, ..small() });
    let (mean, ratio) = store.means();
    assert!((3_500.0..4_500.0).contains(&mean) && (0.4..0.65).contains(&ratio), "{mean} {ratio}");
}

#[test]
fn the_share_of_classic_files_is_as_asked_for() {
    let kinds = |classic, pushes: usize| {
        let design = Design { classic, ..small() };
        (0..pushes).filter(|push| kind(&design, *push) == FileKind::Classic).count()
    };
    assert_eq!([kinds(0.0, 8), kinds(0.25, 8), kinds(0.5, 8), kinds(1.0, 8)], [0, 2, 4, 8]);
    assert_eq!(kinds(0.34, 3), 1);
}

#[test]
fn the_same_design_gives_the_same_files() {
    let (_one, first) = made(&small());
    let (_two, second) = made(&small());
    let (_three, other) = made(&Design { seed: 2, ..small() });
    let names =
        |store: &Store| store.files.iter().map(|file| file.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&first), names(&second));
    assert_ne!(names(&first), names(&other));
}

#[test]
fn chunks_in_random_order_are_the_same_chunks_elsewhere() {
    let (_one, walk) = made(&small());
    let (_two, random) = made(&Design { order: Order::Random, ..small() });
    assert_eq!((walk.root, walk.count()), (random.root, random.count()));
    // In the order of a walk, neighbouring leaves are neighbours in their file.
    let near = |store: &Store| {
        let offset = |leaf: &ChunkAddress| store.find(leaf).unwrap().location.span;
        let follows = |pair: &[ChunkAddress]| {
            let (one, two) = (offset(&pair[0]), offset(&pair[1]));
            one.offset + u64::from(one.length) == two.offset
        };
        store.leaves.windows(2).filter(|pair| follows(pair)).count()
    };
    assert!(3_000 < near(&walk), "{}", near(&walk));
    assert!(near(&random) < 100, "{}", near(&random));
}

#[test]
fn a_chain_from_the_root_has_four_to_eight_chunks() {
    for leaves_per_push in [50, 3_000] {
        let (directory, store) = made(&Design { pushes: 1, leaves_per_push, ..small() });
        let (mut address, mut depth) = (store.root, 1);
        loop {
            let node = Node::parse(&read(&directory, &store, &address)).unwrap();
            if node.kind == Kind::Leaf {
                break;
            }
            address = *node.current().last().unwrap();
            depth += 1;
        }
        assert!((4..=8).contains(&depth), "{depth}");
    }
}
