//! Random reads of a whole file from an empty cache: what the object store was asked for.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail};

use crate::{
    busload::Server,
    experiment::chunks::{
        cases::Section,
        clients::{Caller, Channels, Form, GetChunk},
        harness::{Harness, TABLE},
        load::{self, Picks, Plan},
        measurements::Measurements,
    },
    limits::CHUNK_LIST,
    random::Random,
    sample::{Answering, Sample},
    stats::{float, mebibytes, ratio},
    targets::Unit,
};

/// Callers that read it.
const CALLERS: usize = 16;

pub const BYTES_OF_FILE: &str = "bytes from the store by those of the file";
/// Foreground ranges asked for again.
pub const REPEATED: &str = "foreground reads of the very same range";

/// Measures it, `--rounds` times.
pub fn run(harness: &Harness<'_>, measurements: &mut Measurements) -> Result<()> {
    for round in 1..=harness.arguments.rounds {
        // Reads of indexes, which are not counted, are bytes of all files.
        let server = harness.cold_server("fill=whole")?;
        let sample = read_file(harness, &server, u64::try_from(round).unwrap_or(0))?;
        if let Some(example) = sample.failed.example() {
            bail!("a chunk of a cold file could not be had: {example}");
        }
        harness.wait_file(&server, TABLE, 0)?;
        let traffic = harness.traffic();
        server.stop()?;
        println!("cold, round {round}: {}", traffic.text());
        let file_bytes = float(harness.store.files[0].bytes);
        let mut add = |name: &str, unit, value| measurements.add(Section::Cold, name, unit, value);
        add("seconds until every chunk was read", Unit::Seconds, sample.seconds)?;
        add("chunks per second", Unit::Count, sample.per_s.round())?;
        add("median time of a read in ms", Unit::Count, sample.p50_us / 1e3)?;
        add("foreground reads", Unit::Count, float(traffic.foreground.requests))?;
        add(REPEATED, Unit::Count, float(traffic.repeated))?;
        add("fills", Unit::Count, float(traffic.fills.requests))?;
        let foreground = mebibytes(float(traffic.foreground.bytes));
        add("bytes of foreground reads", Unit::Mebibytes, foreground)?;
        add("bytes of fills", Unit::Mebibytes, mebibytes(float(traffic.fills.bytes)))?;
        let bytes = traffic.foreground.bytes + traffic.fills.bytes;
        add(BYTES_OF_FILE, Unit::Times, ratio(float(bytes), file_bytes).unwrap_or_default())?;
    }
    measurements
        .print(Section::Cold, "Random reads of a whole file from an empty cache, 16 callers");
    Ok(())
}

fn read_file(harness: &Harness<'_>, server: &Server, round: u64) -> Result<Sample> {
    let mut numbers: Vec<u32> = harness.store.of_file(0).collect();
    Random::new(harness.arguments.seed ^ (round << 16)).shuffle(&mut numbers);
    let plan = Plan {
        picks: Picks::List(Arc::from(numbers)),
        batch: 1,
        warm_up: Duration::ZERO,
        seconds: CHUNK_LIST,
        answering: Answering::Process(server.pid()),
    };
    harness.runtime.block_on(async {
        let channels = Channels::connect(server.http(), harness.arguments.grpc_connections).await?;
        let caller =
            |index| Caller::GetChunk(GetChunk::new(&channels, index, TABLE, Form::Decoded));
        load::run(&harness.store, (0..CALLERS).map(caller).collect(), &plan).await
    })
}
