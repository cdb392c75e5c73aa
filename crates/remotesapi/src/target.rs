//! Finds the repository that a request is for.
//!
//! A client names a repository by the path of the remote's URL, without slashes at its ends. That
//! is the name of a table, or one of its `dolt_paths`.

use std::{sync::Arc, time::Duration};

use busload_calls::{Deadline, Shown, status};
use busload_dolt::{Snapshot, Store, TableFile};
use busload_peers::View;
use busload_proto::remotesapi::{
    GetDownloadLocsRequest, GetRepoMetadataRequest, HasChunksRequest, ListTableFilesRequest,
    RebaseRequest, RefreshTableFileUrlRequest, RepoId, RootRequest, StreamChunkLocationsRequest,
};
use tokio::time::{timeout, timeout_at};
use tonic::{Extensions, Request, Status as Refusal, metadata::MetadataMap};

use crate::{
    Remotesapi,
    host::{DoltLayout, Host, Repository, StoreReader, TableRights},
    limits::ROOT_REFRESH_MAX,
    stats::RemotesapiStats,
    task,
    url::UrlBuilder,
};

/// A request that names its repository.
pub trait RepositoryRequest {
    /// Returns the repository as owner and name, if the client sent it so.
    fn repo_id(&self) -> Option<&RepoId>;
    /// Returns the repository as one path.
    fn repo_path(&self) -> &str;
}

