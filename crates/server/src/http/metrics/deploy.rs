//! The alert rules and the Grafana dashboard in `deploy/`, checked against the metrics that
//! `/metrics` has: names, labels, and whether a query fits the type of its metric.

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use super::table::{MetricType, TABLE};

/// Labels that Prometheus itself adds to every sample.
const TARGET_LABELS: [&str; 2] = ["instance", "job"];
/// Functions that need a number that only grows.
const OF_COUNTERS: [&str; 3] = ["rate", "irate", "increase"];
/// Words before a list of labels in parentheses.
const LABEL_LISTS: [&str; 5] = ["by", "without", "on", "ignoring", "group_left"];

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Splits a query into words, strings and single characters.
fn tokens(query: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = query.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |char: char| char.is_ascii_alphanumeric() || "_:$".contains(char);
        let length = match first {
            '"' => 2 + rest[1..].find('"').unwrap_or_else(|| panic!("an open string in {query}")),
            char if is_word(char) => rest.find(|char| !is_word(char)).unwrap_or(rest.len()),
            char => char.len_utf8(),
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Returns the words between the opening token at `open` and `close` that `keep` accepts, by what
/// follows them.
fn listed<'a>(
    tokens: &[&'a str],
    open: usize,
    close: &str,
    keep: fn(&str) -> bool,
) -> Vec<&'a str> {
    let inside = tokens[open + 1..].iter().take_while(|token| **token != close);
    let words: Vec<&str> = inside.copied().collect();
    let next = |index: usize| words.get(index + 1).copied().unwrap_or(close);
    let kept = words.iter().enumerate().filter(|(index, word)| {
        word.starts_with(|char: char| char.is_ascii_alphabetic()) && keep(next(*index))
    });
    kept.map(|(_, word)| *word).collect()
}

/// Checks a query, and returns the labels that its result can have.
fn check(query: &str) -> BTreeSet<&'static str> {
    let tokens = tokens(query);
    let mut known: BTreeSet<&str> = TARGET_LABELS.into();
    let mut used = Vec::new();
    let mut grouped: Option<Vec<&str>> = None;
    let mut metrics = 0;
    for (index, &token) in tokens.iter().enumerate() {
        let next = tokens.get(index + 1).copied().unwrap_or_default();
        if LABEL_LISTS.contains(&token) && next == "(" {
            let labels = listed(&tokens, index + 1, ")", |_| true);
            if token == "by" {
                grouped.get_or_insert_default().extend(&labels);
            }
            used.extend(labels);
        }
        if token == "histogram_quantile" {
            assert!(query.contains("_bucket"), "quantiles need buckets: {query}");
            assert!(tokens.contains(&"le"), "quantiles need the label le: {query}");
        }
        if token == "up" || token.starts_with("busload_") || token.starts_with("process_") {
            metrics += 1;
            let function = match index.checked_sub(2) {
                Some(before) if tokens[index - 1] == "(" => tokens[before],
                _ => "",
            };
            known.extend(check_metric(token, function, query));
            if next == "{" {
                used.extend(listed(&tokens, index + 1, "}", |next| "=!".contains(next)));
            }
        }
    }
    assert!(0 < metrics, "no metric in {query}");
    for label in used {
        assert!(known.contains(label), "no label {label}: {query}");
    }
    match grouped {
        Some(labels) => known.into_iter().filter(|label| labels.contains(label)).collect(),
        None => known,
    }
}

/// Checks that a metric exists and fits the function around it; returns its labels.
fn check_metric(name: &str, function: &str, query: &str) -> Vec<&'static str> {
    if name == "up" {
        return Vec::new();
    }
    let series = |suffix: &str| name.strip_suffix(suffix).unwrap_or(name).to_owned();
    let found = TABLE.iter().find(|metric| match metric.kind {
        MetricType::Histogram => {
            ["_bucket", "_sum", "_count"].iter().any(|suffix| series(suffix) == metric.name)
                && name != metric.name
        }
        MetricType::Counter | MetricType::Gauge => name == metric.name,
    });
    let metric = found.unwrap_or_else(|| panic!("no metric {name}: {query}"));
    let only_grows = metric.kind != MetricType::Gauge;
    assert_eq!(OF_COUNTERS.contains(&function), only_grows, "{function}({name}): {query}");
    let labels = metric.source.labels();
    let has_bound = name.ends_with("_bucket");
    labels.iter().copied().filter(|label| *label != "le" || has_bound).collect()
}

/// Returns the labels that a text names between `open` and the next `}` or space.
fn placeholders<'a>(text: &'a str, open: &str) -> Vec<&'a str> {
    let parts = text.split(open).skip(1);
    parts.map(|part| part.split(['}', ' ', '|']).next().unwrap_or_default()).collect()
}

#[test]
fn every_alert_asks_for_what_there_is_and_says_what_to_do() {
    let text = file("prometheus/alerts.yml");
    let documents = YamlLoader::load_from_str(&text).unwrap();
    let mut names = BTreeSet::new();
    for group in documents[0]["groups"].as_vec().unwrap() {
        for rule in group["rules"].as_vec().unwrap() {
            let name = rule["alert"].as_str().unwrap();
            assert!(name.starts_with("Busload") && names.insert(name), "{name}");
            let labels = check(rule["expr"].as_str().unwrap());
            let severity = rule["labels"]["severity"].as_str().unwrap();
            assert!(["page", "ticket"].contains(&severity), "{name}");
            for annotation in ["summary", "action"] {
                let Yaml::String(text) = &rule["annotations"][annotation] else {
                    panic!("{name} has no {annotation}")
                };
                assert!(20 < text.len(), "{name}: {text}");
                for label in placeholders(text, "$labels.") {
                    assert!(labels.contains(label), "{name} shows {label}, which is not there");
                }
            }
        }
    }
    assert!(20 <= names.len(), "{names:?}");
}

#[test]
fn every_panel_asks_for_what_there_is() {
    let dashboard: Value = serde_json::from_str(&file("grafana/busload.json")).unwrap();
    let mut ids = BTreeSet::new();
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title} has the id of another");
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries += 1;
            let labels = check(target["expr"].as_str().unwrap());
            for label in placeholders(target["legendFormat"].as_str().unwrap(), "{{") {
                assert!(labels.contains(label), "{title} shows {label}, which is not there");
            }
        }
    }
    assert!(40 <= queries, "{queries}");
}

#[test]
fn queries_that_do_not_fit_are_found() {
    for query in [
        "busload_nonsense",
        "rate(busload_keys[1m])",
        "busload_commands_total > 0",
        "busload_keys{table=\"a\"}",
        "sum by (table) (rate(busload_commands_total[1m]))",
        "rate(busload_request_duration_seconds[1m])",
        "histogram_quantile(0.9, rate(busload_request_duration_seconds_count[1m]))",
        "histogram_quantile(0.9, \
         sum by (job) (rate(busload_log_sync_duration_seconds_bucket[1m])))",
        "sum by (le) (rate(busload_request_duration_seconds_count[1m]))",
        "1 + 1",
    ] {
        let found = std::panic::catch_unwind(|| check(query));
        assert!(found.is_err(), "{query} passes");
    }
    let labels = check("sum by (table, instance) (rate(busload_queue_refused_total[5m])) > 0");
    assert_eq!(labels, ["instance", "table"].into());
}
