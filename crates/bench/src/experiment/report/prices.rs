//! The page that says why batches are worth it: the price list, and what the server that one
//! writes first pays beside busload.

use std::fmt::{Result, Write};

use super::{
    csv::{Csv, Record},
    figure, table,
};
use crate::harness::{
    chart::{Chart, escaped, short},
    measurement,
};

const BATCHES: [&str; 4] = ["1", "10", "100", "1000"];
/// Sections of the price list that share a chart.
const CHARTS: [(&str, &[&str]); 3] = [
    ("In this machine", &["memory", "system"]),
    ("Its disk", &["disk"]),
    ("Beyond it", &["postgres", "objects"]),
];

const WHY: &str = "\
<h2>Why batches</h2>\
<p class=\"big\">Every operation has a fixed price: a system call, a wake-up, a sync, a statement, \
a GET. Who makes one for each key pays it for each key.</p>\
<p>busload asks what is waiting to come along. A stage that is free takes everything that waits, \
at once, and never waits for more: a request alone pays for its operation and no delay, and \
under load the same operation carries hundreds. This page is what that is worth \
on this machine.</p>";

const READING: &str = "\
<p class=\"soft\"><small>Wall time: an operation costs <i>fixed</i> + items &times; \
<i>each</i>, a line fitted through the measured batches, of which <i>off</i> is the greatest \
distance. <i>Of</i> 10 is what each of 10 items costs, as measured. Up to <i>half</i> items, \
more than half of an operation is its fixed price: that many more could come along at little cost \
(&ndash;: what items cost is not to be seen). The bars are \
logarithmic: a seventh of the length is ten times the price.</small></p>";

/// Writes the price list of each file that has one, and the naive server.
pub fn write(out: &mut String, files: &[Csv]) -> Result {
    let lists: Vec<_> = files
        .iter()
        .filter(|file| file.has(&["operation", "batch", "item_us", "fixed_us"]))
        .collect();
    let servers: Vec<_> = files.iter().flat_map(pairs).collect();
    if lists.is_empty() && servers.is_empty() {
        return Ok(());
    }
    writeln!(out, "{WHY}")?;
    write_servers(out, &servers)?;
    lists.into_iter().try_for_each(|list| write_list(out, list))
}

/// Returns the last row of an operation with a batch.
fn find<'a>(list: &'a Csv, operation: &str, batch: &str) -> Option<Record<'a>> {
    list.rows()
        .filter(|row| row.text("operation") == operation && row.text("batch") == batch)
        .last()
}

fn write_list(out: &mut String, list: &Csv) -> Result {
    writeln!(out, "<h3>What an operation costs on this machine</h3>")?;
    if let Some(about) = list.about.last() {
        writeln!(out, "<p class=\"soft\"><small>{}</small></p>", escaped(about))?;
    }
    let mut operations: Vec<&str> = Vec::new();
    for row in list.rows() {
        if !operations.contains(&row.text("operation")) {
            operations.push(row.text("operation"));
        }
    }
    write_prices(out, list, &operations)?;
    writeln!(out, "{READING}<h3>What an item costs in a batch</h3><div class=\"charts\">")?;
    for (title, sections) in CHARTS {
        let (x_title, y_title) = ("items in an operation".to_owned(), "us an item".to_owned());
        let mut chart = Chart { title: title.to_owned(), x_title, y_title, lines: Vec::new() };
        for row in list.rows().filter(|row| sections.contains(&row.text("section"))) {
            let tone = operations.iter().position(|operation| *operation == row.text("operation"));
            if let Some(point) = row.number("batch").zip(row.number("item_us")) {
                chart.add(row.text("operation"), tone, point);
            }
        }
        if !chart.lines.is_empty() {
            figure(out, &chart)?;
        }
    }
    writeln!(out, "</div>")
}

