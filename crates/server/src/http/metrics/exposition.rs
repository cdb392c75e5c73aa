//! The text format of Prometheus: families of samples, with escaped labels.

use std::fmt::{Display, Write};

use super::{metric_source::Labels, table::Metric};

/// Page of metric families.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// Writes the family of a metric; nothing of it if `write` gives no samples.
    pub fn family(&mut self, metric: &Metric, write: impl FnOnce(&mut Samples<'_>)) {
        let Metric { name, kind, help, source } = metric;
        let start = self.text.len();
        // Writing to a string cannot fail, here and below.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        let samples_start = self.text.len();
        write(&mut Samples { text: &mut self.text, name, labels: source.labels() });
        if self.text.len() == samples_start {
            self.text.truncate(start);
        }
    }

    pub fn into_text(self) -> String {
        self.text
    }
}

/// Samples of one family.
#[derive(Debug)]
pub struct Samples<'a> {
    text: &'a mut String,
    name: &'static str,
    labels: Labels,
}

impl Samples<'_> {
    /// Writes a sample with these values of the metric's labels.
    pub fn put(&mut self, labels: &[&str], value: impl Display) {
        debug_assert_eq!(labels.len(), self.labels.len(), "{}", self.name);
        self.put_as("", labels, value);
    }

    /// Writes a sample whose name has a suffix, as those of a histogram have. It may have fewer
    /// labels than others of the metric.
    pub fn put_as(&mut self, suffix: &str, labels: &[&str], value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (index, (label, text)) in self.labels.iter().zip(labels).enumerate() {
            let text = text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
            let _ = write!(self.text, "{}{label}=\"{text}\"", if index == 0 { '{' } else { ',' });
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}
