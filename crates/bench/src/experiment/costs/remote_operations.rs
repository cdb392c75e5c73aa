//! Operations that leave the machine, or would: statements to Postgres, and GETs of an object
//! store.

use anyhow::{Context, Result};
use busload_bucket::Bucket;
use busload_cluster::{Cluster, Profile};
use tokio::runtime::{Builder, Runtime};

use super::{Operation, Place, check, files::CHUNK_BYTES, ns_per_operation};
use crate::{
    experiment::postgres::{SESSION, config_of, connect},
    limits::{COSTS_FILE_BYTES, COSTS_ROWS},
    random::Random,
    remote::Remote,
};

/// Distance between two keys of a statement; it has no factor in common with the rows.
const STRIDE: i64 = 7_919;

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("a runtime")
}

/// An operation is a prepared statement for keys of a table, in a Postgres of its own.
pub fn statements(place: &Place<'_>) -> Result<Operation> {
    let cpus = &place.costs.kv.setup.processors.server_cpu;
    let start = || Ok(Cluster::builder().profile(Profile::Stock).start()?);
    let cluster = cpus.with(start).context("no Postgres can be started here")?;
    let (config, runtime) = (config_of(&cluster.url())?, runtime()?);
    let (client, statement) = runtime.block_on(async {
        let client = connect(&config).await?;
        let rows = format!(
            "CREATE TABLE costs AS SELECT n AS pk, md5(n::text) AS payload \
             FROM generate_series(0, {COSTS_ROWS} - 1) n; \
             ALTER TABLE costs ALTER pk TYPE bigint, ADD PRIMARY KEY (pk)"
        );
        client.batch_execute(&rows).await.context("making a table")?;
        client.batch_execute("VACUUM ANALYZE costs").await.context("making a table")?;
        client.batch_execute(SESSION).await.context("settings of a session")?;
        let select = "SELECT pk, payload FROM costs WHERE pk = ANY($1)";
        let statement = client.prepare(select).await.context("a statement")?;
        anyhow::Ok((client, statement))
    })?;
    let mut random = Random::new(1);
    Ok(Box::new(move |batch, time_ns| {
        // The server lives as long as the operations.
        let _ = &cluster;
        let count = i64::try_from(batch)?;
        ns_per_operation(time_ns, || {
            let first = i64::try_from(random.below(COSTS_ROWS))?;
            let rows = i64::try_from(COSTS_ROWS)?;
            let keys: Vec<_> = (0..count).map(|key| (first + key * STRIDE) % rows).collect();
            let rows = runtime.block_on(client.query(&statement, &[&keys])).context("a SELECT")?;
            check(rows.len(), batch)
        })
    }))
}

/// An operation is a ranged GET of chunks that follow each other.
pub fn gets(place: &Place<'_>) -> Result<Operation> {
    let objects = place.directory.join(Bucket::NAME).join("costs");
    std::fs::create_dir_all(&objects).context("a directory for objects")?;
    let object = std::fs::File::create(objects.join("object")).context("an object")?;
    object.set_len(COSTS_FILE_BYTES).context("an object")?;
    let cpus = &place.costs.kv.setup.processors.server_cpu;
    let remote = cpus.with(|| Remote::start(place.directory, place.costs.distance, 1))?;
    // The client takes the TLS of the process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (http, runtime) = (reqwest::Client::builder().no_proxy().build()?, runtime()?);
    let mut random = Random::new(1);
    Ok(Box::new(move |batch, time_ns| {
        let url = format!("http://{}/{}/costs/object", remote.address(), Bucket::NAME);
        let bytes = CHUNK_BYTES * u64::try_from(batch)?;
        ns_per_operation(time_ns, || {
            let from = random.below((COSTS_FILE_BYTES - bytes) / CHUNK_BYTES + 1) * CHUNK_BYTES;
            let range = format!("bytes={from}-{}", from + bytes - 1);
            let got = runtime.block_on(async {
                let response = http.get(&url).header("range", range).send().await?;
                response.error_for_status()?.bytes().await
            });
            check(got.context("a GET")?.len(), usize::try_from(bytes)?)
        })
    }))
}
