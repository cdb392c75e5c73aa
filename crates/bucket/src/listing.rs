//! Listings of the bucket's directory, in the order and the pages of S3.

use std::{
    fs::{self, File, Metadata},
    io,
    path::{Path, PathBuf},
};

use crate::etag::Etags;

/// Entry of a listing: an object, or the common prefix of several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Key of the object, or the prefix up to and including the delimiter.
    pub key: String,
    /// True if the entry is a common prefix.
    pub is_prefix: bool,
}

/// Properties of an object in a listing.
#[derive(Debug)]
pub struct Listed {
    pub metadata: Metadata,
    pub etag: String,
}

/// Lists the keys that begin with `prefix`, in order. With `by_folder` (the delimiter `/`), deeper
/// keys appear as prefixes.
pub fn entries(bucket: &Path, prefix: &str, by_folder: bool) -> io::Result<Vec<Entry>> {
    let (folder, _) = prefix.rsplit_once('/').unwrap_or_default();
    let mut found = Vec::new();
    let start = if folder.is_empty() { bucket.to_owned() } else { bucket.join(folder) };
    let mut pending = vec![(start, folder.to_owned())];
    while let Some((directory, above)) = pending.pop() {
        for (name, is_directory) in names(&directory)? {
            let key = if above.is_empty() { name.clone() } else { format!("{above}/{name}") };
            match is_directory {
                true if by_folder => {
                    let key = format!("{key}/");
                    if key.starts_with(prefix) && has_objects(&directory.join(&name))? {
                        found.push(Entry { key, is_prefix: true });
                    }
                }
                true if overlaps(&format!("{key}/"), prefix) => {
                    pending.push((directory.join(name), key))
                }
                false if key.starts_with(prefix) => found.push(Entry { key, is_prefix: false }),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Reads the properties of an object; fails if it is gone.
pub fn properties(path: &Path, etags: &Etags) -> io::Result<Listed> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let etag = etags.of(path, &file, &metadata)?;
    Ok(Listed { metadata, etag })
}

fn overlaps(one: &str, other: &str) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Returns whether a folder holds an object: S3 does not show empty folders.
fn has_objects(directory: &Path) -> io::Result<bool> {
    let mut pending: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for (name, is_directory) in names(&directory)? {
            if !is_directory {
                return Ok(true);
            }
            pending.push(directory.join(name));
        }
    }
    Ok(false)
}

/// Lists names and whether they are directories. Files that are gone meanwhile, other file types
/// and names that are not UTF-8 are left out.
fn names(directory: &Path) -> io::Result<Vec<(String, bool)>> {
    let entries = match fs::read_dir(directory) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        // Symbolic links count as their targets.
        let Ok(metadata) = fs::metadata(entry.path()) else { continue };
        if let Ok(name) = entry.file_name().into_string() {
            names.push((name, metadata.is_dir()));
        }
    }
    Ok(names)
}
