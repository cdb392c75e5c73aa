//! One fetch object of Dolt's client: asks where chunks are while it downloads others.

use busload_chunks::ChunkAddress;

use super::{
    downloads::{Dictionaries, Downloads, Way},
    limits::{MERGE_GAP, WORKERS},
    locations::Locations,
    rpc::Client,
    walks::{Reads, Visit},
};
use crate::failures::Failure;

const WAY: Way = Way { gap: MERGE_GAP, workers: WORKERS };

impl Reads for Client {
    async fn walk(&self, from: Vec<ChunkAddress>, visit: &mut Visit<'_>) -> Result<(), Failure> {
        let mut downloads = Downloads::new(self.http(), self.meter(), WAY, Dictionaries::default());
        let mut locations = Locations::new(self);
        let mut owed = from.len();
        locations.want(from);
        while 0 < owed {
            tokio::select! {
                places = locations.next() => places?.into_iter().for_each(|place| downloads.want(place)),
                chunk = downloads.next() => {
                    let (address, contents) = chunk?;
                    let wanted = visit(address, contents)?;
                    owed = owed + wanted.len() - 1;
                    locations.want(wanted);
                }
            }
        }
        locations.finish().await
    }
}
