//! Streams whose other end is a test.

use std::cell::RefCell;

use busload_proto::remotesapi::{
    ChunkLocation as Location, DownloadLoc, HttpGetRange, RangeChunk, TableFileRecord,
};
use futures_util::FutureExt;
use tokio::{
    runtime::Builder,
    sync::mpsc::{UnboundedSender, unbounded_channel},
};

use super::*;

/// The other ends of the streams opened so far.
type Opened = RefCell<Vec<(Receiver<Vec<ChunkAddress>>, UnboundedSender<Result<Answer, Status>>)>>;

/// A stream whose requests and answers are at hand.
fn open_in(opened: &Opened) -> Call {
    let (requests, received) = channel(STREAM_REQUESTS);
    let (answer, mut answers) = unbounded_channel();
    opened.borrow_mut().push((received, answer));
    let answers = stream::poll_fn(move |context| answers.poll_recv(context));
    Call { requests: Some(requests), answers: Box::pin(answers) }
}

fn addresses(count: u16) -> Vec<ChunkAddress> {
    (0..count).map(|number| ChunkAddress::of(&number.to_be_bytes())).collect()
}

/// Answers with all chunks of a request, one after the other in one file.
fn all(request: &[ChunkAddress]) -> Result<Answer, Status> {
    let location = |index: u32| Location {
        table_file_id: 1,
        request_index: index,
        offset: u64::from(index) * 10,
        length: 10,
        ..Location::default()
    };
    let record = TableFileRecord {
        table_file_id: 1,
        url: "http://host/a".into(),
        ..TableFileRecord::default()
    };
    Ok(Answer::New(StreamChunkLocationsResponse {
        table_files: vec![record],
        locations: (0..u32::try_from(request.len()).unwrap()).map(location).collect(),
        ..StreamChunkLocationsResponse::default()
    }))
}

/// Lets the locations go as far as they get; what came.
fn poll(locations: &mut Locations<'_>) -> Option<Result<Vec<LocatedChunk>, Failure>> {
    locations.next().now_or_never()
}

/// The next request of the last stream.
fn request(opened: &Opened, locations: &mut Locations<'_>) -> Vec<ChunkAddress> {
    assert!(poll(locations).is_none());
    opened.borrow_mut().last_mut().unwrap().0.try_recv().unwrap()
}

fn answer(opened: &Opened, answer: Result<Answer, Status>) {
    opened.borrow().last().unwrap().1.send(answer).map_err(drop).unwrap();
}

#[test]
fn requests_have_512_addresses_and_answers_come_in_their_order() {
    let (opened, meter) = (Opened::default(), Meter::default());
    let mut locations = Locations::over("test", &meter, || open_in(&opened));
    let wanted = addresses(1_100);
    locations.want(wanted.iter().copied());
    let requests: Vec<_> = (0..3).map(|_| request(&opened, &mut locations)).collect();
    assert_eq!(requests.iter().map(Vec::len).collect::<Vec<_>>(), [512, 512, 76]);
    // The last that became known are asked for first.
    assert_eq!(requests[0], wanted[588..]);
    for asked in &requests {
        answer(&opened, all(asked));
    }
    for asked in &requests {
        let located = poll(&mut locations).unwrap().unwrap();
        assert!(
            located.iter().map(|located_chunk| located_chunk.address).eq(asked.iter().copied())
        );
        assert!(located.iter().all(|located_chunk| &*located_chunk.url == "http://host/a"));
    }
    assert_eq!(meter.begin().end(Vec::new()).counts.retries, 0);
}

