//! Reads chunks through busload, with a store of one's own to fall back on.
//!
//! busload is asked for what it has on local disk. Whatever it does not have there, or cannot say,
//! is read from the object store directly, so that busload can be down, full or slow without
//! anybody's request failing. It fetches what it was asked for in the meantime, and has it the next
//! time.
//!
//! ```sh
//! cargo run --release -p busload --example get_chunk -- \
//!     http://127.0.0.1:6381 db file:///path/to/store ADDRESS...
//! ```

use std::{
    env,
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use busload_dolt::{
    Chunk, ChunkAddress, DynamoTables, Form, Occasion, Request, Requester, Settings, Store,
};
use busload_proto::v1::{GetChunkRequest, chunks_client::ChunksClient};
use bytes::Bytes;
use tokio::{runtime::Handle, sync::OnceCell, time::timeout};
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

/// Local disk answers within milliseconds; waiting longer than this is not worth it.
const TIMEOUT: Duration = Duration::from_millis(250);
/// The object store may take so long.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);
/// A chunk may be larger than the 4 MiB that clients expect.
const MESSAGE_BYTES_MAX: usize = 300 << 20;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [busload, table, url, addresses @ ..] = &arguments[..] else {
        eprintln!("usage: get_chunk http://ADDRESS TABLE STORE_URL ADDRESS...");
        return ExitCode::from(2);
    };
    match run(busload, table, url, addresses).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("get_chunk: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(busload: &str, table: &str, url: &str, addresses: &[String]) -> Result<(), Failure> {
    // Lazily: that nobody is there is no reason not to start.
    let channel =
        Endpoint::from_shared(busload.to_owned())?.connect_timeout(TIMEOUT).connect_lazy();
    let client = ChunksClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let own = OwnStore { url: url.to_owned(), store: OnceCell::new() };
    let mut chunks = Chunks { client, table: table.to_owned(), own };
    for address in addresses {
        match chunks.get(address.parse()?).await? {
            (Some(contents), source) => {
                eprintln!("{address}: {} bytes ({source})", contents.len());
                io::stdout().write_all(&contents)?;
            }
            (None, source) => eprintln!("{address}: there is no such chunk ({source})"),
        }
    }
    Ok(io::stdout().flush()?)
}

/// Chunks of one store, by address.
struct Chunks {
    client: ChunksClient<Channel>,
    table: String,
    own: OwnStore,
}

impl Chunks {
    /// The chunk, if the store holds it, and where that is known from.
    async fn get(&mut self, address: ChunkAddress) -> Result<(Option<Bytes>, String), Failure> {
        let request = GetChunkRequest {
            store: self.table.clone(),
            address: Bytes::copy_from_slice(&address.0),
            only_if_local: true,
            ..GetChunkRequest::default()
        };
        let answer = timeout(TIMEOUT, self.client.get_chunk(request)).await;
        let reason = match answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer"))) {
            Ok(answer) if answer.get_ref().not_local => "it is not on busload's disk".to_owned(),
            Ok(answer) => {
                let answer = answer.into_inner();
                return Ok((answer.found.then_some(answer.contents), "busload".into()));
            }
            Err(status) => format!("busload says {:?}", status.code()),
        };
        Ok((self.own.get(address).await?, format!("own store, since {reason}")))
    }
}

/// The store itself, opened when it is needed first, without a cache.
struct OwnStore {
    url: String,
    store: OnceCell<Store>,
}

impl OwnStore {
    async fn get(&self, address: ChunkAddress) -> Result<Option<Bytes>, Failure> {
        let store = self.store.get_or_try_init(async || self.open().await).await?;
        let deadline = (tokio::time::Instant::now() + STORE_TIMEOUT).into_std();
        let request = Request {
            form: Form::Contents,
            local_only: false,
            requester: Requester::Client,
            deadline,
        };
        match store.get(address, request).await? {
            Some(Chunk::Contents(contents)) => Ok(Some(contents)),
            Some(other) => Err(format!("expected contents, got {other:?}").into()),
            None => Ok(None),
        }
    }

    async fn open(&self) -> Result<Store, Failure> {
        let settings = Settings {
            name: "own".into(),
            url: self.url.clone(),
            directory: env::temp_dir(),
            disk_bytes_max: 0,
            disk_free_bytes_min: 0,
            fill_whole_max: 0,
            fill_bytes_max: 64 << 20,
            poll: Duration::from_secs(5),
            memory_bytes_max: 0,
            requests_max: 64,
            hedge: true,
            grace_period: Duration::from_secs(60),
            occasion: Occasion::Configured,
            peers: None,
            tables: DynamoTables::default(),
            environment: Arc::new(|name: &str| env::var(name).ok()),
            runtime: Handle::current(),
        };
        let store = Store::start(settings)?;
        store.opened().await?;
        Ok(store)
    }
}
