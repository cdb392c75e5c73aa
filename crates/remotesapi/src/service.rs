//! The service `dolt.services.remotesapi.v1alpha1.ChunkStoreService`.
//!
//! How the service answers the unusual cases:
//!
//! * A client that names another repository format, or none, gets the format of the store. Clients
//!   compare the two themselves.
//! * A store without a manifest is an empty repository. Clients then say that there is nothing to
//!   clone.
//! * `Root` refreshes the manifest first, so that who pushed sees the push. While the manifest
//!   cannot be read it answers with the version that was read last.
//! * `Rebase` fails when the manifest cannot be read now, though an older version could be served.
//! * An address that a request names twice gets two entries; the older calls, whose answers are
//!   keyed by address, return it once.
//! * `GetDownloadLocations` returns records without dictionaries whatever the table's layout: only
//!   clients older than dictionaries call it.
//! * Writes are refused with `PERMISSION_DENIED`.

use std::sync::Arc;

use busload_calls::{CallMemory, Reservation, check_memory};
use busload_dolt::{ChunkAddress, Form, Request as ReadRequest, Requester};
use busload_proto::remotesapi::{
    AddTableFilesRequest, AddTableFilesResponse, CommitRequest, CommitResponse, Feature,
    GetDownloadLocsRequest, GetDownloadLocsResponse, GetRepoMetadataRequest,
    GetRepoMetadataResponse, GetUploadLocsRequest, GetUploadLocsResponse, HasChunksRequest,
    HasChunksResponse, ListTableFilesRequest, ListTableFilesResponse, PushConcurrencyControl,
    RebaseRequest, RebaseResponse, RefreshTableFileUrlRequest, RefreshTableFileUrlResponse,
    RootRequest, RootResponse, StreamChunkLocationsRequest, StreamChunkLocationsResponse,
    chunk_store_service_server::{ChunkStoreService, ChunkStoreServiceServer},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream::BoxStream};
use tonic::{Code, Request, Response, Status as Refusal, Streaming};

use crate::{
    Remotesapi,
    advertised::{Advertised, Answer},
    answer_stream::{AnswerStream, Batched},
    limits::{RECORDS_ENCODING_BYTES_MAX, REQUEST_BYTES_MAX},
    locate::{Encoder, Layout, locate},
    memory::TableBudgets,
    question::{MergedQuestions, Question, listed},
    stats::{Location, Method},
    table_files,
    target::{Caller, RepositoryRequest, Target},
};

/// Error text for writes.
const READ_ONLY: &str = "busload serves this store for reading only: push to where it is stored";
/// Format of the values in chunks. Clients require it.
const DATA_FORMAT: &str = "__DOLT__";

/// Builds the gRPC service.
pub fn service(remotesapi: &Arc<Remotesapi>) -> ChunkStoreServiceServer<Service> {
    let encoding_memory = Arc::new(TableBudgets::new(RECORDS_ENCODING_BYTES_MAX));
    let service = Service { remotesapi: Arc::clone(remotesapi), encoding_memory };
    ChunkStoreServiceServer::new(service).max_decoding_message_size(REQUEST_BYTES_MAX)
}

/// Handler of the calls of `ChunkStoreService`.
#[derive(Clone, Debug)]
pub struct Service {
    remotesapi: Arc<Remotesapi>,
    /// Memory budget of each table for bundles that are being encoded.
    encoding_memory: Arc<TableBudgets>,
}

/// A request for chunk locations.
struct LocationRequest {
    target: Target,
    layout: Layout,
    question: Question,
    /// Memory reservation of a request that came in a stream, held until it is answered.
    _reservation: Option<Reservation>,
}

impl Batched for LocationRequest {
    fn address_count(&self) -> usize {
        self.question.addresses.len()
    }

    fn goes_with(&self, first: &Self) -> bool {
        self.target.number() == first.target.number()
    }
}

impl Service {
    /// Answers a call that has one request and one response.
    async fn unary<M: RepositoryRequest + Sync, T>(
        &self,
        method: Method,
        call: Request<M>,
        answer: impl AsyncFnOnce(M, Target) -> Result<T, Refusal>,
    ) -> Result<Response<T>, Refusal> {
        self.remotesapi.stats.count_call(method);
        let answering = async {
            check_memory(call.extensions())?;
            let caller = self.remotesapi.caller(&call)?;
            let target = self.remotesapi.readable_target(call.get_ref(), &caller).await?;
            answer(call.into_inner(), target).await
        };
        answering
            .await
            .map(Response::new)
            .inspect_err(|refusal| self.count_failure(method, refusal))
    }

    fn refuse_write<T>(&self, method: Method) -> Result<Response<T>, Refusal> {
        let refusal = Refusal::permission_denied(READ_ONLY);
        self.remotesapi.stats.count_call(method);
        self.count_failure(method, &refusal);
        Err(refusal)
    }

