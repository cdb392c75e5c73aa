//! Converts a row, or the outcome of a write, to the reply of a command.
//!
//! A missing row is an absent key, and a NULL column a field that does not exist. An empty string
//! stays an empty string.

use busload_pipeline::source::SourceValue;
use busload_postgres::Row;
use bytes::Bytes;

use crate::sources::requests::count;

/// The command, as far as its reply depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowCommand {
    Value,
    Exists,
    Length,
    Type,
    /// HGET, with the index of the column; none if there is no such column.
    Field(Option<usize>),
    Fields(Vec<Option<usize>>),
    AllFields,
    FieldExists(Option<usize>),
    FieldNames,
    FieldCount,
    Set,
    /// Number of fields or keys, for HSET, HDEL and DEL.
    Count,
}

/// The value columns of a table, encoded for replies.
#[derive(Debug)]
pub struct Columns {
    names: Vec<Bytes>,
    /// Names as members of a JSON object: `"name":`.
    members: Vec<String>,
}

impl Columns {
    /// Encodes the columns, in the order of the configuration.
    pub fn new(names: &[String]) -> Self {
        let member = |name: &String| format!("{}:", serde_json::Value::from(name.as_str()));
        Self {
            names: names.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect(),
            members: names.iter().map(member).collect(),
        }
    }

    /// Returns the index of a column.
    pub fn index(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns all names, for error texts.
    pub fn list(&self) -> String {
        let names: Vec<_> = self.names.iter().map(|name| String::from_utf8_lossy(name)).collect();
        names.join(", ")
    }
}

/// Converts a row to the answer of a read.
pub fn of_row(command: &RowCommand, row: Option<&Row>, columns: &Columns) -> SourceValue {
    let Some(row) = row else { return of_no_row(command) };
    let value = |column: Option<usize>| column.and_then(|column| row.value(column));
    match command {
        RowCommand::Value => whole(row, columns).map_or(SourceValue::Nil, SourceValue::Bulk),
        RowCommand::Exists => SourceValue::Integer(1),
        RowCommand::Length => {
            SourceValue::Integer(count(whole(row, columns).map_or(0, |value| value.len())))
        }
        RowCommand::Type => SourceValue::Status(if row.len() == 1 { "string" } else { "hash" }),
        RowCommand::Field(column) => value(*column).map_or(SourceValue::Nil, SourceValue::Bulk),
        RowCommand::Fields(columns) => {
            SourceValue::Values(columns.iter().map(|column| value(*column)).collect())
        }
        RowCommand::AllFields => {
            let fields = columns.names.iter().cloned().zip(row.values());
            SourceValue::Fields(fields.filter(|(_, value)| value.is_some()).collect())
        }
        RowCommand::FieldExists(column) => {
            SourceValue::Integer(i64::from(value(*column).is_some()))
        }
        RowCommand::FieldNames => {
            let fields = columns.names.iter().zip(row.values());
            SourceValue::Values(
                fields
                    .filter(|(_, value)| value.is_some())
                    .map(|(name, _)| Some(name.clone()))
                    .collect(),
            )
        }
        RowCommand::FieldCount => SourceValue::Integer(count(
            (0..row.len()).filter(|column| row.get(*column).is_some()).count(),
        )),
        RowCommand::Set | RowCommand::Count => SourceValue::Done,
    }
}

fn of_no_row(command: &RowCommand) -> SourceValue {
    match command {
        RowCommand::Value | RowCommand::Field(_) => SourceValue::Nil,
        RowCommand::Exists
        | RowCommand::Length
        | RowCommand::FieldExists(_)
        | RowCommand::FieldCount => SourceValue::Integer(0),
        RowCommand::Type => SourceValue::Status("none"),
        RowCommand::Fields(columns) => SourceValue::Values(vec![None; columns.len()]),
        RowCommand::AllFields => SourceValue::Fields(Vec::new()),
        RowCommand::FieldNames => SourceValue::Values(Vec::new()),
        RowCommand::Set | RowCommand::Count => SourceValue::Done,
    }
}

/// Returns the value if the table has one value column; with several, a JSON object of strings and
/// nulls.
fn whole(row: &Row, columns: &Columns) -> Option<Bytes> {
    if row.len() == 1 {
        return row.value(0);
    }
    let mut object = String::from("{");
    for (column, member) in columns.members.iter().enumerate() {
        if column != 0 {
            object.push(',');
        }
        object.push_str(member);
        match row.get(column) {
            None => object.push_str("null"),
            Some(value) => push_json(&mut object, value),
        }
    }
    object.push('}');
    Some(object.into())
}

/// Appends a JSON string. Bytes that are not UTF-8 appear as Postgres prints `bytea`: `\x00ff`.
fn push_json(object: &mut String, value: &[u8]) {
    let text = match std::str::from_utf8(value) {
        Ok(text) => serde_json::Value::from(text).to_string(),
        Err(_) => {
            let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            format!(r#""\\x{digits}""#)
        }
    };
    object.push_str(&text);
}
