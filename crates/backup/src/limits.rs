//! Every limit of backups.

/// Number of times that the files of a running server are listed until all of them are still there
/// when they are opened.
pub const LIST_ATTEMPTS_MAX: usize = 1_000;

/// Number of snapshots that a backup takes of a data directory: those that a server keeps.
pub const SNAPSHOT_COUNT: usize = 2;

/// Longest manifest that is read. One that names a million files is shorter.
pub const MANIFEST_BYTES_MAX: u64 = 256 * 1024 * 1024;

const _: () = assert!(SNAPSHOT_COUNT == busload_snapshot::limits::KEPT_COUNT);

/// Number of times that a backup tries to keep the server from using segments again.
pub const LOCK_ATTEMPTS_MAX: usize = 1_000;
