//! One language: words that have a better one, lines that are too long, docs that say nothing or
//! have no subject, types whose name says of nothing what it is.
//!
//! `docs/glossary.md` explains the words that stay. A word is a part of an identifier, too:
//! `PendingTrip` and `trip_count` both hold `trip`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::steps::root;

/// Last column of a line. Tables in Markdown, drawings in fences and lone URLs may be longer.
const COLUMN_MAX: usize = 100;
/// Words of the shortest item doc that says more than a name.
const DOC_WORDS_MIN: usize = 4;
/// Files with these endings are read.
const EXTENSIONS: [&str; 7] = ["js", "md", "proto", "py", "rs", "sh", "toml"];
/// Folders that are not ours, or not source.
const SKIPPED: [&str; 6] = [".git", "fixtures", "generated", "node_modules", "target", "venv"];

/// A word and the one to say instead. Both in lower case, singular; plurals are found, too.
const WORDS: [(&str, &str); 34] = [
    ("asker", "waiter"),
    ("bell", "notifier"),
    ("board", "enqueue"),
    ("boarding", "enqueue"),
    ("complaint", "rate-limited log"),
    ("damage", "corruption"),
    ("damaged", "corrupt"),
    ("departure", "dispatch"),
    ("distrust", "invalidate"),
    ("doubt", "suspect"),
    ("flight", "fetch"),
    ("gathering", "multi-key request"),
    ("guest", "embedded runtime"),
    ("herd", "thundering herd"),
    ("journey", "batch"),
    ("keeper", "refresher, maintenance thread"),
    ("lab", "harness"),
    ("laid", "encoded"),
    ("landed", "received, completed"),
    ("lane", "write partition"),
    ("ledger", "accounting"),
    ("linger", "grace period"),
    ("overlay", "copy-on-write disk"),
    ("passenger", "pending request"),
    ("patience", "timeout"),
    ("recipe", "encoded chunk bundle"),
    ("rider", "pending request"),
    ("roomy", "large"),
    ("sick", "degraded"),
    ("tally", "counters"),
    ("thin line", "slow link"),
    ("trip", "batch"),
    ("waiting line", "request queue"),
    ("wish", "interest guard"),
];

/// Contexts in which such a word stays: the word, how the line around it reads, and why.
const ALLOWED: [(&str, &str, &str); 13] = [
    ("flight", "in flight", "sent and not yet answered: the field's term"),
    ("flight", "in_flight", "sent and not yet answered: the field's term"),
    ("flight", "inflight", "sent and not yet answered: the field's term"),
    ("flight", "single flight", "one read for all who ask: the field's term"),
    ("flight", "single-flight", "one read for all who ask: the field's term"),
    ("herd", "thundering", "the field's term"),
    ("linger", "so_linger", "an option of sockets"),
    ("linger", "socket_linger", "an option of sockets"),
    ("linger", "zero_linger", "an option of sockets"),
    ("linger", "linger time", "an option of sockets"),
    ("trip", "round_trip", "a message and its answer: the field's term"),
    ("trip", "round-trip", "a message and its answer: the field's term"),
    ("trip", "round trip", "a message and its answer: the field's term"),
];

/// Whole files in which such words stay, and why.
const ALLOWED_FILES: [(&str, &str); 3] = [
    ("README.md", "its first paragraph draws the product's picture"),
    ("CHANGELOG.md", "names settings and metrics as they were"),
    ("crates/xtask/src/words.rs", "lists them"),
];

/// Folders in which a word stays: the word, how the paths begin, and why.
const ALLOWED_FOLDERS: [(&str, &str, &str); 0] = [];

/// Words that begin a clause without a subject, where an item doc needs a noun or a verb.
const HEADLESS: [&str; 10] =
    ["How", "Of", "That", "What", "When", "Where", "Whether", "Which", "Who", "Whose"];

/// Names of types that say of nothing what it is, so that they do not leave their file.
const SUBJECTLESS: [&str; 8] =
    ["Asked", "Kind", "Laid", "Look", "Place", "Room", "Shared", "State"];

/// Paths that docs without a subject and types without one may still stand in: older code.
const OLDER: [&str; 0] = [];

/// Lines that cannot be shorter: file, what they hold, and why.
const LONG_LINES: [(&str, &str, &str); 1] =
    [("crates/server/src/cli/log_tools.rs", "(100 bytes) expires=", "a snapshot of a longer line")];

