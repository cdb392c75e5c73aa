//! Callers that share this thread, each with one request under way. They check the size and the
//! number of the chunks they get; the server checks the rest.

use std::{cell::RefCell, fmt::Display, io::Write, time::Duration};

use anyhow::{Context, Result, bail};
use busload_chunks::{ChunkAddress, Stored};
use busload_proto::{
    codec::ExactCodec,
    v1::{Form, FoundChunk, GetChunkRequest, GetChunksRequest, chunks_client::ChunksClient},
};
use bytes::Bytes;
use futures_util::future::{join, join_all};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use tonic::{Request, Status, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};

use super::{
    cases::{Case, Way},
    numbered::number_in,
};
use crate::{
    clock::{Window, duration_ns, now_ns},
    counters::Counters,
    experiment::store_bench::channel,
    failures::Failure,
    harness::{Answering, Ends, Mark, Sample, Usage, Watched},
    limits::{CHUNK_FAILURES_MAX, GRPC_MESSAGE_BYTES_MAX, RECEIVE_BYTES, SILENCE},
    server::Server,
    store::{Chunk, Store, index},
};

/// Characters of an address as text, each of five bits.
const ADDRESS_TEXT_BYTES: usize = ChunkAddress::BYTES * 8 / 5;

/// Requests of one measurement.
pub struct Load<'a> {
    pub store: &'a Store,
    /// Numbers of the chunks to ask for, shared by all callers.
    pub numbers: Box<dyn Iterator<Item = u32> + 'a>,
    /// Chunks of a request.
    pub batch: usize,
    pub warm_up: Duration,
    pub seconds: Duration,
    pub answering: Answering,
}

impl Load<'_> {
    /// Lets all callers ask until the time is over or there is nothing more to ask for.
    pub async fn run(self, callers: Vec<Caller>) -> Result<Sample> {
        let Self { store, numbers, batch, warm_up, seconds, answering } = self;
        let from_ns = now_ns() + duration_ns(warm_up);
        let window = Window { from_ns, until_ns: from_ns + duration_ns(seconds) };
        let (counters, numbers) = (RefCell::new(Counters::new()?), RefCell::new(numbers));
        let asking = callers.into_iter().map(async |mut caller: Caller| {
            let mut wanted = Vec::with_capacity(batch);
            loop {
                wanted.clear();
                wanted.extend(numbers.borrow_mut().by_ref().take(batch));
                let asked_ns = now_ns();
                if wanted.is_empty() || window.until_ns <= asked_ns {
                    return;
                }
                let outcome = caller.ask(store, &wanted).await;
                let answered_ns = now_ns();
                let mut counters = counters.borrow_mut();
                match outcome {
                    Ok(()) => {
                        let chunks = u64::try_from(wanted.len()).expect("a count fits in 64 bits");
                        counters.answer(window, chunks, asked_ns, answered_ns);
                    }
                    Err(failure) => counters.failed.add(failure),
                }
                if CHUNK_FAILURES_MAX <= counters.failed.count() {
                    return;
                }
            }
        });
        let mark = || Mark::now(Watched { answering, ..Watched::default() });
        let warmed_up = async {
            tokio::time::sleep(warm_up).await;
            mark()
        };
        let limit = warm_up + seconds + SILENCE;
        let both = join(join_all(asking), warmed_up);
        let Ok((_, start)) = tokio::time::timeout(limit, both).await else {
            bail!("a request is unanswered after {SILENCE:?}");
        };
        let usage = Usage::between(&start, &mark());
        Ok(Sample::of(&counters.borrow(), window, Ends::WithLastAnswer).with_thread(&usage))
    }
}

/// A caller that has one request under way. What is the same in all requests is made once.
#[derive(Debug)]
pub enum Caller {
    /// Ranged reads of the object store, every file's index known; the URL of the store.
    Direct(reqwest::Client, String),
    GetChunk(ChunksClient<Channel>, GetChunkRequest),
    GetChunks(ChunksClient<Channel>, GetChunksRequest),
    Resp(Resp),
    /// Calls that do nothing.
    Check(Grpc<Channel>),
}

impl Caller {
    /// Connects the callers of a case to a table of a server. gRPC callers share a connection.
    pub async fn connect(case: &Case, server: &Server, table: &str) -> Result<Vec<Self>> {
        let channel = channel(server.http())?;
        let client = ChunksClient::new(channel.clone());
        let client = client.max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX);
        let form = case.form.into();
        let mut callers = Vec::with_capacity(case.callers);
        for _ in 0..case.callers {
            let (client, store) = (client.clone(), table.to_owned());
            callers.push(match case.way {
                Way::GetChunk => {
                    let request = GetChunkRequest { store, form, ..GetChunkRequest::default() };
                    Self::GetChunk(client, request)
                }
                Way::GetChunks => {
                    let request = GetChunksRequest { store, form, ..GetChunksRequest::default() };
                    Self::GetChunks(client, request)
                }
                Way::Resp | Way::RespPipelined | Way::Null => {
                    let socket = TcpStream::connect(server.resp()).await.context("no RESP")?;
                    socket.set_nodelay(true).context("a socket's option")?;
                    let socket = BufReader::with_capacity(RECEIVE_BYTES, socket);
                    let form = (case.way != Way::Null).then_some(case.form);
                    Self::Resp(Resp { socket, table: store, form, buffer: Vec::new() })
                }
                Way::Check => Self::Check(Grpc::new(channel.clone())),
                other => bail!("{other:?} is not asked of a server by callers"),
            });
        }
        Ok(callers)
    }

    /// Sends one request and waits for its answer; only some can ask for many chunks at once.
    pub async fn ask(&mut self, store: &Store, numbers: &[u32]) -> Result<(), Failure> {
        let number = numbers[0];
        let chunk = store.chunk(number);
        match self {
            Self::Direct(http, url) => {
                let span = chunk.location.span;
                let last = span.offset + u64::from(span.length) - 1;
                let get = http.get(format!("{url}/{}", store.file_of(chunk).name));
                let get = get.header("range", format!("bytes={}-{last}", span.offset));
                let answer = get.send().await.and_then(reqwest::Response::error_for_status);
                let bytes = answer.map_err(refused)?.bytes().await.map_err(refused)?;
                let stored = Stored::parse(bytes, &chunk.location);
                let contents = stored.and_then(|stored| stored.decode(None));
                let contents = contents.map_err(|error| Failure::Wrong(error.to_string()))?;
                verify(number, chunk, Form::Contents, &contents)
            }
            Self::GetChunk(client, template) => {
                let address = Bytes::copy_from_slice(&chunk.address.0);
                let request = GetChunkRequest { address, ..template.clone() };
                let answer = client.get_chunk(request).await.map_err(status)?.into_inner();
                if !answer.found {
                    return Err(Failure::Wrong(format!("{} is not found", chunk.address)));
                }
                verify(number, chunk, template.form(), &answer.contents)
            }
            Self::GetChunks(client, template) => get_chunks(client, template, store, numbers).await,
            Self::Resp(resp) => resp.ask(store, numbers).await,
            Self::Check(client) => {
                client.ready().await.map_err(refused)?;
                let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
                let codec = ExactCodec::<(), ()>::default();
                let answer = client.unary(Request::new(()), path, codec).await;
                answer.map(drop).map_err(status)
            }
        }
    }
}

