//! Tables of measured cases: measured in turns, shown as medians, appended to a CSV file.

use std::{fs::File, io::Write, path::Path};

use anyhow::{Context, Result, bail};

use super::{Number, Sample, sample::SPREAD};
use crate::{
    failures::Failed,
    stats::{median, ratio},
};

/// Characters of a column of numbers, unless its heading is longer.
const NUMBER_WIDTH: usize = 6;

/// A row of a table, and a record of the CSV file.
#[derive(Clone, Debug)]
pub struct Row<C> {
    pub case: C,
    pub sample: Sample,
    /// Number of the measurement from 1; 0 for the medians, the only ones with ratios.
    pub round: usize,
}

/// A column of a table and a field of its CSV file, for cases of type `C`.
pub struct Column<C> {
    /// Name in the CSV file.
    name: &'static str,
    /// Heading in the table; without one the column is in the CSV file only.
    title: &'static str,
    width: usize,
    content: Content<C>,
}

enum Content<C> {
    Label(fn(&C) -> String),
    Number(Number),
}

/// Makes a column of text that tells cases apart; without a title it is in the CSV file only.
pub const fn label<C>(
    name: &'static str,
    title: &'static str,
    width: usize,
    text: fn(&C) -> String,
) -> Column<C> {
    Column { name, title, width, content: Content::Label(text) }
}

/// Makes a column of a number.
pub const fn shown<C>(number: Number) -> Column<C> {
    let Number { name, title, .. } = number;
    Column { name, title, width: NUMBER_WIDTH, content: Content::Number(number) }
}

/// Makes a field of the CSV file that tables do not show.
pub const fn hidden<C>(number: Number) -> Column<C> {
    Column { name: number.name, title: "", width: 0, content: Content::Number(number) }
}

impl<C> Column<C> {
    fn aligned(&self, text: &str) -> String {
        let width = self.width.max(self.title.len());
        match self.content {
            Content::Label(_) => format!("{text:<width$}"),
            Content::Number(_) => format!("{text:>width$}"),
        }
    }

    /// Formats the part of a row for people, aligned.
    fn shown(&self, row: &Row<C>) -> String {
        match &self.content {
            Content::Label(text) => self.aligned(&text(&row.case)),
            Content::Number(number) => {
                let value = row.sample.get(*number);
                self.aligned(&value.map_or_else(|| "-".to_owned(), |value| number.text(value)))
            }
        }
    }

    /// Formats the part of a row for programs.
    fn record(&self, row: &Row<C>) -> String {
        match &self.content {
            Content::Label(text) => text(&row.case),
            Content::Number(number) => row.sample.get(*number).map(digits).unwrap_or_default(),
        }
    }
}

/// Formats a number without dropping a digit that says something.
fn digits(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Comparisons of a row with others: numbers, and their values where there is something to compare.
pub type Ratios = Vec<(Number, Option<f64>)>;

/// Shape of an experiment's table.
pub struct TableLayout<C: 'static> {
    pub columns: &'static [Column<C>],
    /// Number of which rows tell the spread, and progress the value.
    pub main: Number,
    /// Compares medians with those of other rows; its group is measured by then.
    pub ratios: fn(&Row<C>, &[Row<C>]) -> Ratios,
}

/// Rows measured so far, in their order, and the file they are appended to.
pub struct Table<C: 'static> {
    layout: &'static TableLayout<C>,
    csv: Option<File>,
    /// Medians of the cases measured so far.
    pub rows: Vec<Row<C>>,
}

impl<C: Copy> Table<C> {
    /// Makes an empty table. The file, if there is one, gets a comment line about the run, and a
    /// header unless it has one. Fails if the file holds another experiment.
    pub fn open(
        layout: &'static TableLayout<C>,
        csv: Option<&Path>,
        about: impl AsRef<str>,
    ) -> Result<Self> {
        let names = layout.columns.iter().map(|column| column.name);
        let header = names.chain(FIELDS).collect::<Vec<_>>().join(",");
        let csv = csv.map(|path| open_csv(path, about.as_ref(), &header)).transpose()?;
        Ok(Self { layout, csv, rows: Vec::new() })
    }

