//! Arguments that experiments have in common. Parsers refuse what cannot be measured, so that a
//! wrong command line ends before anything is started.

use std::time::Duration;

use clap::Args;

use crate::limits::{CLIENTS_MAX, KEYS_MAX, RATE_MAX, ROUNDS_MAX};

/// Rounds of measurements. An experiment with other defaults changes them by
/// `#[command(mut_arg("rounds", |argument| argument.default_value("5")))]`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Rounds {
    /// Measurements of every case; what is shown are medians
    #[arg(long, value_name = "N", default_value = "3", value_parser = count::<1, ROUNDS_MAX>)]
    pub rounds: usize,
    /// Seconds of a measurement
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    pub seconds: Duration,
    /// Seconds before it that are not counted
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = warm_up)]
    pub warm_up: Duration,
    /// Decides everything that is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl Rounds {
    /// Makes a seed of its own for every round.
    pub fn seed_of(&self, round: usize) -> u64 {
        u64::try_from(round).unwrap_or(0).wrapping_add(self.seed << 8)
    }
}

/// Parses a whole number from `MIN` to `MAX`.
pub fn count<const MIN: usize, const MAX: usize>(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
    number.ok_or_else(|| format!("`{text}` is no number from {MIN} to {MAX}"))
}

/// Parses a number of connections, clients or callers.
pub fn clients(text: &str) -> Result<usize, String> {
    count::<1, CLIENTS_MAX>(text)
}

/// Parses a number of keys.
pub fn keys(text: &str) -> Result<u64, String> {
    let keys = text.parse().ok().filter(|keys| (1..=KEYS_MAX).contains(keys));
    keys.ok_or_else(|| format!("the number of keys is 1 to {KEYS_MAX}"))
}

/// Parses the seconds of a measurement.
pub fn seconds(text: &str) -> Result<Duration, String> {
    warm_up(text).and_then(|duration| {
        let is_long_enough = Duration::from_millis(10) <= duration;
        is_long_enough.then_some(duration).ok_or_else(|| format!("{text} seconds are too few"))
    })
}

/// Parses seconds that may be none.
pub fn warm_up(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=3_600.0).contains(seconds));
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| format!("`{text}` is no number of seconds up to 3600"))
}

/// Parses a number as `10000`, `10k` or `1M`.
pub fn number(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    number.ok_or_else(|| format!("`{text}` is no number as 10000, 10k or 1M"))
}

/// Parses requests per second.
pub fn rate(text: &str) -> Result<u64, String> {
    let rate = number(text).ok().filter(|rate| (1..=RATE_MAX).contains(rate));
    rate.ok_or_else(|| format!("a rate is 1 to {RATE_MAX} requests per second"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_refused() {
        assert_eq!((count::<1, 5>("5"), count::<1, 5>("0").is_err()), (Ok(5), true));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(warm_up("0"), Ok(Duration::ZERO));
        assert!(seconds("0").is_err() && seconds("NaN").is_err() && warm_up("4000").is_err());
        assert_eq!((rate("250"), rate("10k"), rate("2M")), (Ok(250), Ok(10_000), Ok(2_000_000)));
        for bad in ["", "k", "0", "-1", "1.5k", "10kk", "999M", "99999999999999999999k"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
