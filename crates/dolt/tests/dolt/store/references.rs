//! Prefetches of the chunks that a chunk refers to.

use busload_dolt::{ChunkAddress, Form, Request, Requester, Store};

use crate::store::{
    remote_store::{RemoteStore, deadline, until},
    support::{Harness, addresses, noise, open},
};

const CHILDREN: usize = 40;

/// Makes a message of Dolt with one vector, that of the addresses of its children.
fn node(children: &[ChunkAddress]) -> Vec<u8> {
    let length = u32::try_from(20 * children.len()).unwrap();
    let mut bytes = vec![27, 0, 0, 0];
    // Offset of the root table, and the kind of the message.
    bytes.extend(16u32.to_le_bytes());
    bytes.extend(b"ADRM");
    // Bytes of the list of fields and of the table, and the offset of the field.
    bytes.extend([6u16, 8, 4, 0].map(u16::to_le_bytes).concat());
    // The table: the list is 8 bytes before it, and the vector 4 bytes behind the field.
    bytes.extend([8u32, 4, length].map(u32::to_le_bytes).concat());
    bytes.extend(children.iter().flat_map(|address| address.0));
    bytes
}

/// Chunks of which the last is the parent of some.
struct Tree {
    far: RemoteStore,
    parent: ChunkAddress,
    children: Vec<ChunkAddress>,
}

impl Tree {
    fn new() -> Self {
        let harness = Harness::new();
        let mut chunks: Vec<Vec<u8>> = (0..300).map(|seed| noise(seed, 6_000)).collect();
        // An address that the store does not have is no reference.
        let mut children = addresses(&chunks)[100..100 + CHILDREN].to_vec();
        chunks.push(node(&[&children[..], &[ChunkAddress([7; 20])]].concat()));
        let parent = ChunkAddress::of(&chunks[300]);
        let spec = harness.write_file(&chunks);
        harness.write_manifest(parent, &[spec]);
        children.rotate_left(3);
        Self { far: RemoteStore::of(harness), parent, children }
    }
}

async fn get(store: &Store, address: ChunkAddress) {
    let request = Request {
        form: Form::Contents,
        local_only: false,
        deadline: deadline(),
        requester: Requester::Client,
    };
    assert!(store.get(address, request).await.unwrap().is_some(), "{address}");
}

async fn until_prefetched(store: &Store) {
    until("the children are there", || {
        let stats = store.stats();
        let is_over = stats.prefetches == 0 && stats.store.in_flight == 0;
        is_over && stats.references_prefetched == CHILDREN as u64
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_children_of_a_chunk_that_was_read_cost_no_request_of_their_own() {
    let tree = Tree::new();
    let store = tree.far.open_without_disk().await;
    get(&store, tree.parent).await;
    until_prefetched(&store).await;
    tree.far.proxy.forget();
    for child in &tree.children {
        get(&store, *child).await;
    }
    assert_eq!(tree.far.proxy.seen(), []);
    assert_eq!(store.stats().references_read, CHILDREN as u64);
    store.close().await;
}

/// The file is on its way anyway.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_to_disk_whole_is_not_prefetched() {
    let tree = Tree::new();
    let store = open(tree.far.settings()).await;
    get(&store, tree.parent).await;
    for child in &tree.children {
        get(&store, *child).await;
    }
    until("the file is on disk", || {
        let file = store.snapshot().unwrap().files[0].clone();
        file.object.is_local(0..file.object.meta().size)
    })
    .await;
    assert_eq!(store.stats().references_prefetched, 0);
    store.close().await;
}