    /// Measures cases in turns, appends every measurement and the medians to the file, and prints
    /// the medians below a title. Cases go forwards in one round and backwards in the next, so that
    /// a machine that gets slower or faster does so for all. Returns the new rows.
    pub fn group(
        &mut self,
        title: &str,
        cases: &[C],
        rounds: usize,
        mut measure: impl FnMut(&C, usize) -> Result<Sample>,
    ) -> Result<&[Row<C>]> {
        let (first, main) = (self.rows.len(), self.layout.main);
        let mut samples: Vec<_> = cases.iter().map(|_| Vec::with_capacity(rounds)).collect();
        for round in 1..=rounds {
            for turn in 0..cases.len() {
                let index = if round % 2 == 1 { turn } else { cases.len() - 1 - turn };
                let (case, name) = (cases[index], self.name(&cases[index]));
                let sample = measure(&case, round).with_context(|| name.clone())?;
                let value = sample.get(main).map(|value| main.text(value)).unwrap_or_default();
                let notes = sample.notes();
                eprintln!("round {round} of {rounds}: {name}: {value} {} {notes}", main.title);
                self.append(&Row { case, sample: sample.clone(), round })?;
                samples[index].push(sample);
            }
        }
        for (case, samples) in cases.iter().zip(&samples) {
            let sample = Sample::median(samples).with(SPREAD, spread(samples, main));
            self.rows.push(Row { case: *case, sample, round: 0 });
        }
        if !title.is_empty() && first < self.rows.len() {
            self.print_heading(title);
        }
        (first..self.rows.len()).try_for_each(|index| self.finish(index))?;
        Ok(&self.rows[first..])
    }

    /// Adds, prints and appends the medians of a case that was measured elsewhere.
    pub fn add(&mut self, case: C, sample: Sample) -> Result<()> {
        self.rows.push(Row { case, sample, round: 0 });
        self.finish(self.rows.len() - 1)
    }

    /// Compares a row with others, prints and appends it.
    fn finish(&mut self, index: usize) -> Result<()> {
        let ratios = (self.layout.ratios)(&self.rows[index], &self.rows);
        let sample = &mut self.rows[index].sample;
        ratios.into_iter().for_each(|(number, ratio)| sample.set(number, ratio));
        println!("{}", self.line(&self.rows[index]));
        self.append(&self.rows[index].clone())
    }

    /// Returns the first row whose case `chosen` picks.
    pub fn find(&self, chosen: impl Fn(&C) -> bool) -> Option<&Row<C>> {
        self.rows.iter().find(|row| chosen(&row.case))
    }

    /// Returns what failed in all rows.
    pub fn failed(&self) -> Failed {
        let mut failed = Failed::default();
        self.rows.iter().for_each(|row| failed.merge(&row.sample.failed));
        failed
    }

    /// Prints a title, the headings and a rule below them.
    pub fn print_heading(&self, title: &str) {
        let headings = self.shown_columns().map(|column| column.aligned(column.title));
        let headings: Vec<_> = headings.chain(["spread".into(), "notes".into()]).collect();
        let rules: Vec<_> = headings.iter().map(|heading| "-".repeat(heading.len())).collect();
        println!("\n{title}\n{}\n{}", headings.join("  "), rules.join("  "));
    }

    /// Formats a row for people, without space at its end.
    fn line(&self, row: &Row<C>) -> String {
        let mut line: Vec<_> = self.shown_columns().map(|column| column.shown(row)).collect();
        let spread = row.sample.get(SPREAD).map_or("-".to_owned(), |spread| SPREAD.text(spread));
        line.extend([format!("{spread:>6}"), row.sample.notes()]);
        line.join("  ").trim_end().to_owned()
    }

    /// Formats a row for programs.
    pub fn record(&self, row: &Row<C>) -> String {
        let Row { sample, round, .. } = row;
        let mut fields: Vec<_> =
            self.layout.columns.iter().map(|column| column.record(row)).collect();
        fields.extend([
            round.to_string(),
            sample.get(SPREAD).map(digits).unwrap_or_default(),
            sample.counted("unanswered").to_string(),
            sample.failed.refused.count.to_string(),
            sample.failed.wrong.count.to_string(),
            sample.notes(),
        ]);
        fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(",")
    }

