//! Servers and their stores: stores that Dolt wrote, and stores in a bucket behind a fault proxy.

use std::{
    fs,
    path::{Path, PathBuf},
};

use busload_bucket::{Bucket, FaultProxy, Faults};
use busload_chunks::{
    ChunkAddress, FileId, FileSpec, Manifest,
    write::{ClassicWriter, manifest},
};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::{
    client::{Address, Client},
    eventually, mix,
};
use crate::support::{Server, fixtures};

/// A server with a client.
#[derive(Debug)]
pub struct Served {
    pub server: Server,
    pub client: Client,
    pub data: TempDir,
    arguments: Vec<String>,
}

impl Served {
    /// Starts a server with these arguments of `--table`.
    #[track_caller]
    pub fn start(tables: &[String]) -> Self {
        Self::start_with(tables, &[])
    }

    /// Starts a server with further arguments.
    #[track_caller]
    pub fn start_with(tables: &[String], further: &[&str]) -> Self {
        let tables = tables.iter().flat_map(|table| ["--table".to_owned(), table.clone()]);
        let further = further.iter().map(|&argument| argument.to_owned());
        Self::serve(tempfile::tempdir().unwrap(), tables.chain(further).collect())
    }

    #[track_caller]
    fn serve(data: TempDir, arguments: Vec<String>) -> Self {
        let borrowed: Vec<_> = arguments.iter().map(String::as_str).collect();
        let server = Server::start(data.path(), &borrowed);
        let client = Client::connect(server.address("http"));
        Self { server, client, data, arguments }
    }

    /// Waits until the store of `db` is open. A slow machine may need more than the table's timeout
    /// for that, and only an open store can be relied on.
    #[track_caller]
    pub fn wait_until_open(&self) {
        eventually("the store is open", || self.client.root("db").is_ok());
    }

    /// Starts another process with the same data.
    #[track_caller]
    pub fn restart(self) -> Self {
        assert!(self.server.stop().success());
        Self::serve(self.data, self.arguments)
    }

    /// Starts another process with an empty cache.
    #[track_caller]
    pub fn restart_empty(self) -> Self {
        assert!(self.server.stop().success());
        Self::serve(tempfile::tempdir().unwrap(), self.arguments)
    }

    /// Removes everything from the disk of `db`.
    #[track_caller]
    pub fn drop_cache(&self) {
        let mut http = self.client.http();
        http.send("POST", "/api/cache/db/drop", "Connection: close\r\nContent-Length: 0\r\n");
        let said = http.rest();
        assert!(said.contains(r#"{"finished""#), "{said}");
    }
}

/// A chunk that a store holds.
#[derive(Clone, Debug)]
pub struct Listed {
    pub address: Address,
    sha256: String,
    bytes: usize,
}

impl Listed {
    /// Returns the length of the contents.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Asserts that these are its contents.
    #[track_caller]
    pub fn check(&self, contents: &[u8]) {
        assert_eq!(contents.len(), self.bytes, "{:?}", ChunkAddress(self.address));
        let digits: String =
            Sha256::digest(contents).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, self.sha256, "{:?}", ChunkAddress(self.address));
    }
}

/// A table file of a store.
#[derive(Clone, Debug)]
pub struct TableFile {
    pub id: FileId,
    pub chunk_count: u32,
    pub is_archive: bool,
    pub path: PathBuf,
}

/// A store that Dolt wrote.
#[derive(Debug)]
pub struct Fixture {
    pub name: &'static str,
    pub directory: PathBuf,
    pub chunks: Vec<Listed>,
    /// Directory made for a fixture whose manifest is in another form than the server reads.
    _made: Option<TempDir>,
}

impl Fixture {
    pub fn new(name: &'static str) -> Self {
        let listed = fixtures::listed(name).into_iter().map(|chunk| Listed {
            address: chunk.address.parse::<ChunkAddress>().unwrap().0,
            sha256: chunk.sha256,
            bytes: chunk.bytes,
        });
        let chunks = listed.collect();
        if name == "aws-appendix" {
            let made = aws_as_files();
            return Self { name, directory: made.path().to_owned(), chunks, _made: Some(made) };
        }
        Self { name, directory: fixtures::store(name), chunks, _made: None }
    }

    /// Returns all fixtures whose chunks match their addresses.
    pub fn sound() -> Vec<Self> {
        fixtures::sound().chain(["aws-appendix"]).map(Self::new).collect()
    }

    /// Returns the argument for a table of the fixture's name with this suffix.
    pub fn table(&self, suffix: &str, query: &str) -> String {
        let separator = if query.is_empty() { "" } else { "?" };
        format!(
            "{}{suffix}=chunks+file://{}{separator}{query}",
            self.name,
            self.directory.display()
        )
    }

    /// Returns the argument for the table `db`.
    pub fn as_db(&self, query: &str) -> String {
        let separator = if query.is_empty() { "" } else { "?" };
        format!("db=chunks+file://{}{separator}{query}", self.directory.display())
    }

    pub fn addresses(&self) -> Vec<Address> {
        self.chunks.iter().map(|chunk| chunk.address).collect()
    }

    pub fn root(&self) -> Address {
        self.manifest(&self.directory).unwrap().root.0
    }

    fn manifest(&self, directory: &Path) -> Option<Manifest> {
        let text = fs::read(directory.join(format!("manifest{}", self.suffix()))).ok()?;
        Some(Manifest::parse(&text).unwrap())
    }

