//! Many chunks at once.
//!
//! ```text
//!  addresses --+-- seem to be on local disk --> read by whoever asks for the next answers, a turn at a time
//!              |                                     | not after all
//!              +-- have to be waited for -----------+----> a task: windows of reads, sorted --> a short queue --> answers
//!              +-- in no file ---------------------------> a task: one look at the manifest --^
//! ```
//!
//! Whoever does not take answers holds up the tasks, and with them the reads: nothing grows.

use std::{collections::VecDeque, sync::Arc};

use busload_chunks::ChunkAddress;
use busload_objects::ReadOptions;
use futures_util::FutureExt;
use tokio::{
    sync::mpsc::{self, error::TryRecvError},
    task::{JoinSet, coop::consume_budget},
};

use crate::{
    Attempt, Chunk, Error, Form, Request,
    limits::{LOCAL_TURN_BYTES_MAX, LOCAL_TURN_CHUNKS_MAX, RESULTS_QUEUED_MAX},
    read::decode::{Decoded, Wanted},
    read::reader::{ReadRequest, origin},
    read::window::{PlannedRead, Window, sort},
    shared::Shared,
    stats::Origin,
    versions::table_file::range,
    versions::version::Version,
};

/// One answer, by index.
type Indexed = (u32, Result<Option<Chunk>, Error>);

/// Answers to many addresses as they come, each once, by index.
pub struct ManyReads {
    shared: Arc<Shared>,
    addresses: Arc<[ChunkAddress]>,
    request: Request,
    is_started: bool,
    /// Indexes of what seems to be on local disk.
    local: VecDeque<u32>,
    /// Indexes of what seemed to be, and was not.
    stragglers: Vec<u32>,
    answers: mpsc::Receiver<Indexed>,
    sender: Option<mpsc::Sender<Indexed>>,
    tasks: JoinSet<()>,
    /// Which have been answered, so that each is, once, whatever happens to a task.
    answered: Vec<bool>,
    left: usize,
}

