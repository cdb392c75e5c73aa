//! Callers that ask for chunks, each with one request under way.

mod bare;
mod direct;
mod grpc;
mod message;
mod resp;

use bytes::Bytes;

pub use self::{
    bare::{PreadSend, pread},
    direct::{Direct, S3},
    grpc::{Channels, Check, GetChunk, GetChunks},
    resp::{Resp, get_request},
};
use super::{
    contents,
    store::{Entry, Store},
};
use crate::failures::Failure;

/// Forms in which chunks are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    Decoded,
    Stored,
}

impl Form {
    /// The name in tables and in the CSV.
    pub fn name(self) -> &'static str {
        match self {
            Self::Decoded => "decoded",
            Self::Stored => "stored",
        }
    }
}

/// A caller. What it gives are the contents of the last chunk it asked for, if it asks for contents
/// one by one.
#[derive(Debug)]
pub enum Caller {
    /// Ranged reads of the object store.
    Direct(Direct),
    /// Calls with one chunk each.
    GetChunk(GetChunk),
    /// Calls with many chunks each.
    GetChunks(GetChunks),
    /// Commands with one chunk each.
    Resp(Resp),
    Check(Check),
}

impl Caller {
    /// Sends one request and waits for its answer.
    pub async fn ask(&mut self, store: &Store, numbers: &[u32]) -> Result<Bytes, Failure> {
        match self {
            Self::Direct(direct) => direct.ask(store, numbers[0]).await,
            Self::GetChunk(call) => call.ask(store, numbers[0]).await,
            Self::GetChunks(call) => call.ask(store, numbers).await.map(|()| Bytes::new()),
            Self::Resp(resp) => resp.ask(store, numbers[0]).await,
            Self::Check(check) => check.ask().await.map(|()| Bytes::new()),
        }
    }
}

/// Looks at contents: size and number tell a wrong chunk from a right one; the server checks the
/// rest.
fn verify(number: u32, entry: &Entry, bytes: &[u8]) -> Result<(), Failure> {
    let is_right = u32::try_from(bytes.len()) == Ok(entry.contents_bytes)
        && contents::number(bytes) == Some(u64::from(number));
    if is_right {
        return Ok(());
    }
    Err(Failure::Wrong(format!("{} bytes that are not chunk {}", bytes.len(), entry.address)))
}

/// Looks at the size of a snappy block, which is that of the record in the file without its CRC.
fn verify_stored(entry: &Entry, bytes: usize) -> Result<(), Failure> {
    if u32::try_from(bytes + 4) == Ok(entry.location.span.length) {
        return Ok(());
    }
    Err(Failure::Wrong(format!("{bytes} bytes of a record of {}", entry.location.span.length)))
}
