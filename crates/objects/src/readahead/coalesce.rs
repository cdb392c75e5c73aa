//! Decides which missing ranges share a read of the store.

use std::{ops::Range, time::Duration};

use crate::{
    disk::BLOCK_DATA_BYTES,
    limits::{
        GAP_DEFAULT, GAP_MAX, GAP_MIN, GAP_MIN_SLOW, READ_BYTES_MAX, WASTE_FACTOR_MAX,
        WASTE_FREE_BYTES,
    },
    remote::StorePace,
};

/// One GET that brings several of the ranges that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoalescedRead {
    pub(crate) range: Range<u64>,
    /// Indexes of the ranges it brings, among those asked for.
    pub(crate) members: Vec<usize>,
}

/// Largest gap between two ranges that one read still spans: the bytes that the store brings in the
/// time to a first byte.
pub(crate) fn gap_max(pace: StorePace) -> u64 {
    let (Some(first_byte), Some(bandwidth)) = (pace.first_byte, pace.bandwidth) else {
        return GAP_DEFAULT;
    };
    let bytes = Duration::as_secs_f64(&first_byte) * bandwidth;
    let least = if pace.is_slow() { GAP_MIN_SLOW } else { GAP_MIN };
    (bytes as u64).clamp(least, GAP_MAX)
}

/// Rounds a range to whole blocks, cut off at the object's end. Neighbours thus find their bytes in
/// each other's fetches.
pub(crate) fn blocks_of(range: &Range<u64>, size: u64) -> Range<u64> {
    let block = BLOCK_DATA_BYTES as u64;
    range.start / block * block..range.end.next_multiple_of(block).min(size)
}

/// Merges ranges (in any order, overlapping, none empty) into reads. Every range is in exactly one
/// read.
pub(crate) fn coalesce(asked: &[Range<u64>], size: u64, gap_max: u64) -> Vec<CoalescedRead> {
    let mut order: Vec<usize> = (0..asked.len()).collect();
    order.sort_unstable_by_key(|&index| (asked[index].start, asked[index].end));
    let mut reads: Vec<CoalescedRead> = Vec::new();
    let mut useful = Useful::default();
    for index in order {
        let blocks = blocks_of(&asked[index], size);
        match reads.last_mut() {
            Some(last) if useful.allows(last, &asked[index], &blocks, gap_max) => {
                useful.add(&asked[index]);
                last.range.end = last.range.end.max(blocks.end);
                last.members.push(index);
            }
            _ => {
                useful = Useful::default();
                useful.add(&asked[index]);
                reads.push(CoalescedRead { range: blocks, members: vec![index] });
            }
        }
    }
    reads
}

/// Bytes of a read that somebody asked for, each counted once. Ranges come in order of their
/// starts.
#[derive(Debug, Default)]
struct Useful {
    bytes: u64,
    end: u64,
}

impl Useful {
    fn add(&mut self, asked: &Range<u64>) {
        self.bytes += self.new_of(asked);
        self.end = self.end.max(asked.end);
    }

    fn new_of(&self, asked: &Range<u64>) -> u64 {
        asked.end.saturating_sub(asked.start.max(self.end))
    }

