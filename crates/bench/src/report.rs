//! Tables for people, CSV for programs. Both are written line by line: an interrupted run has shown
//! what it did.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::Path,
};

use anyhow::{Context, Result, bail};

/// How a column stands in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub title: &'static str,
    /// Characters; a longer case moves the rest of its row.
    pub width: usize,
    pub align: Align,
}

/// A column of numbers.
pub const fn number(title: &'static str, width: usize) -> Column {
    Column { title, width, align: Align::Right }
}

/// A column of text.
pub const fn text(title: &'static str, width: usize) -> Column {
    Column { title, width, align: Align::Left }
}

/// One line of a table, without space at its end.
pub fn row(columns: &[Column], cases: &[String]) -> String {
    let mut line = String::new();
    for (column, case) in columns.iter().zip(cases) {
        let width = column.width.max(column.title.len());
        if !line.is_empty() {
            line.push_str("  ");
        }
        match column.align {
            Align::Left => line.push_str(&format!("{case:<width$}")),
            Align::Right => line.push_str(&format!("{case:>width$}")),
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// The headings and a rule below them.
pub fn heading(columns: &[Column]) -> String {
    let titles: Vec<_> = columns.iter().map(|column| column.title.to_owned()).collect();
    let rules: Vec<_> =
        columns.iter().map(|column| "-".repeat(column.width.max(column.title.len()))).collect();
    format!("{}\n{}", row(columns, &titles), row(columns, &rules))
}

pub fn print(title: &str, columns: &[Column], rows: impl Iterator<Item = Vec<String>>) {
    println!("\n{title}\n{}", heading(columns));
    rows.for_each(|cases| println!("{}", row(columns, &cases)));
}

/// Four significant measurements or so: what a ratio of noisy numbers deserves.
pub fn measurement(value: f64) -> String {
    if 100.0 <= value {
        format!("{value:.0}")
    } else if 10.0 <= value {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A measurement, or `-` where there is none.
pub fn measurement_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), measurement)
}

/// A measurement for programs, or nothing where there is none.
pub fn exact_or_empty(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.4}")).unwrap_or_default()
}

/// A share as a percentage, or `-`.
pub fn percent_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 100.0))
}

/// A CSV file that runs are appended to.
#[derive(Debug)]
pub struct Csv {
    file: File,
}

impl Csv {
    /// Opens the file, appends a comment line about the run, and the header if the file has none.
    pub fn open(path: &Path, about: &str, header: &[&str]) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).read(true).open(path);
        let mut file = file.with_context(|| format!("cannot open {}", path.display()))?;
        let header = header.join(",");
        let first =
            first_record(&file).with_context(|| format!("cannot read {}", path.display()))?;
        if first.as_ref().is_some_and(|first| *first != header) {
            bail!("{} holds another experiment; name another file", path.display());
        }
        writeln!(file, "# {about}")?;
        if first.is_none() {
            writeln!(file, "{header}")?;
        }
        Ok(Self { file })
    }

    pub fn append(&mut self, fields: &[String]) -> Result<()> {
        let fields: Vec<_> = fields.iter().map(|field| quoted(field)).collect();
        writeln!(self.file, "{}", fields.join(",")).context("cannot append to the CSV")
    }
}

fn first_record(file: &File) -> std::io::Result<Option<String>> {
    for line in BufReader::new(file).lines() {
        let line = line?;
        if !line.starts_with('#') {
            return Ok(Some(line));
        }
    }
    Ok(None)
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[text("op", 5), number("kreq/s", 4), text("notes", 5)];

    fn cases(cases: [&str; 3]) -> Vec<String> {
        cases.map(str::to_owned).to_vec()
    }

    #[test]
    fn columns_are_aligned_under_their_headings() {
        let table = [
            heading(COLUMNS),
            row(COLUMNS, &cases(["get", "12", ""])),
            row(COLUMNS, &cases(["mix", "345.6", "late"])),
        ];
        assert_eq!(
            table.join("\n"),
            "op     kreq/s  notes\n\
             -----  ------  -----\n\
             get        12\n\
             mix     345.6  late"
        );
    }

    #[test]
    fn measurements_keep_about_three_digits() {
        assert_eq!(
            [1234.5, 99.94, 1.005, 0.0].map(measurement),
            ["1234", "99.9", "1.00", "0.00"].map(str::to_owned)
        );
        assert_eq!(measurement_or_dash(None), "-");
        assert_eq!(percent_or_dash(Some(0.256)), "26%");
    }

    #[test]
    fn csv_fields_are_quoted_where_needed() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
    }

    #[test]
    fn runs_are_appended_under_one_header() {
        let directory =
            crate::cleanup::Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let path = directory.path().join("runs.csv");
        for run in ["first", "second"] {
            let mut csv = Csv::open(&path, run, &["a", "b"]).unwrap();
            csv.append(&["1".to_owned(), run.to_owned()]).unwrap();
        }
        let content = std::fs::read_to_string(&path).unwrap();
        assert_eq!(content, "# first\na,b\n1,first\n# second\n1,second\n");
        assert!(Csv::open(&path, "third", &["other"]).is_err());
    }
}
