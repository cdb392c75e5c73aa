//! CSV files as the experiments write them: comment lines about runs, a header, records.

use anyhow::{Context, Result, bail};

/// Medians of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Csv {
    pub name: String,
    /// Comments, which tell about runs.
    pub about: Vec<String>,
    pub names: Vec<String>,
    records: Vec<Vec<String>>,
}

/// Record of a file, whose fields have names.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    names: &'a [String],
    fields: &'a [String],
}

impl Csv {
    /// Parses a file. Leaves out rounds, which medians sum up.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let (mut about, mut names, mut records) = (Vec::new(), Vec::new(), Vec::new());
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(comment) = rest.strip_prefix('#') {
                let (line, after) = comment.split_once('\n').unwrap_or((comment, ""));
                about.push(line.trim().to_owned());
                rest = after;
                continue;
            }
            let (fields, after) = record(rest).context("a quoted field has no end")?;
            rest = after;
            if names.is_empty() {
                names = fields;
            } else if fields.len() == names.len() {
                records.push(fields);
            } else {
                bail!("a record has {} fields, the header {}", fields.len(), names.len());
            }
        }
        if names.is_empty() {
            bail!("it has no header: it is no CSV file of an experiment");
        }
        if let Some(round) = names.iter().position(|name| name == "round") {
            records.retain(|record| record[round] == "0");
        }
        Ok(Self { name: name.to_owned(), about, names, records })
    }

    /// Returns whether there are fields of all these names.
    pub fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.names.iter().any(|own| own == name))
    }

    pub fn rows(&self) -> impl Iterator<Item = Record<'_>> {
        self.records.iter().map(|fields| Record { names: &self.names, fields })
    }
}

impl<'a> Record<'a> {
    /// Returns a field; an empty one if there is none of this name.
    pub fn text(&self, name: &str) -> &'a str {
        let position = self.names.iter().position(|own| own == name);
        position.map_or("", |position| &self.fields[position])
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.text(name).parse().ok().filter(|number: &f64| number.is_finite())
    }

    pub fn texts(&self) -> impl Iterator<Item = &'a str> {
        self.fields.iter().map(String::as_str)
    }
}

/// Splits off the first record: its fields, and what comes behind it.
fn record(text: &str) -> Option<(Vec<String>, &str)> {
    let (mut fields, mut rest) = (Vec::new(), text);
    loop {
        let mut field = String::new();
        if let Some(mut quoted) = rest.strip_prefix('"') {
            loop {
                let (part, after) = quoted.split_once('"')?;
                field.push_str(part);
                let Some(more) = after.strip_prefix('"') else {
                    rest = after;
                    break;
                };
                field.push('"');
                quoted = more;
            }
        }
        let end = rest.find([',', '\n']).unwrap_or(rest.len());
        field.push_str(rest[..end].trim_end_matches('\r'));
        fields.push(field);
        let ends = rest[end..].starts_with(',');
        rest = rest.get(end + 1..).unwrap_or("");
        if !ends {
            return Some((fields, rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_read_as_they_were_written() {
        let text = "# one; machine\nop,per_s,round,notes\nget,10.5,1,\nget,11,0,\"a, \"\"b\"\"\nc\"\
                    \n\
                    # two\nset,,0,";
        let csv = Csv::parse("kv.csv", text).unwrap();
        assert_eq!(csv.about, ["one; machine", "two"]);
        let rows: Vec<_> = csv.rows().collect();
        assert_eq!(
            (rows.len(), rows[0].number("per_s"), rows[1].number("per_s")),
            (2, Some(11.0), None)
        );
        assert_eq!((rows[0].text("notes"), rows[1].text("op")), ("a, \"b\"\nc", "set"));
        assert_eq!(
            (rows[0].text("absent"), csv.has(&["op", "round"]), csv.has(&["x"])),
            ("", true, false)
        );
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        for wrong in ["", "# only this\n", "a,b\n1\n", "a\n\"open", "a,b\n1,2,3\n"] {
            assert!(Csv::parse("x", wrong).is_err(), "{wrong}");
        }
    }
}
