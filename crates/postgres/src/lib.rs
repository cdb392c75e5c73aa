//! One Postgres table: many callers' single-key reads and writes in few statements.

#![forbid(unsafe_code)]

pub mod connect;
mod environment;
mod error;
pub mod limits;
mod options;
pub mod pool;
mod settings;

pub use environment::Environment;
pub use error::{Error, SettingsError};
pub use options::Options;
pub use settings::{Host, Relation, Server, Settings, quote_identifier};
