//! Glob patterns of `KEYS`, `SCAN MATCH`, `CONFIG GET`: the language of Redis 7.0's `stringmatchlen`, byte for byte.
//!
//! `*` any bytes, `?` one byte, `[abc]`, `[a-z]`, `[^abc]` one byte of a class, `\x` the byte itself. Its corners are
//! kept, as clients may depend on them: a class that is not closed ends with the pattern, the end of a range may be `]`,
//! a range may be backwards, bytes above 127 sort below the others, and an escaped byte in a class always minds case.
//!
//! A pattern comes from a client and is matched against every key, so the cost is bounded: one star is retried at a time,
//! which is at most pattern times text, where trying each star at each place would be exponential.

/// Whether `a` matches `A`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// It does not.
    Sensitive,
    /// It does, for ASCII letters.
    Insensitive,
}

/// Whether the whole of `text` matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    // Redis lets stars alone match something only, but none of its commands asks about "*".
    if text.is_empty() {
        return pattern.is_empty() || pattern == b"*";
    }
    let (mut rest, mut position) = (pattern, 0);
    // The pattern after the last star, and where in the text it was last tried.
    let mut retry: Option<(&[u8], usize)> = None;
    while position < text.len() {
        if let Some((b'*', after)) = rest.split_first() {
            rest = after;
            if rest.is_empty() {
                return true;
            }
            retry = Some((rest, position));
            continue;
        }
        if let Some(after) = match_one(rest, text[position], case) {
            rest = after;
            position += 1;
            continue;
        }
        // An earlier star need not be tried again: whatever it could skip, the last one can.
        let Some((after_star, tried)) = retry else { return false };
        position = tried + 1;
        retry = Some((after_star, position));
        rest = after_star;
    }
    rest.iter().all(|byte| *byte == b'*')
}

/// Matches one byte with the first element of the pattern, which is not a star, and gives the rest of the pattern.
fn match_one(pattern: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', class @ ..] => match_class(class, byte, case),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => is_same(*literal, byte, case).then_some(rest),
    }
}

/// `class` begins after the bracket.
fn match_class(class: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    let (negated, mut rest) = match class {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, class),
    };
    let mut found = false;
    loop {
        rest = match rest {
            [] => break,
            [b'\\', literal, rest @ ..] => {
                found |= *literal == byte;
                rest
            }
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [start, b'-', end, rest @ ..] => {
                found |= is_between(*start, *end, byte, case);
                rest
            }
            [literal, rest @ ..] => {
                found |= is_same(*literal, byte, case);
                rest
            }
        };
    }
    (found != negated).then_some(rest)
}

fn is_same(literal: u8, byte: u8, case: Case) -> bool {
    match case {
        Case::Sensitive => literal == byte,
        Case::Insensitive => literal.eq_ignore_ascii_case(&byte),
    }
}

fn is_between(start: u8, end: u8, byte: u8, case: Case) -> bool {
    // C's char is signed on the machines whose Redis everyone knows.
    let signed = |byte: u8| i8::from_ne_bytes([byte]);
    let (start, end) = if signed(end) < signed(start) { (end, start) } else { (start, end) };
    let fold = |byte: u8| match case {
        Case::Sensitive => signed(byte),
        Case::Insensitive => signed(byte.to_ascii_lowercase()),
    };
    (fold(start)..=fold(end)).contains(&fold(byte))
}

#[cfg(test)]
mod tests;
