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
            ..Faults::default()
        }
    }

    /// Describes the distance in a few words.
    pub fn text(&self) -> String {
        let Self { first_byte, jitter, bandwidth } = self;
        let bandwidth = match bandwidth {
            0 => "no limit of bytes".to_owned(),
            bandwidth => bytes_text(*bandwidth),
        };
        format!("store {first_byte} ms away, +-{jitter}, {bandwidth} a second and response")
    }
}

/// An S3 server and the proxy in front of it.
#[derive(Debug)]
pub struct Remote {
    proxy: FaultProxy,
    bucket: Arc<Bucket>,
}

impl Remote {
    /// Serves the directories below `root`/[`Bucket::NAME`] as prefixes.
    pub fn start(root: &Path, distance: Distance, seed: u64) -> Result<Self> {
        let bucket = Arc::new(Bucket::start(root).context("an S3 server")?);
        let proxy = FaultProxy::start(bucket.address(), seed, distance.faults());
        Ok(Self { proxy: proxy.context("a proxy")?, bucket })
    }

    /// Serves the same bucket at another distance.
    pub fn beside(&self, distance: Distance, seed: u64) -> Result<Self> {
        let proxy = FaultProxy::start(self.bucket.address(), seed, distance.faults());
        Ok(Self { proxy: proxy.context("a proxy")?, bucket: Arc::clone(&self.bucket) })
    }

    /// Returns the address of the proxy.
    pub fn address(&self) -> SocketAddr {
        self.proxy.address()
    }

    /// Returns the URL of a store through the proxy.
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
