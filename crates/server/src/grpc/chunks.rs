//! Implementation of the service `busload.v1.Chunks`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use busload_calls::{CallTimer, Deadline, TimedCall, addresses, check_memory, status};
use busload_dolt::{Attempt, ChunkAddress, Error, Form, Request as ReadRequest, Requester, Store};
use busload_proto::v1::{
    GetChunkRequest, GetChunkResponse, GetChunksRequest, GetDictionaryRequest,
    GetDictionaryResponse, HasChunksRequest, HasChunksResponse, chunks_server,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout_at,
};
use tonic::{Request, Response, Status as Refusal};

use super::{
    answer,
    limits::{PEER_CALLS_SERVED_MAX, STREAMED_CALLS_MAX},
    many::{Answers, Call},
    token_refusal,
};
use crate::{
    access::PeerSender,
    chunk_sets::{NotServed, ServedStore},
    rights::{is_anonymous, may_read, token_sender},
    shown::Shown,
    status::Status,
    traces::CallSpan,
};

/// Implementation of the service of chunks.
#[derive(Debug)]
pub struct Chunks {
    status: Arc<Status>,
    /// Permits for calls of `GetChunks`.
    permits: Arc<Semaphore>,
    /// Permits for calls of `GetChunks` by peers.
    peer_permits: Arc<Semaphore>,
}

/// Table and deadline of a call.
struct Target {
    served: ServedStore,
    deadline: Deadline,
}

impl Chunks {
    /// Makes a service for the stores that the status gets once they have started.
    pub fn new(status: Arc<Status>) -> Self {
        let permits = [STREAMED_CALLS_MAX, PEER_CALLS_SERVED_MAX];
        let [permits, peer_permits] = permits.map(|count| Arc::new(Semaphore::new(count)));
        Self { status, permits, peer_permits }
    }

    async fn target<M: Sync>(&self, name: &str, call: &Request<M>) -> Result<Target, Refusal> {
        let Some(stores) = self.status.chunk_stores() else {
            return Err(Refusal::unavailable("busload is starting"));
        };
        let unknown = || {
            Refusal::not_found(format!(
                "store: no table of kind chunks has the name \"{}\"",
                Shown(name)
            ))
        };
        let sender = token_sender(call.extensions());
        // Asked before the store is looked for: a wrong token does not learn which there are.
        if let Some(sender) = sender
            && !sender.may_read(name).await.map_err(token_refusal)?
        {
            return Err(unknown());
        }
        // Whoever may not read a store does not learn whether it exists.
        if sender.is_none() && stores.knows(name) && !may_read(call.extensions(), name) {
            return Err(Refusal::permission_denied(format!(
                "store: this user may not read the table {name}; expected one with the rules +get \
                 and %R~{name}:*"
            )));
        }
        match stores.serve(name) {
            Ok(served) => {
                let deadline = Deadline::of(call.metadata(), served.settings().timeout)?;
                Ok(Target { served, deadline })
            }
            Err(NotServed::Unknown) => Err(unknown()),
            Err(NotServed::Failed(error)) => {
                Err(status(&error, &Deadline::of(call.metadata(), Duration::ZERO)?))
            }
        }
    }

    /// Begins the span of a call, if it is sampled.
    fn span<M>(&self, method: &'static str, target: &Target, call: &Request<M>) -> CallSpan {
        self.status.tracer().call(method, target.served.name(), call.metadata())
    }

    /// Counts chunks that a peer asks for.
    fn count_asked(&self, requester: Requester, chunks: usize) {
        if let (Requester::Peer, Some(peers)) = (requester, self.status.peers()) {
            peers.metrics().count_asked_by_peer(chunks);
        }
    }

    /// Waits for a permit for a call of `GetChunks`.
    async fn permit(
        &self,
        requester: Requester,
        deadline: &Deadline,
    ) -> Result<OwnedSemaphorePermit, Refusal> {
        let (permits, count) = match requester {
            Requester::Client | Requester::Bundle => (&self.permits, STREAMED_CALLS_MAX),
            Requester::Peer => (&self.peer_permits, PEER_CALLS_SERVED_MAX),
        };
        let permit = Arc::clone(permits).acquire_owned();
        let too_many = || {
            Refusal::resource_exhausted(format!(
                "{count} calls of GetChunks are under way, and none ended in time"
            ))
        };
        let waited =
            timeout_at(deadline.of_batch().into(), permit).await.map_err(|_| too_many())?;
        Ok(waited.expect("the semaphore is never closed"))
    }
}

/// Returns who sent a call: a peer logs in by a key, and where nobody has to log in, its message
/// says so. Who has logged in as somebody else is no peer, whatever the message says.
fn requester<M>(is_from_peer: bool, call: &Request<M>) -> Requester {
    let sender = call.extensions();
    match sender.get::<PeerSender>() {
        Some(_) => Requester::Peer,
        None if is_from_peer && is_anonymous(sender) => Requester::Peer,
        None => Requester::Client,
    }
}

impl Target {
    fn store(&self) -> &Store {
        self.served.store()
    }

    fn timer(&self, call: TimedCall) -> CallTimer {
        self.served.times().begin(call)
    }

    fn request(&self, form: Form, local_only: bool, requester: Requester) -> ReadRequest {
        ReadRequest { form, local_only, requester, deadline: self.deadline.of_batch() }
    }

    fn refusal(&self, error: &Error) -> Refusal {
        status(error, &self.deadline)
    }

    /// Waits for the store's answer until the deadline.
    async fn within_deadline<T>(
        &self,
        deadline: Instant,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Refusal> {
        match timeout_at(deadline.into(), answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.refusal(&error)),
            Err(_) => Err(self.deadline.passed()),
        }
    }

