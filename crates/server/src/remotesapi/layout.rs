//! Where a client is told that chunks are.
