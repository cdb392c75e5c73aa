//! The way with waiting: lookup, read, check; and what is tried when something is wrong.
//!
//! | what is wrong | what is tried |
//! |---|---|
//! | no file has the chunk | one look at the manifest that begins now, then the chunk does not exist |
//! | the bytes are not the chunk | the same bytes from the store again, then copies in other files; then not for a while |
//! | the object is gone or was replaced | one look at the manifest, which opens it anew |
//! | the store cannot be reached | nothing here: the objects have tried until the deadline |

use std::{sync::Arc, time::Instant};

use busload_chunks::{ChunkAddress, ChunkLocation, FormatError, Span};
use busload_objects::{ReadOptions, Reading};
use bytes::Bytes;
use futures_util::future::join;
use tokio::time::{self, timeout_at};

use crate::{
    Error,
    fault::Fault,
    limits::{
        COPIES_MAX, COPY_READS_MAX, DICTIONARY_STORED_BYTES_MAX, DICTIONARY_TIMEOUT,
        INLINE_CONTENTS_BYTES_MAX, LOOKUPS_MAX,
    },
    read::decode::{Decoded, RawChunk, Trust, Wanted},
    read::dictionaries::LoadedDictionary,
    shared::Shared,
    state::StoreStatus,
    stats::Origin,
    task::{Owned, blocking},
    versions::table_file::{TableFile, range},
    versions::version::{ChunkCopy, Version},
};

/// One question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRequest {
    pub address: ChunkAddress,
    pub want: Wanted,
    pub local_only: bool,
    pub deadline: Instant,
}

/// What an attempt at a chunk was made of.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    span: Option<Bytes>,
    dictionary: Option<Bytes>,
}

impl Seen {
    fn is_whole(&self, location: &ChunkLocation) -> bool {
        self.span.is_some() && self.dictionary.is_some() == location.dictionary.is_some()
    }
}

/// A read that was started with others.
pub(crate) struct StartedRead {
    pub reading: Reading,
    pub origin: Origin,
}

impl ReadRequest {
    fn read_options(&self) -> ReadOptions {
        ReadOptions { deadline: self.deadline, local_only: self.local_only }
    }
}

