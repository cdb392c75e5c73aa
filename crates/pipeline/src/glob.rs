//! Glob patterns of `KEYS`, `SCAN MATCH`, `CONFIG GET`: the language of Redis 7.0's
//! `stringmatchlen`, byte for byte.
//!
//! `*` any bytes, `?` one byte, `[abc]`, `[a-z]`, `[^abc]` one byte of a class, `\x` the byte
//! itself. Its corners are kept, as clients may depend on them: a class that is not closed ends
//! with the pattern, the end of a range may be `]`, a range may be backwards, bytes above 127 sort
//! below the others, and an escaped byte in a class always minds case.
//!
//! A pattern comes from a client and is matched with every key, so both sides are bounded. It is
//! compiled once, in time linear in its length, to *pieces*: what stands between two stars, each
//! byte of which became a literal or one of the pattern's byte sets. Pieces are found from left to
//! right, the leftmost place of each (an earlier star need not be tried again: whatever it could
//! skip, the next one can). The bytes that stars may skip in all are those of the text that no
//! piece needs: a text that is too short is refused by its length, and [`Pattern::steps_max`] says
//! what a longer one can cost. [`Pattern::advance`] spends no more than it is given and goes on
//! later.

mod compile;
mod set;

use memchr::memmem;

use crate::limits::MATCH_STEPS_MAX;

use set::ByteSet;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// What one byte of the text each is compared with, those of all pieces one behind the other.
    tokens: Vec<Token>,
    /// The same, for tokens that are literals; the byte beside another token means nothing.
    literals: Vec<u8>,
    /// What tokens that are no literals take. The first is all bytes.
    sets: Vec<ByteSet>,
    /// What stands before the first star, between stars, and behind the last. Only the first and
    /// the last may be empty. A pattern without a star is a single piece.
    pieces: Vec<Piece>,
    /// Tokens of the longest piece that is searched for and holds a set.
    searched_set_tokens_max: usize,
    /// Whether the text without bytes matches.
    takes_empty: bool,
    /// Whether it is `*`.
    matches_all: bool,
}

/// A byte, or the index of a set counted from [`Token::SETS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Token(u16);

impl Token {
    const SETS: u16 = 256;
}

/// Tokens between two stars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// Index behind its last token; it begins where the piece before ends.
    end: u32,
    /// Whether all its tokens are literals.
    literal: bool,
}

/// How far a comparison has come. It belongs to one pattern and one text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MatchProgress {
    /// The piece looked for; the first is compared before anything else.
    piece: usize,
    /// Where in the text it is looked for next.
    position: usize,
    /// Bytes of the text that stars may still skip.
    slack: usize,
}

/// What finding a piece costs in steps beside the bytes looked at.
const PIECE_STEPS: usize = 32;

impl Pattern {
    /// Whether it is `*`, which every text matches.
    pub fn matches_all(&self) -> bool {
        self.matches_all
    }

