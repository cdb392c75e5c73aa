//! In-memory tables: index, values, expiry, effects
