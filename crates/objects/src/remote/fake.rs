//! A store in memory whose answers can be delayed, slowed, cut and falsified, for tests on tokio's
//! paused clock.

use std::{
    collections::VecDeque,
    fmt,
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result, memory::InMemory, path::Path,
};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, sleep_until},
};

use super::{Remote, RemoteOptions, http};

/// Answer that one request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Good,
    /// An error with this status.
    Status(u16),
    /// No answer: the connection breaks.
    Reset,
    /// No answer, for ever.
    Silence,
    /// A good answer that comes this much later.
    Late(Duration),
    /// A range that begins one byte later, of the right length.
    OtherRange,
    /// The size of another version.
    OtherSize,
    /// The ETag of another version.
    OtherEtag,
    /// The body ends after this many bytes as if that were all.
    Cut(usize),
    /// The body breaks after this many bytes.
    Break(usize),
    /// The body stalls after this many bytes.
    Stall(usize),
    /// The body has this many bytes too many, in one piece with the rest.
    Long(usize),
    Panic,
}

/// A GET that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FakeRequest {
    pub(crate) name: String,
    pub(crate) range: Option<Range<u64>>,
    pub(crate) if_match: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Fake {
    inner: InMemory,
    state: Arc<Mutex<FakeState>>,
}

#[derive(Debug)]
struct FakeState {
    answers: VecDeque<Answer>,
    /// Answer when there is none in the queue.
    otherwise: Answer,
    requests: Vec<FakeRequest>,
    first_byte: Duration,
    /// Bytes of a piece of a body, and the time between two.
    piece: usize,
    pause: Duration,
    /// Link that all bodies share, if they share one.
    link: Option<Link>,
    under_way: usize,
    under_way_most: usize,
    /// Each so many requests is late by this time; 0: none is.
    late: (u64, Duration),
    /// Bodies that come at a time, and the most so far.
    bodies: usize,
    bodies_most: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    bytes_per_second: u64,
    free: Instant,
}

impl Link {
    /// Time at which these bytes have come through, behind those on the link. None: never.
    fn carry(&mut self, bytes: usize) -> Option<Instant> {
        if self.bytes_per_second == 0 {
            return None;
        }
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        self.free = self.free.max(Instant::now()) + takes;
        Some(self.free)
    }
}

impl Fake {
    pub(crate) fn new() -> Arc<Self> {
        let state = FakeState {
            answers: VecDeque::new(),
            otherwise: Answer::Good,
            requests: Vec::new(),
            first_byte: Duration::from_millis(30),
            piece: 64 << 10,
            pause: Duration::from_millis(1),
            link: None,
            under_way: 0,
            under_way_most: 0,
            late: (0, Duration::ZERO),
            bodies: 0,
            bodies_most: 0,
        };
        Arc::new(Self { inner: InMemory::new(), state: Arc::new(Mutex::new(state)) })
    }

    /// Makes a remote of this store, with the timeouts and attempts of the tests of this crate.
    pub(crate) fn remote(self: &Arc<Self>) -> Arc<Remote> {
        Remote::over(Arc::clone(self) as Arc<dyn ObjectStore>, options(Handle::current()))
    }

    pub(crate) async fn store(&self, name: &str, bytes: impl Into<Bytes>) {
        self.inner.put(&Path::from(name), bytes.into().into()).await.unwrap();
    }

    /// Sets the answers of the next requests; later ones get good answers.
    pub(crate) fn answer(&self, answers: impl IntoIterator<Item = Answer>) {
        self.state.lock().unwrap().answers.extend(answers);
    }

    /// Sets the answer of all requests from now on.
    pub(crate) fn answer_always(&self, answer: Answer) {
        self.state.lock().unwrap().otherwise = answer;
    }

    /// Lets all requests from now on get good answers.
    pub(crate) fn forget_answers(&self) {
        self.state.lock().unwrap().answers.clear();
        self.answer_always(Answer::Good);
    }

    pub(crate) fn pace(&self, first_byte: Duration, piece: usize, pause: Duration) {
        let mut state = self.state.lock().unwrap();
        (state.first_byte, state.piece, state.pause) = (first_byte, piece, pause);
    }

    /// Lets all bodies from now on share one link of this pace; at pace 0 none moves.
    pub(crate) fn link(&self, bytes_per_second: u64) {
        self.state.lock().unwrap().link = Some(Link { bytes_per_second, free: Instant::now() });
    }

    /// Returns the GETs that came, in order.
    pub(crate) fn requests(&self) -> Vec<FakeRequest> {
        self.state.lock().unwrap().requests.clone()
    }

    /// Most GETs that were under way at once, up to their headers.
    pub(crate) fn under_way_most(&self) -> usize {
        self.state.lock().unwrap().under_way_most
    }

    /// Lets each so many requests from now on be late; 0: none.
    pub(crate) fn late_each(&self, count: u64, late: Duration) {
        self.state.lock().unwrap().late = (count, late);
    }

    /// GETs under way now, up to their headers.
    pub(crate) fn under_way(&self) -> usize {
        self.state.lock().unwrap().under_way
    }

    /// Most bodies that came at once.
    pub(crate) fn bodies_most(&self) -> usize {
        self.state.lock().unwrap().bodies_most
    }

