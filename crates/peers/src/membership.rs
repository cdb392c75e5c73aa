//! The peers of the list, and what this process knows of each: a state machine without IO.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    limits::{
        FAILURES_UNTIL_SUSPECT, PEER_COUNT_MAX, PROBE_AGAIN_AFTER, PROBE_CUT_OFF_AFTER,
        PROBE_INTERVAL, PROBE_JITTER_DIVISOR,
    },
    view::{Owner, View},
};

/// Peers of one process. Times are those since any fixed moment, and never go back.
#[derive(Debug)]
pub struct Membership {
    /// URL of this process among those of the list.
    me: String,
    /// The others, sorted by URL, each once.
    peers: Vec<Peer>,
    view: Arc<View>,
}

/// Reason why a list of peers is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipError {
    /// The list has more than [`PEER_COUNT_MAX`] peers.
    TooMany(usize),
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(count) => {
                write!(f, "expected at most {PEER_COUNT_MAX} peers, got {count}")
            }
        }
    }
}

impl std::error::Error for MembershipError {}

/// Another process of the list.
#[derive(Clone, Debug)]
struct Peer {
    url: String,
    /// Failures since the last answer.
    failures: u32,
    /// Time of the last probe; none before the first.
    probed_at: Option<Duration>,
    probe_at: Duration,
}

impl Peer {
    fn is_suspect(&self) -> bool {
        FAILURES_UNTIL_SUSPECT <= self.failures
    }
}

impl Membership {
    /// Starts alone, before the first list.
    pub fn new(me: &str) -> Self {
        let mut membership = Self { me: me.to_owned(), peers: Vec::new(), view: Arc::default() };
        membership.renew_view();
        membership
    }

    /// Takes over a list, with or without this process. Peers that are on it already keep their
    /// state; new ones own files at once and are probed at once; those that are not go.
    ///
    /// # Errors
    /// The list is too long; everything stays as it was.
    pub fn handle_listed(
        &mut self,
        urls: impl IntoIterator<Item = String>,
        now: Duration,
    ) -> Result<(), MembershipError> {
        let mut urls: Vec<String> = urls.into_iter().filter(|url| *url != self.me).collect();
        urls.sort_unstable();
        urls.dedup();
        if PEER_COUNT_MAX <= urls.len() {
            return Err(MembershipError::TooMany(urls.len() + 1));
        }
        let known = std::mem::take(&mut self.peers);
        let peer = |url: String| match known.binary_search_by(|peer| peer.url.cmp(&url)) {
            Ok(index) => known[index].clone(),
            Err(_) => Peer { url, failures: 0, probed_at: None, probe_at: now },
        };
        self.peers = urls.into_iter().map(peer).collect();
        self.renew_view();
        Ok(())
    }

    /// Notes that a peer answered a probe: it owns its files again.
    pub fn handle_answered(&mut self, url: &str) {
        let Some(peer) = self.peer(url) else { return };
        let was_suspect = peer.is_suspect();
        peer.failures = 0;
        if was_suspect {
            self.renew_view();
        }
    }

    /// Notes that a peer did not answer a probe. After [`FAILURES_UNTIL_SUSPECT`] in a
    /// row it is suspect, and the next in rank owns its files.
    pub fn handle_failed(&mut self, url: &str) {
        self.add_failures(url, 1);
    }

    /// Notes that nobody listens at a peer's address: it is suspect at once.
    pub fn handle_refused(&mut self, url: &str) {
        self.add_failures(url, FAILURES_UNTIL_SUSPECT);
    }

    /// Notes that a peer ended a connection on which it was to answer: a failure, after which it is
    /// probed again at once unless it is suspect. Returns whether it is.
    pub fn handle_cut_off(&mut self, url: &str, now: Duration) -> bool {
        self.add_failures(url, 1);
        let Some(peer) = self.peer(url).filter(|peer| !peer.is_suspect()) else { return false };
        peer.probe_at = peer.probe_at.min(now + PROBE_CUT_OFF_AFTER);
        true
    }

    /// Notes that a peer ended a connection: it is probed at once, as its process may have ended.
    /// Returns whether it is on the list.
    pub fn handle_disconnected(&mut self, url: &str, now: Duration) -> bool {
        let Some(peer) = self.peer(url) else { return false };
        let earliest = peer.probed_at.map_or(now, |at| at + PROBE_AGAIN_AFTER);
        peer.probe_at = peer.probe_at.min(earliest.max(now));
        true
    }

    /// Returns a peer to probe now and plans its next probe; none if no probe is due. `random` is
    /// any number, by which the next probe is moved.
    pub fn poll_probe(&mut self, now: Duration, random: u32) -> Option<String> {
        let peer = self.peers.iter_mut().filter(|peer| peer.probe_at <= now);
        let peer = peer.min_by_key(|peer| peer.probe_at)?;
        let jitter = PROBE_INTERVAL / PROBE_JITTER_DIVISOR;
        let moved = jitter.mul_f64(f64::from(random) / f64::from(u32::MAX));
        peer.probed_at = Some(now);
        peer.probe_at = now + PROBE_INTERVAL - jitter / 2 + moved;
        Some(peer.url.clone())
    }

    /// Returns the time of the next probe; none without peers.
    pub fn next_probe_at(&self) -> Option<Duration> {
        self.peers.iter().map(|peer| peer.probe_at).min()
    }

    /// Returns the owner of a table file at this moment.
    pub fn owner(&self, store: &str, file: &[u8; 20]) -> Owner<'_> {
        self.view.owner(store, file)
    }

    /// Returns the view of this moment.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    fn add_failures(&mut self, url: &str, failures: u32) {
        let Some(peer) = self.peer(url) else { return };
        let was_suspect = peer.is_suspect();
        peer.failures = peer.failures.saturating_add(failures);
        if !was_suspect && peer.is_suspect() {
            self.renew_view();
        }
    }

    fn peer(&mut self, url: &str) -> Option<&mut Peer> {
        let found = self.peers.binary_search_by(|peer| peer.url.as_str().cmp(url));
        found.ok().map(|index| &mut self.peers[index])
    }

    fn renew_view(&mut self) {
        let peers = self.peers.iter().map(|peer| (peer.url.clone(), peer.is_suspect()));
        self.view = Arc::new(View::new(&self.me, peers));
    }
}

#[cfg(test)]
mod tests;
