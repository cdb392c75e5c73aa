//! LATENCY: what took long, and when; how long each command takes.

use std::fmt::Write;

use busload_histogram::Reading;

use super::{Call, CommandId, latency_graph, lookup, printable, refuse_many_names};
use crate::{
    error::{CommandError, CommandResult},
    latency_events::{LatencyEvent, LatencySeries},
    tx::Tx,
};

pub(super) fn latest(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    tx.note_syncs();
    let seen = seen(tx);
    call.reply.array(seen.len());
    for (event, series) in seen {
        let Some(latest) = series.latest() else { continue };
        call.reply.array(4);
        call.reply.bulk(event.name().as_bytes());
        call.reply.integer(latest.unix_s);
        call.reply.integer(milliseconds(latest.ms));
        call.reply.integer(milliseconds(series.ms_max()));
    }
    Ok(())
}

pub(super) fn history(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    tx.note_syncs();
    let event = LatencyEvent::of_name(call.args.at(2));
    let series = event.map(|event| tx.stats.latency_events.series(event)).unwrap_or_default();
    let samples = series.samples();
    call.reply.array(samples.len());
    for sample in samples {
        call.reply.array(2);
        call.reply.integer(sample.unix_s);
        call.reply.integer(milliseconds(sample.ms));
    }
    Ok(())
}

/// Draws the samples of an event for a person.
pub(super) fn graph(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    tx.note_syncs();
    let name = call.args.at(2);
    let event = LatencyEvent::of_name(name);
    let series = event.map(|event| (event, tx.stats.latency_events.series(event)));
    let Some((event, series)) = series.filter(|(_, series)| series.latest().is_some()) else {
        let name = printable(name, 128);
        return Err(CommandError::from(format!("ERR No samples available for event '{name}'")));
    };
    let text = latency_graph::draw(event.name(), &series, tx.now() / 1_000);
    call.reply.verbatim(text.as_bytes());
    Ok(())
}

/// Forgets the samples of the named events, or of all; returns of how many there were any.
pub(super) fn reset(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    tx.note_syncs();
    let events: Vec<LatencyEvent> = match call.args.len() {
        2 => LatencyEvent::ALL.to_vec(),
        _ => call.args.iter_from(2).filter_map(LatencyEvent::of_name).collect(),
    };
    let reset = events.into_iter().filter(|event| tx.stats.latency_events.reset(*event));
    call.reply.count(reset.count());
    Ok(())
}

/// Explains the events to a person.
pub(super) fn doctor(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    tx.note_syncs();
    let Some(spike) = tx.spike_threshold() else {
        let text = "Latency monitoring is off. CONFIG SET latency-monitor-threshold MILLISECONDS \
                    turns it on; it costs nothing that can be measured.";
        call.reply.verbatim(text.as_bytes());
        return Ok(());
    };
    let seen = seen(tx);
    let mut text = String::new();
    let ms = spike.as_millis();
    if seen.is_empty() {
        text = format!(
            "Nothing has taken {ms} ms or longer since the start or the last LATENCY RESET: no \
             command, turn, source, sync, expiry or eviction. CONFIG SET \
             latency-monitor-threshold looks for shorter times."
        );
    } else {
        line(&mut text, format_args!("{} kinds of work took {ms} ms or longer:\n", seen.len()));
    }
    for (number, (event, series)) in (1..).zip(&seen) {
        let count = series.samples().len();
        let total: u64 = series.samples().map(|sample| sample.ms).sum();
        let mean = total / count.max(1) as u64;
        let latest_s = series.latest().map_or(0, |latest| latest.unix_s);
        let ago_s = (tx.now() / 1_000 - latest_s).max(0);
        line(
            &mut text,
            format_args!(
                "\n{number}. {}: in {count} seconds, {mean} ms on average, {} ms at most, last \
                 {ago_s} s ago.\n   {}\n",
                event.name(),
                series.ms_max(),
                event.advice()
            ),
        );
    }
    call.reply.verbatim(text.as_bytes());
    Ok(())
}

/// Returns for each command (or each of those named, if it was called) how many requests took less
/// than which time, from when they were received until their replies could be sent.
pub(super) fn histogram(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    refuse_many_names(&call.args, 2)?;
    let names: Vec<CommandId> = call.args.iter_from(2).map(lookup).collect();
    let called: Vec<(&str, Reading)> = tx
        .stats
        .latencies
        .commands()
        .filter(|(command, _)| names.is_empty() || names.contains(&lookup(command.name.as_bytes())))
        .map(|(command, latencies)| (command.name, latencies.requests.read()))
        .filter(|(_, reading)| reading.count() != 0)
        .collect();
    call.reply.map(called.len());
    for (name, reading) in called {
        let count = i64::try_from(reading.count()).unwrap_or(i64::MAX);
        call.reply.bulk(name.as_bytes());
        call.reply.map(2);
        call.reply.bulk(b"calls");
        call.reply.integer(count);
        call.reply.bulk(b"histogram_usec");
        let bounds = bounds(&reading);
        call.reply.map(bounds.len());
        for (us, below) in bounds {
            call.reply.integer(us);
            call.reply.integer(below);
        }
    }
    Ok(())
}

/// Returns the powers of two in microseconds at which the cumulative count grows, as Redis shows
/// them, with that count.
fn bounds(reading: &Reading) -> Vec<(i64, i64)> {
    let whole = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
    let mut bounds: Vec<(i64, i64)> = Vec::new();
    for (bound, below) in reading.cumulative() {
        let below = whole(below.into());
        if bounds.last().map_or(0, |(_, last)| *last) < below {
            bounds.push((whole(bound.as_micros()), below));
        }
    }
    let count = whole(reading.count().into());
    if bounds.last().map_or(0, |(_, last)| *last) < count {
        bounds.push((whole(reading.max().as_micros()).saturating_add(1), count));
    }
    bounds
}

/// Returns the events that were seen, with their samples.
fn seen(tx: &Tx) -> Vec<(LatencyEvent, LatencySeries)> {
    let all = LatencyEvent::ALL.map(|event| (event, tx.stats.latency_events.series(event)));
    all.into_iter().filter(|(_, series)| series.latest().is_some()).collect()
}

fn milliseconds(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

fn line(text: &mut String, of: std::fmt::Arguments<'_>) {
    text.write_fmt(of).expect("writing to a string cannot fail");
}
