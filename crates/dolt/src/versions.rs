//! Versions of a store: its manifest, the table files that it names, and what became of files that
//! it no longer names.

pub(crate) mod dropped_files;
pub(crate) mod object_names;
pub(crate) mod opener;
pub(crate) mod refresh_coalescer;
pub(crate) mod refresher;
pub(crate) mod table_file;
pub(crate) mod version;
