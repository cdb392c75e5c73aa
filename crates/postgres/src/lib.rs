//! One Postgres table: many callers' single-key reads and writes in few statements.
//!
//! ```text
//!  Options --resolve--> Settings --Table::start--+--------------------------------------+
//!  (URL, fields,        (checked)                v                                      v
//!   environment)   requests --> waiting line (busload-batch) --batches--> service --> pool of K sessions
//!                  replies <---------------------------------------------- rows <--   connect, TLS, schema
//! ```
//!
//! * **In**: [`Options`] become [`Settings`] without touching anything; files and servers are
//!   touched when a connection is opened, each time anew ([`connect`], [`password`], [`tls`]).
//! * **Through**: a [`Table`] takes requests at any time, connected or not. Batches leave by the
//!   rule of `busload-batch`; each is one statement on one of the K sessions of the [`pool`].
//! * **Order**: operations on one key take effect in the order in which they were asked for.
//! * **Limits**: [`limits`], and the waiting line's. What exceeds them is refused at once, with an
//!   error that says so.
//! * **Failure**: while Postgres cannot be reached, requests are answered with the reason;
//!   connections come back by themselves. A read is repeated once on another connection; a write
//!   that may have reached the server is not, and its error says that its outcome is unknown.
//! * **Shutdown**: [`Table::close`] lets finish what has begun and leaves nobody without an answer.
//! * **Secrets**: a password is in no `Debug`, no error and no log line.

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
