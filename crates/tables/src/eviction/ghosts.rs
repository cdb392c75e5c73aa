//! Fingerprints of keys that were evicted before they were used.
//!
//! ```text
//! hash: | page (linear hashing) ... 42 bits | bucket 6 bits | fingerprint 16 bits |
//! ```
//!
//! A bucket is a short queue of its own, and a page that is not yet split takes twice the ghosts of
//! the others, so the age at which a ghost is forgotten varies. The memory grows and shrinks a page
//! at a time; the ghosts that belong to another page from then on are forgotten, at most half a
//! page.

use crate::index::held_bytes;

/// Number of fingerprints in one bucket, which fill a cache line.
const BUCKET_GHOSTS: usize = 32;
const BUCKET_BITS: u32 = 6;
const FINGERPRINT_BITS: u32 = u16::BITS;
/// Number of fingerprints in one page.
const PAGE_GHOSTS: usize = BUCKET_GHOSTS << BUCKET_BITS;
/// Fingerprint that marks a free slot.
const FREE: u16 = 0;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Bucket([u16; BUCKET_GHOSTS]);

type Page = [Bucket; 1 << BUCKET_BITS];

/// Ghosts of one table. A false match, once in some thousand new keys, puts a key into the wrong
/// queue, no more.
#[derive(Default)]
pub(super) struct Ghosts {
    pages: Vec<Box<Page>>,
}

impl Ghosts {
    /// Adds the ghost of an evicted key.
    pub fn insert(&mut self, hash: u64) {
        if let Some(Bucket(ghosts)) = self.bucket_mut(hash) {
            ghosts.copy_within(..BUCKET_GHOSTS - 1, 1);
            ghosts[0] = fingerprint(hash);
        }
    }

    /// Takes a ghost out. Returns whether it was there: evicted lately.
    pub fn take(&mut self, hash: u64) -> bool {
        let Some(Bucket(ghosts)) = self.bucket_mut(hash) else { return false };
        let fingerprint = fingerprint(hash);
        let Some(at) = ghosts.iter().position(|ghost| *ghost == fingerprint) else { return false };
        ghosts.copy_within(at + 1.., at);
        ghosts[BUCKET_GHOSTS - 1] = FREE;
        true
    }

    /// Adds or removes a page if there are too few or too many for a table of this size. Returns
    /// whether it did. The memory grows with the table, not when the first keys are evicted:
    /// others would have to make room for it then.
    pub fn fit(&mut self, entries: usize) -> bool {
        let wanted = entries.div_ceil(PAGE_GHOSTS);
        if self.pages.len() < wanted {
            self.pages.push(Box::new([Bucket([FREE; BUCKET_GHOSTS]); 1 << BUCKET_BITS]));
            return true;
        }
        2 * wanted < self.pages.len() && self.pages.pop().is_some()
    }

    /// Returns the bytes that the allocator holds for the ghosts.
    pub fn held_bytes(&self) -> usize {
        let list = self.pages.capacity() * size_of::<Box<Page>>();
        held_bytes(list) + self.pages.len() * held_bytes(size_of::<Page>())
    }

    fn bucket_mut(&mut self, hash: u64) -> Option<&mut Bucket> {
        let mask = self.pages.len().next_power_of_two() - 1;
        let at = (hash >> (FINGERPRINT_BITS + BUCKET_BITS)) as usize & mask;
        // Pages that do not exist yet are still parts of those half as far in.
        let page = if at < self.pages.len() { at } else { at & mask >> 1 };
        let bucket = (hash >> FINGERPRINT_BITS) as usize % (1 << BUCKET_BITS);
        self.pages.get_mut(page).map(|page| &mut page[bucket])
    }
}

fn fingerprint(hash: u64) -> u16 {
    (hash as u16).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    #[test]
    fn about_as_many_ghosts_are_remembered_as_the_table_has_entries_and_each_is_taken_once() {
        let entries = 50_000;
        let mut random = Random::new(1);
        let mut ghosts = Ghosts::default();
        let hashes: Vec<u64> = (0..200_000).map(|_| random.next()).collect();
        while ghosts.fit(entries) {}
        hashes.iter().for_each(|hash| ghosts.insert(*hash));
        let remembered =
            |ghosts: &mut Ghosts, of: &[u64]| of.iter().filter(|hash| ghosts.take(**hash)).count();
        let newest = remembered(&mut ghosts, &hashes[160_000..]);
        assert!(35_000 < newest, "{newest} of the last 40,000");
        let again = remembered(&mut ghosts, &hashes[160_000..]);
        assert!(again < 400, "{again} were taken twice");
        let oldest = remembered(&mut ghosts, &hashes[..100_000]);
        assert!(oldest < 400, "{oldest} of the oldest");
    }

    #[test]
    fn a_table_that_grows_and_shrinks_keeps_most_of_its_ghosts() {
        let mut random = Random::new(2);
        let mut ghosts = Ghosts::default();
        while ghosts.fit(10_000) {}
        let hashes: Vec<u64> = (0..5_000).map(|_| random.next()).collect();
        hashes.iter().for_each(|hash| ghosts.insert(*hash));
        let pages = ghosts.pages.len();
        assert!((0..3).all(|_| ghosts.fit(1_000_000)));
        assert_eq!(ghosts.pages.len(), pages + 3, "a page at a time");
        let found = hashes.iter().filter(|hash| ghosts.take(**hash)).count();
        assert!(3_000 < found, "{found}");
        while ghosts.fit(0) {}
        assert!(ghosts.pages.len() <= 2);
        assert_eq!(
            ghosts.held_bytes(),
            ghosts.pages.len() * 4096 + { held_bytes(ghosts.pages.capacity() * 8) }
        );
    }
}
