//! The manifest: root and files of a version of a store.

use hashbrown::HashSet;

use crate::{
    ChunkAddress, FileId, FormatError,
    address::digest,
    error::{malformed, refused},
    limits::MANIFEST_FILES_MAX,
};

/// Data format that the chunks of a supported store have.
pub(crate) const NOMS_FORMAT: &str = "__DOLT__";

/// Manifest version of DynamoDB items.
const DYNAMO_VERSION: &str = "4";

/// One file, as a manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Id of the file: its name without suffix.
    pub id: FileId,
    /// Number of entries of its index.
    pub chunk_count: u32,
}

/// Version of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Token of the writers' optimistic lock; information only.
    pub lock: [u8; 20],
    /// Address from which everything is reachable; zero for an empty store.
    pub root: ChunkAddress,
    /// Value that changes when a collection may have removed chunks; `None` if the manifest's form
    /// has no such field.
    pub gc_generation: Option<[u8; 20]>,
    /// All files except those of the appendix, without duplicates.
    pub files: Vec<FileSpec>,
    /// Files with copies of chunks of others, to be searched first.
    pub appendix: Vec<FileSpec>,
}

/// Attributes of a manifest kept in DynamoDB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DynamoItem {
    /// Attribute `nbsVers`: the manifest version.
    pub nbs_vers: String,
    /// Attribute `vers`: the data format.
    pub vers: String,
    /// Attribute `root`: the root address.
    pub root: Vec<u8>,
    /// Attribute `lck`: the lock.
    pub lck: Vec<u8>,
    /// Attribute `specs`: all files with their counts.
    pub specs: Option<String>,
    /// Attribute `appendix`: the files of the appendix.
    pub appendix: Option<String>,
}

impl Manifest {
    /// Creates the manifest of a store that has none.
    pub fn empty() -> Self {
        Self {
            lock: [0; 20],
            root: ChunkAddress::ZERO,
            gc_generation: None,
            files: Vec::new(),
            appendix: Vec::new(),
        }
    }

    /// Parses the text form, versions 4 and 5. If a file is named twice the first entry counts.
    ///
    /// # Errors
    /// [`FormatError::Refused`] for another version or data format, and for a store with a journal;
    /// [`FormatError::Malformed`] for anything that is not a manifest.
    pub fn parse(text: &[u8]) -> Result<Self, FormatError> {
        let text = std::str::from_utf8(text)
            .map_err(|_| malformed!("expected a manifest, which is text, found other bytes"))?;
        let mut fields = text.split(':');
        let version = fields.next().unwrap_or_default();
        let collects = match version {
            "4" => false,
            "5" => true,
            _ => return Err(unknown_version(version)),
        };
        check_format(next(&mut fields, "data format")?)?;
        let lock = parse_hash(next(&mut fields, "lock")?, "lock")?;
        let root = ChunkAddress(parse_hash(next(&mut fields, "root")?, "root")?);
        let gc_generation = if collects {
            Some(parse_hash(next(&mut fields, "gc generation")?, "gc generation")?)
        } else {
            None
        };
        Ok(Self { lock, root, gc_generation, files: parse_specs(fields)?, appendix: Vec::new() })
    }

    /// Parses the form kept in DynamoDB.
    ///
    /// # Errors
    /// Those of [`Manifest::parse`].
    pub fn from_dynamo(item: &DynamoItem) -> Result<Self, FormatError> {
        if item.nbs_vers != DYNAMO_VERSION {
            return Err(unknown_version(&item.nbs_vers));
        }
        check_format(&item.vers)?;
        let hash = |bytes: &[u8], what| {
            bytes
                .try_into()
                .map_err(|_| malformed!("expected a {what} of 20 bytes, found {}", bytes.len()))
        };
        let appendix = parse_spec_text(item.appendix.as_deref())?;
        let of_appendix: HashSet<FileId, Hasher> = appendix.iter().map(|file| file.id).collect();
        // `specs` names all files, including those of the appendix.
        let mut files = parse_spec_text(item.specs.as_deref())?;
        files.retain(|file| !of_appendix.contains(&file.id));
        Ok(Self {
            lock: hash(&item.lck, "lock")?,
            root: ChunkAddress(hash(&item.root, "root")?),
            gc_generation: None,
            files,
            appendix,
        })
    }

