//! Finds the table that a request is for, and builds the URLs of its answer.
//!
//! A client names a repository by the path of the remote's URL, without slashes at its ends. That
//! is the name of a table, or one of its `dolt_paths`.

use std::{sync::Arc, time::Duration};

use axum::http::Extensions;
use busload_dolt::{Snapshot, Store, TableFile};
use busload_proto::remotesapi::{
    GetDownloadLocsRequest, GetRepoMetadataRequest, HasChunksRequest, ListTableFilesRequest,
    RebaseRequest, RefreshTableFileUrlRequest, RepoId, RootRequest, StreamChunkLocationsRequest,
};
use tokio::time::timeout_at;
use tonic::{Request, Status as Refusal, metadata::MetadataMap};

use super::{
    Remotesapi,
    url::{FileName, Resource},
    work,
};
use crate::{
    chunk_stores::{ChunkStores, ChunkTable},
    config::{ChunksSettings, DoltLayout, unknown},
    grpc::{answer, deadline::Deadline},
    http::Asked,
    shown::Shown,
};

/// A request that names its repository.
pub trait Named {
    /// Returns the repository as owner and name, if the client sent it so.
    fn repo_id(&self) -> Option<&RepoId>;
    /// Returns the repository as one path.
    fn repo_path(&self) -> &str;
}

macro_rules! named {
    ($($request:ty),+) => {
        $(impl Named for $request {
            fn repo_id(&self) -> Option<&RepoId> {
                self.repo_id.as_ref()
            }

            fn repo_path(&self) -> &str {
                &self.repo_path
            }
        })+
    };
}

named!(
    GetRepoMetadataRequest,
    HasChunksRequest,
    GetDownloadLocsRequest,
    StreamChunkLocationsRequest,
    RebaseRequest,
    RootRequest,
    ListTableFilesRequest,
    RefreshTableFileUrlRequest
);

/// Properties of a call that are not in its messages.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Scheme and authority that the client used; none if it did not send them.
    base: Option<String>,
    /// Deadline of the client, with no table's timeout applied yet.
    deadline: Deadline,
}

/// The table that a message is for, the deadline of its answer, and the address under which the
/// client reaches this server.
#[derive(Clone, Debug)]
pub struct Target {
    stores: Arc<ChunkStores>,
    /// Index of the table in `stores`.
    position: usize,
    deadline: Deadline,
    base: Option<String>,
    key: Option<String>,
}

/// Builder of the URLs of one table.
#[derive(Clone, Debug)]
pub struct Links {
    base: String,
    table: String,
    key: Option<String>,
}

impl Remotesapi {
    /// Reads deadline and address from a call's headers.
    pub fn caller<T>(&self, call: &Request<T>) -> Result<Caller, Refusal> {
        self.caller_of(call.metadata(), call.extensions())
    }

    fn caller_of(
        &self,
        metadata: &MetadataMap,
        extensions: &Extensions,
    ) -> Result<Caller, Refusal> {
        let deadline = Deadline::of(metadata, Duration::ZERO)?;
        let asked = extensions.get::<Asked>().cloned().unwrap_or(Asked(None));
        Ok(Caller { base: self.front.base(&asked, metadata.as_ref()), deadline })
    }

    /// Finds the table that a message is for.
    pub fn target(&self, message: &impl Named, caller: &Caller) -> Result<Target, Refusal> {
        let path = path(message)?;
        let stores = self.status.chunk_stores();
        let stores = stores.ok_or_else(|| Refusal::unavailable("busload is starting"))?;
        let position = position(stores.tables(), &path)?;
        let settings = &stores.tables()[position].settings;
        Ok(Target {
            stores: Arc::clone(stores),
            position,
            deadline: caller.deadline.with_timeout(settings.timeout),
            base: caller.base.clone(),
            key: self.front.access.key(&settings.name),
        })
    }
}

impl Caller {
    /// Returns the deadline that the client set, if any.
    pub fn deadline(&self) -> &Deadline {
        &self.deadline
    }
}

impl Target {
    fn table(&self) -> &ChunkTable {
        &self.stores.tables()[self.position]
    }

    /// Returns the index of the table.
    pub fn position(&self) -> usize {
        self.position
    }

    pub fn store(&self) -> &Store {
        &self.table().store
    }

    /// Returns the kind of resource that clients get the table's chunks from.
    pub fn layout(&self) -> DoltLayout {
        self.table().settings.dolt_layout
    }

