//! Tables for people, CSV for programs. Both are written line by line: an interrupted run has shown
//! what it did.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::Path,
};

use anyhow::{Context, Result, bail};

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// A column of a table over rows of type `R`: its heading, and what each row shows below it.
pub struct Column<R> {
    title: &'static str,
    /// Characters; a longer value moves the rest of its row.
    width: usize,
    align: Align,
    value: fn(&R) -> String,
}

/// Returns a column of numbers.
pub const fn number<R>(title: &'static str, width: usize, value: fn(&R) -> String) -> Column<R> {
    Column { title, width, align: Align::Right, value }
}

/// Returns a column of text.
pub const fn text<R>(title: &'static str, width: usize, value: fn(&R) -> String) -> Column<R> {
    Column { title, width, align: Align::Left, value }
}

/// A field of a CSV file over rows of type `R`.
pub struct Field<R> {
    name: &'static str,
    value: fn(&R) -> String,
}

/// Returns a field of a CSV file.
pub const fn field<R>(name: &'static str, value: fn(&R) -> String) -> Field<R> {
    Field { name, value }
}

/// Formats one line of a table, without space at its end.
pub fn line<R>(columns: &[Column<R>], row: &R) -> String {
    aligned(columns, |column| (column.value)(row))
}

fn aligned<R>(columns: &[Column<R>], value: impl Fn(&Column<R>) -> String) -> String {
    let mut line = String::new();
    for column in columns {
        let (value, width) = (value(column), column.width.max(column.title.len()));
        if !line.is_empty() {
            line.push_str("  ");
        }
        match column.align {
            Align::Left => line.push_str(&format!("{value:<width$}")),
            Align::Right => line.push_str(&format!("{value:>width$}")),
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Formats the headings and a rule below them.
pub fn heading<R>(columns: &[Column<R>]) -> String {
    let titles = aligned(columns, |column| column.title.to_owned());
    let rules = aligned(columns, |column| "-".repeat(column.width.max(column.title.len())));
    format!("{titles}\n{rules}")
}

pub fn print<R>(title: &str, columns: &[Column<R>], rows: &[R]) {
    println!("\n{title}\n{}", heading(columns));
    rows.iter().for_each(|row| println!("{}", line(columns, row)));
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
pub struct Csv<R: 'static> {
    file: File,
    fields: &'static [Field<R>],
}

impl<R> Csv<R> {
    /// Opens the file, appends a comment line about the run, and the header if the file has none.
    /// Fails if the file holds another experiment.
    pub fn open(path: &Path, about: &str, fields: &'static [Field<R>]) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).read(true).open(path);
        let mut file = file.with_context(|| format!("cannot open {}", path.display()))?;
        let header = fields.iter().map(|field| field.name).collect::<Vec<_>>().join(",");
        let first =
            first_record(&file).with_context(|| format!("cannot read {}", path.display()))?;
        if first.as_ref().is_some_and(|first| *first != header) {
            bail!("{} holds another experiment; name another file", path.display());
        }
        writeln!(file, "# {about}")?;
        if first.is_none() {
            writeln!(file, "{header}")?;
        }
        Ok(Self { file, fields })
    }

    pub fn append(&mut self, row: &R) -> Result<()> {
        let record = record(self.fields, row);
        writeln!(self.file, "{record}").context("cannot append to the CSV")
    }
}

/// Formats a record of a CSV file.
pub fn record<R>(fields: &[Field<R>], row: &R) -> String {
    fields.iter().map(|field| quoted(&(field.value)(row))).collect::<Vec<_>>().join(",")
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

    type Row = [&'static str; 3];

    const COLUMNS: &[Column<Row>] = &[
        text("op", 5, |row| row[0].to_owned()),
        number("kreq/s", 4, |row| row[1].to_owned()),
        text("notes", 5, |row| row[2].to_owned()),
    ];

    #[test]
    fn columns_are_aligned_under_their_headings() {
        let table = [
            heading(COLUMNS),
            line(COLUMNS, &["get", "12", ""]),
            line(COLUMNS, &["mix", "345.6", "late"]),
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
        const FIELDS: &[Field<Row>] =
            &[field("a", |row| row[0].to_owned()), field("b", |row| row[1].to_owned())];
        const OTHERS: &[Field<Row>] = &[field("other", |row| row[0].to_owned())];
        let directory =
            crate::cleanup::Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let path = directory.path().join("runs.csv");
        for run in ["first", "second"] {
            Csv::open(&path, run, FIELDS).unwrap().append(&["1", run, ""]).unwrap();
        }
        let content = std::fs::read_to_string(&path).unwrap();
        assert_eq!(content, "# first\na,b\n1,first\n# second\n1,second\n");
        assert!(Csv::open(&path, "third", OTHERS).is_err());
    }
}
