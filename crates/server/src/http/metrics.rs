//! `/metrics` in the text format of Prometheus.
//!
//! ```text
//!  Status, FrontMetrics --> Reading: every counter read once --+
//!                                                              v
//!  TABLE: a row for each metric ------------------------> exposition: the page
//!           `--> docs/metrics.md (a test compares it; another, the page of a running server)
//! ```
//!
//! A new metric is a row of [`table::TABLE`]. Names end with their unit; `_total` marks counters,
//! which only grow until the process ends or CONFIG RESETSTAT resets them. A metric that has no
//! samples is left out: those of tables that are not configured, those of the log until it is
//! recovered.

#[cfg(test)]
mod deploy;
#[cfg(test)]
mod docs;
mod exposition;
mod metric_source;
mod reading;
mod table;

pub use self::{
    metric_source::resident_bytes,
    reading::{BusyReading, ChunksReading, LogReading, QueueReading, Reading, SetReading},
};

use self::{exposition::Page, table::TABLE};
use super::front_metrics::FrontMetrics;
use crate::status::Status;

/// Renders the page of all metrics.
pub fn render(status: &Status, front: &FrontMetrics) -> String {
    render_reading(&Reading::new(status, front))
}

fn render_reading(reading: &Reading<'_>) -> String {
    let mut page = Page::default();
    for metric in TABLE {
        page.family(metric, |samples| metric.source.write(reading, samples));
    }
    page.into_text()
}

#[cfg(test)]
mod tests;
