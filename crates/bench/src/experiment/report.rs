//! `report`: CSV files of the experiments as one HTML file that needs nothing else: charts, tables,
//! and the price list with what follows from it.
//!
//! ```text
//!   CSV files --csv--> medians --by their fields--> prices:  the price list and the naive server
//!                                                   charts:  by pipeline, connections, load
//!                                                   (every file: a table of its numbers)
//! ```
//!
//! The page has no script. Its colours follow the reader's choice of light or dark.

mod charts;
mod csv;
mod prices;

use std::{fmt::Write, fs, path::PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use self::csv::Csv;
use crate::{
    harness::chart::{Chart, STYLE, escaped, short},
    limits::REPORT_BYTES_MAX,
};

const HELP: &str = "\
The files are those that --csv, --servers-csv and --out of the experiments wrote, appended to or
not: the medians are shown, of equal cases the last ones. `costs` makes the price list, `kv` and
`connections` charts by pipeline, connections and load (--rate), `postgres` charts by readers and
load; of all files the numbers are shown.

Examples
  busload-bench costs --csv costs.csv --servers-csv kv.csv
  busload-bench kv --servers busload,null,redis --system-calls --csv kv.csv ...
  busload-bench report costs.csv kv.csv --html report.html";

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct Report {
    /// CSV files of experiments
    #[arg(required = true, value_name = "CSV")]
    csv: Vec<PathBuf>,
    /// HTML file to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    html: PathBuf,
}

pub fn report(arguments: &Report) -> Result<()> {
    let mut files = Vec::new();
    for path in &arguments.csv {
        let named = || format!("cannot read {}", path.display());
        let bytes = fs::metadata(path).with_context(named)?.len();
        if REPORT_BYTES_MAX < bytes {
            bail!("{} has {bytes} bytes; at most {REPORT_BYTES_MAX} are read", path.display());
        }
        let text = fs::read_to_string(path).with_context(named)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        files.push(Csv::parse(&name, &text).with_context(named)?);
    }
    let page = page(&files).context("memory")?;
    let html = &arguments.html;
    fs::write(html, page).with_context(|| format!("cannot write {}", html.display()))?;
    println!("written: {}", html.display());
    Ok(())
}

const PAGE_STYLE: &str = "\
*{box-sizing:border-box}html{color-scheme:light dark}
body{margin:0 auto;max-width:76rem;padding:1rem;background:var(--ground);color:var(--ink);\
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.7rem;line-height:1.2;margin:.4em 0}h2{font-size:1.35rem;margin:2em 0 .3em;\
border-top:1px solid var(--grid);padding-top:.8em}h3{font-size:1.05rem;margin:1.4em 0 .2em}
p{max-width:44rem;margin:.5em 0}.soft,figcaption,summary{color:var(--soft)}small{font-size:.85rem}
.charts{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,22rem),1fr))}
figure{margin:0;min-width:0}figcaption{font-weight:600;color:var(--ink)}\
svg{display:block;width:100%}
.wide{overflow-x:auto;margin:.6em 0}table{border-collapse:collapse;font-size:.9rem;\
font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.3em .6em;border-bottom:1px solid var(--grid);white-space:nowrap}
th{color:var(--soft);font-weight:600}th:first-child,td:first-child{text-align:left;\
position:sticky;left:0;background:var(--ground)}td:first-child{white-space:normal;min-width:8.5rem}
.bar{text-align:left;min-width:6rem}.bar i{display:block;height:.7rem;background:var(--t0);\
border-radius:2px}.big{font-size:1.25rem;font-weight:600;line-height:1.35}a{color:var(--t0)}
@media(max-width:40rem){.bar{display:none}th,td{padding:.3em .4em}table{font-size:.85rem}}
ul{padding-left:1.2rem}summary{cursor:pointer;font-size:.85rem}
";

/// Writes the page.
fn page(files: &[Csv]) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>busload-bench</title><style>{STYLE}{PAGE_STYLE}</style></head><body>\
         <h1>What busload-bench measured</h1>\
         <p class=\"soft\">Medians. Compare numbers of one section with each other, not those \
         of different machines or days. Dashed lines are limits: a server that only answers \
         (null), or statements with very many keys (ceiling).</p>"
    )?;
    prices::write(&mut out, files)?;
    for file in files {
        charts::write(&mut out, file)?;
    }
    writeln!(out, "<h2>All numbers</h2>")?;
    for file in files {
        writeln!(out, "<details><summary>{}</summary><ul class=\"soft\">", escaped(&file.name))?;
        for about in &file.about {
            writeln!(out, "<li><small>{}</small></li>", escaped(about))?;
        }
        writeln!(out, "</ul>")?;
        let rows = file.rows().map(|row| row.texts().map(str::to_owned).collect::<Vec<_>>());
        table(&mut out, &file.names, &rows.collect::<Vec<_>>())?;
        writeln!(out, "</details>")?;
    }
    writeln!(out, "</body></html>")?;
    Ok(out)
}

/// Writes a table whose cells are text.
fn table(out: &mut String, heads: &[String], rows: &[Vec<String>]) -> std::fmt::Result {
    let cells = |cells: &[String], tag| {
        let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
        cells.collect::<String>()
    };
    writeln!(out, "<div class=\"wide\"><table><tr>{}</tr>", cells(heads, "th"))?;
    for row in rows {
        writeln!(out, "<tr>{}</tr>", cells(row, "td"))?;
    }
    writeln!(out, "</table></div>")
}

/// Writes a chart and its numbers.
fn figure(out: &mut String, chart: &Chart) -> std::fmt::Result {
    let title = escaped(&chart.title);
    writeln!(out, "<figure><figcaption>{title}</figcaption>{}", chart.svg())?;
    writeln!(out, "<details><summary>numbers</summary>")?;
    let xs = chart.xs();
    let heads = chart.lines.iter().map(|line| line.name.clone());
    let heads: Vec<_> = [chart.x_title.clone()].into_iter().chain(heads).collect();
    let row = |x: &f64| {
        let value = |line: &crate::harness::chart::Line| {
            let point = line.points.iter().find(|point| point.0.total_cmp(x).is_eq());
            point.map(|point| short(point.1)).unwrap_or_default()
        };
        [short(*x)].into_iter().chain(chart.lines.iter().map(value)).collect()
    };
    table(out, &heads, &xs.iter().map(row).collect::<Vec<Vec<_>>>())?;
    writeln!(out, "</details></figure>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_nothing_else_and_runs_nothing() {
        let hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>";
        let text = format!(
            "# about {hostile}\nop,pace,durability,net_threads,clients,server,per_s,p50_us,p99_us,\
             round,notes\nget,1,none,0,50,\"{hostile}\",1000,5,9,0,\"{hostile}\"\n\
             get,16,none,0,50,\"{hostile}\",9000,5,9,0,\n\
             get,1,none,0,50,busload,2000,5,9,0,\nget,16,none,0,50,busload,30000,5,9,0,\n"
        );
        let page = page(&[Csv::parse(hostile, &text).unwrap()]).unwrap();
        for never in ["<script", "<img", "http:", "https:", "url(", "@import", "src="] {
            let own = page.replace("http://www.w3.org/2000/svg", "").replace("src=x", "");
            assert!(!own.contains(never), "{never}");
        }
        assert!(page.contains("&lt;script&gt;") && page.contains("<svg"), "{page}");
        for tag in ["svg", "table", "figure", "details", "ul", "h2"] {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
