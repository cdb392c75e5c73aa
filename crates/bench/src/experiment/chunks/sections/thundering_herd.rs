//! Many callers that ask for one cold chunk at once.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail};

use crate::{
    experiment::chunks::{
        cases::Section,
        clients::{Caller, Channels, Form, GetChunk},
        harness::{Harness, TABLE},
        load::{self, Picks, Plan},
        measurements::Measurements,
    },
    limits::CHUNK_LIST,
    sample::Answering,
    stats::float,
    targets::Unit,
};

/// Connections they share, at least: a connection has a limit of calls under way.
const CONNECTIONS: usize = 4;

/// Name of a measurement: ranges of the file that somebody waited for.
pub const GETS: &str = "foreground reads";

/// Measures it, `--rounds` times.
pub fn run(harness: &Harness<'_>, measurements: &mut Measurements) -> Result<()> {
    let callers = harness.arguments.thundering_herd;
    let number = harness.store.apart[harness.store.apart.len() / 2];
    for round in 1..=harness.arguments.rounds {
        let server = harness.cold_server("fill=touched")?;
        let plan = Plan {
            picks: Picks::List(Arc::from(vec![number; callers])),
            batch: 1,
            warm_up: Duration::ZERO,
            seconds: CHUNK_LIST,
            answering: Answering::Process(server.pid()),
        };
        let sample = harness.runtime.block_on(async {
            let connections = harness.arguments.grpc_connections.max(CONNECTIONS);
            let channels = Channels::connect(server.http(), connections).await?;
            let caller =
                |index| Caller::GetChunk(GetChunk::new(&channels, index, TABLE, Form::Decoded));
            load::run(&harness.store, (0..callers).map(caller).collect(), &plan).await
        })?;
        if let Some(example) = sample.failed.example() {
            bail!("a chunk that many asked for could not be had: {example}");
        }
        let traffic = harness.traffic();
        server.stop()?;
        println!("thundering-herd, round {round}: {}", traffic.text());
        let mut add =
            |name: &str, unit, value| measurements.add(Section::ThunderingHerd, name, unit, value);
        add(GETS, Unit::Count, float(traffic.foreground.requests))?;
        add("fills of its extent", Unit::Count, float(traffic.fills.requests))?;
        add("median time until a caller had it in ms", Unit::Count, sample.p50_us / 1e3)?;
        add("99th percentile in ms", Unit::Count, sample.p99_us / 1e3)?;
    }
    measurements.print(Section::ThunderingHerd, &format!("{callers} callers, one cold chunk"));
    Ok(())
}