/// Reads every source file and page, and names what breaks a rule.
pub fn check() -> Result<()> {
    let root = root();
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut findings = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let name = file.strip_prefix(&root).unwrap_or(file).display().to_string();
        let found = examine(&name, &text);
        findings.extend(found.into_iter().map(|(line, what)| format!("{name}:{line}: {what}")));
    }
    println!("{} files, {} findings", files.len(), findings.len());
    if findings.is_empty() { Ok(()) } else { bail!("\n{}", findings.join("\n")) }
}

/// Adds every source file and page below a folder.
pub fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            if !SKIPPED.iter().any(|skipped| name == *skipped) {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|ending| EXTENSIONS.iter().any(|e| ending == *e)) {
            files.push(path);
        }
    }
    Ok(())
}

/// Findings of one file: number of the line, and what is wrong there.
fn examine(name: &str, text: &str) -> Vec<(usize, String)> {
    let mut findings = Vec::new();
    let words_stay = ALLOWED_FILES.iter().any(|(file, _)| *file == name);
    let (markdown, rust) = (name.ends_with(".md"), name.ends_with(".rs"));
    let (mut fenced, mut last_word) = (false, "");
    for (index, line) in text.lines().enumerate() {
        fenced ^= markdown && line.trim_start().starts_with("```");
        let drawn = markdown && (fenced || line.starts_with('|'));
        let columns = line.chars().count();
        let is_fixed =
            LONG_LINES.iter().any(|(file, text, _)| *file == name && line.contains(text));
        if COLUMN_MAX < columns && !drawn && !is_fixed && !is_lone_url(line) {
            findings.push((index + 1, format!("{columns} columns, at most {COLUMN_MAX}")));
        }
        if !words_stay {
            let wrong = wrong_words(last_word, line).into_iter();
            let wrong = wrong.filter(|(said, _)| !is_allowed_in(name, said));
            findings.extend(wrong.map(|(said, better)| {
                (index + 1, format!("says `{said}`; the field's word is {better}"))
            }));
        }
        last_word = line.split_whitespace().next_back().unwrap_or_default();
    }
    if rust {
        findings.extend(short_docs(text));
    }
    if rust && !OLDER.iter().any(|path| name.starts_with(path)) {
        findings.extend(headless_docs(text));
        findings.extend(subjectless_types(text));
    }
    findings
}

fn is_allowed_in(name: &str, said: &str) -> bool {
    ALLOWED_FOLDERS.iter().any(|(word, path, _)| *word == said && name.starts_with(path))
}

fn is_lone_url(line: &str) -> bool {
    let text = line.trim_start_matches(|c: char| !c.is_alphanumeric());
    text.contains("://") && !text.contains(' ')
}

/// Words of the list in a line, unless they may stand there. A phrase may begin with the last word
/// of the line before.
fn wrong_words(last_word: &str, line: &str) -> Vec<(&'static str, &'static str)> {
    let parts = parts(line);
    let text = line.trim_start_matches(|c: char| !c.is_alphanumeric());
    let lower = format!("{last_word} {text}").to_lowercase();
    let is_allowed = |word: &str| {
        ALLOWED.iter().any(|(allowed, context, _)| *allowed == word && lower.contains(context))
    };
    WORDS
        .iter()
        .filter(|(word, _)| {
            let is_said = if word.contains(' ') {
                lower.contains(word)
            } else {
                parts.iter().any(|part| part.strip_suffix('s').unwrap_or(part) == *word)
            };
            is_said && !is_allowed(word)
        })
        .copied()
        .collect()
}

/// The words of a line, those inside identifiers apart, in lower case.
fn parts(line: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut after_lower = false;
    for c in line.chars() {
        if !c.is_ascii_alphabetic() || (c.is_ascii_uppercase() && after_lower) {
            parts.push(String::new());
        }
        after_lower = c.is_ascii_lowercase();
        if c.is_ascii_alphabetic() {
            parts.last_mut().expect("it begins with one").push(c.to_ascii_lowercase());
        }
    }
    parts
}

/// Docs whose first line begins with a clause that has no subject.
fn headless_docs(text: &str) -> Vec<(usize, String)> {
    let words = |line: &str| {
        let doc = ["///", "//!"].iter().find_map(|mark| line.trim_start().strip_prefix(mark))?;
        Some(doc.split_whitespace().next().unwrap_or_default().to_owned())
    };
    let mut findings = Vec::new();
    let mut in_doc = false;
    for (index, line) in text.lines().enumerate() {
        let first = words(line);
        if let Some(first) = first.as_deref().filter(|first| !in_doc && HEADLESS.contains(first)) {
            let message = format!("a doc that begins with `{first}`: begin with a noun or a verb");
            findings.push((index + 1, message));
        }
        in_doc = first.is_some();
    }
    findings
}

