//! The server.

use std::{net::SocketAddr, path::Path};

/// What kept it from starting.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// An S3 server on loopback over a directory, on threads of its own; ends when dropped. It checks signatures if credentials are given.
#[derive(Debug)]
pub struct Bucket {}

impl Bucket {
    /// The name of its one bucket.
    pub const NAME: &'static str = "bucket";

    /// Serves `root`, in which the directory `bucket` is the bucket. Anybody may read.
    pub fn start(_root: &Path) -> Result<Self, Error> {
        unimplemented!()
    }

    /// As [`Bucket::start`], for who signs with this key only.
    pub fn with_credentials(_root: &Path, _access_key: &str, _secret_key: &str) -> Result<Self, Error> {
        unimplemented!()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        unimplemented!()
    }

    /// The directory whose files are the objects.
    pub fn directory(&self) -> &Path {
        unimplemented!()
    }
}

/// `s3://bucket/PREFIX?endpoint=http://ADDRESS&region=us-east-1&path-style=true&anonymous=true`
pub fn url(_address: SocketAddr, _prefix: &str) -> String {
    unimplemented!()
}
