//! The file that is read, and what of it is in the page cache.

use std::{
    fs::{File, OpenOptions},
    io::{IoSliceMut, Write},
    num::NonZeroU64,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rustix::{
    fs::{Advice, OFlags, fadvise},
    io::{Errno, ReadWriteFlags, preadv2},
};

use super::Mode;
use crate::random::Random;

/// Bytes written by one call.
const WRITE_BYTES: u64 = 1 << 20;

/// Places of the file that are looked up in the page cache.
const PROBES: u64 = 64;

/// Bytes of such a place.
const PROBE_BYTES: u64 = 4_096;

/// A file of random bytes.
#[derive(Debug)]
pub struct TestFile {
    path: PathBuf,
    pub bytes: u64,
}

impl TestFile {
    /// Writes it and syncs it.
    pub fn make(path: &Path, bytes: u64, seed: u64) -> Result<Self> {
        let named = || format!("cannot write {}", path.display());
        let mut file = File::create(path).with_context(named)?;
        let mut random = Random::new(seed);
        let mut left = bytes;
        let mut buffer = Vec::new();
        while 0 < left {
            let count = left.min(WRITE_BYTES);
            buffer.clear();
            buffer.extend((0..count.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()));
            buffer.truncate(usize::try_from(count).context("a write of a sane length")?);
            file.write_all(&buffer).with_context(named)?;
            left -= count;
        }
        file.sync_all().with_context(named)?;
        Ok(Self { path: path.to_owned(), bytes })
    }

    /// Opens it for reading; `None` where the file system knows no `O_DIRECT`.
    pub fn open(&self, mode: Mode) -> Result<Option<File>> {
        let flags = match mode {
            Mode::Buffered => OFlags::empty(),
            Mode::Direct => OFlags::DIRECT,
        };
        let flags = i32::try_from(flags.bits()).context("flags of open")?;
        match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Ok(file) => {
                // Of this descriptor only: reads bring in what they ask for and no more.
                fadvise(&file, 0, NonZeroU64::new(self.bytes), Advice::Random)
                    .context("posix_fadvise")?;
                Ok(Some(file))
            }
            Err(error)
                if mode == Mode::Direct
                    && error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) =>
            {
                Ok(None)
            }
            Err(error) => {
                Err(error).with_context(|| format!("cannot open {}", self.path.display()))
            }
        }
    }

    /// Drops the file's pages from the page cache and gives the share of it that is still there: of
    /// a file system that lives in memory, or whose pages are locked, all of it. `None` where the
    /// kernel does not tell.
    pub fn drop_cached(&self) -> Result<Option<f64>> {
        let file = self.open(Mode::Buffered)?.context("a file just made")?;
        let length = NonZeroU64::new(self.bytes);
        fadvise(&file, 0, length, Advice::DontNeed).context("posix_fadvise")?;
        let share = self.cached_share(&file)?;
        // Looking brought in what was looked at.
        fadvise(&file, 0, length, Advice::DontNeed).context("posix_fadvise")?;
        Ok(share)
    }

    /// Reads that may not wait succeed where the pages are there.
    fn cached_share(&self, file: &File) -> Result<Option<f64>> {
        let mut buffer = vec![0; usize::try_from(PROBE_BYTES).context("a probe of a sane length")?];
        let places = (self.bytes / PROBE_BYTES).clamp(1, PROBES);
        let mut cached = 0_u32;
        for place in 0..places {
            let offset = self.bytes / places * place / PROBE_BYTES * PROBE_BYTES;
            let mut slices = [IoSliceMut::new(&mut buffer)];
            match preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
                Ok(_) => cached += 1,
                Err(Errno::AGAIN) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(None),
                Err(error) => return Err(error).context("preadv2"),
            }
        }
        Ok(Some(f64::from(cached) / crate::stats::float(places)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_size_asked_for_and_can_be_dropped() {
        let directory =
            crate::cleanup::Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let bytes = WRITE_BYTES + 12_345;
        let file = TestFile::make(&directory.path().join("random"), bytes, 1).unwrap();
        assert_eq!(std::fs::metadata(&file.path).unwrap().len(), bytes);
        let share = file.drop_cached().unwrap();
        assert!(share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{share:?}");
    }

    #[test]
    fn what_was_just_read_is_cached() {
        let directory =
            crate::cleanup::Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let file = TestFile::make(&directory.path().join("random"), 1 << 20, 1).unwrap();
        std::fs::read(&file.path).unwrap();
        let open = file.open(Mode::Buffered).unwrap().unwrap();
        let share = file.cached_share(&open).unwrap();
        assert!(share.is_none_or(|share| 0.9 < share), "{share:?}");
    }
}
