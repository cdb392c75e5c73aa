//! A caller without busload: it knows every file's index and reads records from the object store by
//! range.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use busload_chunks::Stored;
use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig, aws::AmazonS3Builder, path::Path};

use super::verify;
use crate::{
    experiment::chunks::store::{Store, index},
    failures::Failure,
};

/// The object store, as the direct callers reach it.
#[derive(Clone, Debug)]
pub struct S3 {
    store: Arc<dyn ObjectStore>,
    paths: Arc<[Path]>,
}

impl S3 {
    /// A bucket behind an address, whose objects below `prefix` are the table files.
    pub fn new(address: SocketAddr, bucket: &str, prefix: &str, store: &Store) -> Result<Self> {
        let s3 = AmazonS3Builder::new()
            .with_endpoint(format!("http://{address}"))
            .with_allow_http(true)
            .with_region("us-east-1")
            .with_bucket_name(bucket)
            .with_virtual_hosted_style_request(false)
            .with_skip_signature(true)
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .build()
            .context("a client of the object store")?;
        let path = |name: &String| Path::from(format!("{prefix}/{name}"));
        let paths = store.files.iter().map(|file| path(&file.name)).collect();
        Ok(Self { store: Arc::new(s3), paths })
    }
}

#[derive(Clone, Debug)]
pub struct Direct {
    s3: S3,
}

impl Direct {
    /// Makes one of several callers.
    pub fn new(s3: &S3) -> Self {
        Self { s3: s3.clone() }
    }

    /// Reads one chunk; its contents.
    pub async fn ask(&mut self, store: &Store, number: u32) -> Result<Bytes, Failure> {
        let entry = store.entry(number);
        let span = entry.location.span;
        let range = span.offset..span.offset + u64::from(span.length);
        let path = &self.s3.paths[index(entry.file)];
        let bytes = self.s3.store.get_range(path, range).await;
        let bytes = bytes.map_err(|error| Failure::Refused(error.to_string()))?;
        let contents = Stored::parse(bytes, &entry.location).and_then(|stored| stored.decode(None));
        let contents = contents.map_err(|error| Failure::Wrong(error.to_string()))?;
        verify(number, entry, &contents).map(|()| contents)
    }
}
