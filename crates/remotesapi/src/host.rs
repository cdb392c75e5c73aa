//! The server around the protocol, as the protocol needs it.

use std::{fmt, sync::Arc, time::Duration};

use axum::http::HeaderMap;
use busload_calls::CallTimes;
use busload_dolt::{Error, OpenStore, Store};
use busload_peers::View;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tonic::{Extensions, Status};

/// The server that mounts the protocol.
pub trait Host: fmt::Debug + Send + Sync {
    /// Returns the repositories that there are now, or none as long as their stores have not
    /// started.
    fn repositories(&self) -> Option<Repositories>;

    /// Returns the runtime of the stores, or none after they have stopped.
    fn runtime(&self) -> Option<Handle>;

    /// Returns scheme and authority, without a slash at the end, under which the sender of this
    /// request reaches the server; none if the request does not say.
    fn base_url(&self, extensions: &Extensions, headers: &HeaderMap) -> Option<String>;

    /// Returns which peers own which table files now; without peers the default view, in which
    /// everything is this server's.
    fn peers(&self) -> Arc<View>;

    /// Returns what [`Host::peers`] returns, once it is known of each peer that may just have ended
    /// whether it answers; soon in any case.
    fn settled_peers(&self) -> BoxFuture<'_, Arc<View>>;

    /// Returns the repository of a name that [`Host::repositories`] need not list, because its
    /// store is opened when it is asked for; none if there is no such name. Does not wait.
    fn open_repository(&self, name: &str) -> Result<Option<Arc<Repository>>, Error>;

    /// Returns whether a repository may have this name. Opens nothing.
    fn is_known(&self, name: &str) -> bool;

    /// Returns which tables the sender of a request with these extensions may read.
    fn table_rights(&self, extensions: &Extensions) -> TableRights;

    /// Returns who has to be asked about each store that the sender of a request with these
    /// extensions wants to read: a client with a token. [`Host::table_rights`] says nothing of it.
    fn reader(&self, extensions: &Extensions) -> Option<Arc<dyn StoreReader>>;

    /// Returns how long the key of a URL is valid, if it expires.
    fn url_lifetime(&self) -> Option<Duration>;

    /// Returns the key for the URLs of a table's downloads, with which clients send no
    /// credentials; none if everybody may download.
    fn download_key(&self, table: &str) -> Option<String>;

    /// Checks the key in a URL of a table that may not exist.
    fn check_key(&self, table: &str, key: Option<&str>) -> KeyCheck;

    /// Returns the wall clock's time in milliseconds since 1970.
    fn wall_ms(&self) -> i64;
}

/// Rights of a client to read tables.
#[derive(Clone)]
pub struct TableRights(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl TableRights {
    /// Makes the rights of a client from the check of a table's name.
    pub fn new(may_read: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(may_read))
    }

    /// Returns whether the client may read the table of this name.
    pub fn may_read(&self, table: &str) -> bool {
        (self.0)(table)
    }
}

impl fmt::Debug for TableRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableRights")
    }
}

/// Sender of a request whose right to a store may be known elsewhere.
pub trait StoreReader: fmt::Debug + Send + Sync {
    /// Returns whether the sender may read a store, which need not exist.
    fn may_read<'a>(&'a self, store: &'a str) -> BoxFuture<'a, Result<bool, Status>>;
}

/// Repositories at some moment.
pub type Repositories = Arc<[Arc<Repository>]>;

/// A chunk store that clients see as a repository.
#[derive(Clone, Debug)]
pub struct Repository {
    /// Name of the table, which is also the first path that clients find it under.
    pub name: String,
    /// Further paths, like `org/repo`.
    pub paths: Vec<String>,
    /// URL of the object store, without secrets, for error texts.
    pub url: String,
    /// Timeout of requests whose clients set none.
    pub timeout: Duration,
    /// Kind of chunk locations that clients get.
    pub layout: DoltLayout,
    /// The chunks and table files themselves.
    pub store: Store,
    /// Times of downloads, by their kind.
    pub times: Arc<CallTimes>,
    /// Number that no other repository of the process has, not even one that has its name at
    /// another time.
    pub number: usize,
    /// Keeps a store open that was opened for a request.
    pub lease: Option<Arc<OpenStore>>,
}

/// Kind of chunk locations that the server advertises to Dolt's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoltLayout {
    /// Ranges of the table files.
    Files,
    /// Ranges of bundles encoded for each answer: records one after the other, without
    /// dictionaries.
    Records,
}

impl DoltLayout {
    /// Returns the value of the setting.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Records => "records",
        }
    }
}

/// Outcome of the check of a URL's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCheck {
    /// Everybody may download, so shared caches may store the bytes.
    Public,
    /// The key is that of the table. Shared caches must not store the bytes.
    Right,
    /// The key is missing or wrong.
    Wrong,
}
