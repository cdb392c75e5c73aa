//! Callers that ask for chunks, each with one request in flight. They check the size and the number
//! of the chunks they get; the server checks the rest.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use busload_chunks::{ChunkAddress, Stored};
use busload_proto::{
    codec::ExactCodec,
    v1::{self, FoundChunk, GetChunkRequest, GetChunksRequest, chunks_client::ChunksClient},
};
use busload_resp::reply::{Reply, ReplyCounter};
use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig, aws::AmazonS3Builder, path::Path};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::{
    Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};

use super::chain::{ChainStore, number_in};
use crate::{
    failures::Failure,
    limits::{GRPC_MESSAGE_BYTES_MAX, GRPC_WINDOW_BYTES},
    store::{Chunk, index},
};

/// Forms in which chunks are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    Decoded,
    Stored,
}

/// A caller that has one request under way.
#[derive(Debug)]
pub enum Caller {
    /// Ranged reads of the object store, every file's index known.
    Direct(Arc<dyn ObjectStore>),
    /// Calls with one chunk each.
    GetChunk(Table),
    /// Calls with many chunks each.
    GetChunks(Table),
    /// Commands with one chunk each, and the bytes of the last reply.
    Resp { socket: TcpStream, table: String, form: Form, buffer: Vec<u8> },
    /// Calls that do nothing.
    Check(Grpc<Channel>),
}

/// A table as a gRPC caller reaches it.
#[derive(Clone, Debug)]
pub struct Table {
    client: ChunksClient<Channel>,
    name: String,
    form: Form,
}

impl Table {
    pub fn new(channel: Channel, name: &str, form: Form) -> Self {
        let client = ChunksClient::new(channel).max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX);
        Self { client, name: name.to_owned(), form }
    }

    fn form(&self) -> i32 {
        match self.form {
            Form::Decoded => v1::Form::Contents.into(),
            Form::Stored => v1::Form::Stored.into(),
        }
    }
}

/// Opens connections that gRPC callers share.
pub async fn channels(address: SocketAddr, count: usize) -> Result<Vec<Channel>> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).context("an address")?;
    let endpoint = endpoint
        .tcp_nodelay(true)
        .initial_stream_window_size(GRPC_WINDOW_BYTES)
        .initial_connection_window_size(GRPC_WINDOW_BYTES * 4);
    let mut channels = Vec::with_capacity(count);
    for _ in 0..count {
        let connected = endpoint.connect().await;
        channels.push(connected.with_context(|| format!("no gRPC at {address}"))?);
    }
    Ok(channels)
}

/// Makes a client of the object store in which the table files are at `prefix` in a bucket.
pub fn s3(address: SocketAddr, bucket: &str, prefix: &str) -> Result<Arc<dyn ObjectStore>> {
    // The client takes the TLS of the process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let s3 = AmazonS3Builder::new()
        .with_endpoint(format!("http://{address}"))
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name(bucket)
        .with_virtual_hosted_style_request(false)
        .with_skip_signature(true)
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .build()
        .context("a client of the object store")?;
    Ok(Arc::new(object_store::prefix::PrefixStore::new(s3, prefix)))
}

/// Appends a `GET` of a chunk.
pub fn get_request(out: &mut Vec<u8>, table: &str, address: &ChunkAddress) {
    let key = format!("{table}:{address}");
    out.extend_from_slice(format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).as_bytes());
}

impl Caller {
    /// Connects over RESP. What a table's contents are is its own business; `form` says what to
    /// expect.
    pub async fn resp(address: SocketAddr, table: &str, form: Form) -> Result<Self> {
        let socket = TcpStream::connect(address).await;
        let socket = socket.with_context(|| format!("no RESP at {address}"))?;
        socket.set_nodelay(true).context("a socket's option")?;
        Ok(Self::Resp { socket, table: table.to_owned(), form, buffer: Vec::new() })
    }

