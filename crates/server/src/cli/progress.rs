//! Progress of long work, on stderr: a bar with bytes, rate and time left on a terminal, else a
//! line every few seconds. A start and all commands that read or write much show theirs this way.

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
/// Templates of indicatif for the bar.
const BYTES_TEMPLATE: &str =
    "{msg} [{bar:32}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
const SHARE_TEMPLATE: &str = "{msg} [{bar:32}] {percent} %, {eta} left";

/// Unit in which work is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    /// Only a percentage is known.
    Share,
}

/// Shows the progress of one piece of work.
pub struct Meter {
    what: String,
    unit: Unit,
    /// The bar, when stderr is a terminal.
    bar: Option<ProgressBar>,
    clock: RealClock,
    /// Time of the last line.
    said: Duration,
}

impl Meter {
    /// Meter for work of this name, measured in bytes.
    pub fn new(what: impl Into<String>) -> Self {
        Self::of(what.into(), Unit::Bytes)
    }

    /// Meter for work of this name of which only the share is known that is done.
    pub fn of_share(what: impl Into<String>) -> Self {
        Self::of(what.into(), Unit::Share)
    }

    fn of(what: String, unit: Unit) -> Self {
        let bar = io::stderr().is_terminal().then(|| bar(&what, unit));
        Self { what, unit, bar, clock: RealClock::new(), said: Duration::ZERO }
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
            logger::say(&format!("{}: {}{left}", self.what, far(self.unit, progress, now)));
        }
    }

    /// Prints to standard output, above the bar if both are on a terminal.
    pub fn above(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Ends the display with a line that says how far the work came.
    pub fn finish(self, progress: Progress) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        logger::say(&format!("{}: {}", self.what, far(self.unit, progress, self.clock.now())));
    }

    /// Removes the bar, so that an error can be printed.
    pub fn clear(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &str, unit: Unit) -> ProgressBar {
    let template = match unit {
        Unit::Bytes => BYTES_TEMPLATE,
        Unit::Share => SHARE_TEMPLATE,
    };
    let style = ProgressStyle::with_template(template).expect("the template is one of indicatif's");
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

fn far(unit: Unit, progress: Progress, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-3);
    if unit == Unit::Share {
        let percent = 100.0 * progress.done as f64 / progress.total.max(1) as f64;
        return format!("{percent:.1} % in {seconds:.1} s");
    }
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
        let half = far(Unit::Bytes, progress, Duration::from_secs(2));
        assert_eq!(half, "3 MiB of 6 MiB in 2.0 s, 1.5 MiB/s");
        assert_eq!(left(progress, Duration::from_secs(2)), ", about 2 s left");
        let done = Progress { done: 6 << 20, ..progress };
        assert_eq!(left(done, Duration::from_secs(2)), "");
        assert_eq!(left(Progress::default(), Duration::from_secs(2)), "");
        let none = far(Unit::Bytes, Progress::default(), Duration::ZERO);
        assert_eq!(none, "0 B of 0 B in 0.0 s, 0 B/s");
        let share = Progress { done: 375, total: 1_000, corrupt: 0 };
        assert_eq!(far(Unit::Share, share, Duration::from_secs(3)), "37.5 % in 3.0 s");
    }

    #[test]
    fn the_bars_have_templates() {
        bar("warm db", Unit::Bytes).finish_and_clear();
        bar("making the snapshot", Unit::Share).finish_and_clear();
    }
}
