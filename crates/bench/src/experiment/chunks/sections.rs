//! Sections that are numbers rather than tables.

pub mod cold;
pub mod memory;
pub mod open;
pub mod thundering_herd;