/// Asks for many chunks in one call and looks at all results.
async fn get_chunks(
    client: &mut ChunksClient<Channel>,
    template: &GetChunksRequest,
    store: &Store,
    numbers: &[u32],
) -> Result<(), Failure> {
    let addresses = store.addresses(numbers.iter().copied()).into();
    let request = GetChunksRequest { addresses, ..template.clone() };
    let mut stream = client.get_chunks(request).await.map_err(status)?.into_inner();
    // Absent chunks are the ones without a result.
    let mut seen = 0;
    while let Some(message) = stream.message().await.map_err(status)? {
        if let Some(failed) = message.failed.into_iter().next() {
            return Err(Failure::Refused(failed.message));
        }
        seen += message.chunks.len();
        for FoundChunk { index: position, contents, .. } in message.chunks {
            let Some(number) = numbers.get(index(position)) else {
                return Err(Failure::Wrong("a result for no address".to_owned()));
            };
            verify(*number, store.chunk(*number), template.form(), &contents)?;
        }
    }
    if seen == numbers.len() {
        return Ok(());
    }
    Err(Failure::Wrong(format!("{seen} results for {} addresses", numbers.len())))
}

/// A RESP connection. Settings of the table decide the form of its chunks, not the request; `form`
/// says which to expect, `None` of a server that has none.
#[derive(Debug)]
pub struct Resp {
    socket: BufReader<TcpStream>,
    table: String,
    form: Option<Form>,
    buffer: Vec<u8>,
}

impl Resp {
    /// Sends a `GET` for each chunk, then reads all replies, even if one of them is a failure.
    async fn ask(&mut self, store: &Store, numbers: &[u32]) -> Result<(), Failure> {
        self.buffer.clear();
        for number in numbers {
            let (table, address) = (&self.table, store.chunk(*number).address);
            let length = table.len() + 1 + ADDRESS_TEXT_BYTES;
            write!(self.buffer, "*2\r\n$3\r\nGET\r\n${length}\r\n{table}:{address}\r\n")
                .map_err(refused)?;
        }
        self.socket.write_all(&self.buffer).await.map_err(refused)?;
        let (form, mut outcome) = (self.form, Ok(()));
        for number in numbers {
            let reply = self.reply().await.map_err(refused)?;
            let verified = reply.and_then(|contents| {
                let Some(form) = form else { return Ok(()) };
                // A record over RESP ends with its CRC, which gRPC leaves out.
                let crc_bytes = if form == Form::Stored { 4 } else { 0 };
                let without_crc = contents.len().saturating_sub(crc_bytes);
                verify(*number, store.chunk(*number), form, &contents[..without_crc])
            });
            outcome = outcome.and(verified);
        }
        outcome
    }

    /// Reads the bulk string that a reply should be.
    async fn reply(&mut self) -> std::io::Result<Result<&[u8], Failure>> {
        self.buffer.clear();
        self.socket.read_until(b'\n', &mut self.buffer).await?;
        let line = self.buffer.trim_ascii_end();
        let length = line.strip_prefix(b"$").and_then(|digits| str::from_utf8(digits).ok());
        let Some(length) = length.and_then(|digits| digits.parse::<usize>().ok()) else {
            let text = String::from_utf8_lossy(line).into_owned();
            return match line.first() {
                Some(b'-') => Ok(Err(Failure::Refused(text))),
                Some(_) => Ok(Err(Failure::Wrong(text))),
                None => Err(std::io::Error::other("the server closed a connection")),
            };
        };
        self.buffer.resize(length + 2, 0);
        self.socket.read_exact(&mut self.buffer).await?;
        Ok(Ok(&self.buffer[..length]))
    }
}

fn refused(error: impl Display) -> Failure {
    Failure::Refused(error.to_string())
}

fn status(status: Status) -> Failure {
    refused(format_args!("{:?}: {}", status.code(), status.message()))
}

/// Looks at contents, or at the size of a snappy block: that of the record without its CRC.
fn verify(number: u32, chunk: &Chunk, form: Form, bytes: &[u8]) -> Result<(), Failure> {
    let is_right = match form {
        Form::Contents => {
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
