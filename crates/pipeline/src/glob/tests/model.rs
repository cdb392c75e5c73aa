//! Port of `stringmatchlen` of Redis 7.0, statement by statement, to compare with.

/// Returns whether all of the text matches.
pub(super) fn string_match(pattern: &[u8], text: &[u8], caseless: bool) -> bool {
    Model { pattern, text, caseless }.run(0, 0)
}

struct Model<'a> {
    pattern: &'a [u8],
    text: &'a [u8],
    caseless: bool,
}

impl Model<'_> {
    /// Returns a byte of the pattern; behind its end the zero that ends a C string.
    fn at(&self, place: usize) -> u8 {
        self.pattern.get(place).copied().unwrap_or(0)
    }

    fn left(&self, place: usize) -> usize {
        self.pattern.len().saturating_sub(place)
    }

    fn is_same(&self, a: u8, b: u8) -> bool {
        if self.caseless { a.eq_ignore_ascii_case(&b) } else { a == b }
    }

    /// Matches from `p` and `s`, the positions of the C function's pointers.
    fn run(&self, mut p: usize, mut s: usize) -> bool {
        while self.left(p) != 0 && s < self.text.len() {
            match self.at(p) {
                b'*' => {
                    while self.left(p) != 0 && self.at(p + 1) == b'*' {
                        p += 1;
                    }
                    return self.left(p) == 1
                        || (s..self.text.len()).any(|later| self.run(p + 1, later));
                }
                b'?' => s += 1,
                b'[' => {
                    let (takes, end) = self.class(p + 1, self.text[s]);
                    if !takes {
                        return false;
                    }
                    p = end;
                    s += 1;
                }
                _ => {
                    if self.at(p) == b'\\' && 2 <= self.left(p) {
                        p += 1;
                    }
                    if !self.is_same(self.at(p), self.text[s]) {
                        return false;
                    }
                    s += 1;
                }
            }
            p += 1;
            if s == self.text.len() {
                while self.at(p) == b'*' {
                    p += 1;
                }
                break;
            }
        }
        self.left(p) == 0 && s == self.text.len()
    }

    /// Returns whether the class that begins behind its bracket has the byte, and where it ends.
    fn class(&self, mut p: usize, byte: u8) -> (bool, usize) {
        let negated = self.at(p) == b'^';
        p += usize::from(negated);
        let mut found = false;
        loop {
            if self.at(p) == b'\\' && 2 <= self.left(p) {
                p += 1;
                found |= self.at(p) == byte;
            } else if self.at(p) == b']' {
                break;
            } else if self.left(p) == 0 {
                p -= 1;
                break;
            } else if 3 <= self.left(p) && self.at(p + 1) == b'-' {
                let signed = |byte: u8| i32::from(i8::from_ne_bytes([byte]));
                let lower = |byte: i32| match u8::try_from(byte) {
                    Ok(byte) if self.caseless => i32::from(byte.to_ascii_lowercase()),
                    _ => byte,
                };
                let (mut start, mut end) = (signed(self.at(p)), signed(self.at(p + 2)));
                if end < start {
                    (start, end) = (end, start);
                }
                p += 2;
                found |= (lower(start)..=lower(end)).contains(&lower(signed(byte)));
            } else {
                found |= self.is_same(self.at(p), byte);
            }
            p += 1;
        }
        (found != negated, p)
    }
}