/// Writes a line for each operation, with a bar for its fixed price.
fn write_prices(out: &mut String, list: &Csv, operations: &[&str]) -> Result {
    writeln!(
        out,
        "<div class=\"wide\"><table><tr><th>operation</th><th>fixed</th><th class=\"bar\"></th>\
         <th>each</th><th>of&nbsp;1</th><th>of&nbsp;10</th><th>of&nbsp;100</th>\
         <th>of&nbsp;1,000</th>\
         <th>half</th><th>off</th></tr>"
    )?;
    for operation in operations {
        let Some(first) = find(list, operation, "1") else { continue };
        let price = |row: Option<Record<'_>>, field| {
            row.and_then(|row| row.number(field)).map_or("-".to_owned(), time_text)
        };
        let items = BATCHES.map(|batch| price(find(list, operation, batch), "item_us"));
        let items: String = items.iter().map(|item| format!("<td>{item}</td>")).collect();
        // Less than one item: there is no fixed price to share.
        let half = |half: f64| if half < 1.0 { "0".to_owned() } else { short(half) };
        let half = first.number("half_batch").map_or("\u{2013}".to_owned(), half);
        let off =
            first.number("fit_error").map_or("-".to_owned(), |off| format!("{:.0}%", off * 1e2));
        writeln!(
            out,
            "<tr><td>{}<br><small class=\"soft\">item: {}</small></td><td>{}</td>\
             <td class=\"bar\"><i style=\"width:{:.0}%\"></i></td><td>{}</td>{items}\
             <td>{half}</td><td>{off}</td></tr>",
            escaped(operation),
            escaped(first.text("item")),
            price(Some(first), "fixed_us"),
            bar(first.number("fixed_us").unwrap_or_default()),
            price(Some(first), "each_us"),
        )?;
    }
    writeln!(out, "</table></div>")
}

/// Shows microseconds in the unit that suits them.
fn time_text(us: f64) -> String {
    let (factor, unit) = match us {
        1e6.. => (1e-6, "s"),
        1e3.. => (1e-3, "ms"),
        1.0.. => (1.0, "us"),
        _ => (1e3, "ns"),
    };
    let value = short(us * factor);
    if value == "0" { value } else { format!("{value}\u{a0}{unit}") }
}

/// Returns the length of a bar: from a hundredth of a microsecond to a tenth of a second, by
/// logarithm.
fn bar(us: f64) -> f64 {
    if 0.0 < us { ((us.log10() + 2.0) / 7.0 * 100.0).clamp(1.0, 100.0) } else { 0.0 }
}

/// Returns what two servers must have in common to be compared.
fn case<'a>(row: Record<'a>) -> [&'a str; 4] {
    ["op", "pace", "durability", "clients"].map(|name| row.text(name))
}

/// Rows of busload and of the naive server in one case.
struct Pair<'a> {
    naive: Record<'a>,
    busload: Record<'a>,
}

impl Pair<'_> {
    /// Names the case, as `SET, pipeline 64`.
    fn name(&self) -> String {
        let [op, pace, ..] = case(self.naive);
        let pace = if pace.ends_with("/s") { pace.to_owned() } else { format!("pipeline {pace}") };
        format!("{}, {pace}", op.to_uppercase())
    }

    fn ratio(&self) -> Option<f64> {
        let naive = self.naive.number("per_s").filter(|naive| 0.0 < *naive)?;
        Some(self.busload.number("per_s")? / naive)
    }
}

fn pairs(file: &Csv) -> Vec<Pair<'_>> {
    if !file.has(&["op", "pace", "durability", "clients", "server", "per_s"]) {
        return Vec::new();
    }
    let busload = |naive: Record<'_>| {
        let is_same =
            |row: &Record<'_>| row.text("server") == "busload" && case(*row) == case(naive);
        file.rows().filter(is_same).last()
    };
    let rows = file.rows().filter(|row| row.text("server") == "naive");
    rows.filter_map(|naive| Some(Pair { naive, busload: busload(naive)? })).collect()
}

