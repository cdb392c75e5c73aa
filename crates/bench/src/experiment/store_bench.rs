//! Setup that the experiments on stores of chunks share: an object store some milliseconds away,
//! and busload servers whose tables are over it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use busload_bucket::Bucket;
use busload_chunks::ChunkAddress;
use busload_proto::v1::{HasChunksRequest, chunks_client::ChunksClient};
use clap::Args;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};

use crate::{
    cleanup::{Cleanup, Directory, directories},
    clock::{duration_ns, now_ns},
    limits::{CHUNK_BATCH_MAX, CHUNK_FILL, CHUNK_POLL, GRPC_WINDOW_BYTES},
    machine,
    remote::{Distance, Remote},
    server::{Served, Server, Starter, Table, busload_at},
};

/// Prefix of the store that an experiment reads.
pub const PREFIX: &str = "store";

/// Arguments about the object store, the server and the machine.
#[derive(Debug, Args)]
pub struct StoreArguments {
    /// The object store
    #[command(flatten)]
    pub distance: Distance,
    /// Directory for CSV files
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Directory for stores and caches [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// busload and the machine
    #[command(flatten)]
    pub served: Served,
}

/// The object store and what servers are started with.
pub struct StoreBench<'a> {
    pub arguments: &'a StoreArguments,
    pub remote: Remote,
    pub runtime: Runtime,
    pub cleanup: Cleanup,
    pub starter: Starter,
    /// Parent of everything: it goes last.
    directory: Directory,
}

impl<'a> StoreBench<'a> {
    /// Starts the object store. The load's thread is bound later: threads of the object store run
    /// anywhere.
    pub fn start(arguments: &'a StoreArguments, seed: u64) -> Result<Self> {
        let busload = busload_at(arguments.served.binary.busload.as_deref())?;
        let cleanup = Cleanup::install()?;
        let directory = directories(&cleanup, &arguments.out, arguments.dir.as_deref())?;
        let remote = Remote::start(directory.path(), arguments.distance, seed)?;
        let starter = arguments.served.starter(busload, directory.path().to_owned())?;
        let runtime = Builder::new_current_thread().enable_all().build().context("a runtime")?;
        Ok(Self { arguments, remote, runtime, cleanup, starter, directory })
    }

    /// Returns the directory of the store with this prefix.
    pub fn directory(&self, prefix: &str) -> PathBuf {
        self.directory.path().join(Bucket::NAME).join(prefix)
    }

    /// Describes the run in one line and prints it.
    pub fn about(&self, store: String) -> Result<String> {
        let processors = self.arguments.served.processors.text();
        let parts = [store, self.arguments.distance.text(), processors];
        let about = machine::about(&[Path::new(&self.starter.busload)], parts)?;
        println!("{about}");
        Ok(about)
    }

    /// Makes a table over a store at `url`; further options of the command line come last.
    pub fn table(&self, name: &'static str, url: &str, options: &str) -> Table {
        Table::of_chunks(name, url, &self.arguments.served.options(options))
    }

    /// Starts a server with an empty cache and waits until this chunk of its tables is known.
    pub fn serve(&self, tables: &[Table], known: &ChunkAddress) -> Result<Server> {
        self.serve_in(self.cleanup.directory(&self.starter.directory)?, tables, known)
    }

    /// Starts a server with the cache of another.
    pub fn serve_in(
        &self,
        data: Directory,
        tables: &[Table],
        known: &ChunkAddress,
    ) -> Result<Server> {
        let server = self.starter.start_in(&self.cleanup, data, tables)?;
        for table in tables {
            server.wait_for(&format!("EXISTS {}:{known}", table.name), ":1")?;
        }
        Ok(server)
    }
}

/// Makes a connection to the gRPC of a server, opened by the first call.
pub fn channel(http: SocketAddr) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{http}")).context("an address")?;
    let endpoint = endpoint
        .tcp_nodelay(true)
        .initial_stream_window_size(GRPC_WINDOW_BYTES)
        .initial_connection_window_size(GRPC_WINDOW_BYTES * 4);
    Ok(endpoint.connect_lazy())
}

/// Waits until chunks of a table are on the server's disk; their addresses come one after the
/// other. Fills give no event, so it asks again and again.
pub async fn wait_local(http: SocketAddr, table: &str, addresses: &[u8]) -> Result<()> {
    let mut client = ChunksClient::new(channel(http)?);
    let until_ns = now_ns() + duration_ns(CHUNK_FILL);
    loop {
        let mut absent = 0;
        for addresses in addresses.chunks(CHUNK_BATCH_MAX * ChunkAddress::BYTES) {
            let (store, addresses) = (table.to_owned(), addresses.to_vec().into());
            let request = HasChunksRequest { store, addresses, only_if_local: true };
            let answer = client.has_chunks(request).await.context("HasChunks")?;
            absent += answer.into_inner().absent.len();
        }
        match absent {
            0 => return Ok(()),
            _ if now_ns() < until_ns => tokio::time::sleep(CHUNK_POLL).await,
            count => bail!("{count} chunks are not on local disk after {CHUNK_FILL:?}"),
        }
    }
}