/// Types that other files see and whose names have no subject.
fn subjectless_types(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate();
    let found = lines.filter_map(|(index, line)| {
        let name = public_type(line).filter(|name| SUBJECTLESS.contains(name))?;
        Some((index + 1, format!("a type `{name}` that leaves its file: say of what it is")))
    });
    found.collect()
}

/// Name of the type that a line declares for other files.
fn public_type(line: &str) -> Option<&str> {
    let (_, rest) = line.trim_start().strip_prefix("pub")?.split_once(' ')?;
    let (keyword, rest) = rest.split_once(' ')?;
    let is_type = ["enum", "struct", "trait", "type"].contains(&keyword);
    is_type.then(|| rest.split(|c: char| !c.is_alphanumeric()).next()).flatten()
}

/// Item docs of one line that has too few words. Where clap is used docs are help texts, which
/// may be as short as their flag is clear.
fn short_docs(text: &str) -> Vec<(usize, String)> {
    if text.contains("clap") {
        return Vec::new();
    }
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_doc = |index: usize| lines.get(index).is_some_and(|line| line.starts_with("///"));
    let is_short = |index: &usize| {
        let alone = is_doc(*index) && !is_doc(index + 1) && (*index == 0 || !is_doc(index - 1));
        alone && lines[*index].split_whitespace().skip(1).count() < DOC_WORDS_MIN
    };
    let message = format!("a doc of fewer than {DOC_WORDS_MIN} words: say more, or nothing");
    (0..lines.len()).filter(is_short).map(|index| (index + 1, message.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(name: &str, text: &str) -> Vec<usize> {
        examine(name, text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn words_are_found_in_prose_and_inside_identifiers() {
        for line in ["one trip more", "Trips:", "struct PendingTrip;", "trip_count", "TRIPS_MAX"] {
            assert_eq!(lines_of("a.rs", line), [1], "{line}");
        }
        for line in ["a strip", "striped", "in flight", "a round trip", "trippy", "single-flight"] {
            assert_eq!(lines_of("a.rs", line), [0; 0], "{line}");
        }
        assert_eq!(lines_of("README.md", "it fills the trips"), [0; 0]);
    }

    #[test]
    fn long_lines_are_found_outside_of_tables_fences_and_urls() {
        let long = "w ".repeat(51);
        assert_eq!(
            lines_of("a.md", &format!("{long}\n| {long}\n```\n{long}\n```\n{long}")),
            [1, 6]
        );
        assert_eq!(lines_of("a.rs", &format!("fine\n{long}")), [2]);
        assert_eq!(
            lines_of("a.rs", &format!("//! <https://example.org/{}>", "a".repeat(90))),
            [0; 0]
        );
        assert_eq!(lines_of("a.rs", &"\u{e9}".repeat(100)), [0; 0], "characters count, not bytes");
    }

    #[test]
    fn docs_that_say_nothing_are_found() {
        let text =
            "/// The count.\na: u8,\n/// Count of keys seen.\nb: u8,\n/// Two lines\n/// here.\nc";
        assert_eq!(lines_of("a.rs", text), [1]);
        assert_eq!(lines_of("a.md", "/// The count."), [0; 0]);
    }

    #[test]
    fn docs_without_a_subject_are_found() {
        let text =
            "/// Whether it is so or not.\na: bool,\n/// Says to the reader\n/// Where it is.";
        assert_eq!(lines_of("a.rs", text), [1]);
        assert_eq!(lines_of("a.rs", "//! What this module does at all."), [1]);
    }

    #[test]
    fn types_without_a_subject_are_found_where_other_files_see_them() {
        for line in
            ["pub enum State {", "pub(crate) struct Shared<T>(T);", "    pub type Kind = u8;"]
        {
            assert_eq!(lines_of("a.rs", line), [1], "{line}");
        }
        for line in
            ["enum State {", "pub struct FetchState;", "pub fn state() {}", "type Kind = ();"]
        {
            assert_eq!(lines_of("a.rs", line), [0; 0], "{line}");
        }
    }
}
