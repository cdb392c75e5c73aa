//! Peers: other processes that serve the same stores, each of which has some of the table files on
//! its disk. [`busload_peers`] decides who owns what; this module finds the peers and asks them
//! whether they live.
//!
//! ```text
//!  list, or DNS every RESOLVE_INTERVAL --+
//!                                        +--> Membership --> View --> URLs for Dolt, fills
//!  GET /healthz of each, jittered -------+
//! ```
//!
//! Everything runs on the runtime of HTTP, in one task that starts bounded probes. A name that does
//! not resolve leaves the list as it was. Without the setting `peers` there is no task, and every
//! file is this process's own.

pub mod limits;
mod probe;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use busload_io::{Clock, RealClock};
use busload_peers::{Membership, View};
use tokio::{
    net::lookup_host,
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

use self::limits::{PROBES_AT_ONCE_MAX, RESOLVE_INTERVAL, RESOLVE_TIMEOUT};
use crate::config::{PeerList, PeerSettings};

/// Peers of this process, shared by all that ask who owns a file.
#[derive(Debug)]
pub struct Peers {
    settings: PeerSettings,
    membership: Mutex<Membership>,
    clock: RealClock,
}

impl Peers {
    /// Starts with the peers of the list, or alone until DNS has answered.
    pub fn new(settings: PeerSettings) -> Arc<Self> {
        let mut membership = Membership::new(&settings.me);
        if let PeerList::Urls(urls) = &settings.list {
            let listed = membership.handle_listed(urls.clone(), Duration::ZERO);
            listed.expect("the configuration has checked the length of the list");
        }
        Arc::new(Self { settings, membership: Mutex::new(membership), clock: RealClock::new() })
    }

    /// Returns who owns what now.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(self.membership().view())
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
            sleep(wait).await;
            continue;
        };
        let permit = Arc::clone(&permits).acquire_owned().await;
        let peers = Arc::clone(peers);
        probes.spawn(async move {
            let _permit = permit;
            match probe::is_alive(&url).await {
                true => peers.change(|membership| membership.handle_answered(&url)),
                false => peers.change(|membership| membership.handle_failed(&url)),
            }
        });
    }
}

/// Any number, so that processes that started at once do not probe at once.
fn random() -> u32 {
    u32::from_le_bytes(busload_acl::random())
}
