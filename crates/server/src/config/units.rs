//! Parsers of sizes, percentages of the memory, and durations as people write them.

use std::{fmt, str::FromStr, time::Duration};

/// Most digits after the point of a size.
const FRACTION_DIGITS_MAX: usize = 6;

/// A count of bytes: `4096`, `512MB` (millions), `2GiB` (powers of 1024), `1.5GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_size(text)
            .map(Size)
            .ok_or_else(|| "expected a size like 64MiB, 2GiB, 500MB or 4096".to_owned())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let mut unit = 0;
        let mut tenths = u128::from(self.0) * 10;
        while 10 * 1024 <= tenths && unit + 1 < UNITS.len() {
            tenths = tenths.div_ceil(1024);
            unit += 1;
        }
        match tenths % 10 {
            0 => write!(f, "{} {}", tenths / 10, UNITS[unit]),
            tenth => write!(f, "{}.{tenth} {}", tenths / 10, UNITS[unit]),
        }
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u128 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1000_u128.pow(2),
        "gb" => 1000_u128.pow(3),
        "tb" => 1000_u128.pow(4),
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if FRACTION_DIGITS_MAX < fraction.len() || 20 < whole.len() {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let scaled = parse_digits(whole)? * scale + parse_digits(fraction)?;
    u64::try_from(scaled * factor / scale).ok()
}

fn parse_digits(text: &str) -> Option<u128> {
    let all_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { text.parse().ok() } else { None }
}

/// Growth of the log after which a snapshot is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotLog {
    /// At least so many bytes.
    Bytes(Size),
    /// None: snapshots are made only when a client asks.
    Never,
}

impl FromStr for SnapshotLog {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::Never),
            size => {
                let parsed = size.parse().map(Self::Bytes);
                parsed.map_err(|_: String| "expected a size like 64MiB, or none".to_owned())
            }
        }
    }
}

/// Limit of memory: a size, a percentage of the machine's or the container's memory, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryMax {
    /// A limit in bytes.
    Bytes(Size),
    /// Percentage of the memory that the machine or the container has.
    Percent(u8),
    /// No limit at all.
    Unlimited,
}

impl MemoryMax {
    /// Limit unless the configuration says otherwise.
    pub const DEFAULT: Self = Self::Percent(70);

    /// Returns the limit in bytes; 0 is no limit. `None` for a percentage of an unknown total.
    pub fn bytes(self, memory_total: Option<u64>) -> Option<u64> {
        match self {
            Self::Bytes(Size(bytes)) => Some(bytes),
            Self::Unlimited => Some(0),
            Self::Percent(percent) => memory_total.map(|total| total / 100 * u64::from(percent)),
        }
    }
}

impl FromStr for MemoryMax {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected a size like 2GiB, a share like 70%, or none".to_owned();
        if text == "none" {
            return Ok(Self::Unlimited);
        }
        if let Some(percent) = text.strip_suffix('%') {
            let percent =
                percent.trim_end().parse().ok().filter(|percent| (1..=100).contains(percent));
            return percent.map(Self::Percent).ok_or_else(expected);
        }
        match parse_size(text) {
            Some(0) => {
                Err("0 would refuse every write; expected a size like 2GiB, or none".to_owned())
            }
            Some(bytes) => Ok(Self::Bytes(Size(bytes))),
            None => Err(expected()),
        }
    }
}

/// Time for which a URL of a download is valid: `12h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlLifetime(pub Duration);

impl UrlLifetime {
    /// Longer than a clone of hundreds of gigabytes takes over a slow link.
    pub const DEFAULT: Self = Self(Duration::from_secs(24 * 3600));
    const MIN: Duration = Duration::from_secs(60);
    const MAX: Duration = Duration::from_secs(7 * 24 * 3600);
}

impl FromStr for UrlLifetime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lifetime = match text.split_at_checked(text.len().saturating_sub(1)) {
            Some((hours, "h")) => hours.parse().ok().and_then(|hours: u64| hours.checked_mul(3600)),
            Some((days, "d")) => {
                days.parse().ok().and_then(|days: u64| days.checked_mul(24 * 3600))
            }
            _ => parse_duration(text).ok().map(|duration| duration.as_secs()),
        };
        lifetime
            .map(Duration::from_secs)
            .filter(|lifetime| (Self::MIN..=Self::MAX).contains(lifetime))
            .map(Self)
            .ok_or_else(|| format!("`{text}` is no lifetime; expected 1m to 7d, like 12h"))
    }
}

/// Parses a duration: `200ms`, `1s`, `2m`; a bare number is milliseconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor_ms = match unit {
        "" | "ms" => Some(1),
        "s" => Some(1_000),
        "m" | "min" => Some(60_000),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok();
    number
        .zip(factor_ms)
        .and_then(|(number, factor)| number.checked_mul(factor))
        .map(Duration::from_millis)
        .ok_or_else(|| {
            format!("`{text}` is no duration; expected milliseconds, or one like 200ms or 1s")
        })
}

/// Parses `true` or `false`.
pub fn yes_or_no(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{key} = `{value}`; expected true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Option<u64> {
        text.parse::<Size>().ok().map(|size| size.0)
    }

    #[test]
    fn sizes_are_read_with_decimal_and_binary_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512MB", 512_000_000),
            ("2GiB", 2 << 30),
            ("2gib", 2 << 30),
            ("2g", 2 << 30),
            ("1.5GiB", 3 << 29),
            ("0.5KiB", 512),
            ("7 KB", 7000),
            ("16777215TiB", 16_777_215 << 40),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        let texts = [
            "",
            "GiB",
            "-1",
            "1.2.3",
            "1.",
            ".5",
            "1e3",
            "2 GiB x",
            "16777216TiB",
            "2GiBs",
            "1.0000001",
        ];
        for text in texts.into_iter().chain(["999999999999999999999999999999999999999999"]) {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (64 << 20, "64 MiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn memory_limits_are_sizes_shares_or_none() {
        assert_eq!("70%".parse(), Ok(MemoryMax::Percent(70)));
        assert_eq!("2GiB".parse(), Ok(MemoryMax::Bytes(Size(2 << 30))));
        assert_eq!("none".parse(), Ok(MemoryMax::Unlimited));
        for text in ["0%", "101%", "-5%", "0", "%", "lots"] {
            assert!(text.parse::<MemoryMax>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_of_unknown_memory_is_unknown() {
        assert_eq!(MemoryMax::DEFAULT.bytes(Some(1000)), Some(700));
        assert_eq!(MemoryMax::DEFAULT.bytes(None), None);
        assert_eq!(MemoryMax::Unlimited.bytes(None), Some(0));
    }

    #[test]
    fn durations_are_milliseconds_unless_they_say_otherwise() {
        assert_eq!(parse_duration("200"), Ok(Duration::from_millis(200)));
        assert_eq!(parse_duration("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(parse_duration("3s"), Ok(Duration::from_secs(3)));
        for text in ["", "ms", "1h", "-1", "1.5s", "99999999999999999999"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