    /// Iterates over all files, those of the appendix first, each once.
    pub fn lookup_order(&self) -> impl Iterator<Item = FileSpec> {
        self.appendix.iter().chain(&self.files).copied()
    }

    /// Computes the lock as Dolt does for this version, without the counts and the generation.
    ///
    /// If the text of a manifest names a file twice, the result differs from the lock in the text.
    pub fn computed_lock(&self) -> [u8; 20] {
        lock_of(self.root, &self.appendix, self.lookup_order())
    }
}

/// Computes the lock of a root and `files`, which are all files, including those of the appendix.
pub(crate) fn lock_of(
    root: ChunkAddress,
    appendix: &[FileSpec],
    files: impl Iterator<Item = FileSpec>,
) -> [u8; 20] {
    let appendix: Vec<u8> = appendix.iter().flat_map(|file| file.id.0).collect();
    let files: Vec<u8> = files.flat_map(|file| file.id.0).collect();
    digest(&[&root.0, &appendix, &[0], &files, &[0]])
}

type Hasher = std::hash::RandomState;

fn unknown_version(version: &str) -> FormatError {
    refused!(
        "a manifest of version {}; versions 4 and 5 are known, and a newer busload may know it",
        shown(version)
    )
}

fn check_format(format: &str) -> Result<(), FormatError> {
    if format != NOMS_FORMAT {
        return Err(refused!(
            "a store of the data format {}, expected {NOMS_FORMAT}",
            shown(format)
        ));
    }
    Ok(())
}

fn next<'a>(
    fields: &mut impl Iterator<Item = &'a str>,
    what: &str,
) -> Result<&'a str, FormatError> {
    fields.next().ok_or_else(|| malformed!("a manifest ends before its {what}"))
}

fn parse_hash(text: &str, what: &str) -> Result<[u8; 20], FormatError> {
    text.parse().map(|ChunkAddress(bytes)| bytes).map_err(|_| {
        malformed!("expected a {what} of 32 characters of 0-9a-v, found {}", shown(text))
    })
}

fn parse_spec_text(text: Option<&str>) -> Result<Vec<FileSpec>, FormatError> {
    match text {
        None | Some("") => Ok(Vec::new()),
        Some(text) => parse_specs(text.split(':')),
    }
}

/// Parses pairs of id and count; keeps each file once.
fn parse_specs<'a>(
    mut fields: impl Iterator<Item = &'a str>,
) -> Result<Vec<FileSpec>, FormatError> {
    let mut seen = HashSet::with_hasher(Hasher::new());
    let mut files = Vec::new();
    while let Some(id) = fields.next() {
        let id = FileId(parse_hash(id, "file id")?);
        if id == FileId::JOURNAL {
            return Err(refused!(
                "the store has a journal (file {id}): it is a local database, whose newest chunks \
                 are in no table file; push it to a remote (`dolt push`) and serve that"
            ));
        }
        let count = next(&mut fields, "last file's chunk count")?;
        let chunk_count = parse_count(count)?;
        if seen.insert(id) {
            files.push(FileSpec { id, chunk_count });
        }
        if files.len() > MANIFEST_FILES_MAX {
            return Err(malformed!("a manifest names more than {MANIFEST_FILES_MAX} files"));
        }
    }
    Ok(files)
}

/// Parses a count of digits only: `parse` would accept a sign.
fn parse_count(text: &str) -> Result<u32, FormatError> {
    Some(text)
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| malformed!("expected a chunk count below 2^32, found {}", shown(text)))
}

/// Returns the beginning of a field, for an error.
fn shown(field: &str) -> String {
    const CHARACTERS: usize = 40;
    let mut start: String = field.chars().take(CHARACTERS).collect();
    if start.len() < field.len() {
        start.push_str("...");
    }
    format!("{start:?}")
}

#[cfg(test)]
mod tests;
