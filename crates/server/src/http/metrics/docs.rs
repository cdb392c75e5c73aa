//! `docs/metrics.md`, made from the table. `BUSLOAD_WRITE_DOCS=1` writes it.

use std::path::Path;

use super::table::{Metric, TABLE};

const INTRODUCTION: &str = "\
# Metrics

The metrics of `/metrics`, in the text format of Prometheus. `cargo xtask metrics` writes this page
from the table in `crates/server/src/http/metrics/table.rs`, and tests compare both with each other
and with what a running server exports.

Names end with their unit; `_total` marks counters, which only grow until the process ends or
`CONFIG RESETSTAT` resets them. A metric without samples is left out.
[monitoring.md](monitoring.md) has alert rules and a dashboard of them.
";

/// Sections of the page: a prefix of metrics' names, the title, and when the server has these
/// metrics. A metric belongs to the first section that fits.
const SECTIONS: [(&str, &str, &str); 11] = [
    (
        "busload_request_",
        "Requests",
        "\
For each table and family of commands (`read`, `write`, `admin`, `other`) that had requests of Redis
clients. Table `*` of kind `server` stands for requests without a key. `le` is a power of two in
microseconds. A request's time does not include a wait for earlier replies on its connection, or for
a client that does not read. Of a table that a source serves, queue and service leave out requests
that it answers at once or that join a read in flight.",
    ),
    ("busload_http_", "HTTP", "Over all connections, those of gRPC and of Dolt's clients, too."),
    ("busload_queue_", "Request queues", "For each table of kind `postgres` or `chunks`."),
    ("busload_postgres_", "Postgres tables", "For each table of kind `postgres`."),
    (
        "busload_chunks_",
        "Chunk tables",
        "\
For each table of kind `chunks`. `call` is a call of gRPC (`GetChunk`, `GetChunks`, `HasChunks`) or
a download of Dolt's clients (`file`, `range`, `records`); those that were refused before they
reached the store are left out, and those whose client had gone.",
    ),
    (
        "busload_stores_",
        "Stores by pattern",
        "For each pattern of `--stores`, over all of its stores, those included that were closed.",
    ),
    (
        "busload_store_",
        "The busiest stores",
        "\
For the stores of each pattern with most requests lately, at most `busiest_stores` of them.
[chunks.md](chunks.md#the-busiest-stores) says which these are, and when a series ends or begins
again. What all other stores did is the difference to `busload_stores_`.",
    ),
    (
        "busload_dynamodb_",
        "Manifests in DynamoDB",
        "For each table of DynamoDB that URLs of `aws://` name; all stores of a table share its \
         requests.",
    ),
    ("busload_dolt_", "Dolt's clients", "Over all tables of kind `chunks`, if there are any."),
    ("busload_log_", "The log", "The first two always, the others once the log is recovered."),
    ("", "The process, Redis clients, memory tables", "Always, memory of the process on Linux."),
];

fn markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for (section, &(_, title, presence)) in SECTIONS.iter().enumerate() {
        page += &format!("\n## {title}\n\n{presence}\n\n");
        page += "| metric | type | labels | value |\n|---|---|---|---|\n";
        page.extend(TABLE.iter().filter(|metric| section_of(metric) == section).map(row));
    }
    page
}

fn section_of(metric: &Metric) -> usize {
    let fits = |(prefix, ..): &(&str, &str, &str)| metric.name.starts_with(prefix);
    SECTIONS.iter().position(fits).unwrap()
}

fn row(metric: &Metric) -> String {
    let Metric { name, kind, help, source } = metric;
    let labels: Vec<_> = source.labels().iter().map(|label| format!("`{label}`")).collect();
    format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", "))
}

#[test]
fn the_page_of_metrics_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = markdown();
    if std::env::var_os("BUSLOAD_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(page == committed, "docs/metrics.md is out of date: cargo xtask metrics");
}
