//! A DynamoDB server that knows GetItem and BatchGetItem, with faults by the request.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::{net::TcpListener, sync::watch};

use crate::{Error, server::Threads};

/// Attribute that finds an item.
const KEY: &str = "db";
/// Namespace of the names of errors.
const NAMESPACE: &str = "com.amazonaws.dynamodb.v20120810";
/// Keys that a BatchGetItem may have.
const BATCH_KEYS_MAX: usize = 100;

/// Fault of one answer.
#[derive(Clone, Debug, PartialEq)]
pub enum DynamoFault {
    /// An error of this status and name, without its namespace.
    Refuse(u16, &'static str),
    /// An error of this name for BatchGetItem; GetItem is answered.
    RefuseBatch(&'static str),
    /// So many keys of a batch are left unprocessed: the last ones.
    Unprocessed(usize),
    /// The body is this text, with status 200.
    Body(String),
    /// A bit of the body is flipped, in the middle.
    Flip,
    /// The checksum of the answer is missing.
    NoChecksum,
    /// Nothing is answered; the connection stays open.
    Silence,
    /// The connection is closed without an answer.
    NoAnswer,
}

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamoSeen {
    /// Name of the operation, like `GetItem`.
    pub operation: String,
    /// Table that was asked.
    pub table: String,
    /// Keys that were asked for, in order.
    pub keys: Vec<String>,
    /// True if every read was to be consistent.
    pub is_consistent: bool,
    /// Value of the header `Authorization`.
    pub authorization: String,
}

/// A DynamoDB server on loopback, on threads of its own; ends when dropped.
#[derive(Debug)]
pub struct Dynamo {
    address: SocketAddr,
    state: Arc<DynamoState>,
    _threads: Threads,
}

#[derive(Debug, Default)]
struct DynamoState {
    tables: Mutex<BTreeMap<String, BTreeMap<String, Value>>>,
    faults: Mutex<VecDeque<DynamoFault>>,
    /// Fault of every request for which none is queued.
    always: Mutex<Option<DynamoFault>>,
    seen: Mutex<Vec<DynamoSeen>>,
    /// While it is set, no request is answered.
    held: watch::Sender<bool>,
}

impl Dynamo {
    /// Starts a server with one empty table.
    pub fn start(table: &str) -> Result<Self, Error> {
        let threads = Threads::start("dynamo")?;
        let (listener, address) = threads.listen()?;
        let state = Arc::new(DynamoState::default());
        lock(&state.tables).insert(table.to_owned(), BTreeMap::new());
        threads.spawn(accept(listener, state.clone()));
        Ok(Self { address, state, _threads: threads })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds an item, in the form that the protocol has, or replaces the one with its key.
    pub fn put(&self, table: &str, item: Value) {
        let key = item[KEY]["S"].as_str().unwrap_or_default().to_owned();
        lock(&self.state.tables).entry(table.to_owned()).or_default().insert(key, item);
    }

    /// Removes the item of a key.
    pub fn delete(&self, table: &str, key: &str) {
        if let Some(table) = lock(&self.state.tables).get_mut(table) {
            table.remove(key);
        }
    }

    /// Answers the next requests with these faults, one each.
    pub fn next(&self, faults: impl IntoIterator<Item = DynamoFault>) {
        lock(&self.state.faults).extend(faults);
    }

    /// Answers every request with this fault, or with none, but those of [`Dynamo::next`].
    pub fn always(&self, fault: Option<DynamoFault>) {
        *lock(&self.state.always) = fault;
    }

    /// Holds all answers back, or lets them go.
    pub fn hold(&self, is_held: bool) {
        self.state.held.send_replace(is_held);
    }

    /// Returns all requests since the last call.
    pub fn take_seen(&self) -> Vec<DynamoSeen> {
        std::mem::take(&mut lock(&self.state.seen))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, state: Arc<DynamoState>) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let state = state.clone();
        let service = service_fn(move |request| answer(state.clone(), request));
        tokio::spawn(async move {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service);
            // A fault that ends the connection is an error here.
            let _ = connection.await;
        });
    }
}

/// Reason why a connection ends without an answer.
#[derive(Debug, thiserror::Error)]
#[error("a fault")]
struct Ended;

async fn answer(
    state: Arc<DynamoState>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Ended> {
    let header = |name| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let (target, authorization) = (header("x-amz-target"), header("authorization"));
    let body = request.into_body().collect().await.map_err(|_| Ended)?.to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
    let asked = Asked::parse(&operation, &body);
    lock(&state.seen).push(DynamoSeen { operation, authorization, ..asked.clone() });
    let mut held = state.held.subscribe();
    // The sender is a field of the state.
    let _ = held.wait_for(|is_held| !is_held).await;
    let fault = lock(&state.faults).pop_front().or_else(|| lock(&state.always).clone());
    respond(&state, &asked, fault).await
}

/// Contents of a request, without its headers.
type Asked = DynamoSeen;

impl Asked {
    fn parse(operation: &str, body: &Value) -> Self {
        let (table, read) = match operation {
            "GetItem" => (body["TableName"].as_str().unwrap_or_default(), body),
            _ => body["RequestItems"]
                .as_object()
                .and_then(|tables| tables.iter().next())
                .map_or(("", body), |(table, read)| (table.as_str(), read)),
        };
        let key = |key: &Value| key[KEY]["S"].as_str().unwrap_or_default().to_owned();
        let keys = match operation {
            "GetItem" => vec![key(&read["Key"])],
            _ => read["Keys"].as_array().into_iter().flatten().map(key).collect(),
        };
        Self {
            operation: operation.to_owned(),
            table: table.to_owned(),
            keys,
            is_consistent: read["ConsistentRead"] == true,
            authorization: String::new(),
        }
    }

    fn is_batch(&self) -> bool {
        self.operation == "BatchGetItem"
    }
}

async fn respond(
    state: &DynamoState,
    asked: &Asked,
    fault: Option<DynamoFault>,
) -> Result<Response<Full<Bytes>>, Ended> {
    let mut unprocessed = 0;
    match fault {
        Some(DynamoFault::Refuse(status, name)) => return Ok(refusal(status, name)),
        Some(DynamoFault::RefuseBatch(name)) if asked.is_batch() => return Ok(refusal(400, name)),
        Some(DynamoFault::Body(text)) => return Ok(response(200, text.into_bytes(), true)),
        Some(DynamoFault::Silence) => return std::future::pending().await,
        Some(DynamoFault::NoAnswer) => return Err(Ended),
        Some(DynamoFault::Unprocessed(count)) => unprocessed = count,
        _ => {}
    }
    let Some(body) = read(&lock(&state.tables), asked, unprocessed) else {
        return Ok(refusal(400, "ResourceNotFoundException"));
    };
    if asked.keys.is_empty() || BATCH_KEYS_MAX < asked.keys.len() {
        return Ok(refusal(400, "ValidationException"));
    }
    let mut answer = response(200, body.clone(), fault != Some(DynamoFault::NoChecksum));
    if fault == Some(DynamoFault::Flip) {
        let mut flipped = body;
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        *answer.body_mut() = Full::new(flipped.into());
    }
    Ok(answer)
}

/// Reads items; none if the table does not exist.
fn read(
    tables: &BTreeMap<String, BTreeMap<String, Value>>,
    asked: &Asked,
    unprocessed: usize,
) -> Option<Vec<u8>> {
    let table = tables.get(&asked.table)?;
    let body = if asked.is_batch() {
        let (done, left) = asked.keys.split_at(asked.keys.len().saturating_sub(unprocessed));
        let items: Vec<&Value> = done.iter().filter_map(|key| table.get(key)).collect();
        let left: Vec<Value> = left.iter().map(|key| json!({KEY: {"S": key}})).collect();
        let mut unprocessed = Map::new();
        if !left.is_empty() {
            unprocessed.insert(asked.table.clone(), json!({"Keys": left, "ConsistentRead": true}));
        }
        json!({"Responses": {&asked.table: items}, "UnprocessedKeys": unprocessed})
    } else {
        let item = asked.keys.first().and_then(|key| table.get(key));
        item.map_or_else(|| json!({}), |item| json!({"Item": item}))
    };
    Some(body.to_string().into_bytes())
}

fn refusal(status: u16, name: &str) -> Response<Full<Bytes>> {
    let body = json!({"__type": format!("{NAMESPACE}#{name}"), "message": "by order of the test"});
    response(status, body.to_string().into_bytes(), true)
}

fn response(status: u16, body: Vec<u8>, has_checksum: bool) -> Response<Full<Bytes>> {
    let mut response =
        Response::builder().status(status).header("content-type", "application/x-amz-json-1.0");
    if has_checksum {
        let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &body);
        response = response.header("x-amz-crc32", checksum.to_string());
    }
    response.body(Full::new(body.into())).expect("the parts of an answer are valid")
}
