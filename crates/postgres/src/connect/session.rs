//! The settings of a session.
//!
//! * `plan_cache_mode = force_generic_plan`: the planner's estimate for an array has ten elements, so that it would
//!   plan small batches anew each time, and read the whole table for large ones.
//! * `jit = off`: a statement with many keys looks expensive enough to compile, and is not.
//! * `statement_timeout`: a statement nobody waits for any more ends.
//!
//! A server or a pooler that refuses one is served all the same, after one warning. Behind a pooler that shares
//! connections between transactions, settings reach whoever comes next: there they belong to the role
//! (`ALTER ROLE app SET plan_cache_mode = force_generic_plan`).

use tokio_postgres::Client;

use crate::{Settings, cause::describe, limits::STATEMENT_TIMEOUT_MARGIN};

/// Sets the session up in one round trip.
pub(super) async fn set_up(client: &Client, settings: &Settings) -> Result<(), tokio_postgres::Error> {
    let [plans, jit, timeout] = statements(settings);
    let (plans, jit, timeout) = tokio::join!(
        set(client, settings, &plans),
        set(client, settings, &jit),
        set(client, settings, &timeout)
    );
    plans.and(jit).and(timeout)
}

fn statements(settings: &Settings) -> [String; 3] {
    let timeout = settings.timeout + STATEMENT_TIMEOUT_MARGIN;
    [
        "SET plan_cache_mode = force_generic_plan".to_owned(),
        "SET jit = off".to_owned(),
        format!("SET statement_timeout = {}", timeout.as_millis()),
    ]
}

async fn set(client: &Client, settings: &Settings, statement: &str) -> Result<(), tokio_postgres::Error> {
    match client.batch_execute(statement).await {
        Err(error) if error.as_db_error().is_some() && !client.is_closed() => {
            let warning = format!("the server refuses `{statement}`: {}", describe(&error));
            if settings.told.is_new(&warning) {
                log::warn!("table {}: {warning}", settings.name);
            }
            Ok(())
        }
        outcome => outcome,
    }
}
