//! Patterns, among them those of Redis's own tests.

mod model;

use super::{MatchProgress, Pattern};
use crate::limits::{PATTERN_BYTES_MAX, PATTERN_SETS_MAX};

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    compile(pattern).matches(text)
}

fn matches_caseless(pattern: &[u8], text: &[u8]) -> bool {
    Pattern::compile_caseless(pattern).unwrap().matches(text)
}

fn compile(pattern: &[u8]) -> Pattern {
    Pattern::compile(pattern).unwrap()
}

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
        // The end of the range is the bracket, so the class continues to the pattern's end.
        ("[a-]", "]", true),
        ("[a-]", "a", true),
        ("[a-]", "-", false),
        ("[a-]x", "ax", false),
        ("[-a]", "-", true),
        ("[^-a]", "b", true),
        // Classes that are not closed.
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
        let found = matches(pattern.as_bytes(), text.as_bytes());
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
        let found = matches_caseless(pattern.as_bytes(), text.as_bytes());
        assert_eq!(found, expected, "{pattern} {text}");
    }
    assert!(!matches(b"MAX*", b"maxmemory"));
    assert!(!matches(b"[A-C]", b"b"));
}

#[test]
fn bytes_are_bytes_and_sort_as_signed_chars() {
    assert!(matches(b"?", b"\0"));
    assert!(matches(b"a\0*", b"a\0b"));
    assert!(!matches(b"?", "\u{e4}".as_bytes()));
    assert!(matches(b"[\x80-\xff]", b"\x90"));
    assert!(matches(b"[a-\xff]", b"\x00"));
    assert!(!matches(b"[a-\xfe]", b"\x80"));
    assert!(!matches(b"[a-\xff]", b"b"));
}

#[test]
fn only_one_star_alone_matches_all() {
    let is_all = |pattern: &str| compile(pattern.as_bytes()).matches_all();
    assert!(is_all("*"));
    assert!(!["", "**", "?", "a*", "*a", "\\*"].into_iter().any(is_all));
}

/// A class is as cheap as a byte, however it is written, and a pattern that needs more bytes than
/// the text has costs nothing. These patterns took from seconds to minutes when each key parsed the
/// classes again.
#[test]
fn what_a_pattern_costs_does_not_depend_on_how_its_classes_are_written() {
    let many = |unit: &str, times: usize| unit.repeat(times);
    let key_bytes = 47;
    for (pattern, steps_max) in [
        (format!("*[{}]", many("b", 2_000)), 200),
        (format!("*[{}]", many("b", 1_000_000)), 200),
        (format!("[{}]*b", many("a-z", 300_000)), 200),
        (format!("*[{}]*b", many("a-z", 300_000)), 300),
        (many("[a-z]", 200_000), 1),
        (many("*[^b]", 200_000), 1),
        (many("*a", 500_000), 1),
        (many("*", 1_000_000), 200),
        (format!("*{}*", many("[ab]", 40)), 2_000),
    ] {
        let compiled = compile(pattern.as_bytes());
        let steps = compiled.steps_max(key_bytes);
        assert!(steps <= steps_max, "{} of {} bytes: {steps}", &pattern[..5], pattern.len());
        let mut left = steps;
        let key = vec![b'a'; key_bytes];
        let answer = compiled.advance(&key, &mut MatchProgress::default(), &mut left);
        assert!(answer.is_some(), "{} of {} bytes", &pattern[..5], pattern.len());
    }
}

/// A naive matcher would take longer than the age of the universe for this.
#[test]
fn many_stars_cost_no_more_than_the_text_and_what_may_be_skipped() {
    let text = vec![b'a'; 100_000];
    let mut pattern = b"a*".repeat(50);
    pattern.push(b'b');
    assert!(!matches(&pattern, &text));
    assert!(compile(&pattern).steps_max(text.len()) < 2 * text.len());
    pattern.pop();
    assert!(matches(&pattern, &text));
    let of_classes = [&b"*[^b]".repeat(50)[..], b"b"].concat();
    assert!(!matches_caseless(&of_classes, &text));
    assert!(compile(&of_classes).steps_max(text.len()) < 3 * text.len());
}

