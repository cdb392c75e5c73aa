//! Peers: other processes that serve the same stores, each of which has some of the table files on
//! its disk. [`busload_peers`] decides who owns what; this module finds the peers and asks them
//! whether they live.
//!
//! ```text
//!  list, or DNS every RESOLVE_INTERVAL --+
//!                                        +--> Membership --> View --> URLs for Dolt, fills
//!  GET /healthz of each, jittered -------+                    |
//!  reads of chunk stores ---------- ask ----------------------+--> PeerClient of the owner
//! ```
//!
//! The search runs on the runtime of HTTP, in one task that starts bounded probes; clients of peers
//! run on the runtime of chunk stores. Probes and clients reach a peer at `https://` by
//! [`connector`]. A name that does not resolve leaves the list as it was. Without the setting
//! `peers` there is no task, and every file is this process's own.

mod client;
mod connector;
pub mod limits;
mod metrics;
mod probe;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use busload_dolt::{FileId, PeerAnswer, PeerQuestion};
use busload_io::{Clock, RealClock};
use busload_peers::{Membership, Owner, View};
use busload_tls::{ClientConfig, Identity, trusting_config};
use tokio::{
    net::lookup_host,
    sync::{Notify, Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

pub use self::metrics::{PeerMetrics, PeerOutcome};
use self::{
    client::PeerClient,
    limits::{
        PROBE_WATCH_TIME, PROBES_AT_ONCE_MAX, RESOLVE_INTERVAL, RESOLVE_TIMEOUT, SETTLE_TIME_MAX,
    },
    probe::{Probe, probe},
};
use crate::{
    access::Access,
    config::{PeerList, PeerSettings},
    failure::Failure,
};

/// Peers of this process, shared by all that ask who owns a file.
pub struct Peers {
    settings: PeerSettings,
    membership: Mutex<Membership>,
    clock: RealClock,
    /// Peers that have ended a connection and are to be probed, by URL.
    unsettled: watch::Sender<HashSet<String>>,
    /// Wakes the task that probes when there is another one.
    disconnected: Notify,
    /// Check of credentials, which also makes those of this server for its peers.
    access: Access,
    /// Settings of connections to peers behind TLS, if there is one.
    tls: Option<ClientConfig>,
    /// Clients of peers by URL; none for a URL that no client can use.
    clients: Mutex<HashMap<String, Option<Arc<PeerClient>>>>,
    metrics: Arc<PeerMetrics>,
}

impl Peers {
    /// Starts with the peers of the list, or alone until DNS has answered. `own` is the certificate
    /// that is shown to peers that ask for one.
    ///
    /// # Errors
    /// Peers are behind TLS, and a file that this needs is not what it should be.
    pub fn new(
        settings: PeerSettings,
        own: Option<Arc<Identity>>,
        access: Access,
    ) -> Result<Arc<Self>, Failure> {
        let tls = tls_of(&settings, own)?;
        let mut membership = Membership::new(&settings.me);
        if let PeerList::Urls(urls) = &settings.list {
            let listed = membership.handle_listed(urls.clone(), Duration::ZERO);
            listed.expect("the configuration has checked the length of the list");
        }
        Ok(Arc::new(Self {
            settings,
            membership: Mutex::new(membership),
            clock: RealClock::new(),
            unsettled: watch::Sender::default(),
            disconnected: Notify::new(),
            access,
            tls,
            clients: Mutex::default(),
            metrics: Arc::default(),
        }))
    }

    /// Returns the counters of chunks between peers.
    pub fn metrics(&self) -> &PeerMetrics {
        &self.metrics
    }

    /// Returns the client of a peer of this view, on the current tokio runtime.
    fn client(&self, view: &View, url: &str) -> Option<Arc<PeerClient>> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(url) {
            return client.clone();
        }
        clients.retain(|known, _| view.alive().any(|alive| alive == known));
        let started = PeerClient::start(
            url,
            self.tls.as_ref(),
            self.access.clone(),
            Arc::clone(&self.metrics),
        );
        let client = match started {
            Ok(client) => Some(Arc::new(client)),
            Err(error) => {
                log::warn!("peer {url}: {error}; its chunks come from the bucket");
                None
            }
        };
        clients.insert(url.to_owned(), client.clone());
        client
    }

    /// Returns who owns what now.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(self.membership().view())
    }

    /// Returns who owns what once each peer that has ended a connection is probed again, or after
    /// [`SETTLE_TIME_MAX`].
    pub async fn settled(&self) -> Arc<View> {
        let mut unsettled = self.unsettled.subscribe();
        // In time or not, the view is the latest.
        let _ = timeout(SETTLE_TIME_MAX, unsettled.wait_for(HashSet::is_empty)).await;
        self.view()
    }

    /// Notes that a peer ended a connection, and has it probed.
    fn note_disconnected(&self, url: &str) {
        let mut membership = self.membership();
        if membership.handle_disconnected(url, self.clock.now()) {
            self.unsettled.send_modify(|unsettled| _ = unsettled.insert(url.to_owned()));
            self.disconnected.notify_one();
        }
    }

    /// Notes the outcome of a probe.
    fn probed(&self, url: &str, probe: &Probe) {
        let mut is_unsettled = false;
        self.change(|membership| match probe {
            Probe::Alive(_) => membership.handle_answered(url),
            Probe::Refused => membership.handle_refused(url),
            Probe::CutOff => is_unsettled = membership.handle_cut_off(url, self.clock.now()),
            Probe::Failed => membership.handle_failed(url),
        });
        match is_unsettled {
            true => self.disconnected.notify_one(),
            false => _ = self.unsettled.send_if_modified(|unsettled| unsettled.remove(url)),
        }
    }

    fn membership(&self) -> MutexGuard<'_, Membership> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Membership)) {
        let (before, after) = {
            let mut membership = self.membership();
            let before = membership.view().counts();
            change(&mut membership);
            (before, membership.view().counts())
        };
        if before != after {
            let (alive, suspect) = (after.alive, after.suspect);
            log::info!("peers: {alive} answer, {suspect} do not; files have other owners now");
        }
    }
}

