//! The stages net and tx, their wiring, gating, the command table
