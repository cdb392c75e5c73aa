//! Order of writes by tasks that may come to run in any order.

use std::sync::{Arc, Mutex, PoisonError};

/// Numbers of writes, of which one that comes after a later one is left out.
#[derive(Debug, Default)]
pub(super) struct WriteOrder {
    last: u64,
    /// Number of the last write that was made.
    written: Arc<Mutex<u64>>,
}

/// One write, which a task makes.
#[derive(Debug)]
pub(super) struct WriteTurn {
    number: u64,
    written: Arc<Mutex<u64>>,
}

impl WriteOrder {
    /// Returns the turn of the next write.
    pub fn next(&mut self) -> WriteTurn {
        self.last += 1;
        WriteTurn { number: self.last, written: Arc::clone(&self.written) }
    }
}

impl WriteTurn {
    /// Writes, when no other turn does, unless a later one has.
    pub fn write(self, write: impl FnOnce()) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written < self.number {
            *written = self.number;
            write();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_comes_after_a_later_one_is_left_out() {
        let (mut order, mut made) = (WriteOrder::default(), Vec::new());
        let [first, second, third] = [order.next(), order.next(), order.next()];
        second.write(|| made.push(2));
        first.write(|| made.push(1));
        third.write(|| made.push(3));
        assert_eq!(made, [2, 3]);
    }
}