    fn begin(&self, location: &Path, options: &GetOptions) -> (Answer, Duration) {
        let mut state = self.state.lock().unwrap();
        let range = options.range.as_ref().and_then(|range| match range {
            GetRange::Bounded(range) => Some(range.clone()),
            _ => None,
        });
        let (name, if_match) = (location.to_string(), options.if_match.clone());
        state.requests.push(FakeRequest { name, range, if_match });
        state.under_way += 1;
        state.under_way_most = state.under_way_most.max(state.under_way);
        let otherwise = state.otherwise;
        let (each, late) = state.late;
        let is_late = 0 < each && (state.requests.len() as u64).is_multiple_of(each);
        let otherwise = if is_late { Answer::Late(late) } else { otherwise };
        let answer = state.answers.pop_front().unwrap_or(otherwise);
        let first_byte = state.first_byte;
        match answer {
            Answer::Late(late) => (answer, first_byte + late),
            _ => (answer, first_byte),
        }
    }

    /// Falsifies the header of an answer.
    fn bent(answer: Answer, mut good: GetResult) -> GetResult {
        match answer {
            Answer::OtherRange => good.range = good.range.start + 1..good.range.end + 1,
            Answer::OtherSize => good.meta.size += 1,
            Answer::OtherEtag => good.meta.e_tag = Some("other".to_owned()),
            _ => {}
        }
        good
    }

    fn body(&self, answer: Answer, bytes: Bytes) -> BoxStream<'static, Result<Bytes>> {
        let (piece, pause) = {
            let mut state = self.state.lock().unwrap();
            state.bodies += 1;
            state.bodies_most = state.bodies_most.max(state.bodies);
            (state.piece, state.pause)
        };
        let body = Body(Arc::clone(&self.state));
        let (bytes, end) = match answer {
            Answer::Cut(after) => (bytes.slice(..after.min(bytes.len())), Some(None)),
            Answer::Break(after) => {
                (bytes.slice(..after.min(bytes.len())), Some(Some(transport())))
            }
            Answer::Stall(after) => (bytes.slice(..after.min(bytes.len())), None),
            Answer::Long(extra) => ([bytes, vec![0; extra].into()].concat().into(), Some(None)),
            _ => (bytes, Some(None)),
        };
        let size = if matches!(answer, Answer::Long(_)) { bytes.len() } else { piece };
        let pieces: Vec<_> = bytes.chunks(size.max(1)).map(Bytes::copy_from_slice).collect();
        let body = stream::iter(pieces).then(move |piece| {
            let state = Arc::clone(&body.0);
            async move {
                sleep(pause).await;
                let through =
                    state.lock().unwrap().link.as_mut().map(|link| link.carry(piece.len()));
                match through {
                    None => {}
                    Some(Some(through)) => sleep_until(through).await,
                    Some(None) => std::future::pending().await,
                }
                Ok(piece)
            }
        });
        match end {
            Some(error) => body.chain(stream::iter(error.map(Err))).boxed(),
            None => body.chain(stream::pending()).boxed(),
        }
    }
}

fn transport() -> Error {
    Error::Generic { store: "fake", source: "connection reset by peer".into() }
}

pub(crate) fn options(runtime: Handle) -> RemoteOptions {
    RemoteOptions {
        environment: Arc::new(|_| None),
        runtime,
        requests_max: 64,
        stall_timeout: Duration::from_secs(3),
        attempts_max: 4,
        hedge: false,
    }
}

/// Makes bytes that differ everywhere, so that bytes of another position are noticed.
pub(crate) fn contents(length: usize) -> Bytes {
    let word = |index: usize| {
        (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17).to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(length.next_multiple_of(8));
    for index in 0..length.div_ceil(8) {
        bytes.extend_from_slice(&word(index));
    }
    bytes.truncate(length);
    bytes.into()
}

impl fmt::Display for Fake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("fake")
    }
}

/// A body that comes.
struct Body(Arc<Mutex<FakeState>>);

impl Drop for Body {
    fn drop(&mut self) {
        self.0.lock().unwrap().bodies -= 1;
    }
}

struct UnderWay<'a>(&'a Fake);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().under_way -= 1;
    }
}

#[async_trait]
impl ObjectStore for Fake {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (answer, first_byte) = self.begin(location, &options);
        let _under_way = UnderWay(self);
        sleep(first_byte).await;
        match answer {
            Answer::Silence => return std::future::pending().await,
            Answer::Reset => return Err(transport()),
            Answer::Panic => panic!("the fake store panics as it was told to"),
            Answer::Status(status) => {
                http::pretend(status);
                return Err(Error::Generic {
                    store: "fake",
                    source: format!("status {status}").into(),
                });
            }
            _ => {}
        }
        let good = self.inner.get_opts(location, options).await?;
        let (meta, range) = (good.meta.clone(), good.range.clone());
        let (attributes, extensions) = (good.attributes.clone(), good.extensions.clone());
        let bytes = good.bytes().await?;
        let payload = GetResultPayload::Stream(self.body(answer, bytes));
        Ok(Self::bent(answer, GetResult { payload, meta, range, attributes, extensions }))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let answer = self.state.lock().unwrap().answers.pop_front();
        match answer {
            Some(Answer::Status(status)) => {
                http::pretend(status);
                Err(Error::Generic { store: "fake", source: format!("status {status}").into() })
            }
            Some(_) => Err(transport()),
            None => self.inner.list_with_delimiter(prefix).await,
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
