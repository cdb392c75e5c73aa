//! One Postgres table: many callers' single-key reads and writes in few statements.
//!
//! ```text
//!  Options --resolve--> Settings --Table::start--+---------------------------+
//!  (URL, fields,        (checked)                v                           v
//!   environment)   requests --> queue (busload-batch) --batches--> service --> pool of K sessions
//!                  replies <--------------------------------- rows <--   connect, TLS, schema
//! ```
//!
//! * **Settings**: [`Options`] become [`Settings`] without touching a file or a server; each new
//!   connection reads files and contacts servers again ([`connect`], [`password`], [`tls`]).
//! * **Requests**: a [`Table`] takes requests at any time, connected or not. `busload-batch`
//!   decides when to send a batch; each batch is one statement on one of the K sessions of the
//!   [`pool`].
//! * **Order**: operations on one key take effect in the order in which they were requested.
//! * **Limits**: [`limits`], and those of the request queue. A request beyond them is refused at
//!   once, with an error that says so.
//! * **Failure**: while Postgres cannot be reached, requests fail with the reason; the pool
//!   reconnects by itself. A read is repeated once on another connection; a write that may have
//!   reached the server is not, and its error says that its outcome is unknown.
//! * **Schema changes**: the relation may change under load ([`limits::RELATION_CHECK_INTERVAL`]).
//!   Statements are prepared anew, and those that the server has refused are sent again; a relation
//!   that cannot be served is refused by name until it can.
//! * **Shutdown**: [`Table::close`] serves the requests it has taken and leaves none unanswered.
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
mod versions;
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
pub use write::{ColumnSet, Outcome, Receipt, RowWrite, WriteKind};