impl Shared {
    /// Runs work on the store's runtime, from whatever thread, until its deadline or until the
    /// store is closed. Giving up the wait gives up the work.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        deadline: Instant,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let shared = self.clone();
        let task = self.runtime.spawn(async move { shared.within_time(deadline, work).await });
        Owned::new(task).join().await?
    }

    /// Work on the store's runtime, until the deadline or until the store is closed.
    pub async fn within_time<T>(
        &self,
        deadline: Instant,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.closed() => Err(Error::Closed),
            done = timeout_at(deadline.into(), work) => done.unwrap_or_else(|_| Err(self.too_late())),
        }
    }

    /// Nothing came in time.
    pub fn too_late(&self) -> Error {
        let url = self.remote.url();
        Error::TooLate(match &*self.state.borrow() {
            StoreStatus::Open => format!("{url} did not answer within the time given"),
            StoreStatus::Opening => format!("{url} could not be opened within the time given"),
            StoreStatus::Failed(error) => {
                format!("{url} did not answer within the time given; before that: {error}")
            }
        })
    }

    /// The current version, as soon as there is one or it is known why there is none.
    pub async fn opened_version(&self) -> Result<Arc<Version>, Error> {
        if let Some(version) = self.version.load_full() {
            return Ok(version);
        }
        let mut state = self.state.subscribe();
        // The sender is a part of this, so waiting cannot fail.
        let _ = state.wait_for(|state| *state != StoreStatus::Opening).await;
        let failure = || self.failure().unwrap_or(Error::Closed);
        self.version.load_full().ok_or_else(failure)
    }

    /// The version after a look at the manifest that begins now. Its error says what is not known
    /// for want of it.
    pub async fn refreshed_version(&self, address: &ChunkAddress) -> Result<Arc<Version>, Error> {
        let unknown = |text| format!("whether chunk {address} exists is not known: {text}");
        self.checks.check().await.map_err(|error| match error {
            Error::Unreachable(text) => Error::Unreachable(unknown(text)),
            Error::TooLate(text) => Error::TooLate(unknown(text)),
            other => other,
        })?;
        self.opened_version().await
    }

    /// Answers, and counts the answer.
    pub async fn answer(self: &Arc<Self>, job: ReadRequest) -> Result<Option<Decoded>, Error> {
        let answer = self.find_answer(job).await;
        self.count(answer)
    }

    /// Counts an answer that was waited for.
    pub fn count(
        &self,
        answer: Result<Option<(Decoded, Origin)>, Error>,
    ) -> Result<Option<Decoded>, Error> {
        match answer {
            Ok(Some((answer, origin))) => {
                self.counters.count_found(origin);
                Ok(Some(answer))
            }
            Ok(None) => {
                self.counters.count_other(None);
                Ok(None)
            }
            Err(error) => {
                self.counters.count_other(Some(&error));
                Err(error)
            }
        }
    }

    async fn find_answer(
        self: &Arc<Self>,
        job: ReadRequest,
    ) -> Result<Option<(Decoded, Origin)>, Error> {
        if job.local_only && self.version.load().is_none() {
            return Err(self.failure().unwrap_or(Error::NotLocal));
        }
        let version = self.opened_version().await?;
        self.find_answer_from(job, version, None).await
    }

    /// From a version, perhaps with a read that was started already. Not counted.
    pub async fn find_answer_from(
        self: &Arc<Self>,
        job: ReadRequest,
        mut version: Arc<Version>,
        mut started: Option<StartedRead>,
    ) -> Result<Option<(Decoded, Origin)>, Error> {
        let mut is_refreshed = false;
        for _ in 0..LOOKUPS_MAX {
            match version.place(&job.address) {
                None if is_refreshed => return Ok(None),
                // The manifest is elsewhere, and that is where not to look.
                None if job.local_only => return Err(Error::NotLocal),
                None => {}
                Some(place) => match self.read_any(&version, &place, started.take(), job).await {
                    Ok(found) => return Ok(Some(found)),
                    Err(Fault::Error(error)) => return Err(error),
                    Err(Fault::Corrupt(text)) => return Err(Error::Corrupt(text)),
                    Err(Fault::Gone) if job.local_only => return Err(Error::NotLocal),
                    Err(Fault::Gone) => {}
                },
            }
            version = self.refreshed_version(&job.address).await?;
            is_refreshed = true;
        }
        Err(Error::Unreachable(format!(
            "{}: the table file of chunk {} is replaced again and again",
            self.remote.url(),
            job.address
        )))
    }

    /// From one file, or from others that have the chunk, too, if it is corrupt there.
    async fn read_any(
        self: &Arc<Self>,
        version: &Version,
        place: &ChunkCopy,
        started: Option<StartedRead>,
        job: ReadRequest,
    ) -> Result<(Decoded, Origin), Fault> {
        let first = self.read_copy_unless_corrupt(place, started, job).await;
        let Err(Fault::Corrupt(_)) = first else {
            return first;
        };
        let others = version.files().filter(|file| file.serial != place.file.serial);
        let copies = others.filter_map(|file| {
            let position = file.index.find(&job.address)?;
            Some(ChunkCopy { file: file.clone(), position })
        });
        for copy in copies.take(COPIES_MAX - 1) {
            match self.read_copy_unless_corrupt(&copy, None, job).await {
                Err(Fault::Corrupt(_) | Fault::Gone) => {}
                outcome => return outcome,
            }
        }
        first
    }

    /// One copy of a chunk, if it was not found corrupt a moment ago.
    pub async fn read_copy_unless_corrupt(
        self: &Arc<Self>,
        place: &ChunkCopy,
        started: Option<StartedRead>,
        job: ReadRequest,
    ) -> Result<(Decoded, Origin), Fault> {
        match self.corruption.of(&place.file, place.position) {
            None => self.read_copy(place, started, job).await,
            Some(text) => {
                self.counters.count_corrupt();
                Err(Fault::Corrupt(text))
            }
        }
    }

    /// One copy of a chunk, compared with its address. Wrong bytes are taken from local disk and
    /// read again.
    pub async fn read_copy(
        self: &Arc<Self>,
        place: &ChunkCopy,
        mut started: Option<StartedRead>,
        job: ReadRequest,
    ) -> Result<(Decoded, Origin), Fault> {
        let ChunkCopy { file, position } = place;
        let location = file.location(*position);
        let (mut last, mut seen, mut is_agreed) = (String::new(), Seen::default(), false);
        for attempt in 0..COPY_READS_MAX {
            let StartedRead { reading, origin } =
                started.take().unwrap_or_else(|| start(file, &location, job));
            let before = std::mem::take(&mut seen);
            let is_last = attempt + 1 == COPY_READS_MAX;
            match self.finish(file, &location, reading, (job, is_last, &mut seen)).await {
                Ok(answer) => {
                    self.remember(&job.address, &answer);
                    return Ok((answer, origin));
                }
                Err(Fault::Corrupt(text)) => last = text,
                Err(Fault::Gone) => {
                    file.set_gone();
                    return Err(Fault::Gone);
                }
                Err(fault) => return Err(fault),
            }
            if attempt == 0 {
                self.counters.count_corrupt();
            }
            is_agreed = seen.is_whole(&location) && seen == before;
            // What the last two reads brought alike from the store is what the store has. It stays
            // on disk, with its neighbours.
            if attempt + 1 < COPY_READS_MAX || origin == Origin::Disk || !is_agreed {
                self.invalidate(file, &location);
            }
        }
        let text = self.log_corruption(file, &location, &job.address, &last);
        // What differs from read to read is corrupt on its way, and may be right at any time.
        if is_agreed {
            self.corruption.note(file, *position, &text);
        }
        Err(Fault::Corrupt(text))
    }

    /// Returns what is to be said of it.
    fn log_corruption(
        &self,
        file: &TableFile,
        location: &ChunkLocation,
        address: &ChunkAddress,
        text: &str,
    ) -> String {
        let text = format!(
            "chunk {address} in {}, {} bytes at {}: {text}",
            file.name(),
            location.span.length,
            location.span.offset
        );
        if file.should_log_corruption() {
            log::error!("table {}: corrupt in the store: {text}", self.name);
        }
        text
    }

    /// What is on local disk of a chunk, or on its way there, is not used any more; and its
    /// dictionary only if nothing came out right with it, for a file's other chunks need it, too.
    fn invalidate(&self, file: &TableFile, location: &ChunkLocation) {
        file.object.invalidate(range(location.span));
        if let Some(span) = location.dictionary
            && self.dictionaries.doubt(file, span)
        {
            file.object.invalidate(range(span));
        }
    }

    /// Waits for the bytes and makes the answer of them.
    async fn finish(
        self: &Arc<Self>,
        file: &Arc<TableFile>,
        location: &ChunkLocation,
        reading: Reading,
        (job, is_last, seen): (ReadRequest, bool, &mut Seen),
    ) -> Result<Decoded, Fault> {
        let dictionary = self.dictionary_of(file, location.dictionary, job, is_last);
        let (bytes, dictionary) = join(reading, dictionary).await;
        let bytes = bytes?;
        seen.span = Some(bytes.clone());
        seen.dictionary =
            dictionary.iter().flatten().next().map(|known| known.dictionary().bytes().clone());
        let raw = RawChunk::parse(bytes, *location)?;
        let dictionary = dictionary?;
        let contents_bytes = raw.contents_bytes()?;
        let (id, used) = (file.id, dictionary.clone());
        let make = move || {
            let with = dictionary.as_deref().map(LoadedDictionary::dictionary);
            let answer = raw.answer(&job.address, &id, with, (job.want, Trust::Unverified))?;
            dictionary.iter().for_each(|dictionary| dictionary.mark_verified());
            Ok::<_, FormatError>(answer)
        };
        let answer = match contents_bytes <= INLINE_CONTENTS_BYTES_MAX {
            true => make()?,
            false => blocking(make).await??,
        };
        if let (true, Some(span), Some(used)) = (is_last, location.dictionary, used) {
            // What others had of it was wrong in a byte that this chunk needs.
            file.object.invalidate(range(span));
            self.dictionaries.insert(file, span, used);
        }
        Ok(answer)
    }

    async fn dictionary_of(
        self: &Arc<Self>,
        file: &Arc<TableFile>,
        span: Option<Span>,
        job: ReadRequest,
        is_last: bool,
    ) -> Result<Option<Arc<LoadedDictionary>>, Fault> {
        match span {
            None => Ok(None),
            // A dictionary may be wrong with which other chunks came out right: it is read for this
            // one alone.
            Some(span)
                if is_last && !job.local_only && span.length <= DICTIONARY_STORED_BYTES_MAX =>
            {
                let bytes = self.remote.read(file.object.meta(), range(span)).await?;
                Ok(Some(Arc::new(LoadedDictionary::decode(&bytes)?)))
            }
            Some(span) => self.read_dictionary(file, span, job).await.map(Some),
        }
    }

    /// A dictionary, for use. Whether it is right shows in what is made with it.
    pub async fn read_dictionary(
        self: &Arc<Self>,
        file: &Arc<TableFile>,
        span: Span,
        job: ReadRequest,
    ) -> Result<Arc<LoadedDictionary>, Fault> {
        if let Some(dictionary) = self.try_dictionary(file, span) {
            return Ok(dictionary);
        }
        if DICTIONARY_STORED_BYTES_MAX < span.length {
            return Err(Fault::Corrupt(format!(
                "its dictionary has {} bytes, expected at most {DICTIONARY_STORED_BYTES_MAX}",
                span.length
            )));
        }
        if job.local_only {
            let reading = file.object.read(range(span), job.read_options());
            return decode_dictionary(reading).await;
        }
        let object = file.object.clone();
        let read = || {
            let deadline = (time::Instant::now() + DICTIONARY_TIMEOUT).into_std();
            decode_dictionary(object.read(range(span), ReadOptions { deadline, local_only: false }))
        };
        self.dictionaries.get_or_read(file, span, read).await
    }
}

async fn decode_dictionary(reading: Reading) -> Result<Arc<LoadedDictionary>, Fault> {
    let bytes = reading.await?;
    Ok(Arc::new(LoadedDictionary::decode(&bytes)?))
}

/// Starts to read a chunk.
fn start(file: &TableFile, location: &ChunkLocation, job: ReadRequest) -> StartedRead {
    let range = range(location.span);
    let origin = origin(file, &range);
    StartedRead { reading: file.object.read(range, job.read_options()), origin }
}

/// Where a range is going to come from.
pub(crate) fn origin(file: &TableFile, range: &std::ops::Range<u64>) -> Origin {
    match file.object.is_local(range.clone()) {
        true => Origin::Disk,
        false => Origin::Store,
    }
}
