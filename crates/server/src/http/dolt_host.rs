//! Implements the trait `Host` of Dolt's protocol with the server's stores, URLs and keys.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use axum::http::{Extensions, HeaderMap};
use busload_dolt::Error;
use busload_io::{Clock, RealClock};
use busload_peers::View;
use busload_remotesapi::{Host, KeyCheck, Repositories, Repository, StoreReader, TableRights};
use futures_util::future::{BoxFuture, FutureExt};
use tokio::runtime::Handle;
use tonic::Status as Refusal;

use super::front::{Front, RequestedHost};
use crate::{
    access::TokenSender,
    chunk_sets::{NotServed, ServedStore},
    chunk_stores::Tables,
    grpc::token_refusal,
    rights::{may_read, token_sender},
    status::Status,
};

/// Adapter of status and front for Dolt's protocol.
#[derive(Debug)]
pub struct DoltHost {
    status: Arc<Status>,
    front: Arc<Front>,
    /// Repositories, and the tables of the stores that they were made of.
    repositories: Mutex<Option<(Tables, Repositories)>>,
}

impl DoltHost {
    /// Makes a host for the stores that `status` gets.
    pub fn new(status: Arc<Status>, front: Arc<Front>) -> Arc<Self> {
        Arc::new(Self { status, front, repositories: Mutex::default() })
    }
}

impl Host for DoltHost {
    fn repositories(&self) -> Option<Repositories> {
        let tables = self.status.chunk_stores()?.tables();
        let mut made = self.repositories.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((of, repositories)) if Arc::ptr_eq(of, &tables) => Some(repositories.clone()),
            _ => {
                let repositories: Repositories = tables
                    .iter()
                    .map(|table| repository(ServedStore::Table(table.clone())))
                    .collect();
                *made = Some((tables, repositories.clone()));
                Some(repositories)
            }
        }
    }

    fn runtime(&self) -> Option<Handle> {
        self.status.chunk_stores()?.handle()
    }

    fn base_url(&self, extensions: &Extensions, headers: &HeaderMap) -> Option<String> {
        let asked = extensions.get::<RequestedHost>().cloned().unwrap_or(RequestedHost(None));
        self.front.base(&asked, headers)
    }

    fn peers(&self) -> Arc<View> {
        self.status.peers().map(|peers| peers.view()).unwrap_or_default()
    }

    fn settled_peers(&self) -> BoxFuture<'_, Arc<View>> {
        async move {
            match self.status.peers() {
                Some(peers) => peers.settled().await,
                None => Arc::default(),
            }
        }
        .boxed()
    }

    fn open_repository(&self, name: &str) -> Result<Option<Arc<Repository>>, Error> {
        let Some(stores) = self.status.chunk_stores() else { return Ok(None) };
        match stores.serve(name) {
            Ok(served) => Ok(Some(repository(served))),
            Err(NotServed::Unknown) => Ok(None),
            Err(NotServed::Failed(error)) => Err(error),
        }
    }

    fn is_known(&self, name: &str) -> bool {
        self.status.chunk_stores().is_some_and(|stores| stores.knows(name))
    }

    fn reader(&self, extensions: &Extensions) -> Option<Arc<dyn StoreReader>> {
        Some(Arc::new(token_sender(extensions)?.clone()))
    }

    fn table_rights(&self, extensions: &Extensions) -> TableRights {
        // Of a token the reader is asked.
        if token_sender(extensions).is_some() {
            return TableRights::new(|_| true);
        }
        let extensions = extensions.clone();
        TableRights::new(move |name| may_read(&extensions, name))
    }

    fn url_lifetime(&self) -> Option<Duration> {
        self.front.access.url_lifetime()
    }

    fn download_key(&self, table: &str) -> Option<String> {
        self.front.access.key(table, self.wall_ms())
    }

    fn check_key(&self, table: &str, key: Option<&str>) -> KeyCheck {
        let Front { access, metrics, .. } = &*self.front;
        if access.allows_key(table, key, self.wall_ms()) {
            return if access.url_lifetime().is_some() {
                KeyCheck::Right
            } else {
                KeyCheck::Public
            };
        }
        metrics.auth_denied.fetch_add(u64::from(key.is_some()), Ordering::Relaxed);
        KeyCheck::Wrong
    }

    fn wall_ms(&self) -> i64 {
        RealClock::new().wall_ms()
    }
}

