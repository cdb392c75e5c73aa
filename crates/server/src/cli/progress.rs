//! Progress of long work, on stderr: a bar with bytes, rate and time left on a terminal, else a
//! line every few seconds. A start, `check`, `cache`, `chunks verify`, `backup` and `restore` show
//! theirs this way.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use busload_io::{Clock, RealClock};
use busload_objects::Progress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{config::Size, logger};

/// Pause between two lines when stderr is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Template of indicatif for the bar.
const TEMPLATE: &str =
    "{msg} [{bar:32}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";

/// Shows the progress of one piece of work.
pub struct Meter {
    what: String,
    /// The bar, when stderr is a terminal.
    bar: Option<ProgressBar>,
    clock: RealClock,
    /// Time of the last line.
    said: Duration,
}

impl Meter {
    /// Meter for work of this name.
    pub fn new(what: impl Into<String>) -> Self {
        let what = what.into();
        let bar = io::stderr().is_terminal().then(|| bar(&what));
        Self { what, bar, clock: RealClock::new(), said: Duration::ZERO }
    }

    /// Shows how far the work has come.
    pub fn show(&mut self, progress: Progress) {
        if let Some(bar) = &self.bar {
            bar.set_length(progress.total);
            return bar.set_position(progress.done);
        }
        let now = self.clock.now();
        if LINE_INTERVAL <= now.saturating_sub(self.said) {
            self.said = now;
            let left = left(progress, now);
            logger::say(&format!("{}: {}{left}", self.what, far(progress, now)));
        }
    }

    /// Ends the display with a line that says how far the work came.
    pub fn finish(self, progress: Progress) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        logger::say(&format!("{}: {}", self.what, far(progress, self.clock.now())));
    }

    /// Removes the bar, so that an error can be printed.
    pub fn clear(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(TEMPLATE).expect("the template is one of indicatif's");
    ProgressBar::new(0).with_style(style.progress_chars("=> ")).with_message(what.to_owned())
}

/// Returns the time left at the rate so far, nothing where nobody can tell.
fn left(progress: Progress, elapsed: Duration) -> String {
    let Progress { done, total, .. } = progress;
    if done == 0 || total <= done {
        return String::new();
    }
    let seconds = elapsed.as_secs_f64() * (total - done) as f64 / done as f64;
    format!(", about {seconds:.0} s left")
}

fn far(progress: Progress, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-3);
    // Precise enough for people.
    let rate = Size((progress.done as f64 / seconds) as u64);
    format!("{} of {} in {seconds:.1} s, {rate}/s", Size(progress.done), Size(progress.total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_in_bytes_and_rate() {
        let progress = Progress { done: 3 << 20, total: 6 << 20, corrupt: 0 };
        assert_eq!(far(progress, Duration::from_secs(2)), "3 MiB of 6 MiB in 2.0 s, 1.5 MiB/s");
        assert_eq!(left(progress, Duration::from_secs(2)), ", about 2 s left");
        let done = Progress { done: 6 << 20, ..progress };
        assert_eq!(left(done, Duration::from_secs(2)), "");
        assert_eq!(left(Progress::default(), Duration::from_secs(2)), "");
        assert_eq!(far(Progress::default(), Duration::ZERO), "0 B of 0 B in 0.0 s, 0 B/s");
    }

    #[test]
    fn the_bar_has_a_template() {
        bar("warm db").finish_and_clear();
    }
}
