//! What the proxy does to responses, and which: rules, counted and drawn from one seed.

use std::time::Duration;

/// What happens to a response. A fault that cannot happen to a request (another range to one
/// without a range) is not counted for it.
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
    /// The connection is closed or reset before an answer.
    NoAnswer,
}

impl Fault {
    /// Whether it can happen to a request.
    pub(crate) fn applies(&self, has_range: bool, is_listing: bool, is_read: bool) -> bool {
        match self {
            Self::WholeForRange | Self::WrongRange | Self::LyingRange => has_range && is_read,
            Self::HalfListing => is_listing,
            Self::Stall(_) | Self::Truncate(_) | Self::Reset(_) | Self::Flip(_) => is_read,
            Self::Delay(_) | Self::Status(_) | Self::OtherEtag | Self::NoAnswer => true,
        }
    }
}

/// Which responses a fault happens to.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Requests whose path (with its query) contains this.
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

impl Rule {
    /// To every request.
    pub fn always(fault: Fault) -> Self {
        Self { path_contains: String::new(), skip: 0, count: u64::MAX, probability: 1.0, fault }
    }

    /// To the first so many requests.
    pub fn times(count: u64, fault: Fault) -> Self {
        Self { count, ..Self::always(fault) }
    }

    /// To every request with this probability.
    pub fn sometimes(probability: f64, fault: Fault) -> Self {
        Self { probability, ..Self::always(fault) }
    }

    /// Only where the path contains this.
    pub fn to(self, path_contains: &str) -> Self {
        Self { path_contains: path_contains.to_owned(), ..self }
    }

    /// Not to the first so many that it would happen to.
    pub fn after(self, skip: u64) -> Self {
        Self { skip, ..self }
    }
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
    /// Bytes per second of all responses together, which share them evenly; 0: as fast as it goes.
    pub line: u64,
    /// The first rule that applies decides.
    pub rules: Vec<Rule>,
}

/// What is known of a request when its fate is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub path: &'a str,
    pub has_range: bool,
    pub is_listing: bool,
    /// A GET.
    pub is_read: bool,
}

/// The fate of one response.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    pub first_byte: Duration,
    pub bandwidth: u64,
    pub fault: Option<Fault>,
    /// For what else has to be drawn.
    pub draw: u64,
}

/// The rules at work: what they did so far, and the seed.
#[derive(Debug)]
pub(crate) struct Decider {
    seed: u64,
    faults: Faults,
    requests: u64,
    /// Of each rule: requests that it could have happened to, and those that it did.
    counts: Vec<(u64, u64)>,
}

impl Decider {
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self { seed, counts: vec![(0, 0); faults.rules.len()], faults, requests: 0 }
    }

    pub fn set(&mut self, faults: Faults) {
        *self = Self::new(self.seed, faults);
    }

    pub fn decide(&mut self, asked: Asked<'_>) -> Fate {
        self.requests += 1;
        let draw = mix(self.seed ^ mix(self.requests));
        let fault = self.fault(asked);
        let jitter = self.faults.jitter.mul_f64(unit(draw) * 2.0);
        let mut first_byte = (self.faults.first_byte + jitter).saturating_sub(self.faults.jitter);
        if let Some(Fault::Delay(more)) = fault {
            first_byte += more;
        }
        Fate { first_byte, bandwidth: self.faults.bandwidth, fault, draw: mix(draw) }
    }

    fn fault(&mut self, asked: Asked<'_>) -> Option<Fault> {
        for (index, (rule, (seen, done))) in
            self.faults.rules.iter().zip(&mut self.counts).enumerate()
        {
            let is_meant = asked.path.contains(&rule.path_contains);
            if !is_meant || !rule.fault.applies(asked.has_range, asked.is_listing, asked.is_read) {
                continue;
            }
            *seen += 1;
            // The n-th match of a rule has the same fate in every run, in whatever order requests
            // come.
            let drawn = unit(mix(self.seed ^ mix(*seen) ^ mix(index as u64).rotate_left(17)));
            if rule.skip < *seen && *done < rule.count && drawn < rule.probability {
                *done += 1;
                return Some(rule.fault.clone());
            }
        }
        None
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Evenly from 0 to 1, without 1.
fn unit(value: u64) -> f64 {
    (value >> 11) as f64 / (1u64 << 53) as f64
}
