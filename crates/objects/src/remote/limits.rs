//! Every limit and default of talking to a store, with its reason.

use std::time::Duration;

/// Opening a connection. A store on the same continent takes 100 ms, TLS included.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// One attempt at a listing, all pages together: 1,000 names come per page, in about 100 ms.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// First pause after a failed attempt; doubles, less up to half of it by chance.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// First pause after the store asked to slow down.
pub(super) const BACKOFF_SLOW_DOWN_MIN: Duration = Duration::from_millis(200);
/// Longest pause.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Attempts without a single new byte end a read; attempts that brought some end it only when there
/// have been so many.
pub(super) const RESUMES_MAX: u32 = 100;

/// Attempts of a read somebody waits for, beside those of others.
pub(super) const FOREGROUND_ATTEMPTS_FACTOR: u32 = 2;
/// A read that waits for its turn looks so often whether somebody still wants it, and so does one
/// under way, which ends when nobody did twice.
pub(super) const INTEREST_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The window never closes: one request at a time tells when the store is well again.
pub(super) const WINDOW_MIN: f64 = 1.0;
/// Part of the window that background reads may take, so that a foreground read seldom waits for
/// one of them to end.
pub(super) const WINDOW_FILL_SHARE: f64 = 0.75;

/// Of this part so many fewer for each foreground read under way. A few readers leave fills what
/// they need; beside 16 of them, in a window of 64, there is one.
pub(super) const WINDOW_FILL_PER_READ: f64 = 3.0;
/// From this window on one fill may be under way whatever waits.
pub(super) const WINDOW_WITH_FILL_MIN: f64 = 4.0;

/// Weight of a new measurement of the time to the first byte.
pub(super) const FIRST_BYTE_WEIGHT: f64 = 0.125;
/// Weight of a new measurement of a stream's bandwidth.
pub(super) const BANDWIDTH_WEIGHT: f64 = 0.25;
/// Shorter bodies say nothing about bandwidth: they come in one piece with the header.
pub(super) const BANDWIDTH_BYTES_MIN: u64 = 128 << 10;

/// Reads of the files of one `file://` store at once: so many threads are lost to other stores when
/// its disk hangs.
pub(super) const FILE_READS_MAX: usize = 8;
/// A file is read in pieces of so many bytes.
pub(super) const FILE_PIECE_BYTES: u64 = 512 << 10;

/// Characters of an answer that an error repeats.
pub(super) const CAUSE_CHARACTERS_MAX: usize = 300;
/// Edits that make one name of another which was perhaps meant.
pub(super) const NEAR_NAME_EDITS_MAX: usize = 3;

const _: () = {
    assert!(BACKOFF_MIN.as_millis() <= BACKOFF_SLOW_DOWN_MIN.as_millis());
    assert!(BACKOFF_SLOW_DOWN_MIN.as_millis() < BACKOFF_MAX.as_millis());
    assert!(0.0 < WINDOW_FILL_SHARE && WINDOW_FILL_SHARE < 1.0);
};
