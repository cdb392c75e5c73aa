//! Parsers of what `--to` and `--keep` take: a position in the log or a time, and a time span.

use std::time::Duration;

use busload_backup::Target;
use busload_log::Lsn;

use crate::config::parse_duration;

/// Parses `lsn:123`, `123`, `@1754042400` (seconds since 1970) or a time of RFC 3339.
pub fn parse_target(text: &str) -> Result<Target, String> {
    let target = if let Some(seconds) = text.strip_prefix('@') {
        parse_seconds(seconds).map(Target::Time)
    } else if let Some(lsn) = text.strip_prefix("lsn:") {
        lsn.parse().ok().map(|lsn| Target::Record(Lsn(lsn)))
    } else if let Ok(lsn) = text.parse() {
        Some(Target::Record(Lsn(lsn)))
    } else {
        parse_time(text).map(Target::Time)
    };
    target.ok_or_else(|| {
        format!(
            "`{text}` is neither a position nor a time; expected an LSN like 123, a time like \
             2025-08-01T10:00:00Z or 2025-08-01T12:00:00+02:00, or seconds since 1970 like \
             @1754042400"
        )
    })
}

/// Parses a time span: `30d`, `12h`, or what durations of the configuration are.
pub fn parse_keep(text: &str) -> Result<Duration, String> {
    let expected = |_| format!("`{text}` is no time span; expected one like 30d or 12h");
    let in_units = |number: &str, seconds: u64| {
        let number: Option<u64> = number.parse().ok();
        number.and_then(|number| number.checked_mul(seconds)).map(Duration::from_secs)
    };
    match (text.strip_suffix('d'), text.strip_suffix('h')) {
        (Some(days), _) => in_units(days, 86_400).ok_or(()).map_err(expected),
        (_, Some(hours)) => in_units(hours, 3_600).ok_or(()).map_err(expected),
        _ => parse_duration(text).map_err(|_| expected(())),
    }
}

/// Returns the milliseconds of seconds like 1754042400 or 1754042400.5.
fn parse_seconds(text: &str) -> Option<i64> {
    let (whole, fraction_ms) = split_fraction(text)?;
    let seconds: u32 = digits(whole)?.try_into().ok()?;
    Some(i64::from(seconds) * 1_000 + fraction_ms)
}

/// Cuts the digits behind a point off; returns the milliseconds that they stand for.
fn split_fraction(text: &str) -> Option<(&str, i64)> {
    let Some((whole, fraction)) = text.split_once('.') else { return Some((text, 0)) };
    digits(fraction).filter(|_| fraction.len() <= 9)?;
    Some((whole, format!("{fraction}00")[..3].parse().ok()?))
}

fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Returns the milliseconds since 1970 of a time like 2025-08-01T12:00:00.5+02:00.
fn parse_time(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let (time, offset_minutes) = split_offset(time)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (time, fraction_ms) = split_fraction(time)?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let in_range = (1..=12).contains(&month)
        && (1..=days_of_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !in_range {
        return None;
    }
    let minutes = days(year, month, day) * 1_440 + hour * 60 + minute - offset_minutes;
    Some((minutes * 60 + second) * 1_000 + fraction_ms)
}

/// Cuts `Z`, `+02:00` or `-02:00` off; returns the minutes that it stands for.
fn split_offset(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let at = time.rfind(['+', '-'])?;
    let [hours, minutes] = numbers(&time[at + 1..], ':', [2, 2])?;
    let sign = if time[at..].starts_with('-') { -1 } else { 1 };
    (hours < 24 && minutes < 60).then_some((&time[..at], sign * (hours * 60 + minutes)))
}

/// Returns numbers of exactly these many digits.
fn numbers<const N: usize>(text: &str, separator: char, lengths: [usize; N]) -> Option<[i64; N]> {
    let mut found = [0; N];
    let mut parts = text.split(separator);
    for (number, length) in found.iter_mut().zip(lengths) {
        let part = parts.next().filter(|part| part.len() == length)?;
        *number = digits(part)?.try_into().ok()?;
    }
    if parts.next().is_none() { Some(found) } else { None }
}

fn days_of_month(year: i64, month: i64) -> i64 {
    let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days(next_year, next, 1) - days(year, month, 1)
}

/// Returns the days from 1970-01-01 to a date (Howard Hinnant, "chrono-compatible low-level date
/// algorithms", days_from_civil).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logger::Utc;

    #[test]
    fn positions_and_times_are_read() {
        for (text, target) in [
            ("123", Target::Record(Lsn(123))),
            ("lsn:123", Target::Record(Lsn(123))),
            ("@1754042400", Target::Time(1_754_042_400_000)),
            ("@1754042400.5", Target::Time(1_754_042_400_500)),
            ("2025-08-01T10:00:00Z", Target::Time(1_754_042_400_000)),
            ("2025-08-01 10:00:00.123456Z", Target::Time(1_754_042_400_123)),
            ("2025-08-01T12:00:00+02:00", Target::Time(1_754_042_400_000)),
            ("2025-07-31T23:30:00-10:30", Target::Time(1_754_042_400_000)),
            ("2024-02-29T00:00:00Z", Target::Time(1_709_164_800_000)),
            ("2024-12-31T23:59:59Z", Target::Time(1_735_689_599_000)),
        ] {
            assert_eq!(parse_target(text), Ok(target), "{text}");
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        for text in [
            "",
            "-1",
            "lsn:",
            "@",
            "@x",
            "@1.",
            "yesterday",
            "2025-08-01",
            "2025-08-01T10:00:00",
            "2025-02-29T10:00:00Z",
            "2025-13-01T10:00:00Z",
            "2025-08-01T24:00:00Z",
            "2025-08-01T10:00Z",
            "2025-8-1T10:00:00Z",
            "2025-08-01T10:00:00+2:00",
            "18446744073709551616",
        ] {
            assert!(parse_target(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_read_again() {
        for ms in (0..4_000_000_000_000_i64).step_by(86_399_999 * 61) {
            assert_eq!(parse_target(&Utc(ms).to_string()), Ok(Target::Time(ms)));
        }
    }

    #[test]
    fn time_spans_are_days_and_hours() {
        assert_eq!(parse_keep("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(parse_keep("12h"), Ok(Duration::from_secs(12 * 3_600)));
        assert_eq!(parse_keep("90s"), Ok(Duration::from_secs(90)));
        for text in ["", "d", "1y", "-1d", "1.5h", "99999999999999999999d"] {
            assert!(parse_keep(text).is_err(), "{text}");
        }
    }
}