macro_rules! named {
    ($($request:ty),+) => {
        $(impl RepositoryRequest for $request {
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
    /// Tables that the client may read.
    rights: TableRights,
    /// Reader that has to be asked about each store; none for users.
    reader: Option<Arc<dyn StoreReader>>,
}

/// The repository that a message is for, the deadline of its answer, and the address under which
/// the client reaches this server.
#[derive(Clone, Debug)]
pub struct Target {
    host: Arc<dyn Host>,
    repository: Arc<Repository>,
    deadline: Deadline,
    base: Option<String>,
    peers: Arc<View>,
    stats: Arc<RemotesapiStats>,
}

impl Remotesapi {
    /// Reads deadline and address from a call's headers.
    pub(crate) fn caller<T>(&self, call: &Request<T>) -> Result<Caller, Refusal> {
        self.caller_of(call.metadata(), call.extensions())
    }

    fn caller_of(
        &self,
        metadata: &MetadataMap,
        extensions: &Extensions,
    ) -> Result<Caller, Refusal> {
        let deadline = Deadline::of(metadata, Duration::ZERO)?;
        let base = self.host.base_url(extensions, metadata.as_ref());
        let (rights, reader) = (self.host.table_rights(extensions), self.host.reader(extensions));
        Ok(Caller { base, deadline, rights, reader })
    }

    /// Finds the repository that a message is for, if the caller may read it. To a caller with a
    /// token, others look as if they did not exist.
    pub(crate) async fn readable_target(
        &self,
        message: &(impl RepositoryRequest + Sync),
        caller: &Caller,
    ) -> Result<Target, Refusal> {
        let Some(reader) = &caller.reader else { return self.target(message, caller) };
        let path = path(message)?;
        let found = self.host.repositories().and_then(|all| find(&all, &path));
        // Asked in any case: a wrong token does not learn which stores there are.
        let name = found.as_ref().map_or(&*path, |repository| &repository.name);
        if reader.may_read(name).await? && (found.is_some() || self.host.is_known(&path)) {
            return self.target(message, caller);
        }
        Err(Refusal::not_found(format!(
            "there is no chunk store `{}` that this token may read",
            Shown(&path)
        )))
    }

    /// Finds the repository that a message is for.
    pub(crate) fn target(
        &self,
        message: &impl RepositoryRequest,
        caller: &Caller,
    ) -> Result<Target, Refusal> {
        let path = path(message)?;
        let repositories = self.host.repositories();
        let repositories =
            repositories.ok_or_else(|| Refusal::unavailable("busload is starting"))?;
        let refused = |name: &str| {
            Err(Refusal::permission_denied(format!(
                "this user may not read the table {name}; expected one with the rules +get and \
                 %R~{name}:*"
            )))
        };
        let repository = match find(&repositories, &path) {
            Some(repository) if caller.rights.may_read(&repository.name) => repository,
            Some(repository) => return refused(&repository.name),
            None if !self.host.is_known(&path) => {
                return Err(Refusal::not_found(unknown_path(&repositories, &path)));
            }
            // Whoever may not read a store does not learn whether it exists.
            None if !caller.rights.may_read(&path) => return refused(&path),
            None => {
                let opened = self.host.open_repository(&path);
                let opened = opened.map_err(|error| status(&error, &caller.deadline))?;
                opened.ok_or_else(|| Refusal::not_found(unknown_path(&repositories, &path)))?
            }
        };
        Ok(Target {
            host: Arc::clone(&self.host),
            deadline: caller.deadline.with_timeout(repository.timeout),
            repository,
            base: caller.base.clone(),
            peers: self.host.peers(),
            stats: Arc::clone(&self.stats),
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
    /// Returns the number that the repository alone has.
    pub fn number(&self) -> usize {
        self.repository.number
    }

    pub fn store(&self) -> &Store {
        &self.repository.store
    }

    /// Returns the kind of resource that clients get the repository's chunks from.
    pub fn layout(&self) -> DoltLayout {
        self.repository.layout
    }

    /// Returns whether a table file belongs to this server and not to a peer.
    pub fn is_mine(&self, file: &TableFile) -> bool {
        self.peers.is_mine(&self.repository.name, &file.id.0)
    }

    /// Returns the deadline of the answer.
    pub fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Returns the wall clock's time in milliseconds since 1970.
    pub fn wall_ms(&self) -> i64 {
        self.host.wall_ms()
    }

    /// Returns how long URLs are valid, if they expire.
    pub fn url_lifetime(&self) -> Option<Duration> {
        self.host.url_lifetime()
    }

    /// Waits for the store's answer until the deadline.
    pub async fn within_deadline<T>(
        &self,
        answer: impl Future<Output = Result<T, busload_dolt::Error>>,
    ) -> Result<T, Refusal> {
        let timed = timeout_at(self.deadline.of_batch().into(), answer).await;
        timed.map_err(|_| self.deadline_exceeded())?.map_err(|error| status(&error, &self.deadline))
    }

    /// Builds the error for a deadline that was exceeded.
    pub fn deadline_exceeded(&self) -> Refusal {
        let Repository { name, url, timeout, .. } = &*self.repository;
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

    /// Returns a version that is not older than the call. If the object store does not answer in
    /// time, returns the version that was read last.
    pub async fn fresh_snapshot(&self) -> Result<Arc<Snapshot>, Refusal> {
        // Who pushes, and asks next, sees the push; and clones work while the object store is away.
        let refresh = self.within_deadline(self.store().refresh());
        let _ = timeout(ROOT_REFRESH_MAX, refresh).await;
        self.snapshot().await
    }

    /// Runs work on the stores' threads.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        task::run(self.host.runtime(), work).await
    }

    /// Returns the builder of the repository's URLs, which name no peer that has just ended: a
    /// client whose download was cut off asks again at once.
    pub async fn settled_urls(&self) -> Result<UrlBuilder, Refusal> {
        Ok(UrlBuilder { peers: self.host.settled_peers().await, ..self.urls()? })
    }

    /// Returns the builder of the repository's URLs.
    pub fn urls(&self) -> Result<UrlBuilder, Refusal> {
        let base = self.base.clone().ok_or_else(|| {
            Refusal::invalid_argument(
                "expected the host that the request was sent to, in `:authority`",
            )
        })?;
        let table = self.repository.name.clone();
        let (peers, stats) = (Arc::clone(&self.peers), Arc::clone(&self.stats));
        Ok(UrlBuilder { base, key: self.host.download_key(&table), table, peers, stats })
    }
}

/// Returns the repository's path as the client sent it, without slashes at its ends.
fn path(message: &impl RepositoryRequest) -> Result<String, Refusal> {
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

/// Returns the repository of this name, else the one that has this path among its others.
fn find(repositories: &[Arc<Repository>], path: &str) -> Option<Arc<Repository>> {
    let named = || repositories.iter().find(|repository| repository.name == path);
    let is_path = |given: &String| given.trim_matches('/') == path;
    let known = || repositories.iter().find(|repository| repository.paths.iter().any(is_path));
    named().or_else(known).cloned()
}

fn unknown_path(repositories: &[Arc<Repository>], path: &str) -> String {
    let names = repositories.iter().map(|repository| repository.name.as_str());
    let paths = repositories
        .iter()
        .flat_map(|repository| repository.paths.iter().map(|path| path.trim_matches('/')));
    let known: Vec<&str> = names.chain(paths).collect();
    // A path longer than what is shown is no misspelling of a known one, and the search for similar
    // names takes time in proportion to both lengths.
    let shown = Shown(path).to_string();
    let found = match nearest(&shown, &known) {
        _ if known.is_empty() => format!("there is no chunk store `{shown}`, nor any other"),
        Some(near) => {
            format!("`{shown}` is no chunk store of this busload; did you mean `{near}`?")
        }
        None => {
            let known = known.join(", ");
            format!("`{shown}` is no chunk store of this busload; there are {known}")
        }
    };
    format!("{found} (expected the name of a table of kind chunks, or one of its dolt_paths)")
}

/// Returns the path that a misspelled one probably meant: it begins with it, or a few typing errors
/// explain the difference.
fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let edits_max = (written.len() / 3).clamp(1, 4);
    let begins = |known: &str| 3 <= written.len() && known.starts_with(written);
    let edits = known.iter().map(|known| (strsim::osa_distance(written, known), *known));
    let near = edits.filter(|(edits, known)| *edits <= edits_max || begins(known));
    near.min_by_key(|(edits, _)| *edits).map(|(_, known)| known)
}

#[cfg(test)]
mod tests;