    fn shown_columns(&self) -> impl Iterator<Item = &Column<C>> {
        self.layout.columns.iter().filter(|column| !column.title.is_empty())
    }

    /// Returns the labels of a case.
    fn name(&self, case: &C) -> String {
        let labels = self.layout.columns.iter().filter_map(|column| match column.content {
            Content::Label(text) => Some(text(case)),
            Content::Number(_) => None,
        });
        labels.filter(|label| !label.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn append(&mut self, row: &Row<C>) -> Result<()> {
        let record = self.record(row);
        let csv = self.csv.as_mut();
        csv.map_or(Ok(()), |file| writeln!(file, "{record}")).context("cannot append to the CSV")
    }
}

/// Fields that every CSV file ends with.
const FIELDS: [&str; 6] = ["round", "spread", "unanswered", "refused", "wrong", "notes"];

/// Most less least of a number by its median, where there are rounds to tell.
fn spread(samples: &[Sample], number: Number) -> Option<f64> {
    let values: Vec<_> = samples.iter().filter_map(|sample| sample.get(number)).collect();
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let median = median(values.iter().copied()).filter(|_| 1 < values.len())?;
    ratio(most - least, median)
}

fn open_csv(path: &Path, about: &str, header: &str) -> Result<File> {
    let named = || format!("cannot open {}", path.display());
    let file = File::options().create(true).append(true).read(true).open(path);
    let mut file = file.with_context(named)?;
    let text = std::io::read_to_string(&file).with_context(named)?;
    let first = text.lines().find(|line| !line.starts_with('#'));
    if first.is_some_and(|first| first != header) {
        bail!("{} holds another experiment; name another file", path.display());
    }
    let header = if first.is_none() { format!("{header}\n") } else { String::new() };
    write!(file, "# {about}\n{header}").with_context(named)?;
    Ok(file)
}

fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::sample::{P99_US, PER_S};

    type Case = (&'static str, usize);

    const FASTER: Number = Number::new("x_first", "x first");

    const LAYOUT: TableLayout<Case> = TableLayout {
        columns: &[
            label("op", "op", 4, |case: &Case| case.0.to_owned()),
            label("turn", "", 0, |case: &Case| case.1.to_string()),
            shown(PER_S),
            shown(FASTER),
            hidden(P99_US),
        ],
        main: PER_S,
        ratios: |row, rows| {
            let base = rows[0].sample.get(PER_S);
            vec![(FASTER, base.map(|base| row.sample.or_zero(PER_S) / base))]
        },
    };

    #[test]
    fn cases_take_turns_and_are_shown_and_appended_as_medians() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("runs.csv");
        let mut order = Vec::new();
        let mut table = Table::open(&LAYOUT, Some(&path), "first").unwrap();
        let measure = |case: &Case, round: usize| {
            order.push((case.1, round));
            let value = crate::stats::float_of(1_000 * (case.1 * 10 + round));
            Ok(Sample::default().with(PER_S, value).with(P99_US, 0.5).count("nil", 1))
        };
        table.group("title", &[("get", 1), ("a,b", 2)], 3, measure).unwrap();
        assert_eq!(order, [(1, 1), (2, 1), (2, 2), (1, 2), (1, 3), (2, 3)]);
        assert_eq!(table.line(&table.rows[0]), "get     12.0     1.00     17%  nil:3");
        Table::open(&LAYOUT, Some(&path), "second").unwrap();
        let content = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = content.lines().collect();
        let header = "op,turn,per_s,x_first,p99_us,round,spread,unanswered,refused,wrong,notes";
        assert_eq!(lines[..3], ["# first", header, "get,1,11000,,0.5,1,,0,0,0,nil:1"]);
        assert_eq!(lines[9..], ["\"a,b\",2,22000,1.833333,0.5,0,0.090909,0,0,0,nil:3", "# second"]);
        std::fs::write(&path, "other\n").unwrap();
        assert!(Table::open(&LAYOUT, Some(&path), "third").is_err());
        let failed = table.group("", &[("get", 1)], 3, |_, round| {
            assert_eq!(round, 1);
            anyhow::bail!("no")
        });
        assert!(failed.is_err_and(|error| error.to_string() == "get 1"));
    }
}
