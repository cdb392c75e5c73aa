//! Stores from open to close, over directories and over a bucket.

mod archives;
mod closing;
mod corruption;
mod dropped_files;
mod fixtures;
mod item_manifests;
mod locations;
mod many;
mod opening;
mod peers;
mod pinned_dictionaries;
mod prefetch;
mod references;
mod remote_store;
mod set;
mod support;
mod versions;
