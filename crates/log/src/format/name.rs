//! Names of the files in a log's directory.

/// Name of the file that a process locks while it has the log open.
pub const LOCK_NAME: &str = "lock";

/// Suffix of a segment's name. The segment's number in 20 decimal digits precedes it.
pub const SEGMENT_SUFFIX: &str = ".log";

/// Suffix of a segment's name while its zeros are being written.
pub const TEMPORARY_SUFFIX: &str = ".log.new";

/// Suffix of the name of a file that was a segment and will be another.
pub const SPARE_SUFFIX: &str = ".log.spare";

/// Name of the file that a process locks while it copies segments: as long as it does, none is used
/// again.
pub const COPY_LOCK_NAME: &str = "copy.lock";

/// Name of the file that names the last segment.
pub const LAST_SEGMENT_NAME: &str = "last-segment";

/// Name under which a new [`LAST_SEGMENT_NAME`] is written before it is renamed.
pub const LAST_SEGMENT_TEMPORARY_NAME: &str = "last-segment.new";

/// Name of the file in a directory whose log is not complete, because a restore into it has not
/// ended. A start refuses it.
pub const INCOMPLETE_NAME: &str = "restore-incomplete";

const DIGIT_COUNT: usize = 20;

/// Returns the name of the segment with this number.
pub fn segment_name(number: u64) -> String {
    format!("{number:020}{SEGMENT_SUFFIX}")
}

pub(crate) fn temporary_name(number: u64) -> String {
    format!("{number:020}{TEMPORARY_SUFFIX}")
}

pub(crate) fn spare_name(number: u64) -> String {
    format!("{number:020}{SPARE_SUFFIX}")
}

/// Kind of a file, judged by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameKind {
    Segment(u64),
    Temporary,
    /// The name ends like a segment's but is none: a copy, a rename, a mistake.
    Malformed,
    Other,
}

impl NameKind {
    pub fn of(name: &str) -> Self {
        if name == LAST_SEGMENT_TEMPORARY_NAME {
            return NameKind::Temporary;
        }
        for suffix in [TEMPORARY_SUFFIX, SPARE_SUFFIX] {
            if let Some(digits) = name.strip_suffix(suffix) {
                return if number(digits).is_some() {
                    NameKind::Temporary
                } else {
                    NameKind::Other
                };
            }
        }
        match name.strip_suffix(SEGMENT_SUFFIX) {
            None => NameKind::Other,
            Some(digits) => number(digits).map_or(NameKind::Malformed, NameKind::Segment),
        }
    }
}

fn number(digits: &str) -> Option<u64> {
    let well_formed =
        digits.len() == DIGIT_COUNT && digits.bytes().all(|digit| digit.is_ascii_digit());
    if well_formed { digits.parse().ok().filter(|&number| number != 0) } else { None }
}
