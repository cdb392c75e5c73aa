//! The busload server: a memory table, and one over the table in Postgres.

use anyhow::Result;

use super::{
    arguments::Postgres,
    database::Database,
    library::{Rule, table_url},
    rows::Key,
};
use crate::{
    busload::{Server, Starter, Table},
    cleanup::Cleanup,
};

/// The name of the table over Postgres.
pub const TABLE: &str = "bench";

/// Starts it and waits until it answers from Postgres.
pub fn start(
    starter: &Starter,
    cleanup: &Cleanup,
    arguments: &Postgres,
    database: &Database,
) -> Result<Server> {
    let table = Table { name: TABLE, url: table_url(arguments, database, Rule::Own) };
    let server = starter.start(cleanup, &[table])?;
    server.wait_for(&format!("GET {TABLE}:{}", Key::of(0).text()), "$35")?;
    Ok(server)
}
