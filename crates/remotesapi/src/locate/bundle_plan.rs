//! Decides which chunks share a bundle.

use busload_dolt::Span;

use crate::limits::{RECORDS_CHUNK_STORED_BYTES_MAX, RECORDS_CHUNKS_MAX, RECORDS_STORED_BYTES_MAX};

/// A chunk, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredChunk {
    /// Index of its address in the request.
    pub index: usize,
    /// Number of its table file.
    pub file: usize,
    /// Byte range in that file.
    pub span: Span,
    /// Set for a zstd frame with a dictionary, unset for a record.
    pub has_dictionary: bool,
}

/// Division of a request's chunks into bundles.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BundlePlan {
    /// Indexes of chunks that clients read from their table files: large ones that are stored as
    /// records.
    pub in_files: Vec<usize>,
    /// Chunks that become bundles.
    pub groups: Vec<Group>,
}

/// Chunks of one bundle.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Indexes of the chunks, in the order of the files, so that their reads merge.
    pub chunks: Vec<usize>,
    /// Sum of their stored bytes.
    pub stored_bytes: u64,
}

impl BundlePlan {
    /// Groups chunks within the limits of one bundle.
    pub fn new(mut chunks: Vec<StoredChunk>) -> Self {
        chunks.sort_unstable_by_key(|chunk| (chunk.file, chunk.span.offset));
        let (mut plan, mut open) = (Self::default(), Group::default());
        for chunk in chunks {
            if chunk.span.length <= RECORDS_CHUNK_STORED_BYTES_MAX {
                if !open.fits(&chunk) {
                    plan.groups.push(std::mem::take(&mut open));
                }
                open.add(&chunk);
            } else if chunk.has_dictionary {
                let mut alone = Group::default();
                alone.add(&chunk);
                plan.groups.push(alone);
            } else {
                plan.in_files.push(chunk.index);
            }
        }
        if !open.chunks.is_empty() {
            plan.groups.push(open);
        }
        plan
    }
}

impl Group {
    fn fits(&self, chunk: &StoredChunk) -> bool {
        self.chunks.len() < RECORDS_CHUNKS_MAX
            && self.stored_bytes + u64::from(chunk.span.length) <= RECORDS_STORED_BYTES_MAX
    }

    fn add(&mut self, chunk: &StoredChunk) {
        self.chunks.push(chunk.index);
        self.stored_bytes += u64::from(chunk.span.length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks of these lengths, one after the other in a file.
    fn file(file: usize, lengths: &[u32], has_dictionary: bool) -> Vec<StoredChunk> {
        let mut offset = 0;
        let chunk = |(index, &length): (usize, &u32)| {
            let span = Span { offset, length };
            offset += u64::from(length);
            StoredChunk { index, file, span, has_dictionary }
        };
        lengths.iter().enumerate().map(chunk).collect()
    }

    fn sizes(plan: &BundlePlan) -> Vec<usize> {
        plan.groups.iter().map(|group| group.chunks.len()).collect()
    }

    #[test]
    fn no_chunks_need_no_bundle() {
        assert_eq!(BundlePlan::new(Vec::new()), BundlePlan::default());
    }

    #[test]
    fn groups_are_bounded_in_chunks_and_in_bytes() {
        let small = BundlePlan::new(file(0, &[4096; 512], true));
        assert_eq!(sizes(&small), [192, 192, 128]);
        let medium = BundlePlan::new(file(0, &[RECORDS_CHUNK_STORED_BYTES_MAX; 40], false));
        assert_eq!(sizes(&medium), [16, 16, 8]);
        assert!(medium.groups.iter().all(|group| group.stored_bytes <= RECORDS_STORED_BYTES_MAX));
        assert_eq!(medium.groups[2].stored_bytes, 8 * u64::from(RECORDS_CHUNK_STORED_BYTES_MAX));
    }

    #[test]
    fn chunks_are_in_the_order_of_the_files() {
        let mut chunks = file(1, &[10; 3], false);
        chunks.extend(
            file(0, &[10; 3], false)
                .into_iter()
                .map(|chunk| StoredChunk { index: chunk.index + 3, ..chunk }),
        );
        chunks.reverse();
        assert_eq!(BundlePlan::new(chunks).groups[0].chunks, [3, 4, 5, 0, 1, 2]);
    }

    #[test]
    fn large_records_stay_in_their_file_and_large_frames_get_a_bundle_each() {
        const LARGE: u32 = RECORDS_CHUNK_STORED_BYTES_MAX + 1;
        let records = BundlePlan::new(file(0, &[10, LARGE, 10, u32::MAX], false));
        assert_eq!((records.in_files, &records.groups[0].chunks[..]), (vec![1, 3], &[0, 2][..]));
        let frames = BundlePlan::new(file(0, &[10, LARGE, 10, u32::MAX], true));
        let groups: Vec<&[usize]> = frames.groups.iter().map(|group| &group.chunks[..]).collect();
        assert_eq!((frames.in_files.len(), groups), (0, vec![&[1][..], &[3], &[0, 2]]));
        assert_eq!(frames.groups[1].stored_bytes, u64::from(u32::MAX));
    }

    /// Every chunk is in exactly one group, or in a file.
    #[test]
    fn no_chunk_is_lost() {
        let lengths: Vec<u32> =
            (0..5000u32).map(|number| number.wrapping_mul(2_654_435_761) >> 13).collect();
        let mut chunks = file(0, &lengths, false);
        chunks.iter_mut().for_each(|chunk| chunk.has_dictionary = chunk.index % 3 == 0);
        let plan = BundlePlan::new(chunks);
        let mut seen: Vec<usize> =
            plan.groups.iter().flat_map(|group| group.chunks.clone()).collect();
        seen.extend(&plan.in_files);
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..lengths.len()));
    }
}
