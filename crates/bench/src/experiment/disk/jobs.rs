//! The threads that read.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;

use super::{Mode, file::TestFile};
use crate::{
    clock::{duration_ns, now_ns},
    random::Random,
    stats::{float, new_histogram, record},
};

/// What `O_DIRECT` may want of a buffer's address.
const ALIGNMENT: usize = 4_096;

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How the file is opened.
    pub mode: Mode,
    pub jobs: usize,
    /// Bytes of a read.
    pub block_bytes: u64,
    /// It ends after this time, or when every block was read.
    pub limit: Duration,
    /// Of the order of the blocks.
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub struct Measured {
    /// How the file was opened.
    pub mode: Mode,
    pub jobs: usize,
    /// Bytes of a read.
    pub block_bytes: u64,
    /// From the first read to the last.
    pub seconds: f64,
    /// Times of the reads.
    pub latency_ns: Histogram<u64>,
    /// Share of the file in the page cache at the start, where that is known and matters.
    pub cached_before: Option<f64>,
}

impl Measured {
    pub fn reads(&self) -> u64 {
        self.latency_ns.len()
    }

    pub fn iops(&self) -> f64 {
        float(self.reads()) / self.seconds.max(1e-9)
    }

    pub fn mib_per_s(&self) -> f64 {
        self.iops() * float(self.block_bytes) / 1_048_576.0
    }
}

/// Reads the file at random; `None` where it cannot be opened in this mode.
pub fn measure(file: &TestFile, plan: &Plan) -> Result<Option<Measured>> {
    let Some(open) = file.open(plan.mode)? else { return Ok(None) };
    let cached_before = match plan.mode {
        Mode::Buffered => file.drop_cached()?,
        Mode::Direct => None,
    };
    let work = Arc::new(Work {
        file: open,
        order: shuffled(file.bytes / plan.block_bytes, plan.seed)?,
        next: AtomicU64::new(0),
        block_bytes: plan.block_bytes,
    });
    let started_ns = now_ns();
    let until_ns = started_ns + duration_ns(plan.limit);
    let start = |index: usize| {
        let work = Arc::clone(&work);
        std::thread::Builder::new().name(format!("job {index}")).spawn(move || work.run(until_ns))
    };
    let threads =
        (0..plan.jobs).map(start).collect::<Result<Vec<_>, _>>().context("a thread for a job")?;
    let mut latency_ns = new_histogram()?;
    for thread in threads {
        let Ok(job) = thread.join() else { bail!("a job panicked") };
        latency_ns.add(job?).context("histograms of the same bounds")?;
    }
    let seconds = float(now_ns() - started_ns) / 1e9;
    let Plan { mode, jobs, block_bytes, .. } = *plan;
    Ok(Some(Measured { mode, jobs, block_bytes, seconds, latency_ns, cached_before }))
}

/// What the jobs share.
struct Work {
    file: File,
    /// Numbers of all blocks.
    order: Vec<u32>,
    /// The next position of the order.
    next: AtomicU64,
    block_bytes: u64,
}

impl Work {
    fn run(&self, until_ns: u64) -> Result<Histogram<u64>> {
        let mut latency_ns = new_histogram()?;
        let length = usize::try_from(self.block_bytes).context("a block of a sane length")?;
        let mut memory = vec![0; length + ALIGNMENT];
        let aligned = memory.as_ptr().align_offset(ALIGNMENT);
        let buffer = &mut memory[aligned..aligned + length];
        let mut now = now_ns();
        while now < until_ns {
            let Some(offset) = self.next_offset() else { break };
            let asked_ns = now_ns();
            self.file
                .read_exact_at(buffer, offset)
                .with_context(|| format!("a read at {offset}"))?;
            now = now_ns();
            record(&mut latency_ns, now - asked_ns);
        }
        Ok(latency_ns)
    }

    fn next_offset(&self) -> Option<u64> {
        let position = usize::try_from(self.next.fetch_add(1, Ordering::Relaxed)).ok()?;
        self.order.get(position).map(|block| u64::from(*block) * self.block_bytes)
    }
}

/// The numbers below `count` in random order.
fn shuffled(count: u64, seed: u64) -> Result<Vec<u32>> {
    let mut order: Vec<u32> = (0..u32::try_from(count).context("fewer blocks")?).collect();
    Random::new(seed).shuffle(&mut order);
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_comes_once_in_another_order() {
        let order = shuffled(1_000, 7).unwrap();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1_000).collect::<Vec<_>>());
        assert_ne!(order, sorted);
        assert_eq!(shuffled(1_000, 7).unwrap(), order);
    }

    #[test]
    fn a_measurement_ends_when_every_block_was_read() {
        let directory =
            crate::cleanup::Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let file = TestFile::make(&directory.path().join("random"), 64 * 4_096, 1).unwrap();
        let plan = Plan {
            mode: Mode::Buffered,
            jobs: 3,
            block_bytes: 4_096,
            limit: Duration::from_secs(3_600),
            seed: 1,
        };
        let measured = measure(&file, &plan).unwrap().unwrap();
        assert_eq!(measured.reads(), 64);
        assert!(0.0 < measured.iops() && 0.0 < measured.mib_per_s());
    }
}
