//! Reads many chunks for one request.
//!
//! ```text
//!  addresses --+-- on local disk, it seems --> read in next(), a turn at a time
//!              |                                  | not there after all
//!              +-- in the object store -----------+--> a task: windows of sorted reads --> results
//!              |     `-- in a file of a peer: rounds of questions, then as the others -----^
//!              +-- in no file ------------------------> a task: one refresh -------------^
//! ```
//!
//! A caller that does not take results blocks the tasks, and with them the reads: memory stays
//! bounded.

use std::{collections::VecDeque, sync::Arc};

use busload_chunks::ChunkAddress;
use busload_objects::ReadOptions;
use futures_util::{FutureExt, StreamExt, future::join, stream::FuturesUnordered};
use tokio::{
    sync::mpsc::{self, error::TryRecvError},
    task::{JoinSet, coop::consume_budget},
};

use crate::{
    Attempt, Chunk, Error, Form, Request,
    limits::{
        LOCAL_TURN_BYTES_MAX, LOCAL_TURN_CHUNKS_MAX, RESULTS_QUEUED_MAX, WINDOW_BYTES_MAX,
        WINDOW_CHUNKS_MAX,
    },
    read::{
        decode::{Decoded, Wanted},
        file_chunk_reader::{ReadRequest, origin},
        reader::Reader,
        window::{PlannedRead, Window, sort},
    },
    stats::{Origin, ReadFrom},
    versions::{table_file::range, version::Version},
};

/// Result for the address of an index.
type Indexed = (u32, Result<Option<Chunk>, Error>);

/// Results for many addresses in the order of completion, one for each, by index.
pub struct ManyReads {
    reader: Arc<Reader>,
    addresses: Arc<[ChunkAddress]>,
    request: Request,
    is_started: bool,
    /// Indexes of chunks that seem to be on local disk.
    local: VecDeque<u32>,
    /// Indexes of chunks that seemed to be on local disk and were not.
    stragglers: Vec<u32>,
    results: mpsc::Receiver<Indexed>,
    sender: Option<mpsc::Sender<Indexed>>,
    tasks: JoinSet<()>,
    /// True for each index that has its result, so that it gets one, once, whatever happens to a
    /// task.
    is_done: Vec<bool>,
    left: usize,
}

