//! Changes of bytes, each from its seed.

/// Random generator SplitMix64, from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count.max(1) as u64).unwrap()
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

/// Makes a few changes to the bytes, many of them near the end, where the counts are.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(3) {
        if bytes.is_empty() {
            return;
        }
        let near_end = bytes.len().min(228);
        let at = match random.below(2) {
            0 => random.below(bytes.len()),
            _ => bytes.len() - 1 - random.below(near_end),
        };
        change(bytes, at, random);
    }
}

fn change(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    match random.below(7) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = u8::try_from(random.below(256)).unwrap(),
        2 => write(bytes, at, &NUMBERS[random.below(NUMBERS.len())].to_be_bytes()),
        3 => write(bytes, at, &NUMBERS[random.below(NUMBERS.len())].to_be_bytes()[4..]),
        // Copies a run of bytes to another place.
        4 => {
            let from = random.below(bytes.len());
            let run = bytes[from..bytes.len().min(from + 1 + random.below(32))].to_vec();
            write(bytes, at, &run);
        }
        5 => bytes.truncate(at),
        _ => bytes.insert(at, 0),
    }
}

fn write(bytes: &mut [u8], at: usize, run: &[u8]) {
    let count = run.len().min(bytes.len() - at);
    bytes[at..at + count].copy_from_slice(&run[..count]);
}

#[test]
fn same_seed_gives_the_same_changes() {
    let changed = |seed| {
        let mut bytes = (0..=255).collect::<Vec<u8>>();
        mutate(&mut bytes, &mut Random(seed));
        bytes
    };
    assert_eq!(changed(7), changed(7));
    assert!((0..20).any(|seed| changed(seed) != changed(7)));
}