    /// Counts a failed call, unless the client cancelled it.
    fn count_failure(&self, method: Method, refusal: &Refusal) {
        if refusal.code() != Code::Cancelled {
            self.remotesapi.stats.count_failed_call(method);
        }
    }

    /// Answers a streaming call request by request. Each request may name another repository.
    fn streamed<M: RepositoryRequest + Send + Sync + 'static>(
        &self,
        method: Method,
        call: Request<Streaming<M>>,
        question: fn(&M) -> Result<Question, Refusal>,
    ) -> Result<impl Stream<Item = Result<Answer, Refusal>> + Send + use<M>, Refusal> {
        self.remotesapi.stats.count_call(method);
        let begin = || {
            check_memory(call.extensions())?;
            self.remotesapi.caller(&call)
        };
        let caller = begin().inspect_err(|refusal| self.count_failure(method, refusal))?;
        let (memory, deadline) =
            (call.extensions().get::<CallMemory>().cloned(), *caller.deadline());
        let caller = Arc::new(caller);
        let (asking, answering, service) = (self.clone(), self.clone(), self.clone());
        let request = move |message: Result<M, Refusal>| {
            let reservation = memory.as_ref().map(CallMemory::take_received);
            let (asking, caller) = (asking.clone(), Arc::clone(&caller));
            async move { asking.location_request(&message?, &caller, question, reservation).await }
        };
        let answer = move |batch: Vec<Arc<LocationRequest>>| {
            let service = answering.clone();
            async move { service.answers(batch).await }
        };
        let answers = AnswerStream::new(call.into_inner().then(request).boxed(), answer, deadline);
        Ok(answers.inspect(move |answer| {
            if let Err(refusal) = answer {
                service.count_failure(method, refusal);
            }
        }))
    }

    async fn location_request<M: RepositoryRequest + Sync>(
        &self,
        message: &M,
        caller: &Caller,
        question: fn(&M) -> Result<Question, Refusal>,
        reservation: Option<Reservation>,
    ) -> Result<LocationRequest, Refusal> {
        let target = self.remotesapi.readable_target(message, caller).await?;
        Ok(LocationRequest {
            layout: target.layout().into(),
            target,
            question: question(message)?,
            _reservation: reservation,
        })
    }

    /// Locates the chunks of all requests of a batch in one version of the store. The work runs on
    /// the threads of the stores.
    async fn answers(&self, batch: Vec<Arc<LocationRequest>>) -> Result<Vec<Answer>, Refusal> {
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let (target, layout, urls) = (first.target.clone(), first.layout, first.target.urls()?);
        let (service, asked) = (self.clone(), target.clone());
        let work = async move {
            let MergedQuestions { addresses, entries } =
                MergedQuestions::of(batch.iter().map(|request| &request.question));
            let Service { remotesapi, encoding_memory } = &service;
            let encoder = Encoder { bundles: &remotesapi.bundles, memory: encoding_memory };
            let chunks = Arc::new(locate(encoder, &asked, (layout, &addresses)).await?);
            let (addresses, repository) = (Arc::from(addresses), asked.number());
            let answer = |entries| {
                let (addresses, chunks) = (Arc::clone(&addresses), Arc::clone(&chunks));
                let answer = Answer { entries, addresses, chunks, repository, urls: urls.clone() };
                let (found, missing) = answer.counts();
                remotesapi.stats.count_locations(Location::Found, found);
                remotesapi.stats.count_locations(Location::Missing, missing);
                answer
            };
            Ok(entries.into_iter().map(answer).collect())
        };
        target.run(work).await
    }

    /// Locates the chunks of one request.
    async fn answer(&self, request: LocationRequest) -> Result<Answer, Refusal> {
        let mut answers = self.answers(vec![Arc::new(request)]).await?;
        Ok(answers.pop().expect("there is an answer for each request"))
    }
}

/// Returns the indexes of addresses that are absent from one version of the store.
async fn absent(target: Target, addresses: Vec<ChunkAddress>) -> Result<Vec<i32>, Refusal> {
    let asked = target.clone();
    let work = async move {
        let deadline = asked.deadline().of_batch();
        let request = ReadRequest {
            form: Form::Contents,
            local_only: false,
            requester: Requester::Client,
            deadline,
        };
        let present = asked.within_deadline(asked.store().has_many(&addresses, request)).await?;
        let absent = (0..).zip(present).filter(|(_, is_present)| !is_present);
        Ok(absent.map(|(index, _)| index).collect())
    };
    target.run(work).await
}

async fn metadata(
    request: GetRepoMetadataRequest,
    target: Target,
) -> Result<GetRepoMetadataResponse, Refusal> {
    let snapshot = target.snapshot().await?;
    Ok(GetRepoMetadataResponse {
        nbf_version: DATA_FORMAT.to_owned(),
        nbs_version: request
            .client_repo_format
            .map(|format| format.nbs_version)
            .unwrap_or_default(),
        storage_size: snapshot.file_bytes(),
        repo_token: String::new(),
        push_concurrency_control: PushConcurrencyControl::IgnoreWorkingSet.into(),
        features: vec![Feature::StreamChunkLocations.into()],
    })
}

