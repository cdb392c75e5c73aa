//! LATENCY GRAPH: the samples of an event as columns of characters, in the shape that Redis draws.

use std::{fmt::Write, iter::repeat_n};

use crate::latency_events::{LatencySample, LatencySeries};

/// Columns of a line; further samples are drawn below.
const COLUMNS: usize = 80;
/// Rows of a column.
const ROWS: usize = 4;
/// Characters for the top of a column, the lowest first, and for what is below the top.
const TOPS: [char; 3] = ['_', 'o', '#'];
const BELOW: char = '|';

/// Draws the samples of an event: a column for each, and below it how long ago it was.
pub(super) fn draw(event: &str, series: &LatencySeries, now_s: i64) -> String {
    let samples: Vec<LatencySample> = series.samples().collect();
    let ms = || samples.iter().map(|sample| sample.ms);
    let (low, high) = (ms().min().unwrap_or(0), ms().max().unwrap_or(0));
    let mut text = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        series.ms_max(),
        "-".repeat(COLUMNS)
    );
    for (number, samples) in samples.chunks(COLUMNS).enumerate() {
        if number != 0 {
            text.push('\n');
        }
        columns(&mut text, samples, low, high);
        labels(&mut text, samples, now_s);
    }
    text
}

fn columns(text: &mut String, samples: &[LatencySample], low: u64, high: u64) {
    let steps = (ROWS * TOPS.len()) as u64;
    let range = (high - low).max(1);
    for row in (0..ROWS).rev() {
        text.extend(samples.iter().map(|sample| {
            let step = u128::from(sample.ms - low) * u128::from(steps) / u128::from(range);
            // The highest sample would otherwise be one step above the top row.
            let step = usize::try_from(step).unwrap_or(usize::MAX).min(steps as usize - 1);
            match step.checked_sub(row * TOPS.len()) {
                None => ' ',
                Some(part) => TOPS.get(part).copied().unwrap_or(BELOW),
            }
        }));
        text.push('\n');
    }
}

/// Writes below each column how long ago it was, from top to bottom.
fn labels(text: &mut String, samples: &[LatencySample], now_s: i64) {
    let labels: Vec<String> = samples.iter().map(|sample| ago(now_s - sample.unix_s)).collect();
    let rows = labels.iter().map(String::len).max().unwrap_or(0);
    let _ = writeln!(text, "{}", repeat_n(' ', samples.len()).collect::<String>());
    for row in 0..rows {
        text.extend(labels.iter().map(|label| label.chars().nth(row).unwrap_or(' ')));
        text.push('\n');
    }
}

fn ago(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3_600 => format!("{}m", seconds / 60),
        seconds @ ..86_400 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::latency_events::{LatencyEvent, LatencyEvents};

    /// Draws durations that were a minute apart, the last of them now.
    fn drawn(milliseconds: &[u64]) -> String {
        let events = LatencyEvents::default();
        for (minute, ms) in (0..).zip(milliseconds) {
            events.note(LatencyEvent::Sync, minute * 60, Duration::from_millis(*ms));
        }
        let now_s = (milliseconds.len() as i64 - 1) * 60;
        draw("aof-fsync-always", &events.series(LatencyEvent::Sync), now_s)
    }

    #[test]
    fn columns_rise_from_the_lowest_to_the_highest_sample() {
        let lines = [
            "aof-fsync-always - high 212 ms, low 100 ms (all time high 212 ms)\n",
            "--------------------------------------------------------------------------------\n",
            "         _o#\n",
            "      _o#|||\n",
            "   _o#||||||\n",
            "__#|||||||||\n",
            "            \n",
            "119876543210\n",
            "10mmmmmmmmms\n",
            "mm          \n",
        ];
        let samples = [100, 105, 119, 130, 140, 150, 160, 170, 180, 190, 200, 212];
        assert_eq!(drawn(&samples), lines.concat());
    }

    #[test]
    fn equal_samples_lie_on_the_ground_and_many_take_several_lines() {
        let text = drawn(&[7; 100]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[5], "_".repeat(80));
        let second = lines.iter().rposition(|line| line.starts_with('_')).unwrap();
        assert_eq!(lines[second], "_".repeat(20));
        assert!(text.starts_with("aof-fsync-always - high 7 ms, low 7 ms (all time high 7 ms)\n"));
        assert_eq!(ago(-5), "0s");
        assert_eq!([59, 60, 3_600, 200_000].map(ago), ["59s", "1m", "1h", "2d"]);
    }
}
