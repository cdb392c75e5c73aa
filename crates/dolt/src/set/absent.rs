//! Names of stores that do not exist, remembered for a while.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use crate::limits::ABSENT_NAMES_MAX;

/// Names and the times until which they are remembered. When there are too many, the oldest goes.
#[derive(Default)]
pub(crate) struct AbsentNames {
    until: HashMap<String, Instant>,
    /// Names in the order in which they came, each with its time.
    order: VecDeque<(String, Instant)>,
}

impl AbsentNames {
    pub fn contains(&self, name: &str, now: Instant) -> bool {
        self.until.get(name).is_some_and(|until| now < *until)
    }

    /// Number of names remembered.
    pub fn len(&self) -> usize {
        self.until.len()
    }

    pub fn insert(&mut self, name: &str, until: Instant) {
        self.until.insert(name.to_owned(), until);
        self.order.push_back((name.to_owned(), until));
        if ABSENT_NAMES_MAX < self.order.len() {
            self.remove_oldest();
        }
    }

    /// Forgets names whose time is over.
    pub fn sweep(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(_, until)| *until <= now) {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        let Some((name, until)) = self.order.pop_front() else { return };
        // The name may have come again since.
        if self.until.get(&name) == Some(&until) {
            self.until.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_are_remembered_until_their_time_or_until_there_are_too_many() {
        let (mut names, now) = (AbsentNames::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        names.insert("a", at(5));
        names.insert("b", at(6));
        assert!(names.contains("a", at(4)) && !names.contains("a", at(5)));
        names.insert("a", at(9));
        names.sweep(at(6));
        assert!(names.contains("a", at(8)) && !names.contains("b", at(0)));
        for count in 0..2 * ABSENT_NAMES_MAX {
            names.insert(&count.to_string(), at(10));
        }
        assert_eq!((names.until.len(), names.order.len()), (ABSENT_NAMES_MAX, ABSENT_NAMES_MAX));
        names.sweep(at(10));
        assert!(names.until.is_empty() && names.order.is_empty());
    }
}