#[test]
fn a_long_pattern_is_refused_and_one_of_many_classes_too() {
    let longest = vec![b'a'; PATTERN_BYTES_MAX];
    assert!(matches(&longest, &longest));
    let error = Pattern::compile(&[&longest[..], b"a"].concat()).unwrap_err();
    assert_eq!(error.message(), "ERR pattern is longer than 1 MiB");

    // `?` uses a set, too.
    let pattern = "[ab][cd]".repeat(PATTERN_SETS_MAX / 2 - 1) + "[ab]";
    assert!(Pattern::compile(pattern.as_bytes()).is_ok());
    let error = Pattern::compile((pattern + "[cd]").as_bytes()).unwrap_err();
    assert_eq!(error.message(), "ERR pattern has more than 16000 character classes");
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }

    fn bytes(&mut self, length: usize, among: &[u8]) -> Vec<u8> {
        (0..length).map(|_| among[self.below(among.len())]).collect()
    }
}

/// Checks a match in one go and in slices of a few steps; the predicted steps suffice in one go.
#[test]
fn patterns_match_what_redis_s_function_matches() {
    let mut random = Random(5);
    let mut matched = 0;
    for round in 0..300_000 {
        let letters: &[u8] = match round % 3 {
            0 => b"aab**?[]^-\\",
            1 => b"aaabb**?",
            _ => b"aB\xe9\x80\x00**?[[]]^--\\Z",
        };
        let pattern_bytes = random.below(12);
        let pattern = random.bytes(pattern_bytes, letters);
        let text_bytes = random.below(10);
        let text =
            random.bytes(text_bytes, if round % 3 == 2 { b"aAbB\xe9\x80\x00z" } else { b"aab]" });
        let context = || format!("{} {}", pattern.escape_ascii(), text.escape_ascii());
        if pattern == b"*" {
            continue;
        }
        let compiled = compile(&pattern);
        let mut steps = compiled.steps_max(text.len());
        let found = compiled.advance(&text, &mut MatchProgress::default(), &mut steps);
        let found = found.unwrap_or_else(|| panic!("more steps than foretold: {}", context()));
        assert_eq!(found, model::string_match(&pattern, &text, false), "{}", context());
        assert_eq!(found, matches(&pattern, &text), "{}", context());
        assert_eq!(
            found,
            in_slices(&compiled, &text, 1 + random.below(4)),
            "in slices: {}",
            context()
        );
        let caseless = matches_caseless(&pattern, &text);
        assert_eq!(caseless, model::string_match(&pattern, &text, true), "caseless: {}", context());
        matched += usize::from(found);
    }
    assert!(10_000 < matched, "the patterns have to match now and then: {matched}");
}

fn in_slices(pattern: &Pattern, text: &[u8], steps: usize) -> bool {
    let mut progress = MatchProgress::default();
    loop {
        if let Some(answer) = pattern.advance(text, &mut progress, &mut steps.clone()) {
            return answer;
        }
    }
}

#[test]
fn a_long_comparison_gives_way_and_goes_on() {
    const SLICE: usize = 10_000;
    let text = [vec![b'a'; 1_000_000], b"bbaXY".to_vec()].concat();
    let slices = |pattern: &str| {
        let pattern = compile(pattern.as_bytes());
        let mut progress = MatchProgress::default();
        for slices in 1.. {
            let mut steps = SLICE;
            if let Some(answer) = pattern.advance(&text, &mut progress, &mut steps) {
                return (answer, slices);
            }
            assert_eq!(steps, 0, "it stops only when the steps are spent");
        }
        unreachable!("there is an answer")
    };
    let (answer, count) = slices("*bba*");
    assert!(answer && (100..120).contains(&count), "{count}");
    let (answer, count) = slices("*aab*[X]Y");
    assert!(answer && (100..120).contains(&count), "{count}");
    let (answer, count) = slices("*[ab][ab]b*c*");
    assert!(!answer && 250 < count && count < 350, "{count}");
    assert_eq!(slices("b*c"), (false, 1));
}
