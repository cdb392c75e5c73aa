//! Parser of the syntax lines of the command table into the tree that `COMMAND DOCS` shows, from
//! which clients make their hints. Capitals are keywords, small letters stand for values, `[x]` is
//! optional, `a|b` is a choice, `x [x ...]` is one or more.

/// One argument, or several that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    pub name: String,
    pub kind: ArgumentKind,
    /// Keyword in front of the argument, or the keyword that it consists of.
    pub token: Option<String>,
    pub optional: bool,
    pub multiple: bool,
    /// Parts of a block or a choice.
    pub parts: Vec<Argument>,
}

/// Kinds of arguments, as Redis calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentKind {
    String,
    Key,
    Integer,
    Pattern,
    Token,
    OneOf,
    Block,
}

impl ArgumentKind {
    pub fn name(self) -> &'static str {
        match self {
            ArgumentKind::String => "string",
            ArgumentKind::Key => "key",
            ArgumentKind::Integer => "integer",
            ArgumentKind::Pattern => "pattern",
            ArgumentKind::Token => "pure-token",
            ArgumentKind::OneOf => "oneof",
            ArgumentKind::Block => "block",
        }
    }

    fn of_value(name: &str) -> ArgumentKind {
        const INTEGERS: &[&str] =
            &["count", "cursor", "db", "index", "decrement", "offset", "timeout"];
        match name {
            "key" | "newkey" | "source" | "destination" => ArgumentKind::Key,
            "pattern" => ArgumentKind::Pattern,
            _ if INTEGERS.contains(&name) || name.contains("seconds") => ArgumentKind::Integer,
            _ => ArgumentKind::String,
        }
    }
}

/// Parses a syntax line of the table into its arguments.
pub(super) fn parse(line: &str) -> Vec<Argument> {
    let spaced = ['[', ']', '|']
        .iter()
        .fold(line.to_owned(), |line, sign| line.replace(*sign, &format!(" {sign} ")));
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let mut arguments = alternatives(&mut rest);
    debug_assert!(rest.is_empty(), "brackets match in {line:?}");
    // A line that is a single block becomes its parts.
    match arguments.as_mut_slice() {
        [only] if only.kind == ArgumentKind::Block && !only.multiple => {
            std::mem::take(&mut only.parts)
        }
        _ => arguments,
    }
}

/// Parses up to the end or a closing bracket, which it leaves. Returns one element when there is a
/// choice.
fn alternatives(rest: &mut &[&str]) -> Vec<Argument> {
    let mut choices = vec![sequence(rest)];
    while let ["|", after @ ..] = *rest {
        *rest = after;
        choices.push(sequence(rest));
    }
    if choices.len() == 1 {
        return choices.pop().unwrap_or_default();
    }
    let parts: Vec<Argument> =
        choices.into_iter().map(|choice| group(ArgumentKind::Block, choice)).collect();
    vec![group(ArgumentKind::OneOf, parts)]
}

/// Makes one argument of several; a single one stays itself.
fn group(kind: ArgumentKind, mut parts: Vec<Argument>) -> Argument {
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return only;
    }
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    let name = names.join("-");
    Argument { name, kind, token: None, optional: false, multiple: false, parts }
}

fn sequence(rest: &mut &[&str]) -> Vec<Argument> {
    let mut arguments: Vec<Argument> = Vec::new();
    while let [word, after @ ..] = *rest {
        if *word == "|" || *word == "]" {
            break;
        }
        *rest = after;
        if *word == "[" {
            let inner = alternatives(rest);
            *rest = rest.split_first().map_or(&[], |(_, after)| after);
            add_optional(&mut arguments, inner);
        } else {
            add_word(&mut arguments, word);
        }
    }
    arguments
}

fn add_word(arguments: &mut Vec<Argument>, word: &str) {
    if word == "..." {
        if let Some(last) = arguments.last_mut() {
            last.multiple = true;
        }
        return;
    }
    let lower = word.to_lowercase();
    let plain = Argument {
        name: lower.clone(),
        kind: ArgumentKind::Token,
        token: Some(word.to_owned()),
        optional: false,
        multiple: false,
        parts: Vec::new(),
    };
    if lower != word {
        return arguments.push(plain);
    }
    let value = Argument { kind: ArgumentKind::of_value(word), token: None, ..plain };
    // A keyword and the value behind it are one argument.
    match arguments.last_mut() {
        Some(last) if last.kind == ArgumentKind::Token => {
            (last.name, last.kind) = (value.name, value.kind);
        }
        _ => arguments.push(value),
    }
}

/// Adds an optional argument; `x [x ...]` instead makes the argument before it repeatable.
fn add_optional(arguments: &mut Vec<Argument>, mut inner: Vec<Argument>) {
    let repeats = inner.last().is_some_and(|last| last.multiple);
    if repeats && let Some(last) = inner.last_mut() {
        last.multiple = false;
    }
    let is_repetition = repeats && arguments.ends_with(&inner);
    if is_repetition {
        arguments.truncate(arguments.len() - inner.len());
    }
    let mut argument = group(ArgumentKind::Block, inner);
    argument.optional = !is_repetition;
    argument.multiple = repeats;
    arguments.push(argument);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats arguments for comparison: kind, token, name, flags, parts.
    fn show(arguments: &[Argument]) -> String {
        let shown = arguments.iter().map(|argument| {
            let token =
                argument.token.as_deref().map_or(String::new(), |token| format!("{token}="));
            let parts = match argument.parts.as_slice() {
                [] => String::new(),
                parts => format!("({})", show(parts)),
            };
            let optional = if argument.optional { "?" } else { "" };
            let multiple = if argument.multiple { "*" } else { "" };
            format!("{}:{token}{}{optional}{multiple}{parts}", argument.kind.name(), argument.name)
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn syntax_lines_become_arguments() {
        let cases = [
            ("", ""),
            ("key", "key:key"),
            ("key [key ...]", "key:key*"),
            ("[name ...]", "string:name?*"),
            (
                "key field value [field value ...]",
                "key:key block:field-value*(string:field string:value)",
            ),
            (
                "key seconds [NX|XX]",
                "key:key integer:seconds oneof:nx-xx?(pure-token:NX=nx pure-token:XX=xx)",
            ),
            (
                "cursor [MATCH pattern] [COUNT count]",
                "integer:cursor pattern:MATCH=pattern? integer:COUNT=count?",
            ),
            ("ON|OFF", "oneof:on-off(pure-token:ON=on pure-token:OFF=off)"),
        ];
        for (line, expected) in cases {
            assert_eq!(show(&parse(line)), expected, "{line}");
        }
    }
}
