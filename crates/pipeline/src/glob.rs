//! Glob patterns of `KEYS`, `SCAN MATCH` and `CONFIG GET`: the language of Redis 7.0's
//! `stringmatchlen`, byte for byte.
//!
//! `*` matches any bytes, `?` one byte, `[abc]`, `[a-z]` and `[^abc]` one byte of a class, `\x` the
//! byte itself. The odd cases are Redis's, as clients may depend on them: a class that is not
//! closed ends with the pattern, the end of a range may be `]`, a range may be backwards, bytes
//! above 127 sort below the others, and an escaped byte in a class is always case-sensitive.
//!
//! A pattern comes from a client and is matched with every key, so the cost of both steps is
//! bounded. It is compiled once, in time linear in its length, to *pieces*: the parts between two
//! stars, in which each byte became a literal or one of the pattern's byte sets. Matching finds the
//! pieces from left to right, each at its leftmost position. It never goes back to let an earlier
//! star skip more: the next star can skip the same bytes. All stars together skip exactly the
//! bytes of the text that no piece needs: a text that is too short fails by its length, and
//! [`Pattern::steps_max`] says what a longer one can cost. [`Pattern::advance`] spends no more than
//! it is given and can continue later.

mod compile;
mod set;

use memchr::memmem;

use crate::limits::MATCH_STEPS_MAX;

use set::ByteSet;

/// Compiled pattern, ready to match.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// Token for each byte of the text, those of all pieces one behind the other.
    tokens: Vec<Token>,
    /// The same as bytes, for tokens that are literals; at other positions the byte means nothing.
    literals: Vec<u8>,
    /// Byte sets of the tokens that are not literals. The first contains all bytes.
    sets: Vec<ByteSet>,
    /// Pieces before the first star, between stars, and behind the last. Only the first and the
    /// last may be empty. A pattern without a star is a single piece.
    pieces: Vec<Piece>,
    /// Number of tokens of the longest piece that is searched for and holds a set.
    searched_set_tokens_max: usize,
    /// Says whether the empty text matches.
    takes_empty: bool,
    /// Says whether the pattern is `*`.
    matches_all: bool,
}

/// A literal byte, or the index of a set counted from [`Token::SETS`].
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
    /// Says whether all its tokens are literals.
    literal: bool,
}

/// Progress of matching one pattern with one text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MatchProgress {
    /// Index of the piece to find next; the first is compared before anything else.
    piece: usize,
    /// Position in the text from which it is searched.
    position: usize,
    /// Number of bytes of the text that stars may still skip.
    slack: usize,
}

/// Steps that finding a piece costs beyond those for the bytes it reads.
const PIECE_STEPS: usize = 32;

impl Pattern {
    /// Returns whether the pattern is `*`, which every text matches.
    pub fn matches_all(&self) -> bool {
        self.matches_all
    }

    /// Returns whether the whole of `text` matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        // These are more steps than the longest pattern and text can need, so there is always an
        // answer.
        let mut steps = usize::MAX;
        self.matches_all
            || self.advance(text, &mut MatchProgress::default(), &mut steps) == Some(true)
    }

    /// Returns what [`Pattern::matches`] does, but gives up (`None`) at [`MATCH_STEPS_MAX`]. Adds
    /// the cost to `spent`.
    pub fn decide(&self, text: &[u8], spent: &mut usize) -> Option<bool> {
        if self.matches_all {
            return Some(true);
        }
        let mut steps = MATCH_STEPS_MAX;
        let decided = self.advance(text, &mut MatchProgress::default(), &mut steps);
        *spent += MATCH_STEPS_MAX - steps;
        decided
    }

    /// Returns the largest number of steps for a text of this length; a step takes one or two
    /// nanoseconds.
    pub fn steps_max(&self, text_bytes: usize) -> usize {
        let Some(slack) = self.slack(text_bytes) else { return 1 };
        let once = text_bytes.saturating_add(PIECE_STEPS.saturating_mul(self.pieces.len()));
        once.saturating_add(slack.saturating_mul(self.searched_set_tokens_max))
    }

    /// Continues matching `text` until the answer is known or `steps` are spent (`None`). It may
    /// exceed them by the length of the pattern. Leaves the remaining steps in `steps`.
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
        // The last piece must match the end of the text.
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

    /// Returns how many bytes of a text of this length stars skip; `None` when its length alone
    /// excludes a match.
    fn slack(&self, text_bytes: usize) -> Option<usize> {
        let slack = text_bytes.checked_sub(self.tokens.len())?;
        (slack == 0 || 1 < self.pieces.len()).then_some(slack)
    }

    /// Searches for a piece of literals, in the part of the text for which `steps` suffice.
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

    /// Searches for a piece with sets, at one position after the other.
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

    /// Returns whether `text`, which is as long as the piece, matches it.
    fn matches_at(&self, piece: usize, text: &[u8]) -> bool {
        let range = self.token_range(piece);
        match self.pieces[piece].literal {
            true => &self.literals[range] == text,
            false => self.same_bytes(&self.tokens[range], text) == text.len(),
        }
    }

    /// Returns how many of the tokens match the text's first bytes, from the first on.
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

/// Outcome of the search for a piece.
enum Found {
    /// At the position that the progress now has.
    Here,
    Nowhere,
    /// The steps are spent before there is an answer.
    NotYet,
}

fn spend(steps: &mut usize, count: usize) {
    *steps = steps.saturating_sub(count);
}

#[cfg(test)]
mod tests;
