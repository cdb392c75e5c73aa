//! Tests of the counter.