    /// Reads one chunk: at once from memory or the page cache, else waits for it.
    async fn chunk(&self, address: ChunkAddress, request: ReadRequest) -> answer::Outcome {
        if let Attempt::Ready(outcome) =
            self.store().try_get_for(request.requester, &address, request.form)
        {
            return outcome;
        }
        let waited = timeout_at(request.deadline.into(), self.store().get(address, request)).await;
        waited.unwrap_or_else(|_| {
            Err(Error::DeadlineExceeded(self.deadline.passed().message().to_owned()))
        })
    }

    /// Waits until the store is open. Fails if it does not open, so that the call fails once and
    /// not for each address.
    async fn opened(&self) -> Result<(), Refusal> {
        if self.store().snapshot().is_some() {
            return Ok(());
        }
        self.within_deadline(self.deadline.of_batch(), self.store().opened()).await
    }

    /// Returns the indexes of absent addresses, ascending.
    async fn absent(
        &self,
        addresses: &[ChunkAddress],
        local_only: bool,
    ) -> Result<Vec<u32>, Refusal> {
        let (mut absent, mut unknown) = (Vec::new(), Vec::new());
        for (index, address) in (0..).zip(addresses) {
            let attempt = if local_only { Attempt::Wait } else { self.store().try_has(address) };
            match attempt {
                Attempt::Ready(Ok(true)) => {}
                Attempt::Ready(Ok(false)) => absent.push(index),
                Attempt::Ready(Err(error)) => return Err(self.refusal(&error)),
                Attempt::Wait => unknown.push((index, *address)),
            }
        }
        if !unknown.is_empty() {
            let asked: Vec<_> = unknown.iter().map(|(_, address)| *address).collect();
            let request = self.request(Form::Contents, local_only, Requester::Client);
            let present = self.store().has_many(&asked, request);
            let present = self.within_deadline(request.deadline, present).await?;
            let late = unknown.iter().zip(present).filter(|(_, present)| !present);
            absent.extend(late.map(|((index, _), _)| *index));
            absent.sort_unstable();
        }
        Ok(absent)
    }
}

#[tonic::async_trait]
impl chunks_server::Chunks for Chunks {
    type GetChunksStream = Answers<Store>;

    async fn get_chunk(
        &self,
        call: Request<GetChunkRequest>,
    ) -> Result<Response<GetChunkResponse>, Refusal> {
        check_memory(call.extensions())?;
        let message = call.get_ref();
        let target = self.target(&message.store, &call).await?;
        let (address, form) = (answer::address(&message.address)?, answer::form(message.form)?);
        let span = self.span("GetChunk", &target, &call);
        let timer = target.timer(TimedCall::GetChunk);
        let requester = requester(message.from_peer, &call);
        self.count_asked(requester, 1);
        let request = target.request(form, message.only_if_local, requester);
        let outcome = target.chunk(address, request).await;
        timer.end();
        span.end(&outcome);
        // Many answers may have filled the memory in the meantime.
        check_memory(call.extensions())?;
        answer::one(outcome, &target.deadline).map(Response::new)
    }

    async fn get_chunks(
        &self,
        call: Request<GetChunksRequest>,
    ) -> Result<Response<Answers<Store>>, Refusal> {
        check_memory(call.extensions())?;
        let message = call.get_ref();
        let target = self.target(&message.store, &call).await?;
        addresses("addresses", &message.addresses)?;
        let form = answer::form(message.form)?;
        let span = self.span("GetChunks", &target, &call);
        let timer = target.timer(TimedCall::GetChunks);
        let requester = requester(message.from_peer, &call);
        self.count_asked(requester, message.addresses.len() / ChunkAddress::BYTES);
        let permit = self.permit(requester, &target.deadline).await?;
        target.opened().await?;
        let call = Call {
            addresses: message.addresses.clone(),
            form,
            local_only: message.only_if_local,
            requester,
            deadline: target.deadline,
            timer: Some(timer),
            _permit: Some(permit),
            _span: Some(span),
        };
        Ok(Response::new(Answers::new(target.store().clone(), call)))
    }

    async fn has_chunks(
        &self,
        call: Request<HasChunksRequest>,
    ) -> Result<Response<HasChunksResponse>, Refusal> {
        let message = call.get_ref();
        let target = self.target(&message.store, &call).await?;
        let asked: Vec<_> =
            addresses("addresses", &message.addresses)?.iter().copied().map(ChunkAddress).collect();
        let span = self.span("HasChunks", &target, &call);
        let timer = target.timer(TimedCall::HasChunks);
        let absent = target.absent(&asked, message.only_if_local).await;
        timer.end();
        span.end(&absent);
        Ok(Response::new(HasChunksResponse { absent: absent? }))
    }

    async fn get_dictionary(
        &self,
        call: Request<GetDictionaryRequest>,
    ) -> Result<Response<GetDictionaryResponse>, Refusal> {
        check_memory(call.extensions())?;
        let message = call.get_ref();
        let target = self.target(&message.store, &call).await?;
        let id = answer::dictionary_id(&message.dictionary_id)?;
        let request = target.request(Form::Contents, false, Requester::Client);
        let found = target
            .within_deadline(request.deadline, target.store().dictionary(&id, request))
            .await?;
        let dictionary = found.ok_or_else(|| {
            Refusal::not_found("dictionary_id: the store has no such dictionary, or not any more")
        })?;
        Ok(Response::new(GetDictionaryResponse { dictionary }))
    }
}
