//! `busload chunks ls|cat|verify`: reads a store without serving it and without a cache on disk.

use std::{
    io::{self, BufWriter, Write},
    time::Duration,
};

use busload_dolt::{Chunk, ChunkAddress, DynamoTables, Form, Request, Requester, Snapshot, Store};
use busload_io::{Clock, RealClock};
use busload_objects::Progress;
use tokio::runtime::Runtime;

use super::{arguments::ChunksCommand, progress::Meter};
use crate::{
    chunk_stores,
    config::{ChunksSettings, Size},
    failure::Failure,
    logger::{self, LogFormat, LogLevels},
};

/// Executes a command of `busload chunks`.
pub fn run(command: &ChunksCommand) -> Result<(), Failure> {
    logger::init(&LogLevels::WARNINGS, LogFormat::Text);
    match command {
        ChunksCommand::Ls(arguments) => ls(&Opened::open(&arguments.store.url)?, arguments.chunks),
        ChunksCommand::Cat(arguments) => {
            let address = parse_address(&arguments.address)?;
            cat(&Opened::open(&arguments.store.url)?, address)
        }
        ChunksCommand::Verify(arguments) => verify(&Opened::open(&arguments.url)?),
    }
}

/// An open store and its runtime.
struct Opened {
    store: Store,
    runtime: Option<Runtime>,
    timeout: Duration,
}

impl Opened {
    fn open(url: &str) -> Result<Self, Failure> {
        let settings = ChunksSettings::of_store_alone(url)?;
        let runtime = chunk_stores::runtime()?;
        let checked = settings.check_url(runtime.handle().clone());
        checked.map_err(|error| Failure::usage(format!("the URL of the store: {error}")))?;
        let store =
            Store::start(settings.of_store(runtime.handle().clone(), DynamoTables::default()));
        let store = store.map_err(|error| Failure::run(error.to_string()))?;
        runtime.block_on(store.opened()).map_err(|error| Failure::run(error.to_string()))?;
        if !store.snapshot().is_some_and(|snapshot| snapshot.has_manifest) {
            return Err(Failure::run(format!("{url}: {}", chunk_stores::NO_MANIFEST)));
        }
        Ok(Self { store, runtime: Some(runtime), timeout: settings.timeout })
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until this is dropped")
    }

    fn snapshot(&self) -> Result<std::sync::Arc<Snapshot>, Failure> {
        self.store.snapshot().ok_or_else(|| Failure::run("the store is not open any more"))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A DNS lookup may be stuck in the system, so do not wait for it.
            runtime.shutdown_background();
        }
    }
}

fn ls(opened: &Opened, all: bool) -> Result<(), Failure> {
    let snapshot = opened.snapshot()?;
    let mut out = BufWriter::new(io::stdout());
    // A closed standard output is no failure.
    let _ = list(&snapshot, all, &mut out).and_then(|()| out.flush());
    Ok(())
}

fn list(snapshot: &Snapshot, all: bool, out: &mut impl Write) -> io::Result<()> {
    let manifest = &snapshot.manifest;
    let counts = manifest.lookup_order().map(|file| u64::from(file.chunk_count));
    writeln!(out, "root {}", manifest.root)?;
    writeln!(out, "files {}, chunks {}", snapshot.files.len(), counts.sum::<u64>())?;
    for file in &snapshot.files {
        let meta = file.object.meta();
        writeln!(
            out,
            "file {}  {} chunks  {}",
            meta.name,
            file.index.chunk_count(),
            Size(meta.size)
        )?;
        if all {
            let addresses =
                (0..file.index.chunk_count()).map(|position| file.index.address(position));
            for address in addresses {
                writeln!(out, "{address}")?;
            }
        }
    }
    Ok(())
}

fn parse_address(text: &str) -> Result<ChunkAddress, Failure> {
    text.parse()
        .map_err(|error| Failure::usage(format!("`{text}` is no address of a chunk; {error}")))
}

fn cat(opened: &Opened, address: ChunkAddress) -> Result<(), Failure> {
    let chunk = opened.runtime().block_on(opened.store.get(address, opened.request()));
    let chunk = chunk.map_err(|error| Failure::run(error.to_string()))?;
    let Some(Chunk::Contents(contents) | Chunk::Snappy(contents) | Chunk::Zstd(contents, _)) =
        chunk
    else {
        return Err(Failure::run(format!("the store has no chunk {address}")));
    };
    let mut out = io::stdout();
    // A closed standard output is no failure.
    let _ = out.write_all(&contents).and_then(|()| out.flush());
    Ok(())
}

impl Opened {
    fn request(&self) -> Request {
        Request {
            form: Form::Contents,
            local_only: false,
            requester: Requester::Client,
            deadline: self.deadline(),
        }
    }

    #[allow(clippy::disallowed_methods, reason = "this is the edge")]
    fn deadline(&self) -> std::time::Instant {
        std::time::Instant::now() + self.timeout
    }
}

fn verify(opened: &Opened) -> Result<(), Failure> {
    let mut meter = Meter::new("verify");
    let mut wrong = 0_u64;
    let mut report = |progress: Progress, found: Option<(ChunkAddress, busload_dolt::Error)>| {
        if let Some((address, error)) = found {
            wrong += 1;
            // A closed standard output is no failure.
            let _ = writeln!(io::stdout(), "{address}  {error}");
        }
        meter.show(progress);
    };
    let clock = RealClock::new();
    let verified = opened.runtime().block_on(opened.store.verify(&mut report));
    let progress = match verified {
        Ok(progress) => progress,
        Err(error) => {
            meter.clear();
            return Err(Failure::run(error.to_string()));
        }
    };
    meter.finish(progress);
    let snapshot = opened.snapshot()?;
    let chunks: u64 = snapshot.files.iter().map(|file| u64::from(file.index.chunk_count())).sum();
    if wrong != 0 {
        return Err(Failure::run(format!(
            "{wrong} of {chunks} chunks are not what their addresses say"
        )));
    }
    let seconds = clock.now().as_secs_f64();
    let files = snapshot.files.len();
    let _ = writeln!(
        io::stdout(),
        "sound: {chunks} chunks in {files} files, {} in {seconds:.1} s",
        Size(progress.done)
    );
    Ok(())
}
