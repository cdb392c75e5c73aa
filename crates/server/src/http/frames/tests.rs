use std::time::Duration;

use tokio::time::advance;

use super::*;

const PING: u8 = 6;

fn frame(kind: u8, flags: u8, stream: u32, payload: usize) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), &vec![0xff; payload]].concat()
}

/// Runs a test on a connection of HTTP/2, in paused time.
fn with(test: impl AsyncFnOnce(FrameBudget)) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let mut budget = FrameBudget::new();
        assert!(!budget.receive(PREFACE));
        test(budget).await;
    });
}

/// Counts how many of these frames a connection may send.
fn borne(budget: &mut FrameBudget, frame: &[u8]) -> u64 {
    (0..1_000_000).take_while(|_| !budget.receive(frame)).count() as u64
}

#[test]
fn a_flood_of_what_asks_for_nothing_is_noticed_whatever_it_is() {
    for flood in [
        frame(PING, 0, 0, 8),
        frame(PING, 1, 0, 8),
        frame(4, 0, 0, 0),
        frame(4, 1, 0, 0),
        frame(2, 0, 1, 5),
        frame(9, 0, 1, 0),
        frame(DATA, 0, 1, 0),
        frame(DATA, 0, 1, 1),
        frame(0xee, 0, 0, 100),
    ] {
        with(async |mut budget| {
            assert_eq!(borne(&mut budget, &flood), CONTROL_FRAMES_START, "{flood:?}");
            advance(Duration::from_secs(1)).await;
            assert_eq!(borne(&mut budget, &flood), CONTROL_FRAMES_PER_SECOND);
            advance(Duration::from_secs(1_000_000)).await;
            assert_eq!(borne(&mut budget, &flood), CONTROL_FRAMES_START);
        });
    }
    with(async |mut budget| {
        let long = frame(4, 0, 0, 16_380);
        assert!(borne(&mut budget, &long) <= CONTROL_FRAMES_START / 60);
    });
}

#[test]
fn requests_and_what_they_hold_cost_nothing() {
    with(async |mut budget| {
        for frame in [
            frame(HEADERS, 4, 1, 100),
            frame(DATA, 0, 1, usize::try_from(DATA_BYTES_MIN).unwrap()),
            frame(DATA, 0, 1, 16_384),
        ] {
            assert_eq!(borne(&mut budget, &frame), 1_000_000);
        }
    });
}

/// Empty DATA at the end of a stream that had ended already was once free of charge: a client sent
/// 35 million frames in six seconds.
#[test]
fn a_stream_ends_once() {
    with(async |mut budget| {
        let end = frame(DATA, END_STREAM, 1, 0);
        for stream in (1..200_001).step_by(2) {
            assert!(!budget.receive(&[frame(HEADERS, 4, stream, 100), end.clone()].concat()));
        }
        let most = borne(&mut budget, &end);
        assert_eq!(most, CONTROL_FRAMES_EARNED_MAX, "what was earned has a limit");
    });
    with(async |mut budget| {
        // A request without a body has ended.
        assert!(!budget.receive(&frame(HEADERS, 5, 1, 100)));
        let end = frame(DATA, END_STREAM, 1, 0);
        assert_eq!(borne(&mut budget, &end), CONTROL_FRAMES_START + 1);
    });
}

/// During an outage of a store a client's calls ran into its own timeout, and cancelling them once
/// got its connection closed.
#[test]
fn calls_that_are_given_up_unanswered_are_borne_by_the_hundred() {
    with(async |mut budget| {
        let given_up =
            |stream| [frame(HEADERS, 4, stream, 100), frame(RST_STREAM, 0, stream, 4)].concat();
        for stream in (1..2_001).step_by(2) {
            assert!(!budget.receive(&given_up(stream)), "{stream}");
        }
        let end = (2_001..10_001).step_by(2).position(|stream| budget.receive(&given_up(stream)));
        assert!(end.is_some_and(|more| more < 10), "a thousand, and no more: {end:?}");
    });
}

#[test]
fn requests_that_begin_with_little_are_requests_and_those_that_are_reset_are_not() {
    let (headers, little) = (frame(HEADERS, 4, 1, 100), frame(DATA, 0, 1, 7));
    with(async |mut budget| {
        assert_eq!(borne(&mut budget, &[&headers[..], &little].concat()), 1_000_000);
    });
    with(async |mut budget| {
        let reset = [&headers[..], &frame(RST_STREAM, 0, 1, 4)].concat();
        assert!(borne(&mut budget, &reset) <= CONTROL_FRAMES_START);
    });
    with(async |mut budget| {
        let update = frame(WINDOW_UPDATE, 0, 1, 4);
        assert_eq!(borne(&mut budget, &update), CONTROL_FRAMES_START / 2);
    });
}