fn write_servers(out: &mut String, pairs: &[Pair<'_>]) -> Result {
    if pairs.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<h3>The server that one writes first, beside busload</h3><p>A thread for each \
         connection, a lock, and for each SET a write and an fdatasync. It keeps the same promise: \
         nobody is told of a change, or reads it, that a crash could take back.</p>"
    )?;
    let mut ratios: Vec<_> =
        pairs.iter().filter_map(|pair| Some((pair.ratio()?, pair.name()))).collect();
    ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
    if let [(least, of_least), .., (most, of_most)] = &ratios[..] {
        writeln!(
            out,
            "<p class=\"big\">busload answers {} times as many requests with {}, \
             {} times with {}.</p>",
            measurement(*least),
            escaped(of_least),
            measurement(*most),
            escaped(of_most)
        )?;
    }
    let heads = [
        "case",
        "naive/s",
        "busload/s",
        "times",
        "naive p99 us",
        "busload p99 us",
        "naive CPU us",
        "busload CPU us",
        "connections",
        "durability",
    ];
    let rows = pairs.iter().map(|pair| {
        let number = |row: Record<'_>, name| row.number(name).map_or("-".to_owned(), short);
        let both = |name| [number(pair.naive, name), number(pair.busload, name)];
        let ratio = pair.ratio().map_or("-".to_owned(), |ratio| format!("{}x", measurement(ratio)));
        let mut row = vec![pair.name()];
        row.extend(both("per_s"));
        row.push(ratio);
        row.extend(both("p99_us").into_iter().chain(both("server_us_per_request")));
        row.extend(["clients", "durability"].map(|name| pair.naive.text(name).to_owned()));
        row
    });
    table(out, &heads.map(str::to_owned), &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_a_line_each_and_the_naive_server_a_sentence() {
        let list = "# machine\nsection,operation,item,batch,item_us,fixed_us,each_us,half_batch,\
                    fit_error,round\nsystem,pipe call,byte,1,2,1.5,0.5,3,0.02,0\n\
                    system,pipe call,byte,10,0.65,1.5,0.5,3,0.02,0\n\
                    disk,sync,record,1,9000,9000,,,,0\ndisk,sync,record,10,900,9000,,,,0\n";
        let servers = "op,pace,durability,net_threads,clients,server,per_s,p99_us,round\n\
                       set,64,always,0,50,busload,900000,9,0\nset,64,always,0,50,naive,9000,9,0\n\
                       get,1,always,0,50,busload,18000,9,0\nget,1,always,0,50,naive,9000,9,0\n\
                       set,1,always,0,50,naive,9000,9,0\n";
        let files = [("costs.csv", list), ("kv.csv", servers)]
            .map(|(name, text)| Csv::parse(name, text).unwrap());
        let mut out = String::new();
        write(&mut out, &files).unwrap();
        let wanted = [
            "<td>pipe call<br>",
            "<td>1.5\u{a0}us</td>",
            "<td>650\u{a0}ns</td><td>-</td>",
            "<td>3</td><td>2%</td>",
            "<td>9\u{a0}ms</td>",
            "2.00 times as many requests with GET, pipeline 1, 100 times with SET",
            "<figcaption>Its disk</figcaption>",
        ];
        for wanted in wanted {
            assert!(out.contains(wanted), "{wanted}: {out}");
        }
        assert_eq!((out.matches("100x").count(), out.contains("Beyond it")), (1, false));
        let mut none = String::new();
        write(&mut none, &[Csv::parse("x", "a\n1\n").unwrap()]).unwrap();
        assert!(none.is_empty());
    }

    #[test]
    fn bars_grow_with_the_logarithm_of_a_price() {
        let lengths = [0.0, 0.001, 0.1, 10.0, 100_000.0, 1e9].map(|us| bar(us).round());
        assert_eq!(lengths.map(|length| format!("{length}")), ["0", "1", "14", "43", "100", "100"]);
    }
}
