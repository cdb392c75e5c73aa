//! Progress of what is made ready before a measurement, on stderr: a bar with time left on a
//! terminal, else a line every few seconds. What takes a moment shows nothing.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    clock::now_ns,
    limits::PROGRESS_NS,
    stats::{float, ratio},
};

/// Template of indicatif for the bar.
const TEMPLATE: &str = "{msg} [{bar:32}] {human_pos} of {human_len}, {per_sec}, {eta} left";

/// Progress of one piece of work.
pub struct Progress {
    what: String,
    /// Name of what is counted: rows, keys.
    unit: &'static str,
    first: u64,
    total: u64,
    /// The bar, from when the work has taken a moment, if stderr is a terminal.
    bar: Option<ProgressBar>,
    began_ns: u64,
    told_ns: u64,
}

impl Progress {
    /// Begins work of this name, of which so much was done before.
    pub fn begin(what: impl Into<String>, unit: &'static str, first: u64, total: u64) -> Self {
        let now_ns = now_ns();
        let (began_ns, told_ns) = (now_ns, now_ns);
        Self { what: what.into(), unit, first, total, bar: None, began_ns, told_ns }
    }

    /// Shows how much is done, now and then.
    pub fn show(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            return bar.set_position(done);
        }
        let now_ns = now_ns();
        if now_ns - self.told_ns < PROGRESS_NS {
            return;
        }
        self.told_ns = now_ns;
        if io::stderr().is_terminal() {
            self.bar = Some(self.bar_at(done));
        } else {
            eprintln!("{}", self.line(done, now_ns - self.began_ns));
        }
    }

    fn bar_at(&self, done: u64) -> ProgressBar {
        let style = ProgressStyle::with_template(TEMPLATE).expect("a template of indicatif");
        let bar = ProgressBar::new(self.total)
            .with_style(style.progress_chars("=> "))
            .with_message(self.what.clone());
        bar.set_position(done);
        bar
    }

    fn line(&self, done: u64, took_ns: u64) -> String {
        let Self { what, unit, first, total, .. } = self;
        let seconds = float(took_ns) / 1e9;
        let made = done.saturating_sub(*first);
        let left = ratio(seconds * float(total.saturating_sub(done)), float(made));
        let left = left.map_or(String::new(), |left| format!(", {left:.0} s left"));
        format!("{what}: {done} of {total} {unit}{left}")
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_left_at_the_rate_of_what_was_done_here() {
        let progress = Progress::begin("objects: loading", "rows", 100, 400);
        let line = progress.line(200, 2_000_000_000);
        assert_eq!(line, "objects: loading: 200 of 400 rows, 4 s left");
        assert_eq!(progress.line(100, 2_000_000_000), "objects: loading: 100 of 400 rows");
    }

    #[test]
    fn the_bar_has_a_template() {
        Progress::begin("loading", "keys", 0, 10).bar_at(3).finish_and_clear();
    }
}
