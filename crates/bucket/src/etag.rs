//! ETags of files: correct at once after a change through the server, and known without reading
//! large files.

use std::{
    collections::HashMap,
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use s3s::crypto::{Checksum, Md5};

use crate::limits::MD5_BYTES_MAX;

/// File metadata that changes when a file is replaced or written to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Cache of computed ETags, by path.
#[derive(Debug, Default)]
pub struct Etags {
    known: Mutex<HashMap<PathBuf, (Version, String)>>,
}

impl Etags {
    /// Returns the ETag of an open file, without quotes: the MD5 of a small one's contents, or the
    /// times and inode of a large one.
    pub fn of(&self, path: &Path, file: &File, metadata: &Metadata) -> io::Result<String> {
        let version = Version::of(metadata);
        if let Some((of, etag)) = self.lock().get(path)
            && *of == version
        {
            return Ok(etag.clone());
        }
        let etag = compute(file, &version)?;
        self.lock().insert(path.to_owned(), (version, etag.clone()));
        Ok(etag)
    }

    /// Forgets a file after a change that its times may not show: they are only as fine as the
    /// kernel's tick.
    pub fn forget(&self, path: &Path) {
        self.lock().remove(path);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, (Version, String)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn compute(file: &File, version: &Version) -> io::Result<String> {
    let mut md5 = Md5::new();
    if version.bytes <= MD5_BYTES_MAX {
        let mut contents = Vec::new();
        file.take(MD5_BYTES_MAX).read_to_end(&mut contents)?;
        md5.update(&contents);
        return Ok(hex(&md5.finalize()));
    }
    md5.update(format!("{version:?}").as_bytes());
    Ok(format!("{}-{}", hex(&md5.finalize()), version.bytes.div_ceil(8 << 20)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
