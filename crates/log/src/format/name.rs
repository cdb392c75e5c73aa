//! Names of the files in a log's directory.

/// Taken while the log is open.
pub const LOCK_NAME: &str = "lock";

/// What a segment's name ends with; before it stands its number in 20 decimal digits.
pub const SEGMENT_SUFFIX: &str = ".log";

/// What the name of a segment ends with while its zeros are written.
pub const TEMPORARY_SUFFIX: &str = ".log.new";

/// Names the last segment.
pub const LAST_SEGMENT_NAME: &str = "last-segment";

/// What is to become [`LAST_SEGMENT_NAME`].
pub const LAST_SEGMENT_TEMPORARY_NAME: &str = "last-segment.new";

const DIGIT_COUNT: usize = 20;

pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:020}{SEGMENT_SUFFIX}")
}

pub(crate) fn temporary_name(number: u64) -> String {
    format!("{number:020}{TEMPORARY_SUFFIX}")
}

/// What a file is, going by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameKind {
    Segment(u64),
    Temporary,
    /// Ends like a segment but is none: a copy, a rename, a mistake.
    Malformed,
    Other,
}

impl NameKind {
    pub fn of(name: &str) -> Self {
        if name == LAST_SEGMENT_TEMPORARY_NAME {
            return NameKind::Temporary;
        }
        if let Some(digits) = name.strip_suffix(TEMPORARY_SUFFIX) {
            return if number(digits).is_some() { NameKind::Temporary } else { NameKind::Other };
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
