//! Names of relations as SQL writes them, and their quoted form for statements.

use std::fmt;

use crate::{SettingsError, limits::IDENTIFIER_BYTES_MAX, values::unfit};

const EXPECTED: &str = r#"expected a name as in SQL such as objects, public.objects or "Odd Name""#;

/// A relation's name with SQL's meaning: folded to lower case unless it was quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// Schema of the relation; `None` if the session's search path finds it.
    pub schema: Option<String>,
    /// Name of the relation.
    pub name: String,
}

impl Relation {
    /// Parses `name` or `schema.name`, with or without double quotes.
    pub(crate) fn parse(text: &str) -> Result<Self, SettingsError> {
        let unfit = || unfit("relation", text, EXPECTED);
        let (first, rest) = parse_identifier(text.trim()).ok_or_else(unfit)?;
        let relation = match rest.strip_prefix('.') {
            None if rest.is_empty() => Self { schema: None, name: first },
            None => return Err(unfit()),
            Some(rest) => match parse_identifier(rest).ok_or_else(unfit)? {
                (name, "") => Self { schema: Some(first), name },
                _ => return Err(unfit()),
            },
        };
        Ok(relation)
    }

    /// Returns the name with every part quoted, for use in a statement.
    pub fn sql(&self) -> String {
        let name = quote_identifier(&self.name);
        match &self.schema {
            Some(schema) => format!("{}.{name}", quote_identifier(schema)),
            None => name,
        }
    }
}

/// Shows the name as people write it: quoted only where it must be.
impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{}.", quote_if_odd(schema))?;
        }
        f.write_str(&quote_if_odd(&self.name))
    }
}

/// Quotes a name for use in a statement.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn quote_if_odd(name: &str) -> String {
    match parse_identifier(name) {
        Some((folded, "")) if folded == name => name.to_owned(),
        _ => quote_identifier(name),
    }
}

/// Returns whether Postgres could have a name like this.
pub(crate) fn is_identifier(name: &str) -> bool {
    !name.is_empty() && name.len() <= IDENTIFIER_BYTES_MAX && !name.contains('\0')
}

/// Parses one name; returns it with the rest of the text.
fn parse_identifier(text: &str) -> Option<(String, &str)> {
    let (name, rest) = match text.strip_prefix('"') {
        Some(quoted) => parse_quoted(quoted)?,
        None => parse_plain(text)?,
    };
    is_identifier(&name).then_some((name, rest))
}

fn parse_plain(text: &str) -> Option<(String, &str)> {
    let begins = |letter: char| letter == '_' || letter.is_ascii_alphabetic() || !letter.is_ascii();
    let goes_on = |letter: char| begins(letter) || letter == '$' || letter.is_ascii_digit();
    if !text.starts_with(begins) {
        return None;
    }
    let end = text.find(|letter| !goes_on(letter)).unwrap_or(text.len());
    Some((text[..end].to_ascii_lowercase(), &text[end..]))
}

/// Parses the text after an opening quote; a quote in the name is written twice.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(behind) => {
                name.push('"');
                rest = behind;
            }
            None => return Some((name, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_sql_reads_them() {
        for (text, sql, shown) in [
            ("objects", r#""objects""#, "objects"),
            ("Objects", r#""objects""#, "objects"),
            ("public.T_1$", r#""public"."t_1$""#, "public.t_1$"),
            (r#""Odd Name""#, r#""Odd Name""#, r#""Odd Name""#),
            (r#""a"."b.c""#, r#""a"."b.c""#, r#"a."b.c""#),
            (r#"s."say ""hi""""#, r#""s"."say ""hi""""#, r#"s."say ""hi""""#),
            (" t ", r#""t""#, "t"),
            ("größe", r#""größe""#, "größe"),
        ] {
            let relation = Relation::parse(text).unwrap();
            assert_eq!(
                (relation.sql().as_str(), relation.to_string().as_str()),
                (sql, shown),
                "{text}"
            );
            assert_eq!(Relation::parse(&relation.sql()).unwrap(), relation, "{text}");
            assert_eq!(Relation::parse(&relation.to_string()).unwrap(), relation, "{text}");
        }
    }

    #[test]
    fn what_sql_would_not_read_is_refused() {
        let long = "x".repeat(IDENTIFIER_BYTES_MAX + 1);
        for text in [
            "", ".", "a.", ".a", "a.b.c", "a b", "a;b", "1a", "\"a", "\"\"", "\"a\"b", "a\"b\"",
            "a-b", "\"a\0\"", &long,
        ] {
            let error = Relation::parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with("relation = `") && error.contains("expected a name"),
                "{text}: {error}"
            );
        }
    }
}
