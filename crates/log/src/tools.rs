//! Looking at a log without opening it.