impl std::fmt::Debug for ManyReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManyReads")
            .field("asked", &self.addresses.len())
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl ManyReads {
    pub(crate) fn new(shared: Arc<Shared>, addresses: Vec<ChunkAddress>, request: Request) -> Self {
        let (sender, answers) = mpsc::channel(RESULTS_QUEUED_MAX);
        let left = addresses.len();
        Self {
            shared,
            addresses: addresses.into(),
            request,
            is_started: false,
            local: VecDeque::new(),
            stragglers: Vec::new(),
            answers,
            sender: Some(sender),
            tasks: JoinSet::new(),
            answered: vec![false; left],
            left,
        }
    }

    /// The next answers, as many as are there, appended to `into`; false: that was all.
    pub async fn next(&mut self, into: &mut Vec<(u32, Result<Option<Chunk>, Error>)>) -> bool {
        if self.left == 0 {
            return false;
        }
        if !self.is_started {
            self.is_started = true;
            self.start();
        }
        loop {
            // Whoever asks in a loop lets others run now and then.
            consume_budget().await;
            // What is put into `into` is noted before anything is awaited: a call that is given up
            // loses no answer.
            let before = into.len();
            self.take_landed(into);
            self.take_local(into);
            self.note(&into[before..]);
            if self.local.is_empty() {
                self.hand_over();
            }
            if before < into.len() {
                return true;
            }
            if self.local.is_empty() {
                self.wait(into).await;
                self.note(&into[before..]);
                return true;
            }
        }
    }

    /// Sorts out what can be answered here; the rest begins.
    fn start(&mut self) {
        let version = self.shared.version.load_full();
        let mut others = Vec::new();
        for (address, index) in self.addresses.iter().zip(0..) {
            match version.as_ref().is_none_or(|version| self.seems_local(version, address)) {
                // Without a version every attempt says at once what is to be said.
                true => self.local.push_back(index),
                false => others.push(index),
            }
        }
        self.spawn(others);
    }

    fn seems_local(&self, version: &Version, address: &ChunkAddress) -> bool {
        let is_in_memory = || self.shared.memory.get(address).is_some();
        if self.shared.is_closed() || (self.request.form == Form::Contents && is_in_memory()) {
            return true;
        }
        version.find(address).is_some_and(|(file, position)| {
            origin(file, &range(file.location(position).span)) == Origin::Disk
        })
    }

    fn take_landed(&mut self, into: &mut Vec<Indexed>) {
        while into.len() < LOCAL_TURN_CHUNKS_MAX {
            match self.answers.try_recv() {
                Ok(answer) => into.push(answer),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    fn take_local(&mut self, into: &mut Vec<Indexed>) {
        let want = Wanted::Chunk(self.request.form);
        let (mut chunks, mut bytes) = (0, 0);
        while chunks < LOCAL_TURN_CHUNKS_MAX && bytes < LOCAL_TURN_BYTES_MAX {
            let Some(index) = self.local.pop_front() else { return };
            match self.shared.try_answer(&self.address(index), want) {
                Attempt::Wait => self.stragglers.push(index),
                Attempt::Ready(answer) => {
                    let answer = answer.map(|answer| answer.map(Decoded::into_chunk));
                    bytes +=
                        answer.iter().flatten().map(|chunk| chunk.bytes().len()).sum::<usize>();
                    into.push((index, answer));
                }
            }
            chunks += 1;
        }
    }

    /// Nothing is added any more once all that seemed local has been tried.
    fn hand_over(&mut self) {
        let stragglers = std::mem::take(&mut self.stragglers);
        self.spawn(stragglers);
        self.sender = None;
    }

    fn spawn(&mut self, indexes: Vec<u32>) {
        let Some(sender) = self.sender.clone().filter(|_| !indexes.is_empty()) else { return };
        let task = Task {
            shared: self.shared.clone(),
            addresses: self.addresses.clone(),
            request: self.request,
            answers: sender,
        };
        self.tasks.spawn_on(task.run(indexes), &self.shared.runtime);
    }

    async fn wait(&mut self, into: &mut Vec<Indexed>) {
        match self.answers.recv().await {
            Some(answer) => {
                into.push(answer);
                self.take_landed(into);
            }
            // The runtime has ended and taken the tasks with it.
            None => {
                let left = self.answered.iter().zip(0..).filter(|(answered, _)| !**answered);
                into.extend(left.map(|(_, index)| (index, Err(Error::Closed))));
            }
        }
    }

    fn note(&mut self, answers: &[Indexed]) {
        for (index, _) in answers {
            let answered =
                &mut self.answered[usize::try_from(*index).expect("an index fits into memory")];
            assert!(!*answered, "each is answered once");
            *answered = true;
            self.left -= 1;
        }
    }

    fn address(&self, index: u32) -> ChunkAddress {
        self.addresses[usize::try_from(index).expect("an index fits into memory")]
    }
}

/// What waits for the addresses of one request.
#[derive(Clone)]
struct Task {
    shared: Arc<Shared>,
    addresses: Arc<[ChunkAddress]>,
    request: Request,
    answers: mpsc::Sender<Indexed>,
}

impl Task {
    async fn run(self, indexes: Vec<u32>) {
        let opened = match self.request.local_only && self.shared.version.load().is_none() {
            true => Err(self.shared.failure().unwrap_or(Error::NotLocal)),
            false => self.within_time(self.shared.opened_version()).await,
        };
        match opened {
            Ok(version) => self.read(version, indexes).await,
            Err(error) => self.send_all(&indexes, &error).await,
        }
    }

    async fn read(&self, version: Arc<Version>, indexes: Vec<u32>) {
        let mut items = Vec::with_capacity(indexes.len());
        let mut absent = Vec::new();
        for index in indexes {
            match version.place(&self.address(index)) {
                Some(place) => items.push(PlannedRead::new(index, place)),
                None => absent.push(index),
            }
        }
        futures_util::future::join(self.read_items(&version, items), self.read_absent(absent))
            .await;
    }

    /// One look at the manifest for all that no file has; what is found then is read.
    async fn read_absent(&self, absent: Vec<u32>) {
        if absent.is_empty() {
            return;
        }
        if self.request.local_only {
            return self.send_all(&absent, &Error::NotLocal).await;
        }
        let first = self.address(absent[0]);
        let version = match self.within_time(self.shared.refreshed_version(&first)).await {
            Ok(version) => version,
            Err(error) => return self.send_all(&absent, &error).await,
        };
        let mut items = Vec::new();
        for index in absent {
            match version.place(&self.address(index)) {
                Some(place) => items.push(PlannedRead::new(index, place)),
                None => self.send(index, self.shared.count(Ok(None))).await,
            }
        }
        self.read_items(&version, items).await;
    }

    async fn read_items(&self, version: &Arc<Version>, mut items: Vec<PlannedRead>) {
        sort(&mut items);
        let Request { local_only, deadline, .. } = self.request;
        let (task, version) = (self.clone(), version.clone());
        let finish = Arc::new(move |item: PlannedRead, started| {
            let (task, version) = (task.clone(), version.clone());
            async move {
                let job = task.job(item.index);
                let shared = task.shared.clone();
                let found =
                    task.within_time(shared.find_answer_from(job, version, Some(started))).await;
                (item.index, shared.count(found))
            }
            .boxed()
        });
        let options = Box::new(move || ReadOptions { deadline, local_only });
        let mut window = Window::new(options, items, finish);
        while let Some((index, answer)) = window.next().await {
            self.send(index, answer).await;
        }
    }

    fn job(&self, index: u32) -> ReadRequest {
        let Request { form, local_only, deadline } = self.request;
        ReadRequest {
            address: self.address(index),
            want: Wanted::Chunk(form),
            local_only,
            deadline,
        }
    }

    /// Until the deadline, or until the store is closed.
    async fn within_time<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.shared.within_time(self.request.deadline, work).await
    }

    async fn send(&self, index: u32, answer: Result<Option<Decoded>, Error>) {
        // An error: nobody wants the answers any more, and this task is about to be ended.
        let _ =
            self.answers.send((index, answer.map(|answer| answer.map(Decoded::into_chunk)))).await;
    }

    async fn send_all(&self, indexes: &[u32], error: &Error) {
        for index in indexes {
            self.send(*index, self.shared.count(Err(error.clone()))).await;
        }
    }

    fn address(&self, index: u32) -> ChunkAddress {
        self.addresses[usize::try_from(index).expect("an index fits into memory")]
    }
}
