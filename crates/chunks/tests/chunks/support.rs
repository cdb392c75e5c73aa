//! The fixtures: stores written by Dolt, with every chunk listed.

pub mod archive;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use busload_chunks::{
    ChunkLocation, Dictionary, DynamoItem, FileSpec, FormatError, Manifest, Span, Stored,
    TableIndex,
};
use bytes::Bytes;
use serde_json::Value;

/// Returns the folder of all fixtures.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dolt")
}

/// Folder with a manifest's files, and the list of their chunks.
pub struct Fixture {
    pub name: String,
    pub store: PathBuf,
    /// Suffix of object names: `.bs` for localbs.
    suffix: &'static str,
    pub manifest: Manifest,
    pub chunks: Vec<Listed>,
}

/// Line of a list.
#[derive(Clone, Debug)]
pub struct Listed {
    pub address: String,
    pub sha256: String,
    pub length: u64,
    /// `None` for the aws fixture, whose list has no places.
    pub place: Option<ListedPlace>,
    pub address_is_hash: bool,
}

/// Place of a chunk according to a list.
#[derive(Clone, Debug)]
pub struct ListedPlace {
    pub file: String,
    pub location: ChunkLocation,
}

/// Table file of a fixture.
pub struct File {
    pub spec: FileSpec,
    /// Name of the file in the list.
    pub name: String,
    pub bytes: Bytes,
    pub index: Arc<TableIndex>,
}

/// Returns all fixtures except `real-journal`.
pub fn all() -> Vec<Fixture> {
    let mut names: Vec<String> = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name != "real-journal")
        .collect();
    names.sort();
    let mut fixtures: Vec<Fixture> = names.iter().map(|name| Fixture::open(name)).collect();
    fixtures.push(Fixture::open_as(
        "real-generational/oldgen",
        "real-generational/store/oldgen",
        "chunks-oldgen.jsonl",
    ));
    fixtures
}

impl Fixture {
    pub fn open(name: &str) -> Self {
        match name {
            "aws-appendix" => Self::aws(),
            _ => Self::open_as(name, &format!("{name}/store"), "chunks.jsonl"),
        }
    }

    fn open_as(name: &str, store: &str, list: &str) -> Self {
        let folder = root().join(name.split('/').next().unwrap());
        let store = root().join(store);
        let suffix = if name == "real-localbs" { ".bs" } else { "" };
        let text = fs::read(store.join(format!("manifest{suffix}"))).unwrap();
        let manifest = Manifest::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name: name.into(), store, suffix, manifest, chunks: list_of(&folder.join(list)) }
    }

    fn aws() -> Self {
        let folder = root().join("aws-appendix");
        Self {
            name: "aws-appendix".into(),
            store: folder.join("s3/org/repo-ns"),
            suffix: "",
            manifest: Manifest::from_dynamo(&dynamo_item()).unwrap(),
            chunks: list_of(&folder.join("chunks.jsonl")),
        }
    }

    /// Returns the files in lookup order, opened as by a caller that reads only their ends.
    pub fn files(&self) -> Vec<File> {
        self.manifest.lookup_order().map(|spec| self.file(spec)).collect()
    }

    fn file(&self, spec: FileSpec) -> File {
        let classic = self.store.join(format!("{}{}", spec.id, self.suffix));
        let (name, path, parse): (_, _, fn(&Bytes, u32) -> _) = if classic.exists() {
            (spec.id.to_string(), classic, open_classic)
        } else {
            let name = format!("{}.darc", spec.id);
            let path = self.store.join(format!("{name}{}", self.suffix));
            (name, path, |bytes, _| open_archive(bytes))
        };
        let bytes = Bytes::from(fs::read(&path).unwrap());
        let index = parse(&bytes, spec.chunk_count)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        File { spec, name, bytes, index: Arc::new(index) }
    }
}

/// Returns the index of a whole classic file.
pub fn open_classic(file: &Bytes, chunk_count: u32) -> Result<TableIndex, FormatError> {
    let tail = usize::try_from(TableIndex::classic_tail_bytes(chunk_count)).unwrap();
    TableIndex::parse_classic(
        file.slice(file.len().saturating_sub(tail)..),
        chunk_count,
        file.len() as u64,
    )
}

/// Returns the index of a whole archive, in two reads.
pub fn open_archive(file: &Bytes) -> Result<TableIndex, FormatError> {
    let footer = usize::try_from(TableIndex::ARCHIVE_FOOTER_BYTES).unwrap();
    let end = &file[file.len().saturating_sub(footer)..];
    let tail = usize::try_from(TableIndex::archive_tail_bytes(end, file.len() as u64)?).unwrap();
    TableIndex::parse_archive(file.slice(file.len() - tail..), file.len() as u64)
}

impl File {
    pub fn span(&self, span: Span) -> Bytes {
        let offset = usize::try_from(span.offset).unwrap();
        self.bytes.slice(offset..offset + usize::try_from(span.length).unwrap())
    }

    pub fn stored(&self, location: &ChunkLocation) -> Result<Stored, FormatError> {
        Stored::parse(self.span(location.span), location)
    }

    pub fn dictionary(&self, location: &ChunkLocation) -> Option<Dictionary> {
        location.dictionary.map(|span| Dictionary::decode(&self.span(span)).unwrap())
    }
}

/// Returns the item of the aws fixture, in the form of the service's JSON.
pub fn dynamo_item() -> DynamoItem {
    let text = fs::read_to_string(root().join("aws-appendix/dynamodb-item.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let attribute =
        |name: &str, kind: &str| document["Item"][name][kind].as_str().map(str::to_owned);
    DynamoItem {
        nbs_vers: attribute("nbsVers", "S").unwrap(),
        vers: attribute("vers", "S").unwrap(),
        root: base64(&attribute("root", "B").unwrap()),
        lck: base64(&attribute("lck", "B").unwrap()),
        specs: attribute("specs", "S"),
        appendix: attribute("appendix", "S"),
    }
}

fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for digit in text.trim_end_matches('=').bytes() {
        bits = bits << 6
            | u32::try_from(DIGITS.iter().position(|&known| known == digit).unwrap()).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap());
        }
    }
    bytes
}

fn list_of(path: &Path) -> Vec<Listed> {
    fs::read_to_string(path).unwrap().lines().map(listed).collect()
}

fn listed(line: &str) -> Listed {
    let line: Value = serde_json::from_str(line).unwrap();
    let text = |name: &str| line[name].as_str().unwrap().to_owned();
    Listed {
        address: text("addr"),
        sha256: text("sha256"),
        length: line["len"].as_u64().unwrap(),
        place: line["file"].is_string().then(|| place(&line)),
        address_is_hash: line["addr_is_sha512"].as_bool().unwrap_or(true),
    }
}

fn place(line: &Value) -> ListedPlace {
    let span = |offset: &str, length: &str| Span {
        offset: line[offset].as_u64().unwrap(),
        length: u32::try_from(line[length].as_u64().unwrap()).unwrap(),
    };
    let dictionary = span("dict_offset", "dict_length");
    ListedPlace {
        file: line["file"].as_str().unwrap().trim_end_matches(".bs").to_owned(),
        location: ChunkLocation {
            span: span("offset", "length"),
            dictionary: (dictionary.length != 0).then_some(dictionary),
        },
    }
}
