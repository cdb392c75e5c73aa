//! Every limit and default of requests to a store, with its reason.

use std::time::Duration;

/// Most bytes of memory that are reserved for a body before it comes: its header may lie.
pub(super) const BODY_RESERVED_BYTES_MAX: usize = 1 << 20;

/// Timeout of opening a connection, which takes 100 ms on the same continent, TLS included.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of one attempt at a listing, all pages together: 1,000 names come per page, in about 100
/// ms.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// First pause after a failed attempt; it doubles, less up to half of it by chance.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// First pause after the store asked to slow down.
pub(super) const BACKOFF_SLOW_DOWN_MIN: Duration = Duration::from_millis(200);
/// Longest pause between two attempts.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Attempts at a read that brings some bytes with each of them; without a new byte fewer end it.
pub(super) const RESUMES_MAX: u32 = 100;

/// Factor by which a foreground read has more attempts than others.
pub(super) const FOREGROUND_ATTEMPTS_FACTOR: u32 = 2;
/// Interval at which a read checks whether somebody still wants it. One that waits for a slot ends
/// at once if nobody does, one under way if nobody did twice.
pub(super) const INTEREST_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The window never closes: one request at a time tells when the store is well again.
pub(super) const WINDOW_MIN: f64 = 1.0;
/// Part of the window that fills may take, so that a foreground read seldom waits for one to end.
pub(super) const WINDOW_FILL_SHARE: f64 = 0.75;

/// Slots fewer for fills, of this part, for each foreground read under way. A few readers leave
/// fills what they need; beside 16 of them, in a window of 64, one fill runs.
pub(super) const WINDOW_FILL_PER_READ: f64 = 3.0;
/// Window from which on one fill may be under way whatever waits.
pub(super) const WINDOW_WITH_FILL_MIN: f64 = 4.0;

/// Weight of a new measurement of the time to the first byte.
pub(super) const FIRST_BYTE_WEIGHT: f64 = 0.125;
/// Weight of a new measurement of a response's bandwidth.
pub(super) const BANDWIDTH_WEIGHT: f64 = 0.25;
/// Shortest body that says something about bandwidth: shorter ones come in one piece with the
/// header.
pub(super) const BANDWIDTH_BYTES_MIN: u64 = 128 << 10;
/// Time after which what has come of a body is measured, however little it is: over a slow link the
/// end of a body is a minute away.
pub(super) const BANDWIDTH_SAMPLE_TIME: Duration = Duration::from_secs(1);

/// Bytes per second below which a link is slow: speculation gives way to reads that somebody waits
/// for.
pub(super) const SLOW_LINK_BANDWIDTH: f64 = 1e6;
/// Longest pause of a body of a fill beside reads that somebody waits for: shorter than the stall
/// timeout, so that no store takes the connection for dead.
pub(super) const GIVE_WAY_MAX: Duration = Duration::from_secs(3);
/// Interval at which a paused body checks whether the link is free.
pub(super) const GIVE_WAY_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time for which a body of a fill goes on between two pauses, so that a store that is read all the
/// time comes to disk, too.
pub(super) const GIVE_WAY_TURN: Duration = Duration::from_millis(500);
/// Stall timeouts for which a request waits without a byte of its own, as long as other answers of
/// the store move over a slow link: its bytes are behind theirs.
pub(super) const STALLS_BEHIND_OTHERS_MAX: u32 = 3;

/// Part of the first bytes that a request may be slower than until it is sent again.
pub(super) const HEDGE_QUANTILE: f64 = 0.99;
/// Hedges that each request earns: one more request in a hundred, whatever happens.
pub(super) const HEDGE_BUDGET: f64 = 0.01;
/// Hedges that are saved up, at most: a store that gets slow as a whole gets no more at once.
pub(super) const HEDGES_SAVED_MAX: f64 = 8.0;
/// Shortest time after which a request is sent again: a near store's slow answers are sooner there.
pub(super) const HEDGE_AFTER_MIN: Duration = Duration::from_millis(20);
/// Mean first bytes that a request waits for, at least, before it is sent again: where the slowest
/// percent is hardly slower than the rest, a second request wins nothing.
pub(super) const HEDGE_MEANS_MIN: u32 = 2;
/// First bytes that are measured before the first hedge.
pub(super) const HEDGE_SAMPLES_MIN: u32 = 100;
/// First bytes from which on the older ones count half.
pub(super) const HEDGE_SAMPLES_MAX: u32 = 4096;

/// Bodies of fills and readahead side by side whose rates are compared.
pub(super) const SIDE_BY_SIDE_MAX: usize = 8;
/// Time to the first byte from which on a store is far: one connection may bring less than the
/// link, because it waits for a round trip per window.
pub(super) const FAR_FIRST_BYTE: Duration = Duration::from_millis(50);
/// Time for which a rate of some bodies together is measured.
pub(super) const TOGETHER_SAMPLE_TIME: Duration = Duration::from_millis(500);
/// Weight of a new measurement of such a rate.
pub(super) const TOGETHER_WEIGHT: f64 = 0.5;
/// Part of the rate of one body that one body more has to bring.
pub(super) const TOGETHER_GAIN_MIN: f64 = 0.5;
/// Time after which such a rate is forgotten, so that one body more is tried again.
pub(super) const TOGETHER_REMEMBERED: Duration = Duration::from_secs(60);

/// Reads of one `file://` store at once: as many threads are lost to other stores when its disk
/// hangs.
pub(super) const FILE_READS_MAX: usize = 8;
/// Bytes of a piece in which a file is read.
pub(super) const FILE_PIECE_BYTES: u64 = 512 << 10;

/// Characters of an answer that an error quotes.
pub(super) const CAUSE_CHARACTERS_MAX: usize = 300;
/// Edits between an unknown key and a known one that an error suggests.
pub(super) const NEAR_NAME_EDITS_MAX: usize = 3;

const _: () = {
    assert!(GIVE_WAY_POLL_INTERVAL.as_millis() < GIVE_WAY_TURN.as_millis());
    assert!(GIVE_WAY_TURN.as_millis() < GIVE_WAY_MAX.as_millis());
    assert!(0 < STALLS_BEHIND_OTHERS_MAX);
    assert!(0.0 < HEDGE_BUDGET && HEDGE_BUDGET <= 1.0 - HEDGE_QUANTILE + 1e-9);
    assert!(HEDGE_SAMPLES_MIN < HEDGE_SAMPLES_MAX);
    assert!(BACKOFF_MIN.as_millis() <= BACKOFF_SLOW_DOWN_MIN.as_millis());
    assert!(BACKOFF_SLOW_DOWN_MIN.as_millis() < BACKOFF_MAX.as_millis());
    assert!(0.0 < WINDOW_FILL_SHARE && WINDOW_FILL_SHARE < 1.0);
};