#[test]
fn a_stream_that_breaks_is_opened_again_and_asked_for_what_is_owed() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (opened, meter) = (Opened::default(), Meter::default());
    let mut locations = Locations::over("test", &meter, || open_in(&opened));
    locations.want(addresses(1_100));
    let requests: Vec<_> = (0..3).map(|_| request(&opened, &mut locations)).collect();
    answer(&opened, all(&requests[0]));
    poll(&mut locations).unwrap().unwrap();
    answer(&opened, Err(Status::unavailable("gone")));
    // The rest is asked for on the next stream, in the same order.
    let answering = async {
        for asked in &requests[1..] {
            let again = loop {
                tokio::task::yield_now().await;
                if let Some((received, _)) = opened.borrow_mut().get_mut(1)
                    && let Ok(request) = received.try_recv()
                {
                    break request;
                }
            };
            assert_eq!(&again, asked);
            answer(&opened, all(&again));
        }
    };
    let reading = async {
        let mut located = locations.next().await.unwrap();
        located.extend(locations.next().await.unwrap());
        located
    };
    let (located, ()) = runtime.block_on(futures_util::future::join(reading, answering));
    assert!(located.iter().map(|located_chunk| located_chunk.address).eq(requests[1..].concat()));
    assert_eq!(opened.borrow().len(), 2);
}

#[test]
fn what_cannot_help_is_not_tried_again() {
    let (opened, meter) = (Opened::default(), Meter::default());
    let mut locations = Locations::over("test", &meter, || open_in(&opened));
    locations.want(addresses(1));
    request(&opened, &mut locations);
    answer(&opened, Err(Status::not_found("no such store")));
    let failure = poll(&mut locations).unwrap().unwrap_err();
    assert_eq!(failure, Failure::Refused("test: NotFound: no such store".to_owned()));
    assert_eq!(opened.borrow().len(), 1);
}

#[test]
fn a_chunk_that_is_missing_is_wrong() {
    let (opened, meter) = (Opened::default(), Meter::default());
    for missing in [vec![1], Vec::new()] {
        let mut locations = Locations::over("test", &meter, || open_in(&opened));
        locations.want(addresses(2));
        let asked = request(&opened, &mut locations);
        let Ok(Answer::New(mut response)) = all(&asked[..1]) else {
            unreachable!("all() makes new answers")
        };
        response.missing_indexes = missing;
        answer(&opened, Ok(Answer::New(response)));
        let failure = poll(&mut locations).unwrap().unwrap_err();
        assert!(matches!(failure, Failure::Wrong(_)), "{failure:?}");
    }
}

#[test]
fn a_resource_that_was_not_introduced_is_wrong() {
    let (opened, meter) = (Opened::default(), Meter::default());
    let mut locations = Locations::over("test", &meter, || open_in(&opened));
    locations.want(addresses(1));
    let asked = request(&opened, &mut locations);
    let Ok(Answer::New(mut response)) = all(&asked) else {
        unreachable!("all() makes new answers")
    };
    response.table_files.clear();
    answer(&opened, Ok(Answer::New(response)));
    assert!(matches!(poll(&mut locations), Some(Err(Failure::Wrong(_)))));
}

#[test]
fn places_of_legacy_answers_are_those_of_new_ones() {
    let (opened, meter) = (Opened::default(), Meter::default());
    let mut locations = Locations::over("test", &meter, || open_in(&opened));
    locations.want(addresses(1));
    let asked = request(&opened, &mut locations);
    let range = RangeChunk {
        hash: Bytes::copy_from_slice(&asked[0].0),
        offset: 30,
        length: 7,
        dictionary_offset: 2,
        dictionary_length: 5,
    };
    let resource = HttpGetRange { url: "http://host/b".into(), ranges: vec![range] };
    let loc = DownloadLoc {
        location: Some(super::Location::HttpGetRange(resource)),
        ..DownloadLoc::default()
    };
    let response =
        GetDownloadLocsResponse { locs: vec![loc], ..GetDownloadLocsResponse::default() };
    answer(&opened, Ok(Answer::Legacy(response)));
    let located = poll(&mut locations).unwrap().unwrap();
    let span = |offset, length| Span { offset, length };
    let expected = ChunkLocation { span: span(30, 7), dictionary: Some(span(2, 5)) };
    assert_eq!((located[0].address, located[0].location), (asked[0], expected));
    assert_eq!(&*located[0].url, "http://host/b");
}

#[test]
fn a_dictionary_of_no_bytes_is_none() {
    let span = |offset, length| Span { offset, length };
    assert_eq!(
        location_of([(10, 20), (7, 0)]),
        ChunkLocation { span: span(10, 20), dictionary: None }
    );
}
