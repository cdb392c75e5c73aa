//! gRPC: `busload.v1.Chunks` over the chunk stores, and the health and reflection services that
//! tools expect.
//!
//! ```text
//!  http::routes --> Chunks --> ChunkStores: answers at once from memory or page cache, else
//!          |           |                    waits for disk or object store
//!          |           +-----> Answers: the messages of GetChunks
//!          +-----> Health
//!          +-----> Reflection (v1 and v1alpha)
//! ```
//!
//! **Limits** are in [`limits`]; a call that exceeds one fails with `RESOURCE_EXHAUSTED`, or with
//! `INVALID_ARGUMENT` if it could never succeed. **Ordering.** None between calls, none within
//! `GetChunks`. **Shutdown.** Calls in flight fail with `UNAVAILABLE`.

mod answer;
mod chunks;
mod health;
pub mod limits;
mod many;

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use busload_proto::{DESCRIPTORS, v1::chunks_server::ChunksServer};
use tonic::{Status as Refusal, body::Body, server::NamedService, service::Routes};
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::Builder;

use crate::{shown::Shown, status::Status, tokens::TokenError};

const DESCRIPTORS_ARE_VALID: &str = "the descriptors are the compiler's own";

/// Answer to a request for a method that is no call of gRPC.
const NO_CALL: &str = "expected a call of gRPC, with `content-type: application/grpc`\n";

/// Returns the router of `busload.v1.Chunks`.
pub fn chunks(status: &Arc<Status>) -> Router {
    let chunks = ChunksServer::new(chunks::Chunks::new(Arc::clone(status)));
    router(services().add_service(chunks.max_decoding_message_size(limits::REQUEST_BYTES_MAX)))
}

/// Returns the router of the health service.
pub fn health(status: &Arc<Status>) -> Router {
    let health = HealthServer::new(health::Health::new(Arc::clone(status)))
        .max_decoding_message_size(limits::HEALTH_REQUEST_BYTES_MAX);
    router(services().add_service(health))
}

/// Returns the router of the reflection service.
pub fn reflection_v1() -> Router {
    let service = reflection().build_v1().expect(DESCRIPTORS_ARE_VALID);
    let bytes_max = limits::REFLECTION_REQUEST_BYTES_MAX;
    router(services().add_service(service.max_decoding_message_size(bytes_max)))
}

/// Returns the router of the reflection service's first version, for which some tools ask.
pub fn reflection_v1alpha() -> Router {
    let service = reflection().build_v1alpha().expect(DESCRIPTORS_ARE_VALID);
    let bytes_max = limits::REFLECTION_REQUEST_BYTES_MAX;
    router(services().add_service(service.max_decoding_message_size(bytes_max)))
}

/// Returns an empty set of services. Tonic's own default would answer for all other paths, too.
pub fn services() -> Routes {
    Routes::from(Router::new())
}

/// Returns the router of these services, which answer calls of gRPC only.
pub fn router(services: Routes) -> Router {
    services.into_axum_router().route_layer(middleware::from_fn(only_calls))
}

fn reflection() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Returns the full name of the service of chunks.
fn chunks_name() -> &'static str {
    <ChunksServer<chunks::Chunks> as NamedService>::NAME
}

/// Returns whether a request with these headers is a call of gRPC. A page of another site cannot
/// send this content type without a CORS preflight, as it can `text/plain`.
pub fn is_call(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let rest = kind.and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Refuses requests that are no calls of gRPC: the services do not check the content type.
async fn only_calls(request: Request, next: Next) -> Response {
    match is_call(request.headers()) {
        true => next.run(request).await,
        false => (StatusCode::UNSUPPORTED_MEDIA_TYPE, NO_CALL).into_response(),
    }
}

/// Answers requests for unknown paths. gRPC clients expect status 200 and an error in the trailers.
pub async fn nothing_here(request: Request) -> Response {
    if is_call(request.headers()) {
        let message = format!("there is no method {}", Shown(request.uri().path()));
        return Refusal::unimplemented(message).into_http::<Body>().into_response();
    }
    StatusCode::NOT_FOUND.into_response()
}

/// Returns how a call fails whose token is not taken.
pub fn token_refusal(error: TokenError) -> Refusal {
    match error {
        TokenError::Unavailable => Refusal::unavailable(error.to_string()),
        _ => Refusal::unauthenticated(error.to_string()),
    }
}
