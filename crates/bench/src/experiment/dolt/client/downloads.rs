//! Downloads of one fetch object: dictionaries first, then the largest region, so many
//! at once; chunks come out decoded and checked.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    rc::Rc,
};

use busload_chunks::{ChunkAddress, ChunkLocation, Dictionary, Span, Stored, check};
use bytes::Bytes;
use futures_util::{StreamExt, future::LocalBoxFuture, stream::FuturesUnordered};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{
    counts::Meter,
    download::{Piece, download},
    failure::wrong,
    http::Http,
    regions::{Part, Region, Regions},
};
use crate::failures::Failure;

/// A chunk and where it is.
#[derive(Clone, Debug)]
pub struct LocatedChunk {
    pub url: Rc<str>,
    pub address: ChunkAddress,
    pub location: ChunkLocation,
}

impl LocatedChunk {
    fn dictionary(&self) -> Option<Key> {
        self.location.dictionary.map(|span| (Rc::clone(&self.url), span))
    }
}

/// Purpose of a part of a region.
#[derive(Clone, Debug)]
enum Wanted {
    Chunk(LocatedChunk),
    Dictionary(Key),
}

type Key = (Rc<str>, Span);

/// Dictionaries that have been read. The stock client has them for one fetch object only.
#[derive(Clone, Debug, Default)]
pub struct Dictionaries {
    there: Rc<RefCell<HashMap<Key, Rc<Dictionary>>>>,
}

impl Dictionaries {
    fn get(&self, key: &Key) -> Option<Rc<Dictionary>> {
        self.there.borrow().get(key).cloned()
    }
}

/// Limits of a fetch object's downloads.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Ranges less far apart are one GET.
    pub gap: u64,
    pub workers: usize,
}

/// Downloads of a fetch object.
pub struct Downloads {
    http: Http,
    meter: Meter,
    workers: usize,
    chunks: Regions<Wanted>,
    dictionaries: Regions<Wanted>,
    dictionaries_known: Dictionaries,
    /// Dictionaries on their way, with the chunks that need them.
    awaited: HashMap<Key, Vec<(LocatedChunk, Bytes)>>,
    running: FuturesUnordered<LocalBoxFuture<'static, Result<(), Failure>>>,
    pieces: (UnboundedSender<Piece<Wanted>>, UnboundedReceiver<Piece<Wanted>>),
    /// Had to wait for their dictionary.
    ready: VecDeque<(LocatedChunk, Bytes)>,
}

impl Downloads {
    pub fn new(http: &Http, meter: &Meter, way: Way, dictionaries_known: Dictionaries) -> Self {
        Self {
            http: http.clone(),
            meter: meter.clone(),
            workers: way.workers,
            chunks: Regions::new(way.gap),
            dictionaries: Regions::new(way.gap),
            dictionaries_known,
            awaited: HashMap::new(),
            running: FuturesUnordered::new(),
            pieces: unbounded_channel(),
            ready: VecDeque::new(),
        }
    }

    /// Whether more could be under way.
    pub fn has_room(&self) -> bool {
        self.running.len() < self.workers
    }

    /// A chunk that is to be read.
    pub fn want(&mut self, located_chunk: LocatedChunk) {
        if let Some(key) = located_chunk.dictionary()
            && self.dictionaries_known.get(&key).is_none()
            && !self.awaited.contains_key(&key)
        {
            self.awaited.insert(key.clone(), Vec::new());
            self.dictionaries.insert(&located_chunk.url, key.1, Wanted::Dictionary(key));
        }
        let url = Rc::clone(&located_chunk.url);
        self.chunks.insert(&url, located_chunk.location.span, Wanted::Chunk(located_chunk));
    }

    /// The next chunk that is there. Can be dropped and called again; never ends when nothing is
    /// wanted.
    pub async fn next(&mut self) -> Result<(ChunkAddress, Bytes), Failure> {
        loop {
            self.start();
            if let Some((located_chunk, bytes)) = self.ready.pop_front() {
                return self.decode(&located_chunk, bytes);
            }
            tokio::select! {
                biased;
                Some(piece) = self.pieces.1.recv() => self.sort(piece)?,
                Some(ended) = self.running.next(), if !self.running.is_empty() => ended?,
            }
        }
    }

    fn start(&mut self) {
        while self.has_room() {
            let region = match self.dictionaries.take_largest() {
                Some(region) => {
                    self.meter.add(|counts| counts.dictionary_gets += 1);
                    region
                }
                None => match self.chunks.take_largest() {
                    Some(region) => region,
                    None => return,
                },
            };
            self.running.push(self.download(region));
        }
    }

    fn download(&self, region: Region<Wanted>) -> LocalBoxFuture<'static, Result<(), Failure>> {
        let (http, meter, pieces) = (self.http.clone(), self.meter.clone(), self.pieces.0.clone());
        Box::pin(async move { download(&http, &meter, region, &pieces).await })
    }

    fn sort(&mut self, piece: Piece<Wanted>) -> Result<(), Failure> {
        let Piece { part: Part { what, .. }, bytes } = piece;
        match what {
            Wanted::Chunk(located_chunk) => {
                match located_chunk.dictionary().and_then(|key| self.awaited.get_mut(&key)) {
                    Some(waiting) => waiting.push((located_chunk, bytes)),
                    None => self.ready.push_back((located_chunk, bytes)),
                }
            }
            Wanted::Dictionary(key) => {
                let dictionary = Dictionary::decode(&bytes)
                    .map_err(|error| wrong(format_args!("{key:?}"), error))?;
                self.ready.extend(self.awaited.remove(&key).unwrap_or_default());
                self.dictionaries_known.there.borrow_mut().insert(key, Rc::new(dictionary));
            }
        }
        Ok(())
    }

    fn decode(
        &self,
        located_chunk: &LocatedChunk,
        bytes: Bytes,
    ) -> Result<(ChunkAddress, Bytes), Failure> {
        let dictionary =
            located_chunk.dictionary().and_then(|key| self.dictionaries_known.get(&key));
        let contents = Stored::parse(bytes, &located_chunk.location)
            .and_then(|stored| stored.decode(dictionary.as_deref()))
            .and_then(|contents| check(&located_chunk.address, &contents).map(|()| contents))
            .map_err(|error| {
                wrong(&located_chunk.url, format_args!("{}: {error}", located_chunk.address))
            })?;
        self.meter.add(|counts| {
            counts.chunks += 1;
            counts.contents_bytes +=
                u64::try_from(contents.len()).expect("a length fits in 64 bits");
        });
        Ok((located_chunk.address, contents))
    }
}