impl std::fmt::Debug for ManyReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManyReads")
            .field("requested", &self.addresses.len())
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl ManyReads {
    pub(crate) fn new(reader: Arc<Reader>, addresses: Vec<ChunkAddress>, request: Request) -> Self {
        let (sender, results) = mpsc::channel(RESULTS_QUEUED_MAX);
        let left = addresses.len();
        Self {
            reader,
            addresses: addresses.into(),
            request,
            is_started: false,
            local: VecDeque::new(),
            stragglers: Vec::new(),
            results,
            sender: Some(sender),
            tasks: JoinSet::new(),
            is_done: vec![false; left],
            left,
        }
    }

    /// Appends the next results to `into`, as many as are there; false if there are no more.
    pub async fn next(&mut self, into: &mut Vec<(u32, Result<Option<Chunk>, Error>)>) -> bool {
        if self.left == 0 {
            return false;
        }
        if !self.is_started {
            self.is_started = true;
            self.start();
        }
        loop {
            // A caller in a loop yields now and then.
            consume_budget().await;
            // What goes into `into` is marked done before anything is awaited: dropping this future
            // loses no result.
            let before = into.len();
            self.take_received(into);
            self.take_local(into);
            self.mark_done(&into[before..]);
            if self.local.is_empty() {
                self.hand_over();
            }
            if before < into.len() {
                return true;
            }
            if self.local.is_empty() {
                self.wait(into).await;
                self.mark_done(&into[before..]);
                return true;
            }
        }
    }

    /// Queues chunks that can be read here, and starts a task for the others.
    fn start(&mut self) {
        let version = self.reader.versions.current();
        let mut others = Vec::new();
        for (address, index) in self.addresses.iter().zip(0..) {
            match version.as_ref().is_none_or(|version| self.seems_local(version, address)) {
                // Without a version `try_get` tells at once whether to wait or why not.
                true => self.local.push_back(index),
                false => others.push(index),
            }
        }
        self.spawn(others);
    }

    fn seems_local(&self, version: &Version, address: &ChunkAddress) -> bool {
        let is_in_memory = || self.reader.file_chunks.memory.has(address);
        if self.reader.lifecycle().is_closed()
            || (self.request.form == Form::Contents && is_in_memory())
        {
            return true;
        }
        version.find(address).is_some_and(|(file, position)| {
            origin(file, &range(file.location(position).span)) == Origin::Disk
        })
    }

    fn take_received(&mut self, into: &mut Vec<Indexed>) {
        while into.len() < LOCAL_TURN_CHUNKS_MAX {
            match self.results.try_recv() {
                Ok(result) => into.push(result),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    fn take_local(&mut self, into: &mut Vec<Indexed>) {
        let wanted = Wanted::Chunk(self.request.form);
        let (mut chunks, mut bytes) = (0, 0);
        while chunks < LOCAL_TURN_CHUNKS_MAX && bytes < LOCAL_TURN_BYTES_MAX {
            let Some(index) = self.local.pop_front() else { return };
            match self.reader.try_get(&self.address(index), wanted, self.request.requester) {
                Attempt::Wait => self.stragglers.push(index),
                Attempt::Ready(found) => {
                    let found = found.map(|found| found.map(Decoded::into_chunk));
                    bytes += found.iter().flatten().map(|chunk| chunk.bytes().len()).sum::<usize>();
                    into.push((index, found));
                }
            }
            chunks += 1;
        }
    }

    /// Gives the chunks that were not on local disk after all to a task, the last one.
    fn hand_over(&mut self) {
        let stragglers = std::mem::take(&mut self.stragglers);
        self.spawn(stragglers);
        self.sender = None;
    }

    fn spawn(&mut self, indexes: Vec<u32>) {
        let Some(sender) = self.sender.clone().filter(|_| !indexes.is_empty()) else { return };
        let task = Task {
            reader: self.reader.clone(),
            addresses: self.addresses.clone(),
            request: self.request,
            results: sender,
        };
        self.tasks.spawn_on(task.run(indexes), self.reader.lifecycle().runtime());
    }

    async fn wait(&mut self, into: &mut Vec<Indexed>) {
        match self.results.recv().await {
            Some(result) => {
                into.push(result);
                self.take_received(into);
            }
            // The runtime has ended, and the tasks with it.
            None => {
                let left = self.is_done.iter().zip(0..).filter(|(is_done, _)| !**is_done);
                into.extend(left.map(|(_, index)| (index, Err(Error::Closed))));
            }
        }
    }

    fn mark_done(&mut self, results: &[Indexed]) {
        for (index, _) in results {
            let index = usize::try_from(*index).expect("an index fits into memory");
            let is_done = std::mem::replace(&mut self.is_done[index], true);
            assert!(!is_done, "each index has one result");
            self.left -= 1;
        }
    }

    fn address(&self, index: u32) -> ChunkAddress {
        self.addresses[usize::try_from(index).expect("an index fits into memory")]
    }
}

/// Task that waits for some chunks of one request.
#[derive(Clone)]
struct Task {
    reader: Arc<Reader>,
    addresses: Arc<[ChunkAddress]>,
    request: Request,
    results: mpsc::Sender<Indexed>,
}

impl Task {
    async fn run(self, indexes: Vec<u32>) {
        let opened = self.reader.versions.opened_for(self.request.local_only);
        match self.within_deadline(opened).await {
            Ok(version) => self.read(version, indexes).await,
            Err(error) => self.send_all(&indexes, &error).await,
        }
    }

    async fn read(&self, version: Arc<Version>, indexes: Vec<u32>) {
        let mut items = Vec::with_capacity(indexes.len());
        let mut absent = Vec::new();
        for index in indexes {
            match version.locate(&self.address(index)) {
                Some(chunk) => items.push(PlannedRead::new(index, chunk)),
                None => absent.push(index),
            }
        }
        join(self.read_items(&version, items), self.read_absent(absent)).await;
    }

    /// Refreshes once for all chunks that no file has, and reads those that a file has then.
    async fn read_absent(&self, absent: Vec<u32>) {
        if absent.is_empty() {
            return;
        }
        if self.request.local_only {
            return self.send_all(&absent, &Error::NotLocal).await;
        }
        let first = self.address(absent[0]);
        let version = match self.within_deadline(self.reader.versions.refreshed(&first)).await {
            Ok(version) => version,
            Err(error) => return self.send_all(&absent, &error).await,
        };
        let mut items = Vec::new();
        for index in absent {
            match version.locate(&self.address(index)) {
                Some(chunk) => items.push(PlannedRead::new(index, chunk)),
                None => self.send(index, self.count(index, Ok(None))).await,
            }
        }
        self.read_items(&version, items).await;
    }

    /// Reads chunks from the peers that own their files, and others as usual.
    async fn read_items(&self, version: &Arc<Version>, mut items: Vec<PlannedRead>) {
        sort(&mut items);
        let mut last = None;
        let (of_peers, own) = items.into_iter().partition(|item| {
            let file = &item.chunk.file;
            let asks = match last {
                Some((serial, asks)) if serial == file.serial => asks,
                _ => {
                    !self.request.local_only
                        && self.reader.peers.asks_for(file, self.request.requester)
                }
            };
            last = Some((file.serial, asks));
            asks && origin(file, &range(item.location.span)) == Origin::Store
        });
        join(self.read_own(version, own), self.read_of_peers(version, of_peers)).await;
    }

    /// Reads chunks of peers, in rounds of what a window holds. What a peer does not send is read
    /// as usual.
    async fn read_of_peers(&self, version: &Arc<Version>, items: Vec<PlannedRead>) {
        let mut items = items.into_iter().peekable();
        while let Some(first) = items.next() {
            let mut bytes = first.bytes();
            let mut round = vec![first];
            while round.len() < WINDOW_CHUNKS_MAX
                && let Some(item) = items.next_if(|item| bytes + item.bytes() <= WINDOW_BYTES_MAX)
            {
                bytes += item.bytes();
                round.push(item);
            }
            let missed = self.ask_peers(round).await;
            self.read_own(version, missed).await;
        }
    }

    /// Asks peers for chunks, sorted by file, and returns those that they do not send.
    async fn ask_peers(&self, round: Vec<PlannedRead>) -> Vec<PlannedRead> {
        let (mut asked, mut missed) = (FuturesUnordered::new(), Vec::new());
        for items in round.chunk_by(|one, next| one.chunk.file.serial == next.chunk.file.serial) {
            let chunks: Vec<_> = items
                .iter()
                .map(|item| (item.chunk.clone(), self.read_request(item.index)))
                .collect();
            match self.reader.peers.ask(&items[0].chunk.file, &chunks) {
                Some(reads) => asked.extend(
                    reads.into_iter().zip(items).map(async |(read, item)| (item, read.await)),
                ),
                None => missed.extend_from_slice(items),
            }
        }
        while let Some((item, read)) = asked.next().await {
            match read {
                Some(decoded) => {
                    let found = Ok(Some((decoded, item.chunk.read_from(Origin::Peer))));
                    self.send(item.index, self.count(item.index, found)).await;
                }
                None => missed.push(item.clone()),
            }
        }
        missed
    }

    async fn read_own(&self, version: &Arc<Version>, mut items: Vec<PlannedRead>) {
        sort(&mut items);
        let Request { local_only, deadline, .. } = self.request;
        let (task, version) = (self.clone(), version.clone());
        let finish = Arc::new(move |item: PlannedRead, started| {
            let (task, version) = (task.clone(), version.clone());
            async move {
                let request = task.read_request(item.index);
                let get = task.reader.get_from(version, Some(started), request);
                let found = task.within_deadline(get).await;
                (item.index, task.count(item.index, found))
            }
            .boxed()
        });
        let options = Box::new(move || ReadOptions { deadline, local_only });
        let mut window = Window::new(options, items, finish);
        while let Some((index, found)) = window.next().await {
            self.send(index, found).await;
        }
    }

    fn count(
        &self,
        index: u32,
        found: Result<Option<(Decoded, ReadFrom)>, Error>,
    ) -> Result<Option<Decoded>, Error> {
        self.reader.count(&self.address(index), self.request.requester, found)
    }

    fn read_request(&self, index: u32) -> ReadRequest {
        let wanted = Wanted::Chunk(self.request.form);
        ReadRequest::new(self.address(index), wanted, self.request)
    }

    /// Polls work until the request's deadline or until the store is closed.
    async fn within_deadline<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.reader.lifecycle().within_deadline(self.request.deadline, work).await
    }

    async fn send(&self, index: u32, found: Result<Option<Decoded>, Error>) {
        let found = found.map(|found| found.map(Decoded::into_chunk));
        // Fails when the request was dropped, which is about to abort this task.
        let _ = self.results.send((index, found)).await;
    }

    async fn send_all(&self, indexes: &[u32], error: &Error) {
        for index in indexes {
            self.send(*index, self.count(*index, Err(error.clone()))).await;
        }
    }

    fn address(&self, index: u32) -> ChunkAddress {
        self.addresses[usize::try_from(index).expect("an index fits into memory")]
    }
}