/// Returns the settings of connections to peers, if one is behind TLS. `own` is the certificate
/// that is shown to peers that ask for one.
///
/// # Errors
/// A file that this needs is not what it should be.
pub fn tls_of(
    settings: &PeerSettings,
    own: Option<Arc<Identity>>,
) -> Result<Option<ClientConfig>, Failure> {
    let config = || {
        trusting_config(settings.authorities.as_deref(), own)
            .map_err(|error| Failure::usage(format!("peer_ca: {error}")))
    };
    settings.is_tls().then(config).transpose()
}

impl busload_dolt::Peers for Peers {
    fn is_mine(&self, store: &str, file: &FileId) -> bool {
        self.view().is_mine(store, &file.0)
    }

    fn ask(&self, question: PeerQuestion<'_>) -> Option<Vec<PeerAnswer>> {
        let view = self.view();
        match view.owner(question.store, &question.file.0) {
            Owner::Me => None,
            Owner::Peer(url) => self.client(&view, url)?.ask(&question),
        }
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Peers").field(&self.settings).finish()
    }
}

/// Finds peers and probes them for ever.
pub async fn run(peers: Arc<Peers>) {
    tokio::join!(resolve(&peers), probe_all(&peers));
}

async fn resolve(peers: &Peers) {
    let PeerList::Dns { name, scheme } = &peers.settings.list else { return };
    loop {
        match timeout(RESOLVE_TIMEOUT, lookup_host(name)).await {
            Ok(Ok(addresses)) => {
                let urls = addresses.map(|address| format!("{scheme}://{address}"));
                let (urls, now): (Vec<_>, _) = (urls.collect(), peers.clock.now());
                peers.change(|membership| {
                    if let Err(error) = membership.handle_listed(urls, now) {
                        log::warn!("peers: {name}: {error}; the list stays as it was");
                    }
                });
                // Nobody probes those that have gone.
                peers.unsettled.send_modify(HashSet::clear);
            }
            Ok(Err(error)) => log::warn!("peers: {name}: {error}; the list stays as it was"),
            Err(_) => log::warn!(
                "peers: {name}: DNS did not answer within {RESOLVE_TIMEOUT:?}; the list stays as \
                 it was"
            ),
        }
        sleep(RESOLVE_INTERVAL).await;
    }
}

async fn probe_all(peers: &Arc<Peers>) {
    let permits = Arc::new(Semaphore::new(PROBES_AT_ONCE_MAX));
    let mut probes = JoinSet::new();
    loop {
        while probes.try_join_next().is_some() {}
        let now = peers.clock.now();
        let due = peers.membership().poll_probe(now, random());
        let Some(url) = due else {
            let next = peers.membership().next_probe_at().unwrap_or(now + RESOLVE_INTERVAL);
            let wait = next.saturating_sub(now).min(limits::PROBE_TIMEOUT);
            // Sooner if a connection ends meanwhile.
            let _ = timeout(wait, peers.disconnected.notified()).await;
            continue;
        };
        let permit = Arc::clone(&permits).acquire_owned().await;
        let peers = Arc::clone(peers);
        probes.spawn(async move {
            let probed = probe(&url, peers.tls.as_ref()).await;
            drop(permit);
            peers.probed(&url, &probed);
            if let Probe::Alive(connection) = probed
                && timeout(PROBE_WATCH_TIME, connection.ended()).await.is_ok()
            {
                peers.note_disconnected(&url);
            }
        });
    }
}

/// Any number, so that processes that started at once do not probe at once.
fn random() -> u32 {
    u32::from_le_bytes(busload_acl::random())
}
