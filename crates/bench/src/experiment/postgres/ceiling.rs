//! The ceiling: what Postgres gives when statements with very many keys follow each other without a
//! pause, on one or two connections. No way of batching single-key reads can be faster than that on
//! this machine.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;
use tokio_postgres::{Client, Config, Statement};

use super::{
    plain::{check, connect, refused},
    rows::{Key, Sequence},
    tasks::{Plan, Tasks},
};
use crate::{
    clock::{Window, now_ns},
    counters::Counters,
    failures::Failure,
    limits::SILENCE,
};

/// Keys of one statement.
pub const KEYS: usize = 1_024;

/// Repeats such statements on `connections` connections. A statement counts as the rows it gave;
/// its time is that of the statement.
pub fn run(
    tasks: &Tasks,
    config: &Config,
    relation: &str,
    connections: usize,
    plan: &Plan,
) -> Result<Counters> {
    tasks.block_on(async {
        let mut loops = JoinSet::new();
        for index in 0..connections {
            let client = connect(config).await?;
            let sql = format!("SELECT pk, payload FROM {relation} WHERE pk = ANY($1)");
            let select = client.prepare(&sql).await.context("cannot prepare the statement")?;
            loops.spawn(repeat(
                Arc::new(client),
                select,
                plan.sequences.client(index),
                plan.window,
            ));
        }
        let left = Duration::from_nanos(plan.window.until_ns.saturating_sub(now_ns()));
        let mut total = Counters::new()?;
        while let Ok(Some(ended)) = tokio::time::timeout(left + SILENCE, loops.join_next()).await {
            total.merge(&ended.context("a loop of statements")??)?;
        }
        if !loops.is_empty() {
            bail!("a statement is still unanswered {SILENCE:?} after the end of the measurement");
        }
        Ok(total)
    })
}

async fn repeat(
    client: Arc<Client>,
    select: Statement,
    mut rows: Sequence,
    window: Window,
) -> Result<Counters> {
    let mut counters = Counters::new()?;
    while now_ns() < window.until_ns {
        // Sorted, as busload sends them: Postgres would sort them itself otherwise.
        let mut numbers: Vec<u64> = (0..KEYS).map(|_| rows.next()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let asked_ns = now_ns();
        match ask(&client, &select, &numbers).await {
            Ok(rows) => counters.answer(window, rows, asked_ns, now_ns()),
            Err(failure) => counters.failed.add(failure),
        }
    }
    Ok(counters)
}

async fn ask(client: &Client, select: &Statement, numbers: &[u64]) -> Result<u64, Failure> {
    let keys: Vec<Key> = numbers.iter().map(|number| Key::of(*number)).collect();
    let texts: Vec<&str> = keys.iter().map(Key::text).collect();
    let found = client.query(select, &[&texts]).await.map_err(refused)?;
    if found.len() != numbers.len() {
        return Err(Failure::Wrong(format!("{} rows for {} keys", found.len(), numbers.len())));
    }
    for row in &found {
        let key: &str = row.try_get(0).map_err(refused)?;
        let payload: &str = row.try_get(1).map_err(refused)?;
        // All keys were found and none twice, so each row only has to fit its own key.
        check(key.parse().unwrap_or(u64::MAX), Some(payload.as_bytes()))?;
    }
    u64::try_from(found.len())
        .map_err(|_| Failure::Wrong("more rows than can be counted".to_owned()))
}
