//! Warnings that would repeat: one log line a minute for each matter.

use std::{
    collections::HashMap,
    fmt::Display,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Least time between two lines about the same matter.
const INTERVAL: Duration = Duration::from_secs(60);

/// Last warning of each matter. Matters are names of tables, so there are few.
#[derive(Debug, Default)]
pub struct RateLimitedLog {
    last: Mutex<HashMap<String, Last>>,
}

#[derive(Debug)]
struct Last {
    at: Instant,
    left_out: u64,
}

impl RateLimitedLog {
    /// Warns, unless a warning about the matter was logged less than [`INTERVAL`] ago; then logs at
    /// debug level.
    pub fn warn(&self, matter: &str, text: &dyn Display) {
        match self.is_due(matter) {
            Some(0) => log::warn!("{matter}: {text}"),
            Some(left_out) => {
                log::warn!("{matter}: {text} ({left_out} more like it since the last line)")
            }
            None => log::debug!("{matter}: {text}"),
        }
    }

    /// Returns how many warnings were left out before this one, or none when this one is to be left
    /// out, too.
    fn is_due(&self, matter: &str) -> Option<u64> {
        let now = Instant::now();
        let mut all = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(matter) {
            Some(last) if now.saturating_duration_since(last.at) < INTERVAL => {
                last.left_out += 1;
                None
            }
            last => {
                let left_out = last.map_or(0, |last| last.left_out);
                all.insert(matter.to_owned(), Last { at: now, left_out: 0 });
                Some(left_out)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_matter_has_a_line_a_minute_that_counts_the_others() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let rate_limited_log = RateLimitedLog::default();
            assert_eq!(rate_limited_log.is_due("a"), Some(0));
            assert_eq!((rate_limited_log.is_due("a"), rate_limited_log.is_due("a")), (None, None));
            assert_eq!(rate_limited_log.is_due("b"), Some(0));
            tokio::time::sleep(INTERVAL).await;
            assert_eq!(rate_limited_log.is_due("a"), Some(2));
            assert_eq!(rate_limited_log.is_due("a"), None);
        });
    }
}
