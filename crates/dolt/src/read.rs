//! Reads of chunks: locate a chunk in a version, read its bytes, verify and decode them.
//!
//! ```text
//!  Reader::try_get --> memory cache, else Version::find --> FileChunkReader::try_read  never waits
//!  Reader::get ------> try_get, else Version::locate --> FileChunkReader::read_verified
//!                      `--> PeerReader, for a file of another cache
//!  ManyReads --------> like get, with Windows of reads sorted by file and offset
//! ```

pub(crate) mod chunk;
pub(crate) mod decode;
pub(crate) mod dictionaries;
pub(crate) mod file_chunk_reader;
pub(crate) mod known_corruption;
pub(crate) mod many;
pub(crate) mod memory_cache;
pub(crate) mod peer_reader;
pub(crate) mod reader;
pub(crate) mod window;
