//! Changes of bytes, each from its seed.

/// Random generator SplitMix64, from a seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next 64 random bits.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `count`; 0 if that is 0.
    pub fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count.max(1) as u64).expect("it is below a usize")
    }
}

/// Numbers whose sums and products overflow, or nearly.
const NUMBERS: [u64; 12] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    0x0924_9249_2492_4925,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_0000_0000,
    u64::MAX,
];

/// Makes one to three changes to the bytes, many of them near the end, where the counts often are.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    mutate_with(bytes, random, &[]);
}

/// Does the same as [`mutate`], and also puts in tokens: bytes that have a meaning to the decoder.
pub fn mutate_with(bytes: &mut Vec<u8>, random: &mut Random, tokens: &[&[u8]]) {
    for _ in 0..1 + random.below(3) {
        if bytes.is_empty() {
            return;
        }
        let near_end = bytes.len().min(228);
        let at = match random.below(2) {
            0 => random.below(bytes.len()),
            _ => bytes.len() - 1 - random.below(near_end),
        };
        if !tokens.is_empty() && random.below(2) == 0 {
            put_token(bytes, at, tokens[random.below(tokens.len())], random);
        } else {
            change(bytes, at, random);
        }
    }
}

fn change(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let number = NUMBERS[random.below(NUMBERS.len())];
    match random.below(9) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next().to_le_bytes()[0],
        2 => write(bytes, at, &number.to_be_bytes()),
        3 => write(bytes, at, &number.to_be_bytes()[4..]),
        4 => write(bytes, at, &number.to_le_bytes()),
        // Copies a run of bytes to another place.
        5 => {
            let from = random.below(bytes.len());
            let run = bytes[from..bytes.len().min(from + 1 + random.below(32))].to_vec();
            write(bytes, at, &run);
        }
        6 => bytes.truncate(at),
        7 => drop(bytes.remove(at)),
        _ => bytes.insert(at, 0),
    }
}

/// Inserts a token, or writes it over what is there.
fn put_token(bytes: &mut Vec<u8>, at: usize, token: &[u8], random: &mut Random) {
    if random.below(2) == 0 {
        write(bytes, at, token);
    } else {
        bytes.splice(at..at, token.iter().copied());
    }
}

fn write(bytes: &mut [u8], at: usize, run: &[u8]) {
    let count = run.len().min(bytes.len() - at);
    bytes[at..at + count].copy_from_slice(&run[..count]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_changes() {
        let changed = |seed| {
            let mut bytes = (0..=255).collect::<Vec<u8>>();
            mutate_with(&mut bytes, &mut Random(seed), &[b"token"]);
            bytes
        };
        assert_eq!(changed(7), changed(7));
        assert!((0..20).any(|seed| changed(seed) != changed(7)));
        let holds_token = |bytes: &[u8]| bytes.windows(5).any(|window| window == b"token");
        assert!((0..20).any(|seed| holds_token(&changed(seed))));
    }
}
