//! Chunks that are on the server's disk.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use busload_proto::v1::{HasChunksRequest, chunks_client::ChunksClient};
use tonic::transport::{Channel, Endpoint};

use crate::{
    clock::{duration_ns, now_ns},
    limits::{CHUNK_FILL, CHUNK_POLL},
};

/// Bytes of an address.
const ADDRESS_BYTES: usize = 20;

/// Addresses of one `HasChunks`.
const HAS_ADDRESSES: usize = 16_384;

/// Waits until chunks of a table are on local disk; their addresses come one after the other. Fills
/// give no event, so it asks again and again.
pub async fn wait_local(http: SocketAddr, table: &str, addresses: &[u8]) -> Result<()> {
    let endpoint = Endpoint::from_shared(format!("http://{http}")).context("an address")?;
    let channel = endpoint.connect().await.with_context(|| format!("no gRPC at {http}"))?;
    let mut client = ChunksClient::new(channel);
    let until_ns = now_ns() + duration_ns(CHUNK_FILL);
    loop {
        match absent(&mut client, table, addresses).await.context("HasChunks")? {
            0 => return Ok(()),
            _ if now_ns() < until_ns => tokio::time::sleep(CHUNK_POLL).await,
            count => bail!("{count} chunks are not on local disk after {CHUNK_FILL:?}"),
        }
    }
}

async fn absent(
    client: &mut ChunksClient<Channel>,
    table: &str,
    addresses: &[u8],
) -> Result<usize, tonic::Status> {
    let mut absent = 0;
    for addresses in addresses.chunks(HAS_ADDRESSES * ADDRESS_BYTES) {
        let addresses = addresses.to_vec().into();
        let request = HasChunksRequest { store: table.to_owned(), addresses, only_if_local: true };
        absent += client.has_chunks(request).await?.into_inner().absent.len();
    }
    Ok(absent)
}
