//! Charts of measured servers and of a Postgres table: each number by pipeline, connections and
//! load, with a line for each server or way.

use std::{
    collections::BTreeMap,
    fmt::{Result, Write},
};

use super::{
    csv::{Csv, Record},
    figure,
};
use crate::harness::chart::{Chart, escaped};

/// Number that is drawn: its field, and what its axis says.
type Drawn = (&'static str, &'static str, &'static str);

const SERVER_NUMBERS: [Drawn; 6] = [
    ("per_s", "Throughput", "requests/s"),
    ("p50_us", "Latency, median", "us"),
    ("p99_us", "Latency, 99th percentile", "us"),
    ("server_us_per_request", "Server CPU per request", "us"),
    ("calls_per_request", "System calls per request", "calls"),
    ("batch", "Requests executed at once", "requests"),
];
const POSTGRES_NUMBERS: [Drawn; 5] = [
    ("per_s", "Throughput", "requests/s"),
    ("mean_us", "Latency, mean", "us"),
    ("p99_us", "Latency, 99th percentile", "us"),
    ("batch", "Keys in a statement", "keys"),
    ("database_us_per_request", "Postgres CPU per request", "us"),
];

/// Names whose colours are the same in all charts.
const NAMES: [&[&str]; 4] = [&["busload", "in-process"], &["redis"], &["naive"], &["valkey"]];

/// Horizontal axis of a chart, and the rows that can be shown by it.
#[derive(Clone, Copy)]
struct Across {
    title: &'static str,
    /// Value on the axis, if the row has one.
    value: fn(Record<'_>) -> Option<f64>,
    /// Text that rows of one chart have in common beside their group.
    same: fn(Record<'_>) -> String,
}

const ACROSS: [Across; 3] = [
    Across {
        title: "requests in a pipeline",
        value: |row| row.number("pace"),
        same: |row| format!("{} connections", row.text("clients")),
    },
    Across {
        title: "connections",
        value: |row| row.number("clients").filter(|_| rate(row).is_none()),
        same: |row| match row.text("pace") {
            "" | "1" => String::new(),
            pace => format!("pipeline {pace}"),
        },
    },
    Across {
        title: "requests sent per second",
        value: rate,
        same: |row| format!("{} connections", row.text("clients")),
    },
];

/// Writes the charts of a file, if it is of an experiment that has some.
pub fn write(out: &mut String, file: &Csv) -> Result {
    if file.has(&["op", "pace", "durability", "clients", "server"]) {
        let group = |row: Record<'_>| {
            let op = row.text("op").to_uppercase();
            format!("{op}, durability {}", row.text("durability"))
        };
        groups(out, file, "Reads and writes of memory tables", &SERVER_NUMBERS, group)?;
    }
    if file.has(&["section", "way", "distance", "clients", "batch"]) {
        let group = |row: Record<'_>| {
            format!("{}, Postgres {} away", row.text("section"), row.text("distance"))
        };
        groups(out, file, "In front of Postgres", &POSTGRES_NUMBERS, group)?;
    }
    Ok(())
}

fn groups(
    out: &mut String,
    file: &Csv,
    title: &str,
    numbers: &[Drawn],
    group: impl Fn(Record<'_>) -> String,
) -> Result {
    let name = escaped(&file.name);
    writeln!(out, "<h2>{title} <small class=\"soft\">{name}</small></h2>")?;
    if let Some(about) = file.about.last() {
        writeln!(out, "<p class=\"soft\"><small>{}</small></p>", escaped(about))?;
    }
    let mut drawn = 0;
    let mut names = Vec::new();
    for row in file.rows() {
        let name = group(row);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        let rows: Vec<_> = file.rows().filter(|row| group(*row) == name).collect();
        for across in ACROSS {
            drawn += write_across(out, &name, &rows, numbers, across)?;
        }
    }
    if drawn == 0 {
        writeln!(out, "<p>Every case has a single value: there is no curve to draw.</p>")?;
    }
    Ok(())
}

/// Writes the charts of a group by one axis; returns how many these are.
fn write_across(
    out: &mut String,
    name: &str,
    rows: &[Record<'_>],
    numbers: &[Drawn],
    across: Across,
) -> std::result::Result<usize, std::fmt::Error> {
    let mut parts: BTreeMap<String, Vec<(f64, Record<'_>)>> = BTreeMap::new();
    for row in rows {
        if let Some(value) = (across.value)(*row) {
            parts.entry((across.same)(*row)).or_default().push((value, *row));
        }
    }
    let mut written = 0;
    for (same, rows) in parts {
        // Ceilings do not count: they may have been measured elsewhere.
        let measured = rows.iter().filter(|(_, row)| !is_ceiling(&line_name(*row)));
        let mut values: Vec<_> = measured.map(|(value, _)| *value).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        if values.len() < 2 {
            continue;
        }
        let more = if same.is_empty() { String::new() } else { format!(", {same}") };
        let heading = escaped(&format!("{name}{more}, by {}", across.title));
        writeln!(out, "<h3>{heading}</h3>")?;
        let charts: Vec<_> =
            numbers.iter().map(|number| (number, chart(&rows, *number, across.title))).collect();
        writeln!(out, "<div class=\"charts\">")?;
        for (_, chart) in charts.iter().filter(|(_, chart)| !chart.lines.is_empty()) {
            figure(out, chart)?;
            written += 1;
        }
        writeln!(out, "</div>")?;
        let missing = charts.iter().filter(|(_, chart)| chart.lines.is_empty());
        let missing: Vec<_> = missing.map(|((_, title, _), _)| title.to_lowercase()).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            writeln!(out, "<p class=\"soft\"><small>Not measured: {missing}.</small></p>")?;
        }
    }
    Ok(written)
}

fn chart(rows: &[(f64, Record<'_>)], (field, title, unit): Drawn, x_title: &str) -> Chart {
    let (title, x_title) = (title.to_owned(), x_title.to_owned());
    let mut chart = Chart { title, x_title, y_title: unit.to_owned(), lines: Vec::new() };
    let mut others: Vec<String> = Vec::new();
    for (value, row) in rows {
        let name = line_name(*row);
        let tone = if is_ceiling(&name) { None } else { Some(tone(&name, &mut others)) };
        // Statements with very many keys bound what is answered, not how soon.
        let is_bound = !name.starts_with("ceiling") || unit == "requests/s";
        if let Some(number) = row.number(field).filter(|_| is_bound) {
            chart.add(&name, tone, (*value, number));
        }
    }
    chart
}

/// Returns the server, or the way to a database. Threads for sockets are busload's only.
fn line_name(row: Record<'_>) -> String {
    let threads = row.text("net_threads");
    match row.text("server") {
        "busload" if !matches!(threads, "" | "0") => format!("busload, {threads} net"),
        "" => row.text("way").to_owned(),
        server => server.to_owned(),
    }
}

/// Returns whether a line shows what nothing can exceed.
fn is_ceiling(name: &str) -> bool {
    name == "null" || name.starts_with("ceiling")
}

/// Chooses the colour of a name; further ones get those that are left, in order.
fn tone(name: &str, others: &mut Vec<String>) -> usize {
    if let Some(tone) = NAMES.iter().position(|names| names.contains(&name)) {
        return tone;
    }
    let found = others.iter().position(|other| other == name);
    NAMES.len()
        + found.unwrap_or_else(|| {
            others.push(name.to_owned());
            others.len() - 1
        })
}

/// Returns the requests a second of an open loop, as `250/s`, `10k/s`, or a field of its own.
fn rate(row: Record<'_>) -> Option<f64> {
    let Some(text) = row.text("pace").strip_suffix("/s") else { return row.number("rate") };
    match text.strip_suffix('k') {
        Some(thousands) => thousands.parse::<f64>().ok().map(|rate| rate * 1e3),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "op,pace,durability,net_threads,clients,server,per_s,p50_us,p99_us,\
                          server_us_per_request,calls_per_request,batch,round\n";

    fn written(records: &str) -> String {
        let mut out = String::new();
        write(&mut out, &Csv::parse("kv.csv", &format!("{HEADER}{records}")).unwrap()).unwrap();
        out
    }

    fn charts(page: &str) -> (Vec<&str>, usize) {
        let headings = page.split("<h3>").skip(1).map(|rest| rest.split('<').next().unwrap());
        (headings.collect(), page.matches("<figure>").count())
    }

    #[test]
    fn pipelines_connections_and_rates_have_charts_of_their_own() {
        let page = written(
            "get,1,none,0,50,busload,10,1,2,3,4,5,0\nget,64,none,0,50,busload,20,1,2,3,4,5,0\n\
             get,1,none,0,5,busload,10,1,2,3,4,5,0\nget,10k/s,none,0,50,busload,1,1,2,3,4,5,0\n\
             get,250/s,none,0,50,busload,1,1,2,3,4,5,0\nset,1,none,0,50,busload,1,1,2,3,4,5,0\n",
        );
        let name = "GET, durability none";
        let wanted = [
            format!("{name}, 50 connections, by requests in a pipeline"),
            format!("{name}, by connections"),
            format!("{name}, 50 connections, by requests sent per second"),
        ];
        assert_eq!(charts(&page), (wanted.iter().map(String::as_str).collect(), 3 * 6));
        assert!(page.contains(">250</text>") && page.contains(">10k</text>"), "{page}");
    }

    #[test]
    fn what_was_not_measured_is_said_to_be_so() {
        let page = written(
            "get,1,none,0,50,redis,10,1,2,3,,,0\nget,16,none,0,50,redis,10,1,2,3,,,0\n\
             get,1,none,0,50,null,90,1,1,1,,,0\n",
        );
        assert_eq!(charts(&page).1, 4);
        let missing = "Not measured: system calls per request, requests executed at once.";
        assert!(page.contains(missing) && page.contains("class=\"ceiling\""), "{page}");
        assert!(written("get,1,none,0,50,redis,10,1,2,3,,,0\n").contains("no curve to draw"));
        let mut other = String::new();
        write(&mut other, &Csv::parse("x", "a,b\n1,2\n").unwrap()).unwrap();
        assert!(other.is_empty());
    }

    #[test]
    fn servers_keep_their_colours() {
        let mut others = Vec::new();
        let tones = ["x", "busload", "redis", "y", "x", "in-process"];
        assert_eq!(tones.map(|name| tone(name, &mut others)), [4, 0, 1, 5, 4, 0]);
    }
}
