//! Sections that are numbers rather than tables.

pub mod cold;
pub mod herd;
pub mod memory;
pub mod open;
