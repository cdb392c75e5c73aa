//! The stages net and tx, their wiring, gating, the command table

pub mod decimal;
pub mod glob;