    /// Whether the whole of `text` matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        // More steps than the longest pattern and text can need, so the answer is never left open.
        let mut steps = usize::MAX;
        self.matches_all
            || self.advance(text, &mut MatchProgress::default(), &mut steps) == Some(true)
    }

    /// As [`Pattern::matches`], but it gives up (`None`) at [`MATCH_STEPS_MAX`]. Adds what it cost
    /// to `spent`.
    pub fn decide(&self, text: &[u8], spent: &mut usize) -> Option<bool> {
        if self.matches_all {
            return Some(true);
        }
        let mut steps = MATCH_STEPS_MAX;
        let decided = self.advance(text, &mut MatchProgress::default(), &mut steps);
        *spent += MATCH_STEPS_MAX - steps;
        decided
    }

    /// Steps that comparing a text of this length takes at most; a step is one
    /// or two nanoseconds.
    pub fn steps_max(&self, text_bytes: usize) -> usize {
        let Some(slack) = self.slack(text_bytes) else { return 1 };
        let once = text_bytes.saturating_add(PIECE_STEPS.saturating_mul(self.pieces.len()));
        once.saturating_add(slack.saturating_mul(self.searched_set_tokens_max))
    }

    /// Goes on comparing `text` until the answer is known or `steps` are spent (`None`). It may
    /// pass them by the length of the pattern. `steps` becomes what is left of them.
    pub fn advance(
        &self,
        text: &[u8],
        progress: &mut MatchProgress,
        steps: &mut usize,
    ) -> Option<bool> {
        if text.is_empty() {
            return Some(self.takes_empty);
        }
        if progress.piece == 0 {
            let Some(slack) = self.slack(text.len()) else { return Some(false) };
            let last = self.pieces.len() - 1;
            let (prefix, suffix) = (self.piece_bytes(0), self.piece_bytes(last));
            spend(steps, PIECE_STEPS + prefix + suffix);
            let ends_fit = self.matches_at(0, &text[..prefix])
                && (last == 0 || self.matches_at(last, &text[text.len() - suffix..]));
            if !ends_fit || last <= 1 {
                return Some(ends_fit);
            }
            *progress = MatchProgress { piece: 1, position: prefix, slack };
        }
        // The last piece has its place at the end of the text.
        while progress.piece + 1 < self.pieces.len() {
            if *steps == 0 {
                return None;
            }
            spend(steps, PIECE_STEPS);
            let found = match self.pieces[progress.piece].literal {
                true => self.find_literal(text, progress, steps),
                false => self.find_sets(text, progress, steps),
            };
            match found {
                Found::Here => {
                    progress.position += self.piece_bytes(progress.piece);
                    progress.piece += 1;
                }
                Found::Nowhere => return Some(false),
                Found::NotYet => return None,
            }
        }
        Some(true)
    }

    /// Bytes of a text of this length that stars skip; `None` when its length alone excludes a
    /// match.
    fn slack(&self, text_bytes: usize) -> Option<usize> {
        let slack = text_bytes.checked_sub(self.tokens.len())?;
        (slack == 0 || 1 < self.pieces.len()).then_some(slack)
    }

    /// Looks for a piece of literals where it may be, in a part of the text that `steps` pay for.
    fn find_literal(&self, text: &[u8], progress: &mut MatchProgress, steps: &mut usize) -> Found {
        let needle = &self.literals[self.token_range(progress.piece)];
        let skipped_max = progress.slack.min((*steps).max(needle.len()));
        let within = &text[progress.position..progress.position + skipped_max + needle.len()];
        match memmem::find(within, needle) {
            Some(skipped) => {
                spend(steps, skipped + needle.len());
                progress.skip(skipped);
                Found::Here
            }
            None if skipped_max == progress.slack => Found::Nowhere,
            None => {
                spend(steps, within.len());
                progress.skip(skipped_max + 1);
                Found::NotYet
            }
        }
    }

    /// Looks for a piece with sets, at one place after the other.
    fn find_sets(&self, text: &[u8], progress: &mut MatchProgress, steps: &mut usize) -> Found {
        let tokens = &self.tokens[self.token_range(progress.piece)];
        loop {
            let same = self.same_bytes(tokens, &text[progress.position..]);
            spend(steps, same + 1);
            if same == tokens.len() {
                return Found::Here;
            }
            if progress.slack == 0 {
                return Found::Nowhere;
            }
            progress.skip(1);
            if *steps == 0 {
                return Found::NotYet;
            }
        }
    }

    /// Whether `text`, which is as long as the piece, matches it.
    fn matches_at(&self, piece: usize, text: &[u8]) -> bool {
        let range = self.token_range(piece);
        match self.pieces[piece].literal {
            true => &self.literals[range] == text,
            false => self.same_bytes(&self.tokens[range], text) == text.len(),
        }
    }

    /// How many of the tokens the text's first bytes match, from the first on.
    fn same_bytes(&self, tokens: &[Token], text: &[u8]) -> usize {
        let takes = |token: Token, byte: u8| match token.0.checked_sub(Token::SETS) {
            None => token.0 == u16::from(byte),
            Some(set) => self.sets[usize::from(set)].has(byte),
        };
        tokens.iter().zip(text).take_while(|(token, byte)| takes(**token, **byte)).count()
    }

    fn token_range(&self, piece: usize) -> std::ops::Range<usize> {
        let end = |piece: usize| self.pieces[piece].end as usize;
        (if piece == 0 { 0 } else { end(piece - 1) })..end(piece)
    }

    fn piece_bytes(&self, piece: usize) -> usize {
        self.token_range(piece).len()
    }
}

impl MatchProgress {
    fn skip(&mut self, bytes: usize) {
        self.position += bytes;
        self.slack -= bytes;
    }
}

/// Outcome of looking for a piece.
enum Found {
    /// At the position that the progress now has.
    Here,
    Nowhere,
    /// The steps are spent.
    NotYet,
}

fn spend(steps: &mut usize, count: usize) {
    *steps = steps.saturating_sub(count);
}

#[cfg(test)]
mod tests;
