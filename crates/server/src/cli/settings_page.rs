//! All settings for people: the lists of `--help`, and the page `docs/configuration.md`, which
//! `busload config docs` prints.
//!
//! The page is made from what the program itself uses: the flags with their help, and the lists of
//! `config::settings`. `BUSLOAD_WRITE_DOCS=1` has the test write it.

use std::fmt::Write;

use clap::{Arg, Args, Command};

use crate::config::{
    CHUNKS_SETTINGS, MEMORY_SETTINGS, OnReload, Options, POSTGRES_SETTINGS, STORES_SETTINGS,
    Setting, SettingDefault, on_reload,
};

/// Line of the manual in whose place the settings of a Postgres table stand.
const POSTGRES_PLACE: &str = "    {POSTGRES}\n";
/// Line of the manual in whose place the settings of a chunk table stand.
const CHUNKS_PLACE: &str = "    {CHUNKS}\n";
/// Column at which the meaning of a setting begins in the manual.
const MANUAL_INDENT: usize = 20;
/// Longest line of the manual.
const MANUAL_COLUMN_MAX: usize = 100;
/// Heading of flags that have none.
const OTHER_HEADING: &str = "Output";

const INTRODUCTION: &str = "\
# Configuration

All settings, as `busload config docs` prints them. A test compares this page with the program
(`BUSLOAD_WRITE_DOCS=1 cargo test -p busload --bins settings_page` writes it).

```sh
busload config example > busload.toml      # every setting with its default, and what it means
busload check --config busload.toml        # what a start would do, without doing it
busload serve --config busload.toml
```

A flag wins over the environment, the environment over the file, and the file over the default. A
table that is given by a flag is taken whole from there. An unknown key is an error that names the
nearest one. A setting has the same name as its flag, with `_` for `-`.

SIGHUP and `busload reload` have a running server read its file again, under the flags of its start.
The column *reload* says what becomes of a changed setting. What needs a restart keeps its value and
is named in the log and by `busload reload`, which then ends with 1. A file with a mistake changes
nothing.

| value | written as |
|---|---|
| size | `4096`, `64MiB` (powers of 1024), `500MB` (millions) |
| duration | `200ms`, `1s`, `2m`; a bare number is milliseconds |
| percentage | `25%` |
| address | `HOST:PORT`, or `none` |
| path | seen from the working directory if it is relative |
| names, paths | an array, or one text with commas |
";

const TABLES: &str = "
## Tables

