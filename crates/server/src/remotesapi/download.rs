//! Downloads: table files and records, whole or by range.

use std::sync::Arc;

use axum::Router;

use super::Remotesapi;

/// The paths.
pub fn routes(remotesapi: &Arc<Remotesapi>) -> Router {
    let _ = remotesapi;
    Router::new()
}
