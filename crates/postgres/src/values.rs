//! Parsers of values in a URL's query: counts, times, sizes, switches, lists.

use std::{ops::RangeInclusive, time::Duration};

use crate::SettingsError;

/// Maximum number of letters of a value that an error shows.
const SHOWN_MAX: usize = 80;

/// Returns the error of a value that does not fit, with the expected form.
pub(crate) fn unfit(
    option: &str,
    written: impl ToString,
    expected: impl ToString,
) -> SettingsError {
    let mut written = written.to_string();
    if let Some((end, _)) = written.char_indices().nth(SHOWN_MAX) {
        written.truncate(end);
        written.push_str("...");
    }
    SettingsError::Value { option: option.to_owned(), written, expected: expected.to_string() }
}

/// Sets an option that has no value yet.
pub(crate) fn put<T>(place: &mut Option<T>, name: &str, value: T) -> Result<(), SettingsError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(SettingsError::Twice(name.to_owned())),
    }
}

/// Parses a count: digits only.
pub(crate) fn parse_count(option: &str, text: &str) -> Result<usize, SettingsError> {
    match digits(text).and_then(|count| usize::try_from(count).ok()) {
        Some(count) => Ok(count),
        None => Err(unfit(option, text, "expected a number such as 8")),
    }
}

/// Returns the count if it is within the range, else an error.
pub(crate) fn check_count(
    option: &str,
    count: usize,
    range: RangeInclusive<usize>,
) -> Result<usize, SettingsError> {
    match range.contains(&count) {
        true => Ok(count),
        false => {
            Err(unfit(option, count, format!("expected {} to {}", range.start(), range.end())))
        }
    }
}

/// Parses a time with its unit: `500ms`, `1.5s`, `2m`.
pub(crate) fn parse_duration(option: &str, text: &str) -> Result<Duration, SettingsError> {
    with_unit(text)
        .ok_or_else(|| unfit(option, text, "expected a time with its unit such as 500ms, 2s or 1m"))
}

/// Parses a time with its unit, or a bare number in libpq's unit for this option.
pub(crate) fn parse_duration_or(
    option: &str,
    text: &str,
    libpq_unit: Duration,
) -> Result<Duration, SettingsError> {
    let bare = || libpq_unit.checked_mul(u32::try_from(digits(text)?).ok()?);
    bare().or_else(|| with_unit(text)).ok_or_else(|| {
        unfit(
            option,
            text,
            format!("expected a number (of {libpq_unit:?}) or a time such as 500ms or 2s"),
        )
    })
}

/// Returns the time if it is within the range, else an error.
pub(crate) fn check_duration(
    option: &str,
    duration: Duration,
    range: RangeInclusive<Duration>,
) -> Result<Duration, SettingsError> {
    match range.contains(&duration) {
        true => Ok(duration),
        false => Err(unfit(
            option,
            format!("{duration:?}"),
            format!("expected {:?} to {:?}", range.start(), range.end()),
        )),
    }
}

/// Parses a number of bytes: `65536`, `512MB` (millions), `64MiB` (powers of 1024).
pub(crate) fn parse_bytes(option: &str, text: &str) -> Result<u64, SettingsError> {
    let (number, unit) = split_unit(text);
    let factor: Option<u64> = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "kb" => Some(1000),
        "mb" => Some(1_000_000),
        "gb" => Some(1_000_000_000),
        "k" | "kib" => Some(1 << 10),
        "m" | "mib" => Some(1 << 20),
        "g" | "gib" => Some(1 << 30),
        _ => None,
    };
    factor
        .and_then(|factor| digits(number)?.checked_mul(factor))
        .ok_or_else(|| unfit(option, text, "expected a size such as 64MiB, 500MB or 65536"))
}

/// Parses a switch as Postgres writes it.
pub(crate) fn parse_switch(option: &str, text: &str) -> Result<bool, SettingsError> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(unfit(option, text, "expected true or false")),
    }
}

/// Splits names at commas and leaves each as it is.
pub(crate) fn parse_list(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

/// Parses an option that is one letter.
pub(crate) fn parse_letter(option: &str, text: &str) -> Result<char, SettingsError> {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => Ok(letter),
        _ => Err(unfit(option, text, "expected one letter such as :")),
    }
}

/// Suggests the name that was probably meant, or lists all names.
pub(crate) fn hint(written: &str, known: &[&str]) -> String {
    let edits_max = (written.len() / 3).clamp(1, 4);
    let near = known
        .iter()
        .map(|name| (strsim::osa_distance(written, name), name))
        .filter(|(edits, name)| {
            *edits <= edits_max || (3 <= written.len() && name.starts_with(written))
        })
        .min_by_key(|(edits, _)| *edits);
    match near {
        Some((_, name)) => format!("did you mean `{name}`?"),
        None => format!("there are {}", known.join(", ")),
    }
}

fn digits(text: &str) -> Option<u64> {
    let all_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { text.parse().ok() } else { None }
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

fn with_unit(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text);
    let unit_us: f64 = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" | "min" => 60e6,
        "h" => 3600e6,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    // Rounded to microseconds, so that 0.1s is not a nanosecond off.
    Duration::try_from_secs_f64((number * unit_us).round() / 1e6).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, expected) in [
            ("500ms", Some(500_000)),
            ("2s", Some(2_000_000)),
            ("1.5s", Some(1_500_000)),
            ("0.1s", Some(100_000)),
            ("2 s", Some(2_000_000)),
            ("1m", Some(60_000_000)),
            ("1h", Some(3_600_000_000)),
            ("250us", Some(250)),
            ("5", None),
            ("s", None),
            ("", None),
            ("-1s", None),
            ("1.2.3s", None),
            ("1e3s", None),
            ("2 parsecs", None),
            ("99999999999999999999999h", None),
        ] {
            assert_eq!(
                parse_duration("timeout", text).ok(),
                expected.map(Duration::from_micros),
                "{text}"
            );
        }
    }

    #[test]
    fn a_bare_number_is_of_libpqs_unit() {
        let seconds =
            |text| parse_duration_or("connect_timeout", text, Duration::from_secs(1)).ok();
        assert_eq!(seconds("10"), Some(Duration::from_secs(10)));
        assert_eq!(seconds("10ms"), Some(Duration::from_millis(10)));
        assert_eq!(seconds("ten"), None);
    }

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("65536", Some(65536)),
            ("64MiB", Some(64 << 20)),
            ("2m", Some(2 << 20)),
            ("500MB", Some(500_000_000)),
            ("1.5GiB", None),
            ("MiB", None),
            ("99999999999GiB", None),
        ] {
            assert_eq!(parse_bytes("queue_bytes", text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn errors_say_what_was_expected_and_stay_short() {
        let error = parse_count("batch", "many").unwrap_err().to_string();
        assert_eq!(error, "batch = `many`: expected a number such as 8");
        let error = check_count("batch", 0, 1..=16).unwrap_err().to_string();
        assert_eq!(error, "batch = `0`: expected 1 to 16");
        let long = parse_count("batch", &"x".repeat(10_000)).unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn slips_find_their_name() {
        let known = ["relation", "key", "columns", "connect_timeout", "connections", "sslmode"];
        for (written, expected) in [
            ("relaton", "did you mean `relation`?"),
            ("keys", "did you mean `key`?"),
            ("sslmod", "did you mean `sslmode`?"),
            ("connection", "did you mean `connections`?"),
        ] {
            assert_eq!(hint(written, &known), expected);
        }
        assert!(hint("colour_of_bus", &known).starts_with("there are relation, key"));
    }
}
