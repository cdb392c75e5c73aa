//! Faults that the proxy injects into responses, and the rules that select them by count and seed.

use std::time::Duration;

/// A change to a response. A fault that is impossible for a request (another range for one without
/// a range) is not counted for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The first byte comes this much later than usual.
    Delay(Duration),
    /// After this many bytes of the body nothing follows; the connection stays open.
    Stall(u64),
    /// The body ends cleanly after this many bytes (Content-Length says so, too).
    Truncate(u64),
    /// The connection is reset after this many bytes of the body.
    Reset(u64),
    /// A bit of this byte of the body is flipped (counted from the start, modulo the body's
    /// length).
    Flip(u64),
    /// An S3 error document with this status is sent instead.
    Status(u16),
    /// The status is 200 with the whole object, although a range was requested.
    WholeForRange,
    /// The status is 206 with bytes of another range, and a Content-Range that says so.
    WrongRange,
    /// The status is 206 with bytes of another range, and a Content-Range that denies it.
    LyingRange,
    /// The response has another ETag.
    OtherEtag,
    /// Every second object is missing from a listing.
    HalfListing,
    /// The connection is closed or reset before an answer.
    NoAnswer,
}

impl Fault {
    /// Returns whether the fault is possible for a request.
    pub(crate) fn applies(&self, has_range: bool, is_listing: bool, is_read: bool) -> bool {
        match self {
            Self::WholeForRange | Self::WrongRange | Self::LyingRange => has_range && is_read,
            Self::HalfListing => is_listing,
            Self::Stall(_) | Self::Truncate(_) | Self::Reset(_) | Self::Flip(_) => is_read,
            Self::Delay(_) | Self::Status(_) | Self::OtherEtag | Self::NoAnswer => true,
        }
    }
}

/// A fault, and the responses that it applies to.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Text in the path (with its query) of matching requests.
    pub path_contains: String,
    /// Number of matching requests to spare first.
    pub skip: u64,
    /// Maximum number of requests that it applies to.
    pub count: u64,
    /// Probability of the fault, drawn from the proxy's seed.
    pub probability: f64,
    /// Fault that the rule injects.
    pub fault: Fault,
}

impl Rule {
    /// Applies a fault to every request.
    pub fn always(fault: Fault) -> Self {
        Self { path_contains: String::new(), skip: 0, count: u64::MAX, probability: 1.0, fault }
    }

    /// Applies a fault to the first `count` requests.
    pub fn times(count: u64, fault: Fault) -> Self {
        Self { count, ..Self::always(fault) }
    }

    /// Applies a fault to every request with this probability.
    pub fn sometimes(probability: f64, fault: Fault) -> Self {
        Self { probability, ..Self::always(fault) }
    }

    /// Restricts the rule to paths that contain this text.
    pub fn to(self, path_contains: &str) -> Self {
        Self { path_contains: path_contains.to_owned(), ..self }
    }

    /// Spares the first `skip` requests that the rule would apply to.
    pub fn after(self, skip: u64) -> Self {
        Self { skip, ..self }
    }
}

/// Behaviour of the proxy.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Time to the first byte of every response.
    pub first_byte: Duration,
    /// Random variation of that time, up or down, evenly distributed.
    pub jitter: Duration,
    /// Bytes per second of one response; 0 for no limit.
    pub bandwidth: u64,
    /// Bytes per second of all responses together, which share them evenly; 0 for no limit.
    pub line: u64,
    /// Rules for faults; the first that applies decides.
    pub rules: Vec<Rule>,
}

/// Properties of a request on which rules depend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTraits<'a> {
    pub path: &'a str,
    pub has_range: bool,
    pub is_listing: bool,
    /// True if the request is a GET.
    pub is_read: bool,
}

/// Decision about one response.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub first_byte: Duration,
    pub bandwidth: u64,
    pub fault: Option<Fault>,
    /// Random number for further choices.
    pub draw: u64,
}

/// The rules in effect, with their counts and the seed.
#[derive(Debug)]
pub(crate) struct Decider {
    seed: u64,
    faults: Faults,
    requests: u64,
    /// Number of requests that each rule could apply to, and of those it did apply to.
    counts: Vec<(u64, u64)>,
}

impl Decider {
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self { seed, counts: vec![(0, 0); faults.rules.len()], faults, requests: 0 }
    }

    pub fn set(&mut self, faults: Faults) {
        *self = Self::new(self.seed, faults);
    }

    pub fn decide(&mut self, request: RequestTraits<'_>) -> Decision {
        self.requests += 1;
        let draw = mix(self.seed ^ mix(self.requests));
        let fault = self.fault(request);
        let jitter = self.faults.jitter.mul_f64(unit(draw) * 2.0);
        let mut first_byte = (self.faults.first_byte + jitter).saturating_sub(self.faults.jitter);
        if let Some(Fault::Delay(more)) = fault {
            first_byte += more;
        }
        Decision { first_byte, bandwidth: self.faults.bandwidth, fault, draw: mix(draw) }
    }

    fn fault(&mut self, request: RequestTraits<'_>) -> Option<Fault> {
        for (index, (rule, (seen, done))) in
            self.faults.rules.iter().zip(&mut self.counts).enumerate()
        {
            let is_meant = request.path.contains(&rule.path_contains);
            if !is_meant
                || !rule.fault.applies(request.has_range, request.is_listing, request.is_read)
            {
                continue;
            }
            *seen += 1;
            // The n-th match of a rule has the same result in every run, whatever the order of
            // requests.
            let drawn = unit(mix(self.seed ^ mix(*seen) ^ mix(index as u64).rotate_left(17)));
            if rule.skip < *seen && *done < rule.count && drawn < rule.probability {
                *done += 1;
                return Some(rule.fault.clone());
            }
        }
        None
    }
}

/// Mixes a number with SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
/// generators).
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Maps a number to the range from 0 to 1, without 1, evenly.
fn unit(value: u64) -> f64 {
    (value >> 11) as f64 / (1u64 << 53) as f64
}
