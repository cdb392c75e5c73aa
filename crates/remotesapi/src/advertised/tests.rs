use busload_dolt::{FileId, FileKind};

use super::*;
use crate::{
    question::{MergedQuestions, Question},
    url::BundleId,
};

fn address(number: u8) -> ChunkAddress {
    ChunkAddress([number; 20])
}

fn question(numbers: &[u8]) -> Question {
    let packed: Vec<u8> = numbers.iter().flat_map(|number| [*number; 20]).collect();
    Question::of_packed("chunk_hashes", &packed).unwrap()
}

fn file(number: u8) -> Resource {
    Resource::File(FileName { id: FileId([number; 20]), kind: FileKind::Classic, version: 7 })
}

fn bundle(number: u8) -> Resource {
    Resource::Records(BundleId { check: [number; 8], addresses: vec![address(number)] })
}

fn location(resource: usize, offset: u64) -> Option<ResourceLocation> {
    Some(ResourceLocation { resource, span: Span { offset, length: 10 }, dictionary: None })
}

fn urls() -> UrlBuilder {
    let (base, table) = ("http://host:6381".to_owned(), "db".to_owned());
    UrlBuilder { base, table, key: None, peers: Arc::default(), stats: Arc::default() }
}

fn answer(
    asked: &[u8],
    resources: Vec<Resource>,
    locations: Vec<Option<ResourceLocation>>,
) -> Answer {
    let Question { addresses, entries } = question(asked);
    let chunks = Arc::new(ChunkLocations { resources, locations });
    Answer { entries, addresses: addresses.into(), chunks, repository: 0, urls: urls() }
}

/// Returns the answers to requests that are answered as one batch.
fn answers_together(
    asked: &[&[u8]],
    resources: Vec<Resource>,
    locations: Vec<Option<ResourceLocation>>,
) -> Vec<Answer> {
    let MergedQuestions { addresses, entries } = merged(asked);
    assert_eq!(addresses.len(), locations.len());
    let (addresses, chunks) =
        (Arc::from(addresses), Arc::new(ChunkLocations { resources, locations }));
    let answer = |entries| {
        let (addresses, chunks) = (Arc::clone(&addresses), Arc::clone(&chunks));
        Answer { entries, addresses, chunks, repository: 0, urls: urls() }
    };
    entries.into_iter().map(answer).collect()
}

fn merged(asked: &[&[u8]]) -> MergedQuestions {
    let questions: Vec<Question> = asked.iter().map(|numbers| question(numbers)).collect();
    MergedQuestions::of(questions.iter())
}

/// Returns the ids in the message's records, then those in its locations.
fn ids(message: &StreamChunkLocationsResponse) -> (Vec<u32>, Vec<u32>) {
    let records = message.table_files.iter().map(|record| record.table_file_id).collect();
    (records, message.locations.iter().map(|location| location.table_file_id).collect())
}

/// Returns the resource of each location as the client finds it, from the URLs that it got.
fn known(message: &StreamChunkLocationsResponse, urls: &mut HashMap<u32, String>) -> Vec<String> {
    urls.extend(
        message.table_files.iter().map(|record| (record.table_file_id, record.url.clone())),
    );
    message.locations.iter().map(|location| urls[&location.table_file_id].clone()).collect()
}

#[test]
fn a_file_is_advertised_once_with_the_first_location_in_it() {
    let mut advertised = Advertised::default();
    let first = advertised.message(&answer(&[1, 2], vec![file(5)], vec![location(0, 0), None]));
    assert_eq!(first.table_files.len(), 1);
    let record = &first.table_files[0];
    assert_eq!((record.table_file_id, record.refresh_after), (1, None));
    assert_eq!(record.file_id, FileId([5; 20]).to_string());
    assert_eq!(
        record.url,
        format!("http://host:6381/dolt/v1/db/files/0000000000000007/{}", FileId([5; 20]))
    );
    assert_eq!(first.missing_indexes, [1]);
    let second = advertised.message(&answer(
        &[3, 4],
        vec![file(6), file(5)],
        vec![location(0, 0), location(1, 10)],
    ));
    let ids: Vec<u32> = second.table_files.iter().map(|record| record.table_file_id).collect();
    assert_eq!(ids, [2]);
    let used: Vec<u32> = second.locations.iter().map(|location| location.table_file_id).collect();
    assert_eq!(used, [2, 1]);
}