A section `[tables.NAME]` for each, or `--table NAME=URL` with the settings in the query of the URL.
Keys `NAME:...` belong to the table, all others to the memory table `default`. Tables appear, change
and go by a reload; [operations.md](operations.md#change-the-configuration) says which of their
settings can change.
";

/// Kinds of tables: title, where there is more, settings.
const KINDS: [(&str, &str, &[Setting]); 4] = [
    (
        "Memory tables",
        "`kind = \"memory\"`; [durability.md](durability.md) says what `sync` promises.",
        &MEMORY_SETTINGS,
    ),
    (
        "Postgres tables",
        "`kind = \"postgres\"`; [postgres.md](postgres.md) has the details.",
        &POSTGRES_SETTINGS,
    ),
    (
        "Chunk tables",
        "`kind = \"chunks\"`; [chunks.md](chunks.md) has the details, and the store's own \
         settings, which stand in the query of `url`.",
        &CHUNKS_SETTINGS,
    ),
    (
        "Stores by pattern",
        "`[stores.\"PATTERN\"]`, or `--stores PATTERN=URL`: those of a chunk table but `kind`, \
         `memory` and `dolt_paths`, with placeholders in the path of `url`, and these; \
         [chunks.md](chunks.md#stores-by-pattern). A reload applies these but `busiest_stores`.",
        &STORES_SETTINGS,
    ),
];

/// Variables of the environment, and what they do.
const ENVIRONMENT: [(&str, &str); 8] = [
    ("BUSLOAD_PASSWORD", "The password that clients must give, unless `--password-file` is given."),
    (
        "BUSLOAD_USER",
        "User as whom `busload top`, `cache` and `snapshot` log in; `default` without it.",
    ),
    ("BUSLOAD_LOG", "Levels of the log, like `log_level`. `--log-level` wins over it."),
    (
        "BUSLOAD_TABLE_NAME_PASSWORD",
        "Password of the Postgres table NAME, in upper case, with `_` \
        for other characters than letters and digits.",
    ),
    ("PGPASSWORD, PGPASSFILE, PGHOST", "And others of libpq: for all Postgres tables."),
    (
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_PROFILE",
        "And others of AWS, Google and \
        Azure: for chunk tables.",
    ),
    (
        "NOTIFY_SOCKET, WATCHDOG_USEC",
        "Set by systemd: where to say that the server is ready, and \
        how often that it is well.",
    ),
    ("HOME", "Directory of `~/.pgpass` and `~/.aws`."),
];

/// Puts the lists of settings into the manual of `--help`.
pub fn manual(text: &str) -> String {
    text.replace(POSTGRES_PLACE, &manual_list(&POSTGRES_SETTINGS))
        .replace(CHUNKS_PLACE, &manual_list(&CHUNKS_SETTINGS))
}

/// Lists settings for the manual, without those that its text explains.
fn manual_list(settings: &[Setting]) -> String {
    let mut list = String::new();
    for setting in settings.iter().filter(|setting| !["kind", "url"].contains(&setting.name)) {
        let mut text = setting.meaning.to_owned();
        if let Some(default) = setting.default.shown() {
            // Writing to a string cannot fail.
            let _ = write!(text, " [default: {default}]");
        }
        let mut line = format!("    {:<1$}", setting.name, MANUAL_INDENT - 4);
        for word in text.split(' ') {
            if MANUAL_COLUMN_MAX < line.len() + " ".len() + word.len() {
                list += &format!("{line}\n");
                line = " ".repeat(MANUAL_INDENT);
            } else if MANUAL_INDENT < line.len() {
                line.push(' ');
            }
            line += word;
        }
        list += &format!("{line}\n");
    }
    list
}

/// Makes the page of all settings.
pub fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let flags = flags();
    let mut headings: Vec<&str> = Vec::new();
    flags.iter().for_each(|flag| {
        if !headings.contains(&heading(flag)) {
            headings.push(heading(flag));
        }
    });
    for shown in headings {
        page += &format!("\n## {shown}\n\n");
        page +=
            "| setting | flag | value | default | reload | meaning |\n|---|---|---|---|---|---|\n";
        page.extend(flags.iter().filter(|flag| heading(flag) == shown).map(flag_row));
    }
    page += TABLES;
    for (title, more, settings) in KINDS {
        page += &format!("\n### {title}\n\n{}\n\n", wrapped(more));
        page += "| setting | value | default | meaning |\n|---|---|---|---|\n";
        page.extend(settings.iter().map(table_row));
    }
    page += "\n## Environment\n\n| variable | meaning |\n|---|---|\n";
    for (names, meaning) in ENVIRONMENT {
        let names: Vec<_> = names.split(", ").map(|name| format!("`{name}`")).collect();
        page += &format!("| {} | {meaning} |\n", names.join(", "));
    }
    page
}

/// Returns the flags that can be set in the file, too.
fn flags() -> Vec<Arg> {
    let command = Options::augment_args(Command::new("busload"));
    let of_sections = ["tables", "stores"];
    let is_one = |flag: &&Arg| !of_sections.contains(&flag.get_id().as_str());
    command.get_arguments().filter(is_one).cloned().collect()
}

fn heading(flag: &Arg) -> &str {
    flag.get_help_heading().unwrap_or(OTHER_HEADING)
}

fn flag_row(flag: &Arg) -> String {
    let long = flag.get_long().unwrap_or_default();
    let value = flag.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
    let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string);
    let (meaning, default) = without_default(&help.unwrap_or_default());
    let default = default.map_or(String::new(), |default| format!("`{default}`"));
    let id = flag.get_id();
    let reload = on_reload(id.as_str()).map_or("restart", OnReload::shown);
    let (name, flag) = (format!("`{id}`"), format!("`--{long}`"));
    row(&[&name, &flag, values(value), &default, reload, &meaning])
}

fn table_row(setting: &Setting) -> String {
    let default = match setting.default {
        SettingDefault::Required => "must be given".to_owned(),
        SettingDefault::Value(value) => format!("`{value}`"),
        SettingDefault::Text(text) => text.to_owned(),
    };
    let meaning = format!("{}.", capitalized(setting.meaning));
    row(&[&format!("`{}`", setting.name), setting.values, &default, &meaning])
}

