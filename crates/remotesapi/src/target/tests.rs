use tonic::Code;

use super::*;
use crate::testing::{BaseUrl, TestHost};

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

/// A server with repositories of these names and paths, over a directory without a store.
struct Harness {
    remotesapi: Arc<Remotesapi>,
    host: Arc<TestHost>,
    _directory: tempfile::TempDir,
}

impl Harness {
    fn new(repositories: &[(&str, &[&str])]) -> Self {
        let (directory, host) = (tempfile::tempdir().unwrap(), Arc::<TestHost>::default());
        host.serve(directory.path(), repositories);
        let remotesapi = Remotesapi::new(Arc::clone(&host) as _, Arc::default());
        Self { remotesapi, host, _directory: directory }
    }

    fn find(&self, path: &str) -> Result<String, Refusal> {
        let caller = self.remotesapi.caller(&Request::new(()))?;
        let target = self.remotesapi.target(&named(None, path), &caller)?;
        Ok(target.repository.name.clone())
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
        self.host.stop();
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
fn a_path_is_near_to_one_that_it_begins_or_that_few_edits_make() {
    let known = ["data", "resp", "maxclients", "memory_max", "password_file"];
    for (written, meant) in [
        ("dat", Some("data")),
        ("max_clients", Some("maxclients")),
        ("password", Some("password_file")),
        ("rsep", Some("resp")),
        ("colour", None),
        ("", None),
    ] {
        assert_eq!(nearest(written, &known), meant, "{written}");
    }
}

#[test]
fn a_server_that_starts_says_so() {
    let remotesapi = Remotesapi::new(Arc::<TestHost>::default(), Arc::default());
    let caller = remotesapi.caller(&Request::new(())).unwrap();
    let refusal = remotesapi.target(&named(None, "db"), &caller).unwrap_err();
    assert_eq!((refusal.code(), refusal.message()), (Code::Unavailable, "busload is starting"));
}

#[test]
fn urls_begin_with_what_the_host_says_and_end_with_the_key() {
    let harness = Harness::new(&[("db", &[])]);
    let urls = |base: Option<&str>| {
        let mut request = Request::new(());
        request.extensions_mut().insert(BaseUrl(base.map(str::to_owned)));
        let caller = harness.remotesapi.caller(&request).unwrap();
        harness.remotesapi.target(&named(None, "db"), &caller).unwrap().urls()
    };
    let UrlBuilder { base, table, key, .. } = urls(Some("https://host")).unwrap();
    assert_eq!((&*base, &*table, key), ("https://host", "db", None));
    assert_eq!(urls(None).unwrap_err().code(), Code::InvalidArgument);
    harness.host.ask_for_keys();
    assert_eq!(urls(Some("http://host:6381")).unwrap().key, Some(TestHost::key("db")));
}
