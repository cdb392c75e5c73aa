//! Pages: every link leads to a file of the tree and to a heading in it, and the guide's list,
//! `docs/SUMMARY.md`, names every page of `docs/`.
//!
//! mdBook would show a page that is not in the list to nobody, and say nothing of a link that leads
//! nowhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::{steps::root, words};

/// Beginnings of links to other places than this tree.
const ELSEWHERE: [&str; 3] = ["http://", "https://", "mailto:"];

/// Link of a page within the tree: the number of its line, its file, and the heading in it.
#[derive(Debug, Eq, PartialEq)]
struct Link {
    line: usize,
    file: String,
    heading: Option<String>,
}

/// Links of a page, except those in fences and in code.
fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (line, text) in prose(text) {
        // Every second part is code.
        let parts = text.split('`').step_by(2);
        let targets = parts.flat_map(|part| part.split("](").skip(1));
        let targets = targets.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
        for target in targets.filter(|link| !ELSEWHERE.iter().any(|start| link.starts_with(start)))
        {
            let (file, heading) = match target.split_once('#') {
                Some((file, heading)) => (file, Some(heading.to_owned())),
                None => (target, None),
            };
            found.push(Link { line, file: file.to_owned(), heading });
        }
    }
    found
}

/// Lines outside of fences, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((index + 1, line))
    })
}

/// Names by which links reach the headings of a page.
fn headings(text: &str) -> BTreeSet<String> {
    let lines = prose(text).map(|(_, line)| line);
    lines.filter(|line| line.starts_with('#')).map(anchor).collect()
}

/// Returns a heading in lower case, with hyphens for spaces and without punctuation.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    heading.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

/// Texts of all pages by their paths.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut files = Vec::new();
    words::collect(&root(), &mut files).expect("the tree can be read");
    let pages = files.into_iter().filter(|file| file.extension().is_some_and(|end| end == "md"));
    pages.map(|page| (page.clone(), fs::read_to_string(page).expect("a page is text"))).collect()
}

/// Returns what is wrong with a link of a page, if anything is.
fn fault(link: &Link, page: &Path, pages: &BTreeMap<PathBuf, String>) -> Option<String> {
    let Link { line, file, heading } = link;
    let target = match &file[..] {
        "" => page.to_owned(),
        file => page.parent()?.join(file).canonicalize().unwrap_or_default(),
    };
    let shown = format!("{}:{line}:", page.strip_prefix(root()).unwrap_or(page).display());
    if !target.exists() {
        return Some(format!("{shown} there is no {file}"));
    }
    let heading = heading.as_ref()?;
    let is_there = pages.get(&target).is_some_and(|text| headings(text).contains(heading));
    (!is_there).then(|| format!("{shown} {file} has no heading #{heading}"))
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = pages();
    let links = pages.iter().flat_map(|(page, text)| {
        links(text).into_iter().filter_map(|link| fault(&link, page, &pages))
    });
    let faults: Vec<String> = links.collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_guide_lists_every_page() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("the guide has a list");
    let listed: BTreeSet<PathBuf> =
        links(&summary).into_iter().map(|link| docs.join(link.file)).collect();
    let is_page = |page: &&PathBuf| {
        page.starts_with(&docs) && page.file_name() != Some("SUMMARY.md".as_ref())
    };
    let pages = pages();
    let missing: Vec<_> =
        pages.keys().filter(is_page).filter(|page| !listed.contains(*page)).collect();
    assert!(missing.is_empty(), "add a line for each to docs/SUMMARY.md: {missing:?}");
}

#[test]
fn links_and_headings_are_found_outside_of_code() {
    let text = "# A `b`: c\n[x](y.md#a-b-c) and [`code`](z) [out](https://example.org/a)\n\
        `[no](no.md)`\n```\n[no](no.md)\n# no\n```\n[here](#a-b-c)";
    let link = |line, file: &str, heading: Option<&str>| Link {
        line,
        file: file.to_owned(),
        heading: heading.map(str::to_owned),
    };
    let expected = [link(2, "y.md", Some("a-b-c")), link(2, "z", None), link(8, "", Some("a-b-c"))];
    assert_eq!(links(text), expected);
    assert_eq!(headings(text), BTreeSet::from(["a-b-c".to_owned()]));
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let page = root().join("README.md");
    let pages = BTreeMap::from([(page.clone(), "# One".to_owned())]);
    let fault = |text| links(text).iter().find_map(|link| fault(link, &page, &pages));
    assert_eq!(fault("[a](README.md#one) [b](#one) [c](docs)"), None);
    assert_eq!(fault("[a](#two)").as_deref(), Some("README.md:1:  has no heading #two"));
    assert_eq!(fault("\n[a](none.md)").as_deref(), Some("README.md:2: there is no none.md"));
}
