//! The write-ahead log: frames, segments, the log stage, recovery
