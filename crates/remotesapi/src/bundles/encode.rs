//! Reads chunks and encodes them as a bundle of records.

use std::time::Instant;

use busload_dolt::{ChunkAddress, Error, Form, Request, Requester, Store};
use bytes::Bytes;

use super::{EncodedBundle, EncodingJob};
use crate::url::BundleId;

/// Length of the checksum at the end of every record.
const CRC_BYTES: usize = 4;

/// Encodes a bundle, leaving out chunks that do not exist.
pub async fn encode(job: &EncodingJob) -> Result<EncodedBundle, Error> {
    let EncodingJob { store, addresses, deadline } = job;
    let located = store.locate(addresses, *deadline).await?;
    let found = addresses.iter().zip(&located.locations).filter(|(_, location)| location.is_some());
    let found: Vec<ChunkAddress> = found.map(|(address, _)| *address).collect();
    let mut records = read(store, found, *deadline).await?.into_iter();
    let records: Vec<Option<Bytes>> = located
        .locations
        .iter()
        .map(|location| location.as_ref().and_then(|_| records.next().flatten()))
        .collect();
    let lengths = records
        .iter()
        .map(|record| record.as_ref().map(length).transpose())
        .collect::<Result<_, _>>()?;
    Ok(EncodedBundle { bundle: identity(addresses, &records), lengths, bytes: joined(records) })
}

/// Reads the records, in the order of the addresses.
async fn read(
    store: &Store,
    addresses: Vec<ChunkAddress>,
    deadline: Instant,
) -> Result<Vec<Option<Bytes>>, Error> {
    let mut records = vec![None; addresses.len()];
    let mut reads = store.get_many(
        addresses,
        Request { form: Form::Record, local_only: false, requester: Requester::Bundle, deadline },
    );
    let mut received = Vec::new();
    while reads.next(&mut received).await {
        for (index, outcome) in received.drain(..) {
            let index = usize::try_from(index).expect("an index fits into memory");
            records[index] = outcome?.map(|chunk| chunk.bytes().clone());
        }
    }
    Ok(records)
}

/// Returns the length of a record, for which the protocol has 32 bits.
fn length(record: &Bytes) -> Result<u32, Error> {
    u32::try_from(record.len()).map_err(|_| {
        Error::Refused(format!(
            "a chunk has a record of {} bytes, expected less than 4 GiB",
            record.len()
        ))
    })
}

/// Returns the identity of the bundle, made of the chunks that exist.
fn identity(addresses: &[ChunkAddress], records: &[Option<Bytes>]) -> Option<BundleId> {
    let found = addresses.iter().zip(records).filter(|(_, record)| record.is_some());
    let addresses: Vec<ChunkAddress> = found.map(|(address, _)| *address).collect();
    (!addresses.is_empty()).then(|| BundleId { check: check(records.iter().flatten()), addresses })
}

/// Hashes the lengths and checksums of the records. Clients download a bundle piece by piece, and
/// the check makes sure that all pieces come from the same bytes.
fn check<'a>(records: impl Iterator<Item = &'a Bytes>) -> [u8; 8] {
    let mut bytes = Vec::new();
    for record in records {
        let length = u64::try_from(record.len()).expect("lengths have at most 64 bits");
        bytes.extend(length.to_be_bytes());
        bytes.extend(record.last_chunk::<CRC_BYTES>().into_iter().flatten());
    }
    let ChunkAddress(hash) = ChunkAddress::of(&bytes);
    *hash.first_chunk().expect("20 bytes are more than 8")
}

/// Concatenates the records of a bundle.
fn joined(records: Vec<Option<Bytes>>) -> Bytes {
    let mut bytes = Vec::with_capacity(records.iter().flatten().map(Bytes::len).sum());
    // Each record is freed as soon as it is copied.
    records.into_iter().flatten().for_each(|record| bytes.extend_from_slice(&record));
    bytes.into()
}
