//! Chunk stores on files of Dolt, whole, changing and damaged.

mod faults;
mod store;
