//! An object store some milliseconds away: an S3 server in this process behind a proxy that delays,
//! whose log is the evidence of what was read.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use busload_bucket::{Bucket, FaultProxy, Faults, Seen, url};
use clap::Args;

use crate::bytes::{bytes_text, parse_bytes};

/// Distance to the object store.
#[derive(Clone, Copy, Debug, Args)]
pub struct Distance {
    /// Milliseconds until the first byte of a response of the object store
    #[arg(long, value_name = "MS", default_value_t = 30)]
    pub first_byte: u64,
    /// Milliseconds more or less
    #[arg(long, value_name = "MS", default_value_t = 5)]
    pub jitter: u64,
    /// Bytes per second of one response of the object store; 0: as fast as it goes
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "80M")]
    pub bandwidth: u64,
}

impl Distance {
    pub const ZERO: Self = Self { first_byte: 0, jitter: 0, bandwidth: 0 };

    /// Returns what the proxy does to responses.
    fn faults(&self) -> Faults {
        Faults {
            first_byte: Duration::from_millis(self.first_byte),
            jitter: Duration::from_millis(self.jitter.min(self.first_byte)),
            bandwidth: self.bandwidth,
            line: 0,
            rules: Vec::new(),
        }
    }

    /// Describes the distance in a few words.
    pub fn text(&self) -> String {
        let bandwidth = match self.bandwidth {
            0 => "no limit of bytes".to_owned(),
            bandwidth => bytes_text(bandwidth),
        };
        format!(
            "store {} ms away, +-{}, {bandwidth} a second and response",
            self.first_byte, self.jitter
        )
    }
}

/// An S3 server and the proxy in front of it.
#[derive(Debug)]
pub struct Remote {
    proxy: FaultProxy,
    bucket: Arc<Bucket>,
}

impl Remote {
    /// Serves the directories below `root`/bucket as prefixes.
    pub fn start(root: &Path, distance: Distance, seed: u64) -> Result<Self> {
        let bucket = Bucket::start(root).context("an S3 server")?;
        Self::in_front_of(Arc::new(bucket), distance, seed)
    }

    /// Serves the same bucket at another distance.
    pub fn beside(&self, distance: Distance, seed: u64) -> Result<Self> {
        Self::in_front_of(Arc::clone(&self.bucket), distance, seed)
    }

    fn in_front_of(bucket: Arc<Bucket>, distance: Distance, seed: u64) -> Result<Self> {
        let proxy =
            FaultProxy::start(bucket.address(), seed, distance.faults()).context("a proxy")?;
        Ok(Self { proxy, bucket })
    }

    /// Returns the address of the proxy.
    pub fn address(&self) -> SocketAddr {
        self.proxy.address()
    }

    /// Returns the parent directory of stores.
    pub fn directory(&self) -> &Path {
        self.bucket.directory()
    }

    /// The URL of a store through the proxy.
    pub fn url(&self, prefix: &str) -> String {
        url(self.proxy.address(), prefix)
    }

    pub fn set(&self, distance: Distance) {
        self.proxy.set(distance.faults());
    }

    /// Empties the log of requests.
    pub fn forget(&self) {
        self.proxy.forget();
    }

    /// Returns the requests since [`Remote::forget`].
    pub fn seen(&self) -> Vec<Seen> {
        self.proxy.seen()
    }
}