#[test]
fn who_takes_answers_may_measure_the_line_and_say_what_it_read() {
    with(async |mut budget| {
        let (ping, update) = (frame(PING, 0, 0, 8), frame(WINDOW_UPDATE, 0, 1, 4));
        // Small answers, to each of which the client replies with a PING and two WINDOW_UPDATEs.
        for _ in 0..100_000 {
            budget.send(&frame(HEADERS, 4, 1, 20));
            budget.send(&frame(DATA, 0, 1, 70));
            budget.send(&frame(HEADERS, 5, 1, 20));
            assert!(!budget.receive(&[&ping[..], &update, &update].concat()));
        }
        // The smallest messages of a long stream, requested and measured one by one.
        for _ in 0..100_000 {
            assert!(!budget.receive(&frame(DATA, 0, 1, 27)));
            budget.send(&frame(DATA, 0, 1, 8));
            assert!(!budget.receive(&ping));
        }
        // The client acknowledges each KiB of a long answer twice.
        for _ in 0..10_000 {
            budget.send(&frame(DATA, 0, 1, 16_384));
            assert!(!budget.receive(&update.repeat(32)));
        }
        budget.send(&frame(DATA, 0, 1, 16_384));
        let most = borne(&mut budget, &ping);
        assert_eq!(most, CONTROL_FRAMES_EARNED_MAX, "what was earned has a limit");
    });
    with(async |mut budget| {
        let (byte, update) = (frame(DATA, 0, 1, 1), frame(WINDOW_UPDATE, 0, 1, 4));
        let mut takes_byte = || {
            budget.send(&byte);
            !budget.receive(&update)
        };
        let taken = (0..1_000_000).take_while(|_| takes_byte()).count() as u64;
        assert!(taken <= CONTROL_FRAMES_START, "byte by byte: {taken}");
    });
}

#[test]
fn frames_are_found_however_they_are_cut() {
    let stream = [
        frame(HEADERS, 4, 7, 30),
        frame(PING, 0, 0, 8),
        frame(DATA, 0, 7, 300),
        frame(4, 0, 0, 0),
        frame(DATA, 0, 7, 1),
    ];
    let all = stream.concat();
    for size in 1..all.len() {
        with(async |mut budget| {
            for part in all.chunks(size) {
                assert!(!budget.receive(part));
                budget.send(part);
            }
            assert_eq!(budget.stream, 7);
            assert!(budget.received.is_between() && budget.sent.is_between());
            let earned = 1 + HEADERS_CREDIT + (1 + 300 / BYTES_PER_CREDIT) + 1;
            assert_eq!(
                borne(&mut budget, &frame(PING, 0, 0, 8)),
                CONTROL_FRAMES_START - 3 + earned,
                "{size}"
            );
        });
    }
}

#[test]
fn the_preface_may_come_in_pieces_and_without_it_nothing_counts() {
    with(async |_| {
        let ping = frame(PING, 0, 0, 8);
        for cut in 0..=PREFACE.len() {
            let mut budget = FrameBudget::new();
            assert!(!budget.receive(&PREFACE[..cut]));
            assert!(!budget.receive(&[&PREFACE[cut..], &ping].concat()));
            assert_eq!(borne(&mut budget, &ping), CONTROL_FRAMES_START - 1, "{cut}");
        }
        for other in ["GET / HTTP/1.1\r\n", "PRI * HTTP/1.1\r\n", "PRIX"] {
            let mut budget = FrameBudget::new();
            assert!(!budget.receive(other.as_bytes()));
            assert_eq!(borne(&mut budget, &ping), 1_000_000, "{other}");
            assert_eq!(budget.goaway(), None);
        }
    });
}

#[test]
fn a_client_is_sent_away_between_two_frames_and_told_its_last_request() {
    with(async |mut budget| {
        assert!(!budget.receive(&frame(HEADERS, 4, 5, 30)));
        let goaway = budget.goaway().unwrap();
        assert_eq!(goaway.len(), HEAD_BYTES + 8 + WHY.len());
        let mut bytes = &goaway[..];
        let head = Frames::default().next(&mut bytes).unwrap();
        assert_eq!((head.kind, head.stream, head.bytes), (GOAWAY, 0, 8 + WHY.len() as u64));
        assert_eq!(bytes[..8], [0, 0, 0, 5, 0, 0, 0, 0xb]);
        let answer = frame(DATA, 0, 5, 100);
        budget.send(&answer[..50]);
        assert_eq!(budget.goaway(), None);
        budget.send(&answer[50..]);
        assert!(budget.goaway().is_some());
    });
}
