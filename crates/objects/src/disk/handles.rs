//! Limits the number of open cache files.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError, Weak, atomic::Ordering::Relaxed},
};

use rustix::process::{Resource, getrlimit};

use super::{cache_file::CacheFile, file_system::OpenFile};
use crate::disk::limits::OPEN_FILES_MAX;

/// Open files in the order in which they were opened. When there are too many, [`Handles`] closes
/// the first that was not read since it last looked at it (second chance).
#[derive(Debug)]
pub(crate) struct Handles {
    open: Mutex<VecDeque<Weak<CacheFile>>>,
    count_max: usize,
}

impl Handles {
    /// Allows at most half of the descriptors of the process.
    pub(crate) fn new() -> Self {
        let process_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let half = usize::try_from(process_max / 2).unwrap_or(usize::MAX);
        Self::with_count_max(OPEN_FILES_MAX.min(half).max(1))
    }

    fn with_count_max(count_max: usize) -> Self {
        Self { open: Mutex::default(), count_max }
    }

    /// Stores an open file with its cache file. Closes the one of another thread that was faster.
    pub(crate) fn keep(&self, cache_file: &Arc<CacheFile>, file: Box<dyn OpenFile>) {
        if cache_file.handle.swap(Some(Arc::new(file))).is_some() {
            return;
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push_back(Arc::downgrade(cache_file));
        // Two rounds: in the second only files read meanwhile are still marked.
        for _ in 0..2 * open.len() {
            if open.len() <= self.count_max {
                break;
            }
            close_one(&mut open);
        }
    }
}

fn close_one(open: &mut VecDeque<Weak<CacheFile>>) {
    let Some(cache_file) = open.pop_front() else { return };
    let Some(used) = cache_file.upgrade() else { return };
    if used.is_used.swap(false, Relaxed) && used.handle.load().is_some() {
        open.push_back(cache_file);
    } else {
        used.handle.store(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ObjectMeta, disk::cache_file::ObjectKey};

    fn cache_file(id: u32) -> Arc<CacheFile> {
        let meta = ObjectMeta { name: "n".into(), size: 1, etag: String::new() };
        Arc::new(CacheFile::new(id, 0, Arc::new(ObjectKey { store: String::new(), meta })))
    }

    #[test]
    fn the_file_that_is_read_stays_open() {
        let handles = Handles::with_count_max(3);
        let cache_files: Vec<Arc<CacheFile>> = (0..20).map(cache_file).collect();
        for each in &cache_files {
            handles.keep(each, Box::new(tempfile::tempfile().unwrap()));
            cache_files[0].is_used.store(true, Relaxed);
        }
        let open: Vec<u32> = cache_files
            .iter()
            .filter(|cache_file| cache_file.handle.load().is_some())
            .map(|cache_file| cache_file.id)
            .collect();
        assert_eq!(open.len(), 3);
        assert!(open.contains(&0), "{open:?}");
    }

    #[test]
    fn a_file_opened_twice_counts_once() {
        let handles = Handles::with_count_max(3);
        let cache_file = cache_file(0);
        for _ in 0..10 {
            handles.keep(&cache_file, Box::new(tempfile::tempfile().unwrap()));
        }
        assert_eq!(handles.open.lock().unwrap().len(), 1);
    }
}
