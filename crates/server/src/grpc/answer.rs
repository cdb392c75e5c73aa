//! Encodes outcomes of reads as messages and status codes of the protocol.

use busload_calls::{Deadline, status};
use busload_dolt::{Chunk, ChunkAddress, DictionaryId, Error, Form};
use busload_proto::v1::{
    self, Encoding, FailedChunk, FoundChunk, GetChunkResponse, GetChunksResponse,
};
use bytes::Bytes;
use tonic::Status;

use super::limits::MESSAGE_BYTES;

/// Outcome of the read of one address.
pub type Outcome = Result<Option<Chunk>, Error>;

/// Upper bound of the encoded bytes of a result beside its contents.
const RESULT_BYTES: usize = 64;

/// Decodes the form that a request asks for.
pub fn form(number: i32) -> Result<Form, Status> {
    match v1::Form::try_from(number) {
        Ok(v1::Form::Contents) => Ok(Form::Contents),
        Ok(v1::Form::Stored) => Ok(Form::Stored),
        Err(_) => Err(Status::invalid_argument(format!(
            "form: expected FORM_CONTENTS (0) or FORM_STORED (1), got {number}"
        ))),
    }
}

/// Decodes the address of a request for one chunk.
pub fn address(bytes: &[u8]) -> Result<ChunkAddress, Status> {
    let bytes = <[u8; ChunkAddress::BYTES]>::try_from(bytes).map_err(|_| {
        Status::invalid_argument(format!("address: expected 20 bytes, got {}", bytes.len()))
    })?;
    Ok(ChunkAddress(bytes))
}

/// Decodes the id of a dictionary.
pub fn dictionary_id(bytes: &[u8]) -> Result<DictionaryId, Status> {
    let id = bytes.try_into().map_err(|_| {
        Status::invalid_argument(format!(
            "dictionary_id: expected the 32 bytes that a chunk came with, got {}",
            bytes.len()
        ))
    })?;
    Ok(DictionaryId(id))
}

/// Encodes the answer to a request for one chunk.
pub fn one(outcome: Outcome, deadline: &Deadline) -> Result<GetChunkResponse, Status> {
    match outcome {
        Ok(Some(chunk)) => {
            let (contents, encoding, dictionary_id) = parts(chunk);
            let encoding = encoding.into();
            Ok(GetChunkResponse {
                found: true,
                contents,
                encoding,
                dictionary_id,
                not_local: false,
            })
        }
        Ok(None) => Ok(GetChunkResponse::default()),
        Err(Error::NotLocal) => {
            Ok(GetChunkResponse { not_local: true, ..GetChunkResponse::default() })
        }
        Err(error) => Err(status(&error, deadline)),
    }
}

fn parts(chunk: Chunk) -> (Bytes, Encoding, Bytes) {
    match chunk {
        Chunk::Contents(bytes) => (bytes, Encoding::Contents, Bytes::new()),
        Chunk::Snappy(bytes) => (bytes, Encoding::Snappy, Bytes::new()),
        Chunk::Zstd(bytes, DictionaryId(id)) => {
            (bytes, Encoding::Zstd, Bytes::copy_from_slice(&id))
        }
    }
}

/// A message of `GetChunks` that is being filled with results.
#[derive(Debug, Default)]
pub struct Message {
    results: GetChunksResponse,
    bytes: usize,
}

impl Message {
    /// Returns whether one more result fits into the message. The first one always does.
    pub fn has_space_for(&self, outcome: &Outcome) -> bool {
        self.bytes == 0 || self.bytes + bytes_of(outcome) <= MESSAGE_BYTES
    }

    /// Returns whether the message has no space for even an empty result.
    pub fn is_full(&self) -> bool {
        MESSAGE_BYTES < self.bytes + RESULT_BYTES
    }

    /// Returns whether the message has no results.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds the outcome of the address at this index.
    pub fn add(&mut self, index: u32, outcome: Outcome, deadline: &Deadline) {
        self.bytes += bytes_of(&outcome);
        let results = &mut self.results;
        match outcome {
            Ok(Some(chunk)) => {
                let (contents, encoding, dictionary_id) = parts(chunk);
                let encoding = encoding.into();
                results.chunks.push(FoundChunk { index, contents, encoding, dictionary_id });
            }
            Ok(None) => results.missing.push(index),
            Err(Error::NotLocal) => results.not_local.push(index),
            Err(error) => results.failed.push(failed(index, &status(&error, deadline))),
        }
    }

    /// Returns the protocol's message.
    pub fn into_inner(self) -> GetChunksResponse {
        self.results
    }
}

fn bytes_of(outcome: &Outcome) -> usize {
    RESULT_BYTES
        + match outcome {
            Ok(Some(Chunk::Contents(bytes) | Chunk::Snappy(bytes) | Chunk::Zstd(bytes, _))) => {
                bytes.len()
            }
            Ok(None) | Err(Error::NotLocal | Error::Closed) => 0,
            Err(
                Error::Unreachable(message)
                | Error::Refused(message)
                | Error::NoStore(message)
                | Error::Overloaded(message)
                | Error::Corrupt(message)
                | Error::DeadlineExceeded(message),
            ) => message.len(),
        }
}

fn failed(index: u32, status: &Status) -> FailedChunk {
    let code = u32::try_from(status.code() as i32).expect("codes are 0 to 16");
    FailedChunk { index, code, message: status.message().to_owned() }
}

#[cfg(test)]
#[path = "answer/tests.rs"]
mod tests;
