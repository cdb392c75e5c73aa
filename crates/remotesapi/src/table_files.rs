//! The list of a store's table files, and the URL of one of them.

use std::{
    collections::HashSet,
    time::{Duration, UNIX_EPOCH},
};

use busload_calls::Shown;
use busload_dolt::FileId;
use busload_proto::remotesapi::{
    ListTableFilesResponse, RefreshTableFileUrlResponse, TableFileInfo,
};
use bytes::Bytes;
use tokio::task::coop::consume_budget;
use tonic::Status as Refusal;

use crate::{
    target::Target,
    url::{FileName, Resource},
};

/// Lifetime of URLs that answers announce if the URLs themselves never expire.
const URL_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Returns the root and the table files of the current version, including those of the old
/// generation and of the appendix. A file that the manifest names several times is listed once.
pub async fn list(target: &Target) -> Result<ListTableFilesResponse, Refusal> {
    let snapshot = target.snapshot().await?;
    let urls = target.settled_urls().await?;
    let mut known = HashSet::new();
    let mut table_file_info = Vec::new();
    for file in &snapshot.files {
        if known.insert(file.id) {
            table_file_info.push(TableFileInfo {
                file_id: file.id.to_string(),
                num_chunks: file.index.chunk_count(),
                url: urls.url(&Resource::File(FileName::of(file))),
                ..TableFileInfo::default()
            });
        }
        // Lets other tasks run between thousands of files.
        consume_budget().await;
    }
    let root_hash = Bytes::copy_from_slice(&snapshot.manifest.root.0);
    Ok(ListTableFilesResponse { root_hash, table_file_info, ..ListTableFilesResponse::default() })
}

/// Returns the URL of a table file of the current version, or of one replaced a short while ago.
pub async fn url(target: &Target, file_id: &str) -> Result<RefreshTableFileUrlResponse, Refusal> {
    let urls = target.settled_urls().await?;
    let id: FileId = file_id.parse().map_err(|_| {
        Refusal::invalid_argument(format!(
            "file_id: expected 32 characters of 0-9a-v, got `{}`",
            Shown(file_id)
        ))
    })?;
    target.snapshot().await?;
    let file = target.store().table_file(&id).ok_or_else(|| {
        Refusal::not_found(format!("file_id: the store has no table file {id}, or not any more"))
    })?;
    let valid = target.url_lifetime().map_or(URL_LIFETIME, |lifetime| lifetime / 2);
    let now = Duration::from_millis(u64::try_from(target.wall_ms()).unwrap_or_default());
    Ok(RefreshTableFileUrlResponse {
        url: urls.url(&Resource::File(FileName::of(&file))),
        refresh_after: Some((UNIX_EPOCH + now + valid).into()),
        repo_token: String::new(),
    })
}
