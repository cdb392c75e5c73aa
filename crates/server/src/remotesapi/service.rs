//! The service `dolt.services.remotesapi.v1alpha1.ChunkStoreService`.

use std::sync::Arc;

use busload_proto::remotesapi::{
    AddTableFilesRequest, AddTableFilesResponse, CommitRequest, CommitResponse, GetDownloadLocsRequest,
    GetDownloadLocsResponse, GetRepoMetadataRequest, GetRepoMetadataResponse, GetUploadLocsRequest,
    GetUploadLocsResponse, HasChunksRequest, HasChunksResponse, ListTableFilesRequest,
    ListTableFilesResponse, RebaseRequest, RebaseResponse, RefreshTableFileUrlRequest,
    RefreshTableFileUrlResponse, RootRequest, RootResponse, StreamChunkLocationsRequest,
    StreamChunkLocationsResponse,
    chunk_store_service_server::{ChunkStoreService, ChunkStoreServiceServer},
};
use futures_util::stream::BoxStream;
use tonic::{Request, Response, Status as Refusal, Streaming};

use super::{Remotesapi, limits::REQUEST_BYTES_MAX};

/// What writes are answered with.
const READ_ONLY: &str = "busload serves this store for reading only: push to where it is stored";

/// The service.
pub fn service(remotesapi: &Arc<Remotesapi>) -> ChunkStoreServiceServer<Service> {
    let service = Service { remotesapi: Arc::clone(remotesapi) };
    ChunkStoreServiceServer::new(service).max_decoding_message_size(REQUEST_BYTES_MAX)
}

/// The service.
#[derive(Debug)]
pub struct Service {
    remotesapi: Arc<Remotesapi>,
}

impl Service {
    fn unwritten(&self) -> Refusal {
        let Remotesapi { status: _, front: _, records: _ } = &*self.remotesapi;
        Refusal::unimplemented("not written yet")
    }
}

#[tonic::async_trait]
impl ChunkStoreService for Service {
    type StreamDownloadLocationsStream = BoxStream<'static, Result<GetDownloadLocsResponse, Refusal>>;
    type StreamChunkLocationsStream = BoxStream<'static, Result<StreamChunkLocationsResponse, Refusal>>;

    async fn get_repo_metadata(
        &self,
        call: Request<GetRepoMetadataRequest>,
    ) -> Result<Response<GetRepoMetadataResponse>, Refusal> {
        let _ = call;
        Err(self.unwritten())
    }

    async fn has_chunks(
        &self,
        call: Request<HasChunksRequest>,
    ) -> Result<Response<HasChunksResponse>, Refusal> {
        let _ = call;
        Err(self.unwritten())
    }

    async fn get_download_locations(
        &self,
        call: Request<GetDownloadLocsRequest>,
    ) -> Result<Response<GetDownloadLocsResponse>, Refusal> {
        let _ = call;
        Err(self.unwritten())
    }

    async fn stream_download_locations(
        &self,
        call: Request<Streaming<GetDownloadLocsRequest>>,
    ) -> Result<Response<Self::StreamDownloadLocationsStream>, Refusal> {
        let _ = call;
        Err(self.unwritten())
    }

    async fn stream_chunk_locations(
        &self,
        call: Request<Streaming<StreamChunkLocationsRequest>>,
    ) -> Result<Response<Self::StreamChunkLocationsStream>, Refusal> {
        let _ = call;
        Err(self.unwritten())
    }

    async fn rebase(&self, call: Request<RebaseRequest>) -> Result<Response<RebaseResponse>, Refusal> {
        let _ = call;
        Err(self.unwritten())
    }

    async fn root(&self, call: Request<RootRequest>) -> Result<Response<RootResponse>, Refusal> {
        let _ = call;
        Err(self.unwritten())
    }

    async fn list_table_files(
        &self,
        call: Request<ListTableFilesRequest>,
    ) -> Result<Response<ListTableFilesResponse>, Refusal> {
        let _ = call;
        Err(self.unwritten())
    }

    async fn refresh_table_file_url(
        &self,
        call: Request<RefreshTableFileUrlRequest>,
    ) -> Result<Response<RefreshTableFileUrlResponse>, Refusal> {
        let _ = call;
        Err(self.unwritten())
    }

    async fn get_upload_locations(
        &self,
        _call: Request<GetUploadLocsRequest>,
    ) -> Result<Response<GetUploadLocsResponse>, Refusal> {
        Err(Refusal::permission_denied(READ_ONLY))
    }

    async fn commit(&self, _call: Request<CommitRequest>) -> Result<Response<CommitResponse>, Refusal> {
        Err(Refusal::permission_denied(READ_ONLY))
    }

    async fn add_table_files(
        &self,
        _call: Request<AddTableFilesRequest>,
    ) -> Result<Response<AddTableFilesResponse>, Refusal> {
        Err(Refusal::permission_denied(READ_ONLY))
    }
}
