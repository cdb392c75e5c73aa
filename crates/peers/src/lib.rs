//! Several caches side by side: which of them owns a table file, and which of them answer.
//!
//! ```text
//!  list or DNS --handle_listed--> Membership --view--> View: owner(store, file) --> Me | Peer(url)
//!  probes: handle_answered,         ^      |
//!    _failed, _refused, _cut_off, --+      +--poll_probe--> the peer to ask next
//!    _disconnected
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `membership` | the peers of the list, and what this process knows of each |
//! | `view` | the owner of each file, as one moment of the membership has it |
//! | `weight` | the hash behind it |
//! | `limits` | how many peers, how many failures, how often a probe |
//!
//! * **One owner.** A file belongs to the peer with the highest weight of (store, file, peer) among
//!   those that are not suspect (rendezvous hashing). Peers with the same view agree, so a file is
//!   on one disk. If a peer goes, its files go to the next in their rank, and no others move.
//! * **No consensus.** Each process has a view of its own. Views that differ for a while cost a
//!   file that is on two disks, never a wrong answer: every peer answers for every file.
//! * **No loops.** A peer never sends on what another one has sent it: it answers itself, even if
//!   in its own view the file is another's.
//! * **No IO.** Events come in as `handle_*` with the time; the caller sends the probes.

#![forbid(unsafe_code)]

pub mod limits;
mod membership;
mod view;
mod weight;

pub use membership::{Membership, MembershipError};
pub use view::{Owner, PeerCounts, View};
pub use weight::{FileHash, PeerHash, weight};