impl StoreReader for TokenSender {
    fn may_read<'a>(&'a self, store: &'a str) -> BoxFuture<'a, Result<bool, Refusal>> {
        async move { TokenSender::may_read(self, store).await.map_err(token_refusal) }.boxed()
    }
}

fn repository(served: ServedStore) -> Arc<Repository> {
    let (settings, store) = (served.settings(), served.store());
    Arc::new(Repository {
        name: store.name().to_owned(),
        paths: settings.dolt_paths.clone(),
        url: store.url().to_owned(),
        timeout: settings.timeout,
        layout: settings.dolt_layout,
        store: store.clone(),
        number: served.number(),
        times: Arc::clone(served.times()),
        lease: match served {
            ServedStore::Table(_) => None,
            ServedStore::OfSet(_, open) => Some(open),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{access::Access, chunk_stores::ChunkStores, config::ChunksSettings};

    fn host(access: Access) -> Arc<DoltHost> {
        DoltHost::new(Arc::default(), Arc::new(Front { access, ..Front::default() }))
    }

    #[test]
    fn keys_are_checked_where_a_password_is_asked_for_and_wrong_ones_count() {
        let open = host(Access::default());
        assert_eq!(open.download_key("db"), None);
        assert_eq!(open.check_key("db", Some("x")), KeyCheck::Public);
        let asking = host(Access::asking(b"secret"));
        let keys = ["db", "other"].map(|table| asking.download_key(table).unwrap());
        assert_eq!(asking.check_key("db", Some(&keys[0])), KeyCheck::Right);
        for wrong in [None, Some(""), Some("x"), Some(&*keys[1])] {
            assert_eq!(asking.check_key("db", wrong), KeyCheck::Wrong, "{wrong:?}");
        }
        let denied = asking.front.metrics.auth_denied.load(Ordering::Relaxed);
        assert_eq!(denied, 3, "a request without a key does not count");
    }

    #[test]
    fn urls_begin_with_what_the_client_used() {
        let (mut extensions, mut headers) = (Extensions::new(), HeaderMap::new());
        let host = host(Access::default());
        assert_eq!(host.base_url(&extensions, &headers), None);
        extensions.insert(RequestedHost(Some("host:6381".parse().unwrap())));
        assert_eq!(host.base_url(&extensions, &headers).unwrap(), "http://host:6381");
        headers.insert("x-forwarded-proto", "https".parse().unwrap());
        assert_eq!(host.base_url(&extensions, &headers).unwrap(), "https://host:6381");
    }

    #[test]
    fn repositories_are_the_chunk_stores_once_they_have_started() {
        let host = host(Access::default());
        assert!(host.repositories().is_none() && host.runtime().is_none());
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file://{}", directory.path().display());
        let alone = ChunksSettings::of_store_alone(&url).unwrap();
        let paths = vec!["org/repo".to_owned()];
        let settings = ChunksSettings { name: "db".to_owned(), dolt_paths: paths.clone(), ..alone };
        let stores = Arc::new(ChunkStores::start(&[settings], &[], None).unwrap());
        host.status.serve_stores(Arc::clone(&stores));
        let Repository { name, paths: found, .. } = &*host.repositories().unwrap()[0];
        assert_eq!((&**name, found), ("db", &paths));
        assert!(host.runtime().is_some());
        stores.stop();
        assert!(host.runtime().is_none(), "the stores have stopped");
    }
}