fn row(cells: &[&str]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Returns what a flag takes, in the words of the page, by the name that `--help` shows.
fn values(name: &str) -> &'static str {
    match name {
        "DIR" | "PATH" | "FILE" => "path",
        "ADDR" => "address",
        "URL" => "URL",
        "NAME" => "host name",
        "N" => "whole number",
        "0|1" => "`0` or `1`",
        "SIZE" => "size",
        "PERCENT" => "percentage",
        "USD" => "price",
        "LEVELS" => "levels",
        "FORMAT" => "`text` or `json`",
        _ => "text",
    }
}

/// Splits the help of a flag into its meaning, in sentences, and its default.
fn without_default(help: &str) -> (String, Option<String>) {
    let mut default = None;
    let mut sentences = Vec::new();
    for paragraph in help.split("\n\n") {
        let mut text = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((before, rest)) = text.split_once("[default: ")
            && let Some((value, after)) = rest.split_once(']')
        {
            default = Some(value.to_owned());
            text = format!("{}{after}", before.trim_end());
        }
        if !text.ends_with('.') {
            text.push('.');
        }
        sentences.push(text);
    }
    (sentences.join(" "), default)
}

fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    // The names of values stay as they are.
    let first = rest.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(rest).collect()
}

/// Breaks prose into lines.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if MANUAL_COLUMN_MAX < line.len() + " ".len() + word.len() {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;
    use crate::config::OPTION_KEYS;

    #[test]
    fn the_page_of_settings_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        let page = page();
        if std::env::var_os("BUSLOAD_WRITE_DOCS").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            page == committed,
            "docs/configuration.md is out of date: BUSLOAD_WRITE_DOCS=1 cargo test -p busload \
             --bins settings_page"
        );
    }

    #[test]
    fn every_setting_of_the_file_is_a_flag_of_the_same_name() {
        let flags = flags();
        let ids: BTreeSet<&str> = flags.iter().map(|flag| flag.get_id().as_str()).collect();
        assert_eq!(ids, OPTION_KEYS.into());
        for flag in &flags {
            let id = flag.get_id().as_str();
            assert_eq!(flag.get_long(), Some(&*id.replace('_', "-")), "{id}");
            let (meaning, _) = without_default(&flag.get_help().unwrap().to_string());
            assert!(10 < meaning.len() && meaning.ends_with('.'), "{id}: {meaning}");
        }
    }

    #[test]
    fn the_example_has_every_setting() {
        let example = include_str!("../../../../busload.example.toml");
        let lines: Vec<&str> = example.lines().map(|line| line.trim_start_matches('#')).collect();
        let is_there =
            |name: &str| lines.iter().any(|line| line.starts_with(&format!("{name} = ")));
        for name in OPTION_KEYS {
            assert!(is_there(name), "{name}");
        }
        for setting in KINDS.iter().flat_map(|(_, _, settings)| settings.iter()) {
            assert!(is_there(setting.name), "{}", setting.name);
        }
    }

    #[test]
    fn defaults_are_taken_out_of_the_help() {
        let split = |help| without_default(help);
        let (meaning, default) = split("Most connections [default: 10000]");
        assert_eq!((&*meaning, default.as_deref()), ("Most connections.", Some("10000")));
        let (meaning, default) = split("TCP address [default:\n1:2]\n\nNeeds a\npassword.");
        let meaning_expected = "TCP address. Needs a password.";
        assert_eq!((&*meaning, default.as_deref()), (meaning_expected, Some("1:2")));
        assert_eq!(split("Path").1, None);
    }

    #[test]
    fn lists_of_the_manual_are_aligned_and_short_enough() {
        let list = manual_list(&POSTGRES_SETTINGS);
        assert!(list.starts_with("    relation        the table to serve\n"), "{list}");
        assert!(list.contains("\n    batch           most keys of one batch [default: 256]\n"));
        assert!(list.lines().all(|line| line.len() <= MANUAL_COLUMN_MAX), "{list}");
        let continued = format!("\n{}wrote meanwhile [default: false]\n", " ".repeat(20));
        assert!(list.contains(&continued), "{list}");
        assert!(!manual(&format!("a\n{POSTGRES_PLACE}{CHUNKS_PLACE}")).contains('{'));
    }
}