    /// Returns the deadline of the answer.
    pub fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Waits for the store's answer until the deadline.
    pub async fn within_deadline<T>(
        &self,
        answer: impl Future<Output = Result<T, busload_dolt::Error>>,
    ) -> Result<T, Refusal> {
        let timed = timeout_at(self.deadline.of_batch().into(), answer).await;
        timed.map_err(|_| self.too_late())?.map_err(|error| answer::status(&error, &self.deadline))
    }

    /// Builds the error for a deadline that was exceeded.
    pub fn too_late(&self) -> Refusal {
        let ChunksSettings { name, url, timeout, .. } = &self.table().settings;
        match self.deadline.of_client() {
            Some(_) => self.deadline.passed(),
            None => Refusal::unavailable(format!(
                "{url} did not answer within {timeout:?}, the timeout of the table {name}"
            )),
        }
    }

    /// Returns the current version, after waiting for the store to open.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, Refusal> {
        if let Some(snapshot) = self.store().snapshot() {
            return Ok(snapshot);
        }
        self.within_deadline(self.store().opened()).await?;
        self.store().snapshot().ok_or_else(|| Refusal::unavailable("the store is being opened"))
    }

    /// Runs work on the stores' threads.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        work::run(self.stores.handle(), work).await
    }

    /// Returns the builder of the table's URLs.
    pub fn links(&self) -> Result<Links, Refusal> {
        let base = self.base.clone().ok_or_else(|| {
            Refusal::invalid_argument(
                "expected the host that the request was sent to, in `:authority`",
            )
        })?;
        Ok(Links { base, table: self.table().settings.name.clone(), key: self.key.clone() })
    }
}

impl Links {
    #[cfg(test)]
    pub fn for_tests(base: &str, table: &str, key: Option<&str>) -> Self {
        Self { base: base.to_owned(), table: table.to_owned(), key: key.map(str::to_owned) }
    }

    /// Returns the URL under which a resource can be downloaded.
    pub fn url(&self, resource: &Resource) -> String {
        let mut url = self.base.clone() + &resource.path(&self.table);
        if let Some(key) = &self.key {
            url += "?key=";
            url += key;
        }
        url
    }
}

impl FileName {
    /// Returns the name of an open file.
    pub fn of(file: &TableFile) -> Self {
        Self { id: file.id, kind: file.kind, version: file.version() }
    }
}

/// Returns the repository's path as the client sent it, without slashes at its ends.
fn path(message: &impl Named) -> Result<String, Refusal> {
    let whole = message.repo_path().trim_matches('/');
    if !whole.is_empty() {
        return Ok(whole.to_owned());
    }
    let parts =
        message.repo_id().map(|id| [id.org.trim_matches('/'), id.repo_name.trim_matches('/')]);
    let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    match parts.is_empty() {
        false => Ok(parts.join("/")),
        true => Err(Refusal::invalid_argument(
            "repo_path: expected the path of the remote's URL, as in http://host:6381/NAME, \
             got none",
        )),
    }
}

/// Returns the table of this name, else the one that lists this path in its `dolt_paths`.
fn position(tables: &[ChunkTable], path: &str) -> Result<usize, Refusal> {
    let named = || tables.iter().position(|table| table.settings.name == path);
    let is_path = |given: &String| given.trim_matches('/') == path;
    let known = || tables.iter().position(|table| table.settings.dolt_paths.iter().any(is_path));
    named().or_else(known).ok_or_else(|| Refusal::not_found(unknown_path(tables, path)))
}

fn unknown_path(tables: &[ChunkTable], path: &str) -> String {
    let settings = || tables.iter().map(|table| &table.settings);
    let names = settings().map(|settings| settings.name.as_str());
    let paths = settings()
        .flat_map(|settings| settings.dolt_paths.iter().map(|path| path.trim_matches('/')));
    let known: Vec<&str> = names.chain(paths).collect();
    // A path longer than what is shown is no misspelling of a known one, and the search for similar
    // names takes time in proportion to both lengths.
    let shown = Shown(path);
    let found = match known.is_empty() {
        true => format!("there is no chunk store `{shown}`, nor any other"),
        false => unknown(&shown.to_string(), "chunk store of this busload", &known),
    };
    format!("{found} (expected the name of a table of kind chunks, or one of its dolt_paths)")
}

#[cfg(test)]
#[path = "target/tests.rs"]
mod tests;