    /// Sends one request and waits for its answer.
    pub async fn ask(&mut self, chain: &ChainStore, numbers: &[u32]) -> Result<(), Failure> {
        let number = numbers[0];
        let chunk = chain.store.chunk(number);
        match self {
            Self::Direct(s3) => {
                let span = chunk.location.span;
                let range = span.offset..span.offset + u64::from(span.length);
                let path = Path::from(chain.store.file_of(chunk).name.as_str());
                let bytes = s3.get_range(&path, range).await;
                let bytes = bytes.map_err(|error| Failure::Refused(error.to_string()))?;
                let contents =
                    Stored::parse(bytes, &chunk.location).and_then(|stored| stored.decode(None));
                let contents = contents.map_err(|error| Failure::Wrong(error.to_string()))?;
                verify(number, chunk, Form::Decoded, &contents)
            }
            Self::GetChunk(table) => {
                let request = GetChunkRequest {
                    store: table.name.clone(),
                    address: Bytes::copy_from_slice(&chunk.address.0),
                    only_if_local: false,
                    form: table.form(),
                };
                let answer = table.client.get_chunk(request).await;
                let answer = answer.map_err(|status| refused(&status))?.into_inner();
                if !answer.found {
                    return Err(Failure::Wrong(format!("{} is not found", chunk.address)));
                }
                verify(number, chunk, table.form, &answer.contents)
            }
            Self::GetChunks(table) => get_chunks(table, chain, numbers).await,
            Self::Resp { socket, table, form, buffer } => {
                let contents = get(socket, table, chunk, buffer).await?;
                // A record over RESP ends with its CRC, which gRPC leaves out.
                let crc_bytes = if *form == Form::Stored { 4 } else { 0 };
                let without_crc = contents.len().saturating_sub(crc_bytes);
                verify(number, chunk, *form, &contents[..without_crc])
            }
            Self::Check(client) => {
                client.ready().await.map_err(|error| Failure::Refused(error.to_string()))?;
                let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
                let answer =
                    client.unary(Request::new(()), path, ExactCodec::<(), ()>::default()).await;
                answer.map(drop).map_err(|status| refused(&status))
            }
        }
    }
}

/// Asks for many chunks in one call and looks at all results.
async fn get_chunks(table: &mut Table, chain: &ChainStore, numbers: &[u32]) -> Result<(), Failure> {
    let request = GetChunksRequest {
        store: table.name.clone(),
        addresses: chain.addresses(numbers.iter().copied()).into(),
        only_if_local: false,
        form: table.form(),
    };
    let answer = table.client.get_chunks(request).await;
    let mut stream = answer.map_err(|status| refused(&status))?.into_inner();
    let mut seen = 0;
    while let Some(message) = stream.message().await.map_err(|status| refused(&status))? {
        if let Some(failed) = message.failed.into_iter().next() {
            return Err(Failure::Refused(failed.message));
        }
        let absent = message.missing.len() + message.not_local.len();
        if 0 < absent {
            return Err(Failure::Wrong(format!("{absent} chunks are not found")));
        }
        seen += message.chunks.len();
        for FoundChunk { index: position, contents, .. } in message.chunks {
            let Some(number) = numbers.get(index(position)) else {
                return Err(Failure::Wrong("a result for no address".to_owned()));
            };
            verify(*number, chain.store.chunk(*number), table.form, &contents)?;
        }
    }
    if seen == numbers.len() {
        return Ok(());
    }
    Err(Failure::Wrong(format!("{seen} results for {} addresses", numbers.len())))
}

/// Sends a `GET` and returns the bulk string that the reply is.
async fn get(
    socket: &mut TcpStream,
    table: &str,
    chunk: &Chunk,
    buffer: &mut Vec<u8>,
) -> Result<Vec<u8>, Failure> {
    let broken = |error: std::io::Error| Failure::Refused(format!("connection: {error}"));
    buffer.clear();
    get_request(buffer, table, &chunk.address);
    socket.write_all(buffer).await.map_err(broken)?;
    buffer.clear();
    let mut replies = ReplyCounter::default();
    loop {
        let from = buffer.len();
        if socket.read_buf(buffer).await.map_err(broken)? == 0 {
            return Err(Failure::Refused("the server closed a connection".to_owned()));
        }
        let whole = replies.feed(&buffer[from..]);
        if 0 < whole.map_err(|error| Failure::Wrong(error.to_string()))? {
            break;
        }
    }
    match Reply::parse(buffer) {
        Ok(Some((Reply::Bulk(contents), _))) => Ok(contents),
        Ok(Some((Reply::Error(text), _))) => {
            Err(Failure::Refused(String::from_utf8_lossy(&text).into_owned()))
        }
        reply => Err(Failure::Wrong(format!("{reply:?}").chars().take(60).collect())),
    }
}

fn refused(status: &Status) -> Failure {
    Failure::Refused(format!("{:?}: {}", status.code(), status.message()))
}

/// Looks at contents, or at the size of a snappy block: that of the record without its CRC.
fn verify(number: u32, chunk: &Chunk, form: Form, bytes: &[u8]) -> Result<(), Failure> {
    let is_right = match form {
        Form::Decoded => {
            bytes.len() == index(chunk.contents_bytes)
                && number_in(bytes) == Some(u64::from(number))
        }
        Form::Stored => bytes.len() + 4 == index(chunk.location.span.length),
    };
    if is_right {
        return Ok(());
    }
    let (length, address) = (bytes.len(), chunk.address);
    Err(Failure::Wrong(format!("{length} bytes that are not chunk {address}, {form:?}")))
}
