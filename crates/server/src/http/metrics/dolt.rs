//! Metrics of Dolt's protocol. Their families appear only if there are chunk stores.

use busload_remotesapi::{Download, Location, Method, RecordsOrigin, RemotesapiStats};

use super::Page;

pub(super) fn render(page: &mut Page, stats: &RemotesapiStats) {
    let methods = |of: fn(&RemotesapiStats, Method) -> u64| {
        Method::ALL.map(|method| (method.name(), of(stats, method)))
    };
    let downloads = |of: fn(&RemotesapiStats, Download) -> u64| {
        Download::ALL.map(|download| (download.name(), of(stats, download)))
    };
    let locations = Location::ALL.map(|location| (location.name(), stats.locations(location)));
    let records = RecordsOrigin::ALL.map(|origin| (origin.name(), stats.records(origin)));

    each(
        page,
        "busload_dolt_calls_total",
        "Calls of Dolt's clients.",
        "method",
        &methods(RemotesapiStats::calls),
    );
    each(
        page,
        "busload_dolt_failed_calls_total",
        "Calls of Dolt's clients that ended with an error.",
        "method",
        &methods(RemotesapiStats::failed_calls),
    );
    each(
        page,
        "busload_dolt_locations_total",
        "Chunks whose locations were requested.",
        "outcome",
        &locations,
    );
    each(
        page,
        "busload_dolt_records_total",
        "Encoded bundles: made for locations, made again for a download, found in memory by one.",
        "outcome",
        &records,
    );
    each(
        page,
        "busload_dolt_downloads_total",
        "Downloads answered.",
        "kind",
        &downloads(RemotesapiStats::downloads),
    );
    each(
        page,
        "busload_dolt_sent_bytes_total",
        "Bytes of downloads.",
        "kind",
        &downloads(RemotesapiStats::sent_bytes),
    );
    each(
        page,
        "busload_dolt_cut_off_total",
        "Downloads cut off because a part of the announced range could not be read.",
        "kind",
        &downloads(RemotesapiStats::cut_off),
    );
}

fn each(page: &mut Page, name: &str, help: &str, label: &str, samples: &[(&str, u64)]) {
    page.family(name, "counter", help);
    samples.iter().for_each(|(text, count)| page.sample(name, &[(label, text)], *count));
}