#[test]
fn a_file_of_another_repository_is_another_one() {
    let mut advertised = Advertised::default();
    let of_repository =
        |repository| Answer { repository, ..answer(&[1], vec![file(5)], vec![location(0, 0)]) };
    assert_eq!(advertised.message(&of_repository(0)).locations[0].table_file_id, 1);
    assert_eq!(advertised.message(&of_repository(1)).locations[0].table_file_id, 2);
    assert_eq!(advertised.message(&of_repository(0)).locations[0].table_file_id, 1);
}

#[test]
fn the_memory_of_a_stream_is_bounded() {
    let mut advertised = Advertised::default();
    let name = |number: usize| {
        let mut id = FileId([0; 20]);
        id.0[..8].copy_from_slice(&number.to_be_bytes());
        Resource::File(FileName { id, kind: FileKind::Classic, version: 0 })
    };
    for number in 0..=FILES_ADVERTISED_MAX {
        let message = advertised.message(&answer(&[1], vec![name(number)], vec![location(0, 0)]));
        assert_eq!(message.table_files.len(), 1);
    }
    assert!(advertised.files.len() <= FILES_ADVERTISED_MAX);
    let again = advertised.message(&answer(&[1], vec![name(0)], vec![location(0, 0)]));
    assert_eq!(again.table_files.len(), 1, "forgotten, so it is advertised again");
    assert_eq!(again.locations[0].table_file_id, again.table_files[0].table_file_id);
    for _ in 0..10 {
        advertised.message(&answer(&[1], vec![bundle(1)], vec![location(0, 0)]));
    }
    assert!(advertised.files.len() < 10 && advertised.free.len() < 2, "bundles are not remembered");
}

#[test]
fn ids_begin_anew_when_there_are_no_more() {
    let mut advertised = Advertised { last: u32::MAX - 1, ..Advertised::default() };
    let ask = |advertised: &mut Advertised, number| {
        let message = advertised.message(&answer(&[1], vec![file(number)], vec![location(0, 0)]));
        (message.locations[0].table_file_id, message.table_files.len())
    };
    assert_eq!(ask(&mut advertised, 1), (u32::MAX, 1));
    assert_eq!(ask(&mut advertised, 2), (1, 1));
    assert_eq!(ask(&mut advertised, 1), (2, 1), "its old id may be another file's by now");
}

#[test]
fn answers_of_a_batch_share_its_bundles_and_those_of_another_do_not() {
    let resources = || vec![bundle(1), file(2), bundle(3)];
    let locations = || vec![location(0, 0), location(1, 0), location(2, 0), location(2, 10), None];
    let asked: [&[u8]; 4] = [&[1, 3], &[5, 1], &[2, 3, 4], &[]];
    let batch = answers_together(&asked, resources(), locations());
    let mut advertised = Advertised::default();
    let shown: Vec<_> = batch.iter().map(|answer| ids(&advertised.message(answer))).collect();
    assert_eq!(
        shown,
        [(vec![1, 2], vec![1, 2]), (vec![3], vec![3, 1]), (vec![], vec![3, 2]), (vec![], vec![]),]
    );
    let another = answers_together(
        &[&[1, 2]],
        vec![bundle(1), file(2)],
        vec![location(0, 0), location(1, 0)],
    );
    // The client keeps the last record of each id, and files never change.
    let (new_ids, used) = ids(&advertised.message(&another[0]));
    assert_eq!((new_ids.len(), used[1]), (1, 2));
    assert_eq!(used[0], new_ids[0]);
}

/// Clients keep all ids of a stream, so the server reuses ids.
#[test]
fn ids_of_bundles_are_used_again_when_their_batch_has_ended() {
    let (mut advertised, mut known_urls) = (Advertised::default(), HashMap::new());
    for number in 0..100 {
        let resources = vec![bundle(number), file(7), bundle(number + 1)];
        let asked: [&[u8]; 3] = [&[1], &[2, 1], &[3, 2]];
        let locations = vec![location(0, 0), location(1, 0), location(2, 0)];
        let batch = answers_together(&asked, resources.clone(), locations);
        let shown: Vec<_> = batch
            .iter()
            .map(|answer| known(&advertised.message(answer), &mut known_urls))
            .collect();
        let expected =
            |which: &[usize]| which.iter().map(|&which| urls().url(&resources[which])).collect();
        assert_eq!(
            shown,
            [expected(&[0]), expected(&[1, 0]), expected(&[2, 1])] as [Vec<String>; 3]
        );
    }
    assert_eq!(known_urls.len(), 3);
}

