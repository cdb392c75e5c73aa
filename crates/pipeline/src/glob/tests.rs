//! Patterns, among them those of Redis's own tests.

use super::{Case, matches};

#[test]
fn patterns_match_as_in_redis() {
    let cases: &[(&str, &str, bool)] = &[
        ("", "", true),
        ("", "a", false),
        ("a", "", false),
        ("?", "", false),
        ("*", "", true),
        ("**", "", false),
        ("*", "anything", true),
        ("h?llo", "hello", true),
        ("h?llo", "hllo", false),
        ("h*llo", "hllo", true),
        ("h*llo", "heeeello", true),
        ("h*llo", "heeeell", false),
        ("h[ae]llo", "hallo", true),
        ("h[ae]llo", "hillo", false),
        ("h[^e]llo", "hallo", true),
        ("h[^e]llo", "hello", false),
        ("h[a-b]llo", "hbllo", true),
        ("h[a-b]llo", "hcllo", false),
        ("h[b-a]llo", "hallo", true),
        ("a*", "a", true),
        ("a**", "a", true),
        ("*a", "ba", true),
        ("*a*", "bab", true),
        ("*?", "a", true),
        ("*??", "a", false),
        ("*ab*cd*", "xxabyycdzz", true),
        ("*ab*cd*", "xxcdyyabzz", false),
        ("\\*", "*", true),
        ("\\*", "a", false),
        ("\\?x", "?x", true),
        ("\\a", "a", true),
        ("a\\", "a\\", true),
        ("\\", "\\", true),
        ("\\\\", "\\", true),
        ("[\\]]", "]", true),
        ("[a-\\]]", "a]", true),
        ("[a-\\]]", "]", false),
        ("[\\a]", "a", true),
        // A range of which the end is the bracket: the class goes on to the pattern's end.
        ("[a-]", "]", true),
        ("[a-]", "a", true),
        ("[a-]", "-", false),
        ("[a-]x", "ax", false),
        ("[-a]", "-", true),
        ("[^-a]", "b", true),
        // Not closed.
        ("[abc", "b", true),
        ("[abc", "d", false),
        ("[", "[", false),
        ("[^", "x", true),
        ("[^a", "a", false),
        ("[a-", "-", true),
        ("[\\", "\\", true),
        ("x[", "x", false),
        ("[]", "]", false),
        ("[]a", "]", false),
        ("[^]", "x", true),
        ("[^]]", "x]", true),
        ("[a^]", "^", true),
        ("*[ab]c", "xxbc", true),
        ("user:*:name", "user:10:name", true),
        ("user:*:name", "user:10:names", false),
    ];
    for (pattern, text, expected) in cases {
        let found = matches(pattern.as_bytes(), text.as_bytes(), Case::Sensitive);
        assert_eq!(found, *expected, "{pattern:?} {text:?}");
    }
}

#[test]
fn case_matters_unless_it_is_said_not_to() {
    let cases = [
        ("MAX*", "maxmemory", true),
        ("m?X", "MaX", true),
        ("[abc]", "B", true),
        ("[a-c]", "B", true),
        ("[A-C]", "b", true),
        ("[^b]", "B", false),
        // An escaped byte of a class is compared as it is.
        ("[\\b]", "B", false),
        ("[\\b]", "b", true),
        ("\\b", "B", true),
        ("\u{e4}", "\u{c4}", false),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(
            matches(pattern.as_bytes(), text.as_bytes(), Case::Insensitive),
            expected,
            "{pattern} {text}"
        );
    }
    assert!(!matches(b"MAX*", b"maxmemory", Case::Sensitive));
    assert!(!matches(b"[A-C]", b"b", Case::Sensitive));
}

#[test]
fn bytes_are_bytes_and_sort_as_signed_chars() {
    assert!(matches(b"?", b"\0", Case::Sensitive));
    assert!(matches(b"a\0*", b"a\0b", Case::Sensitive));
    assert!(!matches(b"?", "\u{e4}".as_bytes(), Case::Sensitive));
    assert!(matches(b"[\x80-\xff]", b"\x90", Case::Sensitive));
    assert!(matches(b"[a-\xff]", b"\x00", Case::Sensitive));
    assert!(!matches(b"[a-\xfe]", b"\x80", Case::Sensitive));
    assert!(!matches(b"[a-\xff]", b"b", Case::Sensitive));
}

/// Tried naively this takes longer than the universe has been there for.
#[test]
fn many_stars_cost_no_more_than_pattern_times_text() {
    let text = vec![b'a'; 100_000];
    let mut pattern = b"a*".repeat(50);
    pattern.push(b'b');
    assert!(!matches(&pattern, &text, Case::Sensitive));
    pattern.pop();
    assert!(matches(&pattern, &text, Case::Sensitive));
    assert!(!matches(&[&b"*[^b]".repeat(50)[..], b"b"].concat(), &text, Case::Insensitive));
}

/// Redis's function as it is written, stars by recursion.
fn reference(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|skipped| reference(rest, &text[skipped..])),
        (_, []) | ([], _) => false,
        _ => super::match_one(pattern, text[0], Case::Sensitive)
            .is_some_and(|rest| reference(rest, &text[1..])),
    }
}

#[test]
fn stars_match_what_trying_every_length_matches() {
    let mut random = 5u64;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random >> 33).expect("31 bits") % limit
    };
    let mut matched = 0;
    for _ in 0..200_000 {
        let pattern: Vec<u8> = (0..below(9)).map(|_| b"aab**?[]^-\\"[below(11)]).collect();
        let text: Vec<u8> = (0..=below(7)).map(|_| b"aab]"[below(4)]).collect();
        let found = matches(&pattern, &text, Case::Sensitive);
        assert_eq!(found, reference(&pattern, &text), "{} {}", pattern.escape_ascii(), text.escape_ascii());
        matched += usize::from(found);
    }
    assert!(1_000 < matched, "the patterns have to match now and then: {matched}");
}
