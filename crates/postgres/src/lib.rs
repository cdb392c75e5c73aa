//! One Postgres table: many callers' single-key reads and writes in few statements.

#![forbid(unsafe_code)]

mod cause;
mod check;
pub mod connect;
mod environment;
mod error;
mod failure;
mod key;
pub mod limits;
mod login;
mod options;
mod parameters;
pub mod password;
pub mod pool;
mod read;
mod relation;
mod retry;
mod row;
mod schema;
mod service;
mod session;
mod settings;
mod statements;
mod stats;
mod store;
mod table;
pub mod tls;
mod url;
mod values;
mod write;

pub use check::{Report, check};
pub use environment::Environment;
pub use error::{Error, SettingsError};
pub use key::Key;
pub use options::{Options, TABLE_NAMES};
pub use relation::{Relation, quote_identifier};
pub use row::Row;
pub use service::{PgService, read_error, write_error};
pub use settings::{Host, Keepalive, Server, Settings};
pub use stats::TableStats;
pub use table::{Table, Waiter};
pub use write::{ColumnSet, Kind, Outcome, Receipt, RowWrite};
