//! Keeps few data files open.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError, Weak, atomic::Ordering::Relaxed},
};

use rustix::process::{Resource, getrlimit};

use super::{body::Body, files::OpenFile};
use crate::limits::OPEN_FILES_MAX;

/// Files that are open, in the order in which they were opened. Where there are too many, the first
/// that was not read since the last look at it is closed.
#[derive(Debug)]
pub(crate) struct Handles {
    open: Mutex<VecDeque<Weak<Body>>>,
    count_max: usize,
}

impl Handles {
    /// At most half of what the process may have.
    pub(crate) fn new() -> Self {
        let process_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let half = usize::try_from(process_max / 2).unwrap_or(usize::MAX);
        Self::with_count_max(OPEN_FILES_MAX.min(half).max(1))
    }

    fn with_count_max(count_max: usize) -> Self {
        Self { open: Mutex::default(), count_max }
    }

    /// Keeps an open file with its body. If somebody was faster, theirs is closed.
    pub(crate) fn keep(&self, body: &Arc<Body>, file: Box<dyn OpenFile>) {
        if body.handle.swap(Some(Arc::new(file))).is_some() {
            return;
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push_back(Arc::downgrade(body));
        // Two rounds: in the second nobody has a mark but from reads meanwhile.
        for _ in 0..2 * open.len() {
            if open.len() <= self.count_max {
                break;
            }
            close_one(&mut open);
        }
    }
}

fn close_one(open: &mut VecDeque<Weak<Body>>) {
    let Some(body) = open.pop_front() else { return };
    let Some(used) = body.upgrade() else { return };
    if used.is_used.swap(false, Relaxed) && used.handle.load().is_some() {
        open.push_back(body);
    } else {
        used.handle.store(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ObjectMeta, disk::body::Key};

    fn body(id: u32) -> Arc<Body> {
        let meta = ObjectMeta { name: "n".into(), size: 1, etag: String::new() };
        Arc::new(Body::new(id, 0, Arc::new(Key { store: String::new(), meta })))
    }

    #[test]
    fn the_file_that_is_read_stays_open() {
        let handles = Handles::with_count_max(3);
        let bodies: Vec<Arc<Body>> = (0..20).map(body).collect();
        for each in &bodies {
            handles.keep(each, Box::new(tempfile::tempfile().unwrap()));
            bodies[0].is_used.store(true, Relaxed);
        }
        let open: Vec<u32> =
            bodies.iter().filter(|body| body.handle.load().is_some()).map(|body| body.id).collect();
        assert_eq!(open.len(), 3);
        assert!(open.contains(&0), "{open:?}");
    }

    #[test]
    fn a_file_opened_twice_counts_once() {
        let handles = Handles::with_count_max(3);
        let body = body(0);
        for _ in 0..10 {
            handles.keep(&body, Box::new(tempfile::tempfile().unwrap()));
        }
        assert_eq!(handles.open.lock().unwrap().len(), 1);
    }
}
