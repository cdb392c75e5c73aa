//! Manifest of an `aws://` store: an item of a DynamoDB table.
//!
//! | attribute | type | value |
//! |---|---|---|
//! | `nbsVers` | S | version of the form: 4 |
//! | `vers` | S | data format: `__DOLT__` |
//! | `root`, `lck` | B | 20 bytes each |
//! | `specs`, `appendix` | S, optional | `id:count:id:count..`; `specs` names all files |
//!
//! The form has no generation of collections: Dolt collects no such store. Further attributes mean
//! nothing.

use busload_chunks::{ChunkAddress, DynamoItem, Manifest};
use busload_dynamo::{Attribute, Error as ItemError, Item, ItemReader};

use crate::{
    Error,
    limits::OPENING_ATTEMPTS_MAX,
    usage::StoreUsage,
    versions::opener::{Opener, manifests::FetchedManifest},
};

/// Manifest of one read; none if there is no item.
type Read = Option<FetchedManifest>;

impl Opener {
    /// Reads the item, or that there is none; until two reads agree, unless the answer had a
    /// checksum or says what was known.
    pub(super) async fn read_item(
        &self,
        item: &ItemReader,
        known: Option<&FetchedManifest>,
    ) -> Result<Read, Error> {
        let (mut last, is_verified) = fetch(item, &self.usage).await?;
        if is_verified || (last.is_some() && last.as_ref() == known) {
            return Ok(last);
        }
        for _ in 0..OPENING_ATTEMPTS_MAX {
            let (read, is_verified) = fetch(item, &self.usage).await?;
            if is_verified || read == last {
                return Ok(read);
            }
            last = read;
        }
        Err(Error::Unreachable(format!("no two reads of {} give the same answer", item.name())))
    }
}

/// Reads the item once. Returns whether the answer had a checksum, too.
async fn fetch(reader: &ItemReader, usage: &StoreUsage) -> Result<(Read, bool), Error> {
    let read = reader.read().await.map_err(|error| match error {
        ItemError::Unreachable(text) | ItemError::Denied(text) => Error::Unreachable(text),
    })?;
    usage.count_item_read(read.item.iter().flatten().map(|item| item.bytes()).sum());
    let corrupt = |text: String| Error::Corrupt(format!("{}: {text}", reader.name()));
    let manifest = match read.item.map_err(corrupt)? {
        None => None,
        Some(item) => {
            let attributes = attributes_of(&item).map_err(corrupt)?;
            let manifest = Manifest::from_dynamo(&attributes)
                .map_err(|error| Error::of_format(&reader.name(), error))?;
            Some(FetchedManifest { etag: digest_of(&attributes), manifest })
        }
    };
    Ok((manifest, read.is_verified))
}

/// Takes the attributes of a manifest. An error names the attribute, and what was expected.
fn attributes_of(item: &Item) -> Result<DynamoItem, String> {
    Ok(DynamoItem {
        nbs_vers: required(item, "nbsVers", text)?,
        vers: required(item, "vers", text)?,
        root: required(item, "root", bytes)?,
        lck: required(item, "lck", bytes)?,
        specs: optional(item, "specs", text)?,
        appendix: optional(item, "appendix", text)?,
    })
}

/// Kind of a value, and the value if the attribute is of that kind.
type Typed<T> = (&'static str, Option<T>);

fn text(attribute: &Attribute) -> Typed<String> {
    let Attribute::Text(text) = attribute else { return ("text (S)", None) };
    ("text (S)", Some(text.clone()))
}

fn bytes(attribute: &Attribute) -> Typed<Vec<u8>> {
    let Attribute::Bytes(bytes) = attribute else { return ("bytes (B)", None) };
    ("bytes (B)", Some(bytes.clone()))
}

fn required<T>(item: &Item, name: &str, of: fn(&Attribute) -> Typed<T>) -> Result<T, String> {
    optional(item, name, of)?.ok_or_else(|| {
        format!("expected an attribute {name}, as manifests of Dolt have it, found none")
    })
}

fn optional<T>(
    item: &Item,
    name: &str,
    of: fn(&Attribute) -> Typed<T>,
) -> Result<Option<T>, String> {
    let Some(attribute) = item.get(name) else { return Ok(None) };
    match of(attribute) {
        (_, Some(value)) => Ok(Some(value)),
        (expected, None) => {
            Err(format!("expected {expected} as {name}, found {}", attribute.kind()))
        }
    }
}

/// Identifies the contents of an item, as an ETag does those of an object.
fn digest_of(item: &DynamoItem) -> String {
    let DynamoItem { nbs_vers, vers, root, lck, specs, appendix } = item;
    let or_none = |text: &Option<String>| text.clone().unwrap_or_default();
    let fields = [nbs_vers.clone(), vers.clone(), or_none(specs), or_none(appendix)].join("\n");
    let bytes = [fields.as_bytes(), b"\n", root, lck].concat();
    ChunkAddress::of(&bytes).to_string()
}
