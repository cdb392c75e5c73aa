//! Compiler of patterns, in one pass.

use super::{Pattern, Piece, Token, set::ByteSet};
use crate::{
    error::CommandError,
    limits::{PATTERN_BYTES_MAX, PATTERN_SETS_MAX},
};

const TOO_LONG: CommandError = CommandError::text("ERR pattern is longer than 1 MiB");
const TOO_MANY_SETS: CommandError =
    CommandError::text("ERR pattern has more than 16000 character classes");

const _: () = assert!(PATTERN_BYTES_MAX == 1024 * 1024, "the error text says so");
const _: () = assert!(PATTERN_SETS_MAX == 16_000, "the error text says so");
const _: () = assert!(PATTERN_SETS_MAX <= u16::MAX as usize - Token::SETS as usize);

/// Says whether letter case matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Sensitive,
    /// Ignores the case of ASCII letters.
    Insensitive,
}

impl Pattern {
    /// Compiles a case-sensitive pattern. Fails when it exceeds [`PATTERN_BYTES_MAX`] or
    /// [`PATTERN_SETS_MAX`].
    pub fn compile(pattern: &[u8]) -> Result<Self, CommandError> {
        compile(pattern, Case::Sensitive)
    }

    /// Compiles a pattern for names in which the case of ASCII letters does not matter.
    pub fn compile_caseless(pattern: &[u8]) -> Result<Self, CommandError> {
        compile(pattern, Case::Insensitive)
    }
}

fn compile(pattern: &[u8], case: Case) -> Result<Pattern, CommandError> {
    if PATTERN_BYTES_MAX < pattern.len() {
        return Err(TOO_LONG);
    }
    let mut compiler = Compiler::new(case);
    let mut rest = pattern;
    loop {
        rest = match rest {
            [] => break,
            [b'*', after @ ..] => {
                compiler.star();
                after
            }
            [b'?', after @ ..] => {
                compiler.any();
                after
            }
            [b'[', class @ ..] => {
                let (set, after) = class_set(class, case);
                compiler.class(set)?;
                after
            }
            [b'\\', literal, after @ ..] | [literal, after @ ..] => {
                compiler.literal(*literal)?;
                after
            }
        };
    }
    Ok(compiler.finish(pattern))
}

struct Compiler {
    case: Case,
    tokens: Vec<Token>,
    literals: Vec<u8>,
    sets: Vec<ByteSet>,
    /// Index in `sets` of both cases of each letter; 0 for letters that are not there.
    letters: [u16; 26],
    pieces: Vec<Piece>,
    /// Index of the current piece's first token; `literal` says whether it has only literals so
    /// far.
    start: usize,
    literal: bool,
    searched_set_tokens_max: usize,
}

impl Compiler {
    fn new(case: Case) -> Self {
        Self {
            case,
            tokens: Vec::new(),
            literals: Vec::new(),
            sets: vec![ByteSet::ALL],
            letters: [0; 26],
            pieces: Vec::new(),
            start: 0,
            literal: true,
            searched_set_tokens_max: 0,
        }
    }

    /// Adds a `?`, which matches any byte.
    fn any(&mut self) {
        self.push_set(0);
    }

    /// Adds a byte outside of a class.
    fn literal(&mut self, byte: u8) -> Result<(), CommandError> {
        if self.case == Case::Sensitive || !byte.is_ascii_alphabetic() {
            self.push_literal(byte);
            return Ok(());
        }
        let letter = usize::from(byte.to_ascii_lowercase() - b'a');
        if self.letters[letter] == 0 {
            let mut both = ByteSet::default();
            both.add(byte.to_ascii_lowercase());
            both.unfold();
            self.letters[letter] = self.new_set(both)?;
        }
        self.push_set(self.letters[letter]);
        Ok(())
    }

    fn class(&mut self, set: ByteSet) -> Result<(), CommandError> {
        if let Some(byte) = set.single() {
            self.push_literal(byte);
            return Ok(());
        }
        let index = self.new_set(set)?;
        self.push_set(index);
        Ok(())
    }

    /// Returns the index of a set, which it adds unless the last set is the same.
    fn new_set(&mut self, set: ByteSet) -> Result<u16, CommandError> {
        // Keep one of several identical classes in a row.
        if self.sets.last() != Some(&set) {
            if self.sets.len() == PATTERN_SETS_MAX {
                return Err(TOO_MANY_SETS);
            }
            self.sets.push(set);
        }
        Ok(u16::try_from(self.sets.len() - 1).expect("PATTERN_SETS_MAX is below"))
    }

    fn push_literal(&mut self, byte: u8) {
        self.tokens.push(Token(byte.into()));
        self.literals.push(byte);
    }

    fn push_set(&mut self, index: u16) {
        self.tokens.push(Token(Token::SETS + index));
        self.literals.push(0);
        self.literal = false;
    }

    /// Ends the current piece. Several stars in a row count as one.
    fn star(&mut self) {
        let is_first = self.pieces.is_empty();
        if is_first || self.start < self.tokens.len() {
            if !is_first && !self.literal {
                let tokens = self.tokens.len() - self.start;
                self.searched_set_tokens_max = self.searched_set_tokens_max.max(tokens);
            }
            self.end_piece();
        }
    }

    fn end_piece(&mut self) {
        let end = u32::try_from(self.tokens.len()).expect("PATTERN_BYTES_MAX is below");
        self.pieces.push(Piece { end, literal: self.literal });
        self.start = self.tokens.len();
        self.literal = true;
    }

    fn finish(mut self, pattern: &[u8]) -> Pattern {
        self.end_piece();
        let matches_all = pattern == b"*";
        Pattern {
            tokens: self.tokens,
            literals: self.literals,
            sets: self.sets,
            pieces: self.pieces,
            searched_set_tokens_max: self.searched_set_tokens_max,
            // In Redis several stars alone match no empty text. Its commands do not ask it about a
            // single star.
            takes_empty: matches_all || pattern.is_empty(),
            matches_all,
        }
    }
}

/// Returns the set of a class, which begins after the bracket, and the pattern behind it.
fn class_set(class: &[u8], case: Case) -> (ByteSet, &[u8]) {
    let (negated, mut rest) = match class {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, class),
    };
    let fold = |byte: u8| match case {
        Case::Sensitive => byte,
        Case::Insensitive => byte.to_ascii_lowercase(),
    };
    // Escaped bytes, which are case-sensitive, and the others as `fold` makes them.
    let (mut exact, mut folded) = (ByteSet::default(), ByteSet::default());
    loop {
        rest = match rest {
            [] => break,
            [b'\\', literal, rest @ ..] => {
                exact.add(*literal);
                rest
            }
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [start, b'-', end, rest @ ..] => {
                let (first, last) = in_order(*start, *end);
                folded.add_range(fold(first), fold(last));
                rest
            }
            [literal, rest @ ..] => {
                folded.add(fold(*literal));
                rest
            }
        };
    }
    if case == Case::Insensitive {
        folded.unfold();
    }
    folded.join(exact);
    if negated {
        folded.invert();
    }
    (folded, rest)
}

/// Orders the ends of a range as signed chars, before they are folded.
fn in_order(start: u8, end: u8) -> (u8, u8) {
    let signed = |byte: u8| i8::from_ne_bytes([byte]);
    if signed(end) < signed(start) { (end, start) } else { (start, end) }
}
