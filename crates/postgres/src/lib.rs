//! One Postgres table: many callers' single-key reads and writes in few statements.

#![forbid(unsafe_code)]

mod cause;
pub mod connect;
mod environment;
mod error;
pub mod limits;
mod login;
mod options;
pub mod password;
pub mod pool;
mod relation;
mod settings;
pub mod tls;
mod url;
mod values;

pub use environment::Environment;
pub use error::{Error, SettingsError};
pub use options::{Options, TABLE_NAMES};
pub use relation::{Relation, quote_identifier};
pub use settings::{Host, Keepalive, Server, Settings};
