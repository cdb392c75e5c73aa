//! Requests to the object store of a chunk store, told apart by range.

use std::collections::HashSet;

use busload_bucket::Seen;

use crate::{
    remote::Count,
    stats::{float, mebibytes},
    table_files::TableFile,
};

/// Bytes of an object in one extent of busload's cache: fills are whole extents.
const EXTENT_BYTES: u64 = 256 * 4_092;

/// Requests in a log of the proxy, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Ranges of table files that somebody waits for.
    pub foreground: Count,
    /// Foreground ranges asked for again, to the byte.
    pub repeated: u64,
    /// Whole extents of table files.
    pub fills: Count,
    /// Indexes of table files.
    pub indexes: Count,
    /// Manifests, listings and what else there is.
    pub others: Count,
}

impl Traffic {
    /// Sorts requests by what they asked for.
    pub fn of(seen: &[Seen], files: &[TableFile]) -> Self {
        let mut traffic = Self::default();
        let mut ranges = HashSet::new();
        for request in seen {
            let file = files.iter().find(|file| request.path.contains(&file.id));
            let (Some(file), true) = (file, request.method == "GET") else {
                traffic.others.add(request.bytes);
                continue;
            };
            let range = request.range.clone().unwrap_or(0..file.bytes);
            let (from, to) = (range.start, range.end.min(file.bytes));
            let is_extents =
                from % EXTENT_BYTES == 0 && (EXTENT_BYTES <= to - from.min(to) || to == file.bytes);
            if file.index_from <= from {
                traffic.indexes.add(request.bytes);
            } else if is_extents {
                traffic.fills.add(request.bytes);
            } else {
                traffic.foreground.add(request.bytes);
                traffic.repeated += u64::from(!ranges.insert((&file.id, from, to)));
            }
        }
        traffic
    }

    pub fn bytes(&self) -> u64 {
        self.of_files().bytes + self.others.bytes
    }

    /// Requests for table files, and bytes of them.
    pub fn of_files(&self) -> Count {
        let counts = [self.foreground, self.fills, self.indexes];
        Count {
            requests: counts.iter().map(|count| count.requests).sum(),
            bytes: counts.iter().map(|count| count.bytes).sum(),
        }
    }

    /// Requests of every kind.
    pub fn requests(&self) -> u64 {
        self.of_files().requests + self.others.requests
    }

    pub fn text(&self) -> String {
        let mebibytes = |count: Count| format!("{:.1} MiB", mebibytes(float(count.bytes)));
        format!(
            "{} foreground ({}, {} repeated), {} fills ({}), {} of indexes ({}), {} others",
            self.foreground.requests,
            mebibytes(self.foreground),
            self.repeated,
            self.fills.requests,
            mebibytes(self.fills),
            self.indexes.requests,
            mebibytes(self.indexes),
            self.others.requests,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str, range: std::ops::Range<u64>) -> Seen {
        let bytes = range.end - range.start;
        Seen {
            method: "GET".to_owned(),
            path: path.to_owned(),
            range: Some(range),
            bytes,
            status: 206,
        }
    }

    #[test]
    fn requests_are_told_apart_by_their_ranges() {
        let name = "4r0lqmqprihmm1ok8d7b93l2i5lfl2ug".to_owned();
        let file = TableFile {
            id: name.clone(),
            name,
            kind: busload_chunks::FileKind::Classic,
            bytes: 2_000_000,
            crc: 0,
            chunk_count: 1,
            index_from: 1_900_000,
        };
        let path = format!("/bucket/store/{}", file.name);
        let traffic = Traffic::of(
            &[
                get("/bucket/store/manifest", 0..100),
                get(&path, file.index_from..file.bytes),
                get(&path, 4_092..8_184),
                get(&path, 4_092..8_184),
                get(&path, 0..4_092),
                get(&path, 0..file.bytes),
            ],
            std::slice::from_ref(&file),
        );
        assert_eq!(traffic.foreground, Count { requests: 3, bytes: 3 * 4_092 });
        assert_eq!(traffic.repeated, 1);
        assert_eq!(traffic.fills, Count { requests: 1, bytes: file.bytes });
        assert_eq!(traffic.indexes.requests, 1);
        assert_eq!(traffic.others, Count { requests: 1, bytes: 100 });
        assert_eq!((traffic.requests(), traffic.of_files().requests), (6, 5));
        assert_eq!(traffic.bytes(), 100 + 3 * 4_092 + file.bytes + (file.bytes - file.index_from));
    }
}
