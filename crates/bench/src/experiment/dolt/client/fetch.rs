//! One fetch object of Dolt's client: asks where chunks are while it downloads others.

use busload_chunks::ChunkAddress;
use bytes::Bytes;
use tokio::time::timeout;

use super::{
    downloads::{Dictionaries, Downloads, LocatedChunk, Way},
    failure::refused,
    limits::{MERGE_GAP, SILENCE, WORKERS},
    locations::Locations,
    rpc::Client,
    walks::{Reads, Visit},
};
use crate::failures::Failure;

const WAY: Way = Way { gap: MERGE_GAP, workers: WORKERS };

enum Event {
    Located(Vec<LocatedChunk>),
    Chunk((ChunkAddress, Bytes)),
}

impl Reads for Client {
    async fn walk(&self, from: Vec<ChunkAddress>, visit: &mut Visit<'_>) -> Result<(), Failure> {
        let mut downloads = Downloads::new(self.http(), self.meter(), WAY, Dictionaries::default());
        let mut locations = Locations::new(self);
        let mut owed = from.len();
        locations.want(from);
        while 0 < owed {
            let event = async {
                tokio::select! {
                    located = locations.next() => located.map(Event::Located),
                    chunk = downloads.next() => chunk.map(Event::Chunk),
                }
            };
            let event = timeout(SILENCE, event).await;
            match event
                .map_err(|_| refused("a walk", format_args!("nothing came for {SILENCE:?}")))??
            {
                Event::Located(located) => {
                    located.into_iter().for_each(|located_chunk| downloads.want(located_chunk))
                }
                Event::Chunk((address, contents)) => {
                    let wanted = visit(address, contents)?;
                    owed = owed + wanted.len() - 1;
                    locations.want(wanted);
                }
            }
        }
        locations.finish().await
    }
}
