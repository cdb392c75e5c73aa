//! Settings of a session.
//!
//! * `plan_cache_mode = force_generic_plan`: the planner assumes ten elements in an array, so
//!   custom plans would be made anew for each small batch, and would read the whole table for large
//!   ones.
//! * `jit = off`: a statement with many keys looks expensive enough to compile, but is not.
//! * `enable_seqscan = off`, and for tables with composite keys or writes also `enable_hashjoin`
//!   and `enable_mergejoin = off`: a plan is made once, perhaps while the table is empty, and must
//!   use the index when the table has grown. Triggers run under these settings too.
//! * `statement_timeout`: ends a statement that nobody waits for any more.
//!
//! If a server or a pooler refuses one of them, the table is still served, after one
//! warning. Behind a pooler that shares connections between transactions, settings affect other
//! clients: there they belong to the role (`ALTER ROLE app SET plan_cache_mode =
//! force_generic_plan`).

use futures_util::future::join_all;
use tokio_postgres::Client;

use crate::{
    Settings,
    cause::describe,
    failure::{self, Class},
    limits::STATEMENT_TIMEOUT_MARGIN,
};

/// Sends all settings of the session in one round trip. Fails only if the connection is lost.
pub(super) async fn set_up(
    client: &Client,
    settings: &Settings,
) -> Result<(), tokio_postgres::Error> {
    let statements = statements(settings);
    let sent = statements.iter().map(|statement| set(client, settings, statement));
    join_all(sent).await.into_iter().collect()
}

fn statements(settings: &Settings) -> Vec<String> {
    let timeout = settings.timeout + STATEMENT_TIMEOUT_MARGIN;
    let mut statements = vec![
        "SET plan_cache_mode = force_generic_plan".to_owned(),
        "SET jit = off".to_owned(),
        "SET enable_seqscan = off".to_owned(),
        format!("SET statement_timeout = {}", timeout.as_millis()),
    ];
    // Only the statements of these tables join the relation with the keys.
    if settings.writable || settings.key.len() > 1 {
        statements.push("SET enable_hashjoin = off".to_owned());
        statements.push("SET enable_mergejoin = off".to_owned());
    }
    statements
}

async fn set(
    client: &Client,
    settings: &Settings,
    statement: &str,
) -> Result<(), tokio_postgres::Error> {
    match client.batch_execute(statement).await {
        Err(error) if failure::classify(&error) != Class::Lost => {
            let warning = format!("the server refuses `{statement}`: {}", describe(&error));
            if settings.logged_warnings.is_new(&warning) {
                log::warn!("table {}: {warning}", settings.name);
            }
            Ok(())
        }
        outcome => outcome,
    }
}