    fn allows(
        &self,
        read: &CoalescedRead,
        asked: &Range<u64>,
        blocks: &Range<u64>,
        gap_max: u64,
    ) -> bool {
        if blocks.start < read.range.end {
            // Two reads would bring some bytes twice.
            return true;
        }
        let length = blocks.end.max(read.range.end) - read.range.start;
        let useful = self.bytes + self.new_of(asked);
        // What takes hardly longer than a first byte depends on the link, as the gap does.
        let is_free = length <= WASTE_FREE_BYTES.min(gap_max);
        let is_wasteful = !is_free && useful.saturating_mul(WASTE_FACTOR_MAX) < length;
        blocks.start - read.range.end <= gap_max && length <= READ_BYTES_MAX && !is_wasteful
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: u64 = 64 << 20;

    fn union(ranges: &[Range<u64>]) -> u64 {
        let mut useful = Useful::default();
        let mut sorted = ranges.to_vec();
        sorted.sort_by_key(|range| range.start);
        sorted.iter().for_each(|range| useful.add(range));
        useful.bytes
    }

    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        let near = (0u64..2 << 20, 1u64..20_000);
        let far = (0u64..SIZE - (3 << 20), 1u64..3 << 20);
        let range =
            prop_oneof![3 => near, 1 => far].prop_map(|(start, length)| start..start + length);
        prop::collection::vec(range, 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn every_byte_is_brought_once_and_no_read_goes_beyond_the_caps(
            asked in ranges(),
            gap_max in GAP_MIN_SLOW..=GAP_MAX,
        ) {
            let reads = coalesce(&asked, SIZE, gap_max);
            let mut seen = vec![0; asked.len()];
            for read in &reads {
                prop_assert!(read.range.end <= SIZE);
                let members: Vec<_> =
                    read.members.iter().map(|&index| asked[index].clone()).collect();
                for (index, member) in read.members.iter().zip(&members) {
                    seen[*index] += 1;
                    prop_assert!(read.range.start <= member.start && member.end <= read.range.end);
                }
                check_caps(read, &members, gap_max)?;
            }
            prop_assert!(seen.iter().all(|&count| count == 1));
            for pair in reads.windows(2) {
                prop_assert!(pair[0].range.end <= pair[1].range.start, "no byte is brought twice");
            }
        }
    }

    /// Runs of overlapping blocks are one range to the caps: they cannot be cut.
    fn check_caps(
        read: &CoalescedRead,
        members: &[Range<u64>],
        gap_max: u64,
    ) -> Result<(), TestCaseError> {
        let mut blocks: Vec<_> = members.iter().map(|range| blocks_of(range, SIZE)).collect();
        blocks.sort_by_key(|range| range.start);
        let mut end = blocks[0].end;
        let mut runs = 1;
        for next in &blocks[1..] {
            if end <= next.start {
                runs += 1;
                prop_assert!(next.start - end <= gap_max);
            }
            end = end.max(next.end);
        }
        if 1 < runs {
            let length = read.range.end - read.range.start;
            let useful = union(members);
            let cap = (useful * WASTE_FACTOR_MAX).max(WASTE_FREE_BYTES);
            // Ranges that overlap the last one of a full read still have to come along, whole and
            // each rounded to its blocks.
            let along = union(&blocks);
            prop_assert!(length <= cap + along, "{length} for {useful}");
        }
        Ok(())
    }

    #[test]
    fn near_ranges_share_a_read_and_far_ones_do_not() {
        let at = |start: u64| start * 1_000..start * 1_000 + 900;
        assert_eq!(coalesce(&[at(0), at(4), at(2)], SIZE, GAP_DEFAULT).len(), 1);
        let far = [at(0), at(5_000)];
        assert_eq!(coalesce(&far, SIZE, GAP_DEFAULT).len(), 2, "the gap is too wide");
        let wasteful = [0..900, 500_000..500_900];
        assert_eq!(
            coalesce(&wasteful, SIZE, GAP_DEFAULT).len(),
            2,
            "two small reads are no 500 KB"
        );
        let useful = [0..400_000, 900_000..1_300_000];
        assert_eq!(coalesce(&useful, SIZE, GAP_DEFAULT).len(), 1);
    }

    #[test]
    fn a_read_is_of_whole_blocks_within_the_object() {
        let block = BLOCK_DATA_BYTES as u64;
        assert_eq!(blocks_of(&(1..2), SIZE), 0..block);
        assert_eq!(blocks_of(&(block - 1..block + 1), SIZE), 0..2 * block);
        assert_eq!(blocks_of(&(1..2), 100), 0..100);
    }

    #[test]
    fn the_gap_follows_the_store() {
        let pace = |milliseconds, bandwidth| StorePace {
            first_byte: Some(Duration::from_millis(milliseconds)),
            bandwidth: Some(bandwidth),
        };
        assert_eq!(gap_max(StorePace::default()), GAP_DEFAULT);
        assert_eq!(gap_max(pace(30, 50e6)), 1_500_000);
        assert_eq!(gap_max(pace(0, 50e6)), GAP_MIN);
        assert_eq!(gap_max(pace(30, 5e9)), GAP_MAX);
    }
}
