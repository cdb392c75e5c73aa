//! Format of AWS' files `config` and `credentials`: sections, properties, and properties of
//! properties.
//!
//! ```text
//! [profile dev]            ; a comment may follow
//! region = eu-west-1  # a comment after white space; a#b is a value
//! s3 =
//!   endpoint_url = http://127.0.0.1:9000
//! ```
//!
//! It looks like INI, but parsers of INI know neither the indented lines nor these comments. An
//! error names the line and never quotes it: lines hold secrets.

use std::collections::BTreeMap;

/// Properties of a section, by their names in lower case.
pub(super) type Section = BTreeMap<String, String>;

/// Line that breaks the rules, and the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}")]
pub(super) struct SyntaxError {
    line: usize,
    expected: &'static str,
}

/// Parses a file into its sections, in their order: what is between the brackets, white space
/// reduced to single spaces and quotes removed, and the properties.
pub(super) fn parse(text: &str) -> Result<Vec<(String, Section)>, SyntaxError> {
    let mut sections: Vec<(String, Section)> = Vec::new();
    let mut last_key: Option<String> = None;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        let error = |expected| SyntaxError { line: index + 1, expected };
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with([' ', '\t']) {
            let property = sections.last_mut().zip(last_key.as_ref());
            let value = property.and_then(|((_, section), key)| section.get_mut(key));
            let value = value.ok_or(error("a property before an indented line"))?;
            value.push('\n');
            value.push_str(trimmed);
        } else if let Some(rest) = trimmed.strip_prefix('[') {
            let (name, after) = rest.split_once(']').ok_or(error("`]` after a section's name"))?;
            if !after.trim_start().is_empty() && !after.trim_start().starts_with(['#', ';']) {
                return Err(error("nothing but a comment after `]`"));
            }
            let words = name.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
            sections.push((words.collect::<Vec<_>>().join(" "), Section::new()));
            last_key = None;
        } else {
            let expected = error("`name = value` or `[section]`");
            let (key, value) = trimmed.split_once('=').ok_or(expected)?;
            let key = key.trim().to_lowercase();
            let (_, section) = sections.last_mut().ok_or(error("a `[section]` first"))?;
            if key.is_empty() {
                return Err(expected);
            }
            section.insert(key.clone(), without_comment(value).to_owned());
            last_key = Some(key);
        }
    }
    Ok(sections)
}

/// Parses the indented lines below a property.
pub(super) fn nested(value: &str) -> Section {
    let pairs = value.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key.trim().to_lowercase(), value.trim().to_owned())).collect()
}

/// Cuts what follows `#` or `;` after white space.
fn without_comment(value: &str) -> &str {
    let starts = |(at, _): &(usize, &str)| {
        let before = value[..*at].chars().next_back();
        before.is_some_and(char::is_whitespace)
    };
    let end = value.match_indices(['#', ';']).find(starts).map_or(value.len(), |(at, _)| at);
    value[..end].trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(text: &str) -> String {
        let sections = parse(text).unwrap();
        let lines = sections.iter().map(|(name, section)| format!("{name} {section:?}"));
        lines.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn the_forms_that_aws_documents_are_understood() {
        for (text, expected) in [
            ("", ""),
            ("# comment\n; other\n\n   \n", ""),
            ("[default]\nregion=us-west-2\n", r#"default {"region": "us-west-2"}"#),
            ("\u{feff}[a]\r\nB = c\r\n", r#"a {"b": "c"}"#),
            ("[profile  \"my dev\"] ; c\nx = 1", r#"profile my dev {"x": "1"}"#),
            ("[ profile\tdev ]# c\n", "profile dev {}"),
            ("[a]\nk = v # c\nl = v#d;e\nm = ; c", r#"a {"k": "v", "l": "v#d;e", "m": ""}"#),
            ("[a]\nk = b=c==\nk2=\n", r#"a {"k": "b=c==", "k2": ""}"#),
            ("[a]\nk = 1\nk = 2\n[b]\n[a]\nj = 3", r#"a {"k": "2"}; b {}; a {"j": "3"}"#),
            (
                "[services x]\ns3 =\n  # c\n  endpoint_url = http://h:1\n\n\tother=2\nz = 1",
                r#"services x {"s3": "\nendpoint_url = http://h:1\nother=2", "z": "1"}"#,
            ),
        ] {
            assert_eq!(flat(text), expected, "{text}");
        }
        let values = nested("\nendpoint_url = http://h:1\nOther=2");
        assert_eq!(format!("{values:?}"), r#"{"endpoint_url": "http://h:1", "other": "2"}"#);
    }

    const TEXTS: &str = "([a\\[\\] =#;\"\u{85}\u{1f600}\t\r]{0,8}\n){0,6}";

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in TEXTS) {
            for (_, section) in parse(&text).unwrap_or_default() {
                section.values().for_each(|value| _ = nested(value));
            }
        }
    }

    #[test]
    fn mistakes_name_the_line_and_never_quote_it() {
        for (text, error) in [
            ("hush = 1", "line 1: expected a `[section]` first"),
            ("[a]\n\nhush", "line 3: expected `name = value` or `[section]`"),
            ("[a]\n= hush", "line 2: expected `name = value` or `[section]`"),
            ("[hush", "line 1: expected `]` after a section's name"),
            ("[a] hush", "line 1: expected nothing but a comment after `]`"),
            ("  hush = 1", "line 1: expected a property before an indented line"),
            ("[a]\n  hush = 1", "line 2: expected a property before an indented line"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), error, "{text}");
        }
    }
}
