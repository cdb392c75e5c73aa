//! One moment of the membership, as requests use it.

use crate::weight::{FileHash, PeerHash, weight};

/// Peer to which a table file belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner<'a> {
    /// This process itself is the owner.
    Me,
    /// The peer that is reached under this URL, without a slash at its end.
    Peer(&'a str),
}

/// Peers by state; this process is none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts {
    /// Peers that own files.
    pub alive: u64,
    /// Peers that have failed too often in a row, whose files others own.
    pub suspect: u64,
}

/// Peers that own files at one moment. It does not change; later ones replace it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Hash of this process; none if it is alone.
    me: Option<PeerHash>,
    alive: Vec<(String, PeerHash)>,
    suspect_count: u64,
}

impl View {
    pub(crate) fn new(me: &str, peers: impl Iterator<Item = (String, bool)>) -> Self {
        let mut view = Self { me: Some(PeerHash::of(me)), ..Self::default() };
        for (url, is_suspect) in peers {
            match is_suspect {
                true => view.suspect_count += 1,
                false => {
                    let hash = PeerHash::of(&url);
                    view.alive.push((url, hash));
                }
            }
        }
        view
    }

    /// Returns the owner of a table file, by the highest weight. Without peers that is always this
    /// process.
    pub fn owner(&self, store: &str, file: &[u8; 20]) -> Owner<'_> {
        let Some(me) = self.me.filter(|_| !self.alive.is_empty()) else { return Owner::Me };
        let file = FileHash::of(store, file);
        let heaviest = self.alive.iter().map(|(url, peer)| (weight(file, *peer), url.as_str()));
        match heaviest.max() {
            Some((other, url)) if weight(file, me) < other => Owner::Peer(url),
            _ => Owner::Me,
        }
    }

    /// Returns the URLs of the peers that own files, without this process.
    pub fn alive(&self) -> impl Iterator<Item = &str> {
        self.alive.iter().map(|(url, _)| url.as_str())
    }

    /// Returns whether a table file belongs to this process.
    pub fn is_mine(&self, store: &str, file: &[u8; 20]) -> bool {
        self.owner(store, file) == Owner::Me
    }

    /// Counts the other peers by state.
    pub fn counts(&self) -> PeerCounts {
        PeerCounts { alive: self.alive.len() as u64, suspect: self.suspect_count }
    }
}
