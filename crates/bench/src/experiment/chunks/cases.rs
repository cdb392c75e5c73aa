//! What is measured: a row of a table is a case.

use super::clients::Form;

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Section {
    /// A chain of dependent reads by one caller
    Chain,
    /// Random reads by some callers
    Reads,
    /// As many chunks a second as one core gives
    Throughput,
    /// Random reads of a whole file from an empty cache: what they cost the store
    Cold,
    /// Many callers, one cold chunk
    ThunderingHerd,
    /// Opening a store of many table files
    Open,
    /// Memory of indexes, and while a large file fills
    Memory,
}

impl Section {
    /// The name in `--section` and in the CSV.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Reads => "reads",
            Self::Throughput => "throughput",
            Self::Cold => "cold",
            Self::ThunderingHerd => "thundering-herd",
            Self::Open => "open",
            Self::Memory => "memory",
        }
    }
}

/// State of busload's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cache {
    /// Nowhere: each read is the first of its extent.
    Cold,
    /// Fills of whole files are under way.
    Filling,
    Disk,
    /// Chunks are in its memory, decoded.
    Memory,
    /// Busload has no part in it.
    Unused,
}

impl Cache {
    /// The name in tables and in the CSV.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Filling => "filling",
            Self::Disk => "warm disk",
            Self::Memory => "warm RAM",
            Self::Unused => "-",
        }
    }
}

/// Ways to ask for chunks, and what they are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The object store, by range, indexes known.
    Direct,
    /// Calls with one chunk each.
    GetChunk,
    /// Calls with many chunks each.
    GetChunks,
    /// `GET` over RESP, one under way on a connection.
    Resp,
    /// `GET` over RESP, many under way on a connection.
    RespPipelined,
    /// An empty call of the health service.
    Check,
    /// Reads of a local copy by the load itself.
    Pread,
    /// Reads by a thread that sends the bytes over loopback.
    PreadSend,
}

impl Way {
    /// The name in tables and in the CSV.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::GetChunk => "GetChunk",
            Self::GetChunks => "GetChunks",
            Self::Resp => "RESP",
            Self::RespPipelined => "RESP pipelined",
            Self::Check => "health Check",
            Self::Pread => "pread",
            Self::PreadSend => "pread+send",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Each names the next.
    Chain,
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub section: Section,
    pub cache: Cache,
    pub way: Way,
    pub form: Form,
    pub work: Work,
    pub callers: usize,
    /// Chunks of one request, or under way on one connection.
    pub batch: usize,
}

impl Case {
    /// Callers and what each has under way.
    pub fn load(&self) -> String {
        match (self.work, self.batch) {
            (Work::Chain, _) => "chain".to_owned(),
            (Work::Random, 1) => self.callers.to_string(),
            (Work::Random, batch) => format!("{} x {batch}", self.callers),
        }
    }
}

/// Chunks at a time, where a flag does not say otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    /// Chunks of a `GetChunks` call.
    pub call: usize,
    /// Requests of a RESP pipeline.
    pub pipeline: usize,
}

const fn case(
    section: Section,
    cache: Cache,
    way: Way,
    work: Work,
    callers: usize,
    batch: usize,
) -> Case {
    // What a direct reader and the bare loops read are records as the file holds them.
    let form = match way {
        Way::Pread | Way::PreadSend => Form::Stored,
        _ => Form::Decoded,
    };
    Case { section, cache, way, form, work, callers, batch }
}

/// A chain in every state.
pub fn chain() -> Vec<Case> {
    let of = |cache, way| case(Section::Chain, cache, way, Work::Chain, 1, 1);
    let mut cases = vec![of(Cache::Unused, Way::Direct)];
    for cache in [Cache::Cold, Cache::Filling, Cache::Disk, Cache::Memory] {
        cases.extend([Way::GetChunk, Way::Resp].map(|way| of(cache, way)));
    }
    cases.push(of(Cache::Unused, Way::Check));
    cases
}

/// Random reads in every state, by every way.
pub fn reads(callers: &[usize], batches: Batches) -> Vec<Case> {
    let mut cases = Vec::new();
    for &callers in callers {
        let of = |cache, way, batch| case(Section::Reads, cache, way, Work::Random, callers, batch);
        cases.push(of(Cache::Unused, Way::Direct, 1));
        for cache in [Cache::Cold, Cache::Filling, Cache::Disk, Cache::Memory] {
            cases.push(of(cache, Way::GetChunk, 1));
            cases.push(of(cache, Way::GetChunks, batches.call));
            cases.push(of(cache, Way::Resp, 1));
            if matches!(cache, Cache::Disk | Cache::Memory) {
                cases.push(of(cache, Way::RespPipelined, batches.pipeline));
            }
        }
        cases.push(of(Cache::Unused, Way::Check, 1));
        cases.push(of(Cache::Unused, Way::PreadSend, 1));
    }
    cases.push(case(Section::Reads, Cache::Unused, Way::Pread, Work::Random, 1, 1));
    cases
}

/// Warm reads that fill one core.
pub fn throughput(callers: usize, batches: Batches) -> Vec<Case> {
    let of = |way, form, batch| Case {
        form,
        ..case(Section::Throughput, Cache::Disk, way, Work::Random, callers, batch)
    };
    let mut cases = Vec::new();
    for form in [Form::Stored, Form::Decoded] {
        cases.push(of(Way::GetChunks, form, batches.call));
        cases.push(of(Way::RespPipelined, form, batches.pipeline));
    }
    let bare = |way, batch| case(Section::Throughput, Cache::Unused, way, Work::Random, 1, batch);
    cases.push(bare(Way::PreadSend, callers * batches.pipeline));
    cases.push(bare(Way::Pread, 1));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Case as _;

    const BATCHES: Batches = Batches { call: 64, pipeline: 32 };

    fn names(cases: &[Case]) -> Vec<String> {
        cases.iter().map(Case::name).collect()
    }

    #[test]
    fn a_chain_is_followed_in_every_state() {
        let names = names(&chain());
        assert_eq!(names.len(), 10);
        assert_eq!(names[0], "chain - direct chain");
        for state in ["cold", "filling", "warm disk", "warm RAM"] {
            assert_eq!(names.iter().filter(|name| name.contains(state)).count(), 2, "{state}");
        }
    }

    #[test]
    fn every_number_of_callers_reads_in_every_way() {
        let cases = reads(&[1, 16], BATCHES);
        assert_eq!(cases.len(), 2 * (1 + 2 * 3 + 2 * 4 + 2) + 1);
        assert!(names(&cases).contains(&"reads warm RAM RESP pipelined 16 x 32".to_owned()));
        assert!(names(&cases).contains(&"reads cold GetChunks 1 x 64".to_owned()));
    }
}
