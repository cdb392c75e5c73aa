//! Reads of chunks: where a version has them, their bytes, and whether these are right.

pub(crate) mod chunk;
pub(crate) mod decode;
pub(crate) mod dictionaries;
pub(crate) mod known_corruption;
pub(crate) mod many;
pub(crate) mod memory_cache;
pub(crate) mod reader;
pub(crate) mod window;
