//! One object: reads from disk, from reads under way, from the store.

use std::{ops::Range, sync::Arc, time::Instant};

use bytes::Bytes;

use crate::{Error, ObjectMeta, Progress, Remote, disk::DiskFile};

mod fills;

pub(crate) use fills::Fills;

/// How to read.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// When it is too late.
    pub deadline: Instant,
    /// Only from disk; what is missing is brought there in the background.
    pub local_only: bool,
}

/// A read under way. Dropping it gives up waiting, not the read.
#[derive(Debug)]
pub struct Reading {}

impl Future for Reading {
    type Output = Result<Bytes, Error>;
    fn poll(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        unimplemented!()
    }
}

/// One object of a store, in one version.
#[derive(Debug)]
pub struct Object {}

impl Object {
    /// Of a remote; without a file nothing of it is kept.
    pub(crate) fn new(
        _fills: &Arc<Fills>,
        _remote: &Arc<Remote>,
        _meta: &ObjectMeta,
        _file: Option<Arc<DiskFile>>,
    ) -> Self {
        unimplemented!()
    }

    /// What is on its way or landed lately is not given to anybody any more, nor written to disk: called after the object was dropped from disk.
    pub(crate) fn forget(&self) {
        unimplemented!()
    }

    /// Which.
    pub fn meta(&self) -> &ObjectMeta {
        unimplemented!()
    }

    /// What is on disk and can be had without waiting for a device; never blocks. None: use [`Object::read`].
    pub fn try_read(&self, _range: Range<u64>) -> Option<Bytes> {
        unimplemented!()
    }

    /// Counts the extents of this object that were written to disk in this process, each before its bytes can be read: while it stays the same,
    /// what [`Object::try_read`] gives for a range cannot become other bytes. Cheap (one load).
    pub fn disk_writes(&self) -> u64 {
        unimplemented!()
    }

    /// Whether all of a range is on disk.
    pub fn is_local(&self, _range: Range<u64>) -> bool {
        unimplemented!()
    }

    /// Starts reads of several ranges, in any order and overlapping; nearby ones share a trip. May be called from any thread. The answers come as
    /// they land; what nobody waits for any more comes to disk all the same. Also starts the fill that the cache's options want.
    pub fn read_many(&self, _ranges: &[Range<u64>], _options: ReadOptions) -> Vec<Reading> {
        unimplemented!()
    }

    /// One read.
    pub fn read(&self, _range: Range<u64>, _options: ReadOptions) -> Reading {
        unimplemented!()
    }

    /// Brings the whole object to disk and waits for it.
    pub async fn warm(&self, _report: &mut (dyn FnMut(Progress) + Send)) -> Result<Progress, Error> {
        unimplemented!()
    }

    /// The bytes are not what they should be, although they came as the store sent them or as they were on disk: what is on disk of them is removed.
    pub fn distrust(&self, _range: Range<u64>) {
        unimplemented!()
    }
}
