//! Many callers' single-key reads and writes in few batches: a waiting line with limits, and when a batch leaves.

#![forbid(unsafe_code)]
