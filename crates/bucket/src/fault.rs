//! The proxy.

use std::{net::SocketAddr, ops::Range, time::Duration};

use crate::Error;

/// What happens to a response.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The first byte comes so much later than else.
    Delay(Duration),
    /// After so many bytes of the body nothing comes any more; the connection stays.
    Stall(u64),
    /// The body ends in order after so many bytes (Content-Length says so, too).
    Truncate(u64),
    /// The connection is reset after so many bytes of the body.
    Reset(u64),
    /// A bit of this byte of the body is flipped (counted from its beginning, modulo its length).
    Flip(u64),
    /// This status with an S3 error document instead.
    Status(u16),
    /// 200 with the whole object, although a range was asked for.
    WholeForRange,
    /// 206 with bytes from elsewhere, and a Content-Range that says so.
    WrongRange,
    /// 206 with bytes from elsewhere, and a Content-Range that denies it.
    LyingRange,
    /// Another ETag in the response.
    OtherEtag,
    /// Every second object is missing from a listing.
    HalfListing,
    /// The connection is refused or closed before an answer.
    NoAnswer,
}

/// Which responses a fault happens to.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Requests whose path contains this.
    pub path_contains: String,
    /// Not to the first so many of them.
    pub skip: u64,
    /// To so many of them, at most.
    pub count: u64,
    /// With this probability, drawn from the proxy's seed.
    pub probability: f64,
    /// What happens.
    pub fault: Fault,
}

/// How the proxy behaves.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Time to the first byte of every response.
    pub first_byte: Duration,
    /// So much more or less, evenly.
    pub jitter: Duration,
    /// Bytes per second of one response; 0: as fast as it goes.
    pub bandwidth: u64,
    /// The first rule that applies decides.
    pub rules: Vec<Rule>,
}

/// One request that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// GET, HEAD, ...
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Range asked for: first byte and one past the last.
    pub range: Option<Range<u64>>,
    /// Bytes of body sent.
    pub bytes: u64,
    /// Status sent.
    pub status: u16,
}

/// An HTTP proxy on loopback in front of one server, on threads of its own; ends when dropped.
#[derive(Debug)]
pub struct FaultProxy {}

impl FaultProxy {
    /// In front of a server; one seed decides everything that is drawn.
    pub fn start(_upstream: SocketAddr, _seed: u64, _faults: Faults) -> Result<Self, Error> {
        unimplemented!()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        unimplemented!()
    }

    /// From now on. Counts of rules begin anew.
    pub fn set(&self, _faults: Faults) {
        unimplemented!()
    }

    /// All requests answered since the start or [`FaultProxy::forget`], in the order of their ends.
    pub fn seen(&self) -> Vec<Seen> {
        unimplemented!()
    }

    /// Forgets what was seen.
    pub fn forget(&self) {
        unimplemented!()
    }

    /// Closes all connections and refuses new ones until [`FaultProxy::come_back`].
    pub fn go_away(&self) {
        unimplemented!()
    }

    /// Ends [`FaultProxy::go_away`].
    pub fn come_back(&self) {
        unimplemented!()
    }
}