#[tonic::async_trait]
impl ChunkStoreService for Service {
    type StreamDownloadLocationsStream =
        BoxStream<'static, Result<GetDownloadLocsResponse, Refusal>>;
    type StreamChunkLocationsStream =
        BoxStream<'static, Result<StreamChunkLocationsResponse, Refusal>>;

    async fn get_repo_metadata(
        &self,
        call: Request<GetRepoMetadataRequest>,
    ) -> Result<Response<GetRepoMetadataResponse>, Refusal> {
        self.unary(Method::GetRepoMetadata, call, metadata).await
    }

    async fn has_chunks(
        &self,
        call: Request<HasChunksRequest>,
    ) -> Result<Response<HasChunksResponse>, Refusal> {
        let answer = async |request: HasChunksRequest, target| {
            let absent = absent(target, listed("hashes", &request.hashes)?).await?;
            Ok(HasChunksResponse { absent, repo_token: String::new() })
        };
        self.unary(Method::HasChunks, call, answer).await
    }

    async fn get_download_locations(
        &self,
        call: Request<GetDownloadLocsRequest>,
    ) -> Result<Response<GetDownloadLocsResponse>, Refusal> {
        let answer = async |request: GetDownloadLocsRequest, target| {
            let question = Question::of_list("chunk_hashes", &request.chunk_hashes)?;
            let layout = Layout::Records;
            let request = LocationRequest { target, layout, question, _reservation: None };
            self.answer(request).await.map(Answer::into_ranges)
        };
        self.unary(Method::GetDownloadLocations, call, answer).await
    }

    async fn stream_download_locations(
        &self,
        call: Request<Streaming<GetDownloadLocsRequest>>,
    ) -> Result<Response<Self::StreamDownloadLocationsStream>, Refusal> {
        let question = |request: &GetDownloadLocsRequest| {
            Question::of_list("chunk_hashes", &request.chunk_hashes)
        };
        let answers = self.streamed(Method::StreamDownloadLocations, call, question)?;
        Ok(Response::new(answers.map(|answer| answer.map(Answer::into_ranges)).boxed()))
    }

    async fn stream_chunk_locations(
        &self,
        call: Request<Streaming<StreamChunkLocationsRequest>>,
    ) -> Result<Response<Self::StreamChunkLocationsStream>, Refusal> {
        let question = |request: &StreamChunkLocationsRequest| {
            Question::of_packed("chunk_hashes", &request.chunk_hashes)
        };
        let answers = self.streamed(Method::StreamChunkLocations, call, question)?;
        let mut advertised = Advertised::default();
        let message =
            move |answer: Result<Answer, Refusal>| answer.map(|answer| advertised.message(&answer));
        Ok(Response::new(answers.map(message).boxed()))
    }

    async fn rebase(
        &self,
        call: Request<RebaseRequest>,
    ) -> Result<Response<RebaseResponse>, Refusal> {
        let answer = async |_, target: Target| {
            target.within_deadline(target.store().refresh()).await?;
            Ok(RebaseResponse::default())
        };
        self.unary(Method::Rebase, call, answer).await
    }

    async fn root(&self, call: Request<RootRequest>) -> Result<Response<RootResponse>, Refusal> {
        let answer = async |_, target: Target| {
            let snapshot = target.fresh_snapshot().await?;
            let root_hash = Bytes::copy_from_slice(&snapshot.manifest.root.0);
            Ok(RootResponse { root_hash, repo_token: String::new() })
        };
        self.unary(Method::Root, call, answer).await
    }

    async fn list_table_files(
        &self,
        call: Request<ListTableFilesRequest>,
    ) -> Result<Response<ListTableFilesResponse>, Refusal> {
        self.unary(Method::ListTableFiles, call, async |_, target| table_files::list(&target).await)
            .await
    }

    async fn refresh_table_file_url(
        &self,
        call: Request<RefreshTableFileUrlRequest>,
    ) -> Result<Response<RefreshTableFileUrlResponse>, Refusal> {
        let answer = async |request: RefreshTableFileUrlRequest, target: Target| {
            table_files::url(&target, &request.file_id).await
        };
        self.unary(Method::RefreshTableFileUrl, call, answer).await
    }

    async fn get_upload_locations(
        &self,
        _call: Request<GetUploadLocsRequest>,
    ) -> Result<Response<GetUploadLocsResponse>, Refusal> {
        self.refuse_write(Method::GetUploadLocations)
    }

    async fn commit(
        &self,
        _call: Request<CommitRequest>,
    ) -> Result<Response<CommitResponse>, Refusal> {
        self.refuse_write(Method::Commit)
    }

    async fn add_table_files(
        &self,
        _call: Request<AddTableFilesRequest>,
    ) -> Result<Response<AddTableFilesResponse>, Refusal> {
        self.refuse_write(Method::AddTableFiles)
    }
}
