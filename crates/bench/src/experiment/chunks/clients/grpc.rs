//! Callers over gRPC. Messages stay bytes: generated code would copy and allocate for every chunk.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use bytes::{Buf, BufMut, Bytes};
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};

use super::{
    Form,
    message::{self, Outcome},
    verify, verify_stored,
};
use crate::{
    experiment::chunks::store::Store,
    failures::Failure,
    limits::{GRPC_MESSAGE_BYTES_MAX, GRPC_WINDOW_BYTES},
};

const GET_CHUNK: &str = "/busload.v1.Chunks/GetChunk";
const GET_CHUNKS: &str = "/busload.v1.Chunks/GetChunks";
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// Connections that callers share.
#[derive(Clone, Debug)]
pub struct Channels {
    channels: Vec<Channel>,
}

impl Channels {
    pub async fn connect(address: SocketAddr, count: usize) -> Result<Self> {
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
        Ok(Self { channels })
    }

    /// A client for one caller.
    fn client(&self, caller: usize) -> Grpc<Channel> {
        let channel = self.channels[caller % self.channels.len()].clone();
        Grpc::new(channel).max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX)
    }
}

fn refused(status: &Status) -> Failure {
    Failure::Refused(format!("{:?}: {}", status.code(), status.message()))
}

/// Asks for single chunks.
#[derive(Clone, Debug)]
pub struct GetChunk {
    client: Grpc<Channel>,
    table: String,
    form: Form,
}

impl GetChunk {
    /// Makes one of several callers.
    pub fn new(channels: &Channels, caller: usize, table: &str, form: Form) -> Self {
        Self { client: channels.client(caller), table: table.to_owned(), form }
    }

    /// Asks for one chunk; its contents.
    pub async fn ask(&mut self, store: &Store, number: u32) -> Result<Bytes, Failure> {
        let entry = store.entry(number);
        let request = message::request(&self.table, &entry.address.0, self.form);
        let response = unary(&mut self.client, GET_CHUNK, request).await?;
        match message::chunk(&response) {
            Ok(Some(bytes)) if self.form == Form::Stored => {
                verify_stored(entry, bytes.len())?;
                Ok(Bytes::new())
            }
            Ok(Some(contents)) => verify(number, entry, &contents).map(|()| contents),
            Ok(None) => Err(Failure::Wrong(format!("{} is not found", entry.address))),
            Err(message::Malformed) => {
                Err(Failure::Wrong("what is no GetChunkResponse".to_owned()))
            }
        }
    }
}

/// Asks for many chunks.
#[derive(Clone, Debug)]
pub struct GetChunks {
    client: Grpc<Channel>,
    table: String,
    form: Form,
}

impl GetChunks {
    /// Makes one of several callers.
    pub fn new(channels: &Channels, caller: usize, table: &str, form: Form) -> Self {
        Self { client: channels.client(caller), table: table.to_owned(), form }
    }

    /// Asks for these chunks; all results are looked at.
    pub async fn ask(&mut self, store: &Store, numbers: &[u32]) -> Result<(), Failure> {
        self.client.ready().await.map_err(|error| Failure::Refused(error.to_string()))?;
        let request = message::request(&self.table, &store.addresses(numbers), self.form);
        let path = PathAndQuery::from_static(GET_CHUNKS);
        let answer = self.client.server_streaming(Request::new(request), path, Raw).await;
        let mut stream = answer.map_err(|status| refused(&status))?.into_inner();
        let mut seen = 0;
        while let Some(message) = stream.message().await.map_err(|status| refused(&status))? {
            seen += self.look_at(store, numbers, &message)?;
        }
        if seen == numbers.len() {
            return Ok(());
        }
        Err(Failure::Wrong(format!("{seen} results for {} addresses", numbers.len())))
    }

    fn look_at(&self, store: &Store, numbers: &[u32], message: &Bytes) -> Result<usize, Failure> {
        let mut outcome = Ok(0);
        let walked = message::for_each(message, |result| {
            let looked = self.look_at_one(store, numbers, result);
            outcome = match (&outcome, looked) {
                (Ok(count), Ok(())) => Ok(count + 1),
                (Ok(_), Err(failure)) => Err(failure),
                (Err(_), _) => return,
            };
        });
        match walked {
            Ok(()) => outcome,
            Err(message::Malformed) => {
                Err(Failure::Wrong("what is no GetChunksResponse".to_owned()))
            }
        }
    }

    fn look_at_one(
        &self,
        store: &Store,
        numbers: &[u32],
        result: Outcome<'_>,
    ) -> Result<(), Failure> {
        match result {
            Outcome::Found(position, bytes) => {
                let position = usize::try_from(position).ok();
                let Some(number) = position.and_then(|position| numbers.get(position)) else {
                    return Err(Failure::Wrong("a result for no address".to_owned()));
                };
                match self.form {
                    Form::Decoded => verify(*number, store.entry(*number), bytes),
                    Form::Stored => verify_stored(store.entry(*number), bytes.len()),
                }
            }
            Outcome::Absent(count) => Err(Failure::Wrong(format!("{count} chunks are not found"))),
            Outcome::Failed(text) => {
                Err(Failure::Refused(String::from_utf8_lossy(text).into_owned()))
            }
        }
    }
}

/// Asks whether the server is healthy: an empty request and an answer of two bytes.
#[derive(Clone, Debug)]
pub struct Check {
    client: Grpc<Channel>,
}

impl Check {
    /// Makes one of several callers.
    pub fn new(channels: &Channels, caller: usize) -> Self {
        Self { client: channels.client(caller) }
    }

    pub async fn ask(&mut self) -> Result<(), Failure> {
        unary(&mut self.client, CHECK, Bytes::new()).await.map(drop)
    }
}

async fn unary(
    client: &mut Grpc<Channel>,
    path: &'static str,
    request: Bytes,
) -> Result<Bytes, Failure> {
    client.ready().await.map_err(|error| Failure::Refused(error.to_string()))?;
    let answer = client.unary(Request::new(request), PathAndQuery::from_static(path), Raw).await;
    Ok(answer.map_err(|status| refused(&status))?.into_inner())
}

/// Messages as they are.
#[derive(Clone, Copy, Debug)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