    fn suffix(&self) -> &'static str {
        if self.name == "real-localbs" { ".bs" } else { "" }
    }

    /// Returns the files of the manifest, and of the old generation if there is one.
    pub fn files(&self) -> Vec<TableFile> {
        let directories = [self.directory.clone(), self.directory.join("oldgen")];
        let mut files = Vec::new();
        for directory in directories {
            let manifest = self.manifest(&directory);
            let specs = manifest.iter().flat_map(|manifest| manifest.lookup_order());
            files.extend(specs.map(|spec| self.file(&directory, spec)));
        }
        files.sort_by_key(|file| file.id);
        files
    }

    fn file(&self, directory: &Path, spec: FileSpec) -> TableFile {
        let archive = directory.join(format!("{}.darc{}", spec.id, self.suffix()));
        let is_archive = archive.exists();
        let path = if is_archive {
            archive
        } else {
            directory.join(format!("{}{}", spec.id, self.suffix()))
        };
        TableFile { id: spec.id, chunk_count: spec.chunk_count, is_archive, path }
    }
}

/// Copies the store whose manifest is in DynamoDB, and writes its manifest as text.
fn aws_as_files() -> TempDir {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../chunks/tests/fixtures/dolt/aws-appendix");
    let item = fs::read_to_string(directory.join("dynamodb-item.json")).unwrap();
    let item: serde_json::Value = serde_json::from_str(&item).unwrap();
    let specs: Vec<_> = item["Item"]["specs"]["S"].as_str().unwrap().split(':').collect();
    let (specs, rest) = specs.as_chunks::<2>();
    assert!(rest.is_empty());
    let files: Vec<_> = specs
        .iter()
        .map(|[id, count]| FileSpec {
            id: id.parse().unwrap(),
            chunk_count: count.parse().unwrap(),
        })
        .collect();
    let made = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(directory.join("s3/org/repo-ns")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), made.path().join(entry.file_name())).unwrap();
    }
    fs::write(made.path().join("manifest"), manifest(ChunkAddress([7; 20]), &files)).unwrap();
    made
}

/// A bucket with the store `p`, and a fault proxy in front of it.
#[derive(Debug)]
pub struct World {
    pub bucket: Bucket,
    pub proxy: FaultProxy,
    _root: TempDir,
}

/// A table file that was written, and its chunks.
#[derive(Clone, Debug)]
pub struct Written {
    pub spec: FileSpec,
    pub bytes: Vec<u8>,
    pub chunks: Vec<(Address, Vec<u8>)>,
}

impl World {
    /// Creates a bucket without a store.
    pub fn empty() -> Self {
        let root = tempfile::tempdir().unwrap();
        let bucket = Bucket::start(root.path()).unwrap();
        let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
        Self { bucket, proxy, _root: root }
    }

    /// Creates a bucket with a store that Dolt wrote.
    pub fn of(fixture: &Fixture) -> Self {
        let world = Self::empty();
        fixtures::copy_directory(&fixture.directory, &world.bucket.directory().join("p"));
        world
    }

    /// Creates a bucket with these files and a manifest that names them.
    pub fn of_files(files: &[Written]) -> Self {
        let world = Self::empty();
        files.iter().for_each(|file| world.put(file));
        world.name(&files.iter().collect::<Vec<_>>());
        world
    }

    pub fn put(&self, file: &Written) {
        self.bucket.put(&format!("p/{}", file.spec.id), &file.bytes).unwrap();
    }

    /// Writes a manifest of these files, whose root is the first chunk of the first file.
    pub fn name(&self, files: &[&Written]) -> Address {
        let root = files[0].chunks[0].0;
        let specs: Vec<_> = files.iter().map(|file| file.spec).collect();
        self.bucket.put("p/manifest", manifest(ChunkAddress(root), &specs).as_bytes()).unwrap();
        root
    }

    /// Returns the argument for the table `db`.
    pub fn as_db(&self, query: &str) -> String {
        let separator = if query.is_empty() { "" } else { "&" };
        format!("db=chunks+{}{separator}{query}", busload_bucket::url(self.proxy.address(), "p"))
    }

    /// Returns the bytes of bodies that the store has sent for objects whose name contains `name`.
    pub fn sent(&self, name: &str) -> u64 {
        let seen = self.proxy.seen();
        seen.iter().filter(|seen| seen.path.contains(name)).map(|seen| seen.bytes).sum()
    }
}

/// Writes a classic table file with chunks of these lengths, which depend on the seed.
pub fn classic(seed: u64, lengths: impl IntoIterator<Item = usize>) -> Written {
    let chunks =
        lengths.into_iter().zip(0..).map(|(length, index)| noise(mix(seed) ^ index, length));
    classic_of(chunks)
}

/// Writes a classic table file of these chunks.
pub fn classic_of(contents: impl IntoIterator<Item = Vec<u8>>) -> Written {
    let mut writer = ClassicWriter::new(Vec::new());
    let push = |contents: Vec<u8>| (writer.push(&contents).unwrap().0, contents);
    let chunks = contents.into_iter().map(push).collect();
    let (spec, bytes) = writer.finish().unwrap();
    Written { spec, bytes, chunks }
}

/// Returns bytes that do not compress.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let words =
        (0..length.div_ceil(8) as u64).flat_map(|index| mix(mix(seed) ^ index).to_le_bytes());
    words.take(length).collect()
}
