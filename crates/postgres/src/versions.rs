//! Versions of the relation: what the checks of it have found, and when it has changed.
//!
//! ```text
//!  a session is opened ---------+
//!  a statement does not fit ----+--> one check at a time --> version n: fits, or refused
//!  a while with requests passed +                                  |
//!                         each session prepares its statements <---+ when it is used next
//! ```
//!
//! * A check reads the system catalogue and locks nothing, unless something has changed; then it
//!   explains the plan, too. All sessions share its result: a change costs one check, and on each
//!   session the preparation of its statements, but no connection.
//! * Every [`RELATION_CHECK_INTERVAL`](crate::limits::RELATION_CHECK_INTERVAL) with requests, and
//!   for as long as the relation is refused, the watcher makes a check: a lost index fails no
//!   statement, and a table that fits again is served again by itself.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Client;

use crate::{
    Error, Settings, limits,
    pool::Pool,
    schema::Schema,
    session::{Context, PgSession},
};

/// Result of the last check that had one.
#[derive(Clone, Debug, Default)]
pub(crate) enum Verdict {
    /// No check has had a result yet.
    #[default]
    Unknown,
    /// The relation can be served.
    Fits(Arc<Schema>),
    /// The relation cannot be served, for this reason.
    Refused(Error),
}

/// State of the relation, with a number that grows with every change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) verdict: Verdict,
}

/// The current version, and the schema by which keys are parsed.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    current: Mutex<Version>,
    /// Schema of the last version that fitted; kept while the relation is refused, so that keys can
    /// be parsed and a change can be named.
    schema: RwLock<Option<Arc<Schema>>>,
    /// Start of the last check that had a result; held during a check.
    checked: tokio::sync::Mutex<Option<Instant>>,
}

impl Versions {
    pub(crate) fn current(&self) -> Version {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns why the relation cannot be served now, if it cannot.
    pub(crate) fn refusal(&self) -> Option<Error> {
        match self.current().verdict {
            Verdict::Refused(error) => Some(error),
            Verdict::Unknown | Verdict::Fits(_) => None,
        }
    }

    /// Passes the schema to `look`; `None` when the relation has never fitted.
    pub(crate) fn with_schema<T>(&self, look: impl FnOnce(&Arc<Schema>) -> T) -> Option<T> {
        self.schema.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(look)
    }

    /// Publishes what a check has found; a new version only if that is new.
    fn publish(&self, verdict: Verdict, settings: &Settings) -> Version {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let again = match (&current.verdict, &verdict) {
            (Verdict::Fits(old), Verdict::Fits(new)) => Arc::ptr_eq(old, new),
            (Verdict::Refused(old), Verdict::Refused(new)) => old == new,
            _ => false,
        };
        if again {
            return current.clone();
        }
        let table = &settings.name;
        match (&current.verdict, &verdict) {
            (_, Verdict::Refused(error)) => {
                log::warn!("table {table}: {error}; requests are refused until that is repaired");
            }
            (Verdict::Refused(_), _) => log::info!("table {table}: its relation fits again"),
            (Verdict::Fits(_), _) => log::info!("table {table}: its relation has changed"),
            (Verdict::Unknown, _) => {}
        }
        if let Verdict::Fits(schema) = &verdict {
            *self.schema.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(schema));
        }
        *current = Version { number: current.number + 1, verdict };
        current.clone()
    }
}

/// Checks the relation, unless a check that began after `since` has had a result. An error means
/// that there is no result, and changes nothing.
pub(crate) async fn check(
    client: &Client,
    settings: &Settings,
    context: &Context,
    since: Instant,
) -> Result<Version, Error> {
    let versions = &context.versions;
    let limit = limits::answer_limit(settings.timeout);
    let lock = timeout(limit, versions.checked.lock());
    let mut checked = lock.await.map_err(|_| Error::TooLate)?;
    if checked.is_some_and(|began| since <= began) {
        return Ok(versions.current());
    }
    let began = Instant::now();
    let found = timeout(limit, look(client, settings, context));
    let verdict = found.await.map_err(|_| Error::TooLate)??;
    *checked = Some(began);
    Ok(versions.publish(verdict, settings))
}

/// Looks at the relation. Its queries see it at different times, so that a change in between looks
/// like a relation that does not fit: only what two looks agree on is refused.
async fn look(client: &Client, settings: &Settings, context: &Context) -> Result<Verdict, Error> {
    let mut last = None;
    for _ in 0..limits::RELATION_LOOKS_MAX {
        let error = match look_once(client, settings, context).await {
            Ok(schema) => return Ok(Verdict::Fits(schema)),
            Err(error @ (Error::Schema(_) | Error::Statement { .. })) => error,
            Err(error) => return Err(error),
        };
        if matches!(error, Error::Schema(_)) && last.as_ref() == Some(&error) {
            return Ok(Verdict::Refused(error));
        }
        last = Some(error);
    }
    Err(last.unwrap_or(Error::TooLate))
}

async fn look_once(
    client: &Client,
    settings: &Settings,
    context: &Context,
) -> Result<Arc<Schema>, Error> {
    let before = context.versions.with_schema(Arc::clone);
    let columns = context.columns().map(|names| &names[..]);
    let schema = Schema::check(client, settings, columns, before.as_ref()).await?;
    context.fix_columns(&schema);
    Ok(schema)
}

/// Makes a check now and then: while there are requests, and while the relation does not fit.
pub(crate) async fn watch(
    pool: Arc<Pool<PgSession>>,
    settings: Arc<Settings>,
    context: Arc<Context>,
) {
    let mut statements_checked = 0;
    loop {
        sleep(settings.relation_check_interval).await;
        let statements = context.counters.statements.get();
        let fits = matches!(context.versions.current().verdict, Verdict::Fits(_));
        if fits && statements == statements_checked {
            continue;
        }
        let lease = match pool.acquire().await {
            Ok(lease) => lease,
            Err(Error::Closed) => return,
            // The pool logs why, and its next session makes a check itself.
            Err(_) => continue,
        };
        match check(&lease.client, &settings, &context, Instant::now()).await {
            Ok(_) => statements_checked = statements,
            Err(error) => log::debug!("table {}: not checked: {error}", settings.name),
        }
    }
}
