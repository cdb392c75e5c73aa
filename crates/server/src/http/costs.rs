//! The page of costs: why batches pay, with the price list of a machine. It is `docs/costs.md` in
//! the dashboard's style: one text for those who read the repository and those who run the server.
//!
//! `/costs` loads nothing, as the dashboard. Only the Markdown that this text has is turned into
//! HTML: headings, paragraphs, one level of lists, tables, fences; code, emphasis and links in
//! lines. A test fails when any of it is left.

use std::{fmt::Write, sync::LazyLock};

use axum::response::Response;

use super::dashboard::{STYLE, answer, hash};

const TEXT: &str = include_str!("../../../../docs/costs.md");
/// Style that this page needs beside the dashboard's.
const FURTHER_STYLE: &str = "\
header, main { max-width: 960px; }
pre { margin: 0; white-space: pre-wrap; }
li { margin: 6px 0; }
p:first-child { margin-top: 0; }
p:last-child, ul:last-child { margin-bottom: 0; }
";

static PAGE: LazyLock<Page> = LazyLock::new(Page::new);

/// The page and its policy.
struct Page {
    html: String,
    policy: String,
}

impl Page {
    fn new() -> Self {
        let style = format!("{STYLE}{FURTHER_STYLE}");
        let (title, body) = TEXT.split_once('\n').unwrap_or((TEXT, ""));
        let title = escaped(title.trim_start_matches("# "));
        let body = html(body);
        Self {
            html: format!(
                "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
                 <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
                 <meta name=\"color-scheme\" content=\"light dark\">\n\
                 <title>busload: {title}</title>\n<link rel=\"icon\" href=\"data:,\">\n\
                 <style>{style}</style>\n</head>\n<body>\n<header>\n  <h1>{title}</h1>\n  \
                 <p><a href=\"./\">Dashboard</a></p>\n</header>\n<main>\n{body}</main>\n\
                 </body>\n</html>\n"
            ),
            policy: format!(
                "default-src 'none'; style-src '{}'; img-src data:; base-uri 'none'; \
                 form-action 'none'; frame-ancestors 'none'",
                hash(&style)
            ),
        }
    }
}

/// Answers with the page.
pub async fn page() -> Response {
    answer(&PAGE.html, &PAGE.policy)
}

/// Turns a text into sections, one for each heading.
fn html(text: &str) -> String {
    let mut page = String::from("<section>\n");
    for block in text.split("\n\n").map(|block| block.trim_matches('\n')) {
        match block.as_bytes() {
            [] => {}
            [b'#', ..] => {
                let title = inline(block.trim_start_matches(['#', ' ']));
                page += &format!("</section>\n<section>\n<h2>{title}</h2>\n");
            }
            [b'`', b'`', b'`', ..] => page += &format!("<pre><code>{}</code></pre>\n", code(block)),
            [b'|', ..] => page += &table(block),
            [b'*', b' ', ..] => page += &list(block),
            _ => page += &format!("<p>{}</p>\n", inline(block)),
        }
    }
    page + "</section>\n"
}

/// Returns what a fence holds.
fn code(block: &str) -> String {
    let lines = block.lines().filter(|line| !line.starts_with("```"));
    escaped(&lines.collect::<Vec<_>>().join("\n"))
}

fn list(block: &str) -> String {
    let items = format!("\n{block}");
    let items = items.split("\n* ").skip(1).map(|item| format!("<li>{}</li>\n", inline(item)));
    format!("<ul>\n{}</ul>\n", items.collect::<String>())
}

/// Makes a table whose rows become blocks on a narrow screen, each cell with its column's name.
fn table(block: &str) -> String {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| inline(cell.trim())).collect()
    };
    let mut lines = block.lines();
    let columns = cells(lines.next().unwrap_or_default());
    let mut table = String::from("<table class=\"stack\">\n<thead><tr>");
    // Writing to a string cannot fail, here and below.
    columns.iter().for_each(|name| table += &format!("<th scope=\"col\">{name}</th>"));
    table += "</tr></thead>\n<tbody>\n";
    // The second line only says where the heading ends.
    for line in lines.skip(1) {
        table += "<tr>";
        for (index, (name, cell)) in columns.iter().zip(cells(line)).enumerate() {
            let _ = match index {
                0 => write!(table, "<th scope=\"row\">{cell}</th>"),
                _ => write!(table, "<td data-label=\"{name}\">{cell}</td>"),
            };
        }
        table += "</tr>\n";
    }
    table + "</tbody>\n</table>\n"
}

/// Turns the marks inside of a text into elements. Links go to pages of the repository, which the
/// server does not have: their text remains.
fn inline(text: &str) -> String {
    let mut html = String::new();
    for (index, part) in escaped(text).split('`').enumerate() {
        if index % 2 == 1 {
            html += &format!("<code>{part}</code>");
        } else {
            html += &paired(&without_links(part), "**", "b");
        }
    }
    html
}

/// Puts what stands between two marks into an element.
fn paired(text: &str, mark: &str, element: &str) -> String {
    let parts = text.split(mark).enumerate().map(|(index, part)| match index % 2 {
        0 => part.to_owned(),
        _ => format!("<{element}>{part}</{element}>"),
    });
    parts.collect()
}

fn without_links(text: &str) -> String {
    let Some((before, link)) = text.split_once('[') else { return text.to_owned() };
    match link.split_once("](").and_then(|(name, rest)| Some((name, rest.split_once(')')?.1))) {
        Some((name, rest)) => format!("{before}{name}{}", without_links(rest)),
        None => text.to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_html() {
        let text = "One `a < b` and\n**two**, [three](x.md).\n\n## Title\n\n\
                    * first\n  line\n* second\n\n\
                    | a | b |\n|---|---|\n| `c` | 1 % |\n\n```sh\nrun <this>\n```\n";
        assert_eq!(
            html(text),
            "<section>\n<p>One <code>a &lt; b</code> and\n<b>two</b>, three.</p>\n\
             </section>\n<section>\n<h2>Title</h2>\n\
             <ul>\n<li>first\n  line</li>\n<li>second</li>\n</ul>\n\
             <table class=\"stack\">\n<thead><tr><th scope=\"col\">a</th><th scope=\"col\">b</th>\
             </tr></thead>\n<tbody>\n\
             <tr><th scope=\"row\"><code>c</code></th><td data-label=\"b\">1 %</td></tr>\n\
             </tbody>\n</table>\n\
             <pre><code>run &lt;this&gt;</code></pre>\n</section>\n"
        );
    }

    #[test]
    fn nothing_of_the_markdown_is_left_and_all_figures_are_there() {
        let Page { html, policy } = &*PAGE;
        let (_, body) = html.split_once("</style>").unwrap();
        for mark in ["**", "](", "|", "`", "\n* ", "\n#"] {
            assert!(!body.contains(mark), "{mark}");
        }
        for line in TEXT.lines().filter(|line| line.starts_with("| ")) {
            for cell in line.trim_matches('|').split('|') {
                assert!(body.contains(&format!(">{}</t", inline(cell.trim()))), "{line}: {cell}");
            }
        }
        assert_eq!(body.matches("<h2>").count(), TEXT.matches("\n## ").count());
        for foreign in ["<script", "src=", "@import", "url(", " style=", "http:", "https:"] {
            assert!(!html.contains(foreign), "{foreign}");
        }
        assert!(html.is_ascii());
        let (_, style) = html.split_once("<style>").unwrap();
        let style = hash(style.split_once("</style>").unwrap().0);
        assert!(policy.contains(&style) && !policy.contains("unsafe"), "{policy}");
    }
}