/// Whatever the server forgets, a client that relocations records of the same id finds every chunk.
#[test]
fn bundles_are_those_of_the_batch_when_ids_begin_anew_in_it() {
    let asked: [&[u8]; 3] = [&[1], &[2, 1], &[3, 2, 1]];
    let resources = vec![bundle(1), file(2), bundle(3)];
    let batch = answers_together(
        &asked,
        resources.clone(),
        vec![location(0, 0), location(1, 0), location(2, 0)],
    );
    let (mut advertised, mut known_urls) =
        (Advertised { last: u32::MAX - 4, ..Advertised::default() }, HashMap::new());
    let expected =
        |which: &[usize]| which.iter().map(|&which| urls().url(&resources[which])).collect();
    let shown: Vec<Vec<String>> =
        batch.iter().map(|answer| known(&advertised.message(answer), &mut known_urls)).collect();
    assert_eq!(
        shown,
        [expected(&[0]), expected(&[1, 0]), expected(&[2, 1, 0])] as [Vec<String>; 3]
    );
    assert!(advertised.last < 10, "they have begun anew");
}

#[test]
fn ranges_are_those_of_the_request_alone() {
    let asked: [&[u8]; 3] = [&[1, 2], &[3, 1, 3], &[4]];
    let locations = vec![location(0, 0), location(1, 0), location(1, 10), None];
    let batch = answers_together(&asked, vec![bundle(1), bundle(2)], locations);
    assert_eq!(batch.iter().map(Answer::counts).collect::<Vec<_>>(), [(2, 0), (3, 0), (0, 1)]);
    let shown: Vec<Vec<(String, Vec<u8>)>> = batch
        .into_iter()
        .map(|answer| answer.into_ranges().locs.iter().map(range_hashes).collect())
        .collect();
    let [one, two] = [1, 2].map(|number| urls().url(&bundle(number)));
    assert_eq!(shown[0], [(one.clone(), vec![1]), (two.clone(), vec![2])]);
    assert_eq!(shown[1], [(one, vec![1]), (two, vec![3])], "an address has one range");
    assert_eq!(shown[2], []);
}

fn range_hashes(loc: &DownloadLoc) -> (String, Vec<u8>) {
    let Some(download_loc::Location::HttpGetRange(range)) = &loc.location else {
        panic!("{loc:?}")
    };
    (range.url.clone(), range.ranges.iter().map(|range| range.hash[0]).collect())
}

#[test]
fn each_entry_of_a_request_is_answered() {
    let asked = answer(&[1, 2, 1, 3], vec![bundle(9)], vec![location(0, 0), None, location(0, 10)]);
    assert_eq!(asked.counts(), (3, 1));
    let message = Advertised::default().message(&asked);
    let locations: Vec<_> = message
        .locations
        .iter()
        .map(|location| (location.request_index, location.offset))
        .collect();
    assert_eq!(locations, [(0, 0), (2, 0), (3, 10)]);
    assert_eq!(message.missing_indexes, [1]);
    let ranges = asked.into_ranges();
    let Some(download_loc::Location::HttpGetRange(range)) = &ranges.locs[0].location else {
        panic!("{ranges:?}")
    };
    let hashes: Vec<&[u8]> = range.ranges.iter().map(|range| &range.hash[..]).collect();
    assert_eq!(hashes, [[1; 20], [3; 20]], "an address has one range");
}

#[test]
fn ranges_are_by_resource_and_say_where_their_dictionary_is() {
    let dictionary = Some(Span { offset: 500, length: 60 });
    let zstd = ResourceLocation { resource: 1, span: Span { offset: 7, length: 8 }, dictionary };
    let locations = vec![location(0, 0), Some(zstd), location(0, 10)];
    let ranges = answer(&[1, 2, 3], vec![file(1), file(2)], locations).into_ranges();
    let shown: Vec<_> = ranges
        .locs
        .iter()
        .map(|loc| {
            let Some(download_loc::Location::HttpGetRange(range)) = &loc.location else {
                panic!("{loc:?}")
            };
            assert_eq!((&loc.refresh_after, &loc.refresh_request), (&None, &None));
            let ranges = range.ranges.iter();
            ranges
                .map(|r| (r.hash[0], r.offset, r.length, r.dictionary_offset, r.dictionary_length))
                .collect()
        })
        .collect::<Vec<Vec<_>>>();
    assert_eq!(shown, [vec![(1, 0, 10, 0, 0), (3, 10, 10, 0, 0)], vec![(2, 7, 8, 500, 60)]]);
}
