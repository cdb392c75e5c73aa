use busload_dolt::{FileId, FileKind};
use tonic::Code;

use super::*;
use crate::{config::ChunksSettings, http::Front, status::Status};

fn named(org: Option<[&str; 2]>, path: &str) -> RootRequest {
    let repo_id = org.map(|[org, name]| RepoId { org: org.to_owned(), repo_name: name.to_owned() });
    RootRequest { repo_id, repo_path: path.to_owned(), ..RootRequest::default() }
}

#[test]
fn a_repository_is_named_by_its_path_else_by_its_parts() {
    for (parts, whole, expected) in [
        (None, "db", "db"),
        (None, "/db/", "db"),
        (None, "//a/b/c//", "a/b/c"),
        (Some(["dolthub", "tatoeba"]), "db", "db"),
        (Some(["dolthub", "tatoeba"]), "", "dolthub/tatoeba"),
        (Some(["dolthub", "tatoeba"]), "/", "dolthub/tatoeba"),
        (Some(["", "tatoeba"]), "", "tatoeba"),
    ] {
        assert_eq!(path(&named(parts, whole)).unwrap(), expected, "{parts:?} {whole}");
    }
    for (parts, whole) in [(None, ""), (None, "/"), (Some(["", ""]), ""), (Some(["/", ""]), "//")] {
        let refusal = path(&named(parts, whole)).unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument, "{parts:?} {whole}");
        assert!(refusal.message().contains("http://host:6381/NAME"), "{}", refusal.message());
    }
}

/// A server with tables of these names and paths, over a directory without a store.
struct Harness {
    remotesapi: Arc<Remotesapi>,
    stores: Arc<ChunkStores>,
    _directory: tempfile::TempDir,
}

impl Harness {
    fn new(tables: &[(&str, &[&str])]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let alone =
            ChunksSettings::of_store_alone(&format!("file://{}", directory.path().display()))
                .unwrap();
        let settings = tables.iter().map(|(name, paths)| ChunksSettings {
            name: (*name).to_owned(),
            dolt_paths: paths.iter().map(|&path| path.to_owned()).collect(),
            ..alone.clone()
        });
        let stores = Arc::new(ChunkStores::start(&settings.collect::<Vec<_>>()).unwrap());
        let status = Arc::new(Status::default());
        status.serve_stores(Arc::clone(&stores));
        let remotesapi = Remotesapi::new(status, Arc::new(Front::default()));
        Self { remotesapi, stores, _directory: directory }
    }

    fn find(&self, path: &str) -> Result<String, Refusal> {
        let caller = self.remotesapi.caller(&Request::new(()))?;
        let target = self.remotesapi.target(&named(None, path), &caller)?;
        Ok(target.table().settings.name.clone())
    }

    #[track_caller]
    fn unknown(&self, path: &str, expected: expect_test::Expect) {
        let refusal = self.find(path).unwrap_err();
        assert_eq!(refusal.code(), Code::NotFound);
        expected.assert_eq(refusal.message());
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.stores.stop();
    }
}

#[test]
fn a_path_is_that_of_a_table_by_name_or_by_setting() {
    let harness = Harness::new(&[
        ("db", &["dolthub/tatoeba", "/other/"]),
        ("other", &[]),
        ("words", &["db"]),
    ]);
    for (path, expected) in [
        ("db", "db"),
        ("/db", "db"),
        ("dolthub/tatoeba", "db"),
        ("other", "other"),
        ("words/", "words"),
    ] {
        assert_eq!(harness.find(path).unwrap(), expected, "{path}: names come first");
    }
}

#[test]
fn an_unknown_path_says_what_may_have_been_meant() {
    use expect_test::expect;
    let harness = Harness::new(&[("translations", &["dolthub/tatoeba"]), ("words", &[])]);
    harness.unknown(
        "translatoins",
        expect![
            "`translatoins` is no chunk store of this busload; did you mean `translations`? \
            (expected the name of a table of kind chunks, or one of its dolt_paths)"
        ],
    );
    harness.unknown(
        "dolthub/tatoebe",
        expect![
            "`dolthub/tatoebe` is no chunk store of this busload; did you mean `dolthub/tatoeba`? \
            (expected the name of a table of kind chunks, or one of its dolt_paths)"
        ],
    );
    harness.unknown(
        "q",
        expect![
            "`q` is no chunk store of this busload; there are translations, words, dolthub/tatoeba \
            (expected the name of a table of kind chunks, or one of its dolt_paths)"
        ],
    );
    Harness::new(&[]).unknown(
        "db",
        expect![
            "there is no chunk store `db`, nor any other \
            (expected the name of a table of kind chunks, or one of its dolt_paths)"
        ],
    );
}

#[test]
fn a_server_that_starts_says_so() {
    let remotesapi = Remotesapi::new(Arc::default(), Arc::default());
    let caller = remotesapi.caller(&Request::new(())).unwrap();
    let refusal = remotesapi.target(&named(None, "db"), &caller).unwrap_err();
    assert_eq!((refusal.code(), refusal.message()), (Code::Unavailable, "busload is starting"));
}

#[test]
fn urls_begin_with_what_the_client_used() {
    let harness = Harness::new(&[("db", &[])]);
    let links = |authority: Option<&str>, proto: Option<&str>| {
        let mut request = Request::new(());
        request
            .extensions_mut()
            .insert(Asked(authority.map(|authority| authority.parse().unwrap())));
        if let Some(proto) = proto {
            request.metadata_mut().insert("x-forwarded-proto", proto.parse().unwrap());
        }
        let caller = harness.remotesapi.caller(&request).unwrap();
        harness.remotesapi.target(&named(None, "db"), &caller).unwrap().links()
    };
    let id = FileId([0; 20]);
    let file = Resource::File(FileName { id, kind: FileKind::Archive, version: 1 });
    let path = format!("/dolt/v1/db/files/0000000000000001/{id}.darc");
    assert_eq!(
        links(Some("host:6381"), None).unwrap().url(&file),
        format!("http://host:6381{path}")
    );
    assert_eq!(
        links(Some("host"), Some("https")).unwrap().url(&file),
        format!("https://host{path}")
    );
    let refusal = links(None, None).unwrap_err();
    assert_eq!(refusal.code(), Code::InvalidArgument);
    let with_key = Links::for_tests("http://host", "db", Some("abc"));
    assert_eq!(with_key.url(&file), format!("http://host{path}?key=abc"));
}
