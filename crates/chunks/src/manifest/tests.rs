use expect_test::{Expect, expect};

use super::*;

const HASH: &str = "0123456789abcdefghijklmnopqrstuv";

fn error_of(text: &str) -> String {
    match Manifest::parse(text.as_bytes()) {
        Ok(manifest) => format!("parsed: {} files", manifest.files.len()),
        Err(FormatError::Malformed(text)) => format!("malformed: {text}"),
        Err(FormatError::Refused(text)) => format!("refused: {text}"),
        Err(FormatError::Corrupt(text)) => format!("corrupt: {text}"),
    }
}

fn check(text: &str, expected: Expect) {
    expected.assert_eq(&error_of(&text.replace('#', HASH)));
}

#[test]
fn what_is_wrong_is_said() {
    check("5:__DOLT__:#:#:#", expect!["parsed: 0 files"]);
    check("4:__DOLT__:#:#", expect!["parsed: 0 files"]);
    check("5:__DOLT__:#:#:#:#:4294967295", expect!["parsed: 1 files"]);
    check(
        "",
        expect![["refused: a manifest of version \"\"; versions 4 and 5 are known, \
             and a newer busload may know it"]],
    );
    check(
        "6:__DOLT__:#:#:#",
        expect![["refused: a manifest of version \"6\"; versions 4 and 5 are known, \
             and a newer busload may know it"]],
    );
    check("5", expect!["malformed: a manifest ends before its data format"]);
    check(
        "5:__LD_1__:#:#:#",
        expect![[r#"refused: a store of the data format "__LD_1__", expected __DOLT__"#]],
    );
    check("5:__DOLT__", expect!["malformed: a manifest ends before its lock"]);
    check("5:__DOLT__:#:#", expect!["malformed: a manifest ends before its gc generation"]);
    check(
        "5:__DOLT__:#:",
        expect![[r#"malformed: expected a root of 32 characters of 0-9a-v, found """#]],
    );
    check(
        "5:__DOLT__:#:#:#\n",
        expect![["malformed: expected a gc generation of 32 characters of 0-9a-v, \
             found \"0123456789abcdefghijklmnopqrstuv\\n\""]],
    );
    check(
        "4:__DOLT__:##:#",
        expect![["malformed: expected a lock of 32 characters of 0-9a-v, \
             found \"0123456789abcdefghijklmnopqrstuv01234567...\""]],
    );
    check(
        "5:__DOLT__:#:#:#:#",
        expect!["malformed: a manifest ends before its last file's chunk count"],
    );
    check(
        "5:__DOLT__:#:#:#:#:",
        expect![[r#"malformed: expected a chunk count below 2^32, found """#]],
    );
    check(
        "5:__DOLT__:#:#:#:#:4294967296",
        expect![[r#"malformed: expected a chunk count below 2^32, found "4294967296""#]],
    );
    check(
        "5:__DOLT__:#:#:#:#:+1",
        expect![[r#"malformed: expected a chunk count below 2^32, found "+1""#]],
    );
    check(
        "5:__DOLT__:#:#:#:W123456789abcdefghijklmnopqrstuv:1",
        expect![["malformed: expected a file id of 32 characters of 0-9a-v, \
             found \"W123456789abcdefghijklmnopqrstuv\""]],
    );
}

#[test]
fn journal_is_refused_wherever_it_is_named() {
    let text = format!("5:__DOLT__:{HASH}:{HASH}:{HASH}:{HASH}:1:{}:7", FileId::JOURNAL);
    assert!(matches!(Manifest::parse(text.as_bytes()), Err(FormatError::Refused(_))));
    let item = DynamoItem { specs: Some(format!("{}:1", FileId::JOURNAL)), ..item() };
    assert!(matches!(Manifest::from_dynamo(&item), Err(FormatError::Refused(_))));
}

#[test]
fn bytes_that_are_no_text_are_malformed() {
    assert!(matches!(Manifest::parse(b"5:__DOLT__:\xff"), Err(FormatError::Malformed(_))));
}

#[test]
fn fields_are_where_they_belong() {
    let [lock, root, generation, file] = ["1", "2", "3", "4"].map(|digit| digit.repeat(32));
    let text = format!("5:__DOLT__:{lock}:{root}:{generation}:{file}:17");
    let manifest = Manifest::parse(text.as_bytes()).unwrap();
    assert_eq!(ChunkAddress(manifest.lock).to_string(), lock);
    assert_eq!(manifest.root.to_string(), root);
    assert_eq!(ChunkAddress(manifest.gc_generation.unwrap()).to_string(), generation);
    assert_eq!(manifest.files, [FileSpec { id: file.parse().unwrap(), chunk_count: 17 }]);
    assert_eq!(manifest.appendix, []);
}

#[test]
fn file_named_twice_is_one_file() {
    let [a, b] = ["1", "2"].map(|digit| digit.repeat(32));
    let text = format!("5:__DOLT__:{HASH}:{HASH}:{HASH}:{a}:1:{b}:2:{a}:3");
    let files = Manifest::parse(text.as_bytes()).unwrap().files;
    assert_eq!(files.iter().map(|file| file.chunk_count).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn more_files_than_the_limit_are_refused() {
    let mut text = format!("5:__DOLT__:{HASH}:{HASH}:{HASH}");
    for number in 0..=MANIFEST_FILES_MAX as u64 {
        let mut id = FileId([0; 20]);
        id.0[..8].copy_from_slice(&number.to_be_bytes());
        text.push_str(&format!(":{id}:1"));
    }
    let limit = text.rfind(':').and_then(|end| text[..end].rfind(':')).unwrap();
    assert_eq!(Manifest::parse(&text.as_bytes()[..limit]).unwrap().files.len(), MANIFEST_FILES_MAX);
    assert!(matches!(Manifest::parse(text.as_bytes()), Err(FormatError::Malformed(_))));
}

fn item() -> DynamoItem {
    DynamoItem {
        nbs_vers: "4".into(),
        vers: "__DOLT__".into(),
        root: vec![1; 20],
        lck: vec![2; 20],
        ..DynamoItem::default()
    }
}

#[test]
fn dynamo_items_without_files_are_empty_stores_with_a_root() {
    let manifest = Manifest::from_dynamo(&item()).unwrap();
    assert_eq!((manifest.root.0, manifest.lock), ([1; 20], [2; 20]));
    assert_eq!(
        (manifest.files.len(), manifest.appendix.len(), manifest.gc_generation),
        (0, 0, None)
    );
    let empty_texts =
        DynamoItem { specs: Some(String::new()), appendix: Some(String::new()), ..item() };
    assert_eq!(Manifest::from_dynamo(&empty_texts).unwrap(), manifest);
}

#[test]
fn dynamo_items_of_other_shapes_are_errors() {
    let error = |item: DynamoItem| Manifest::from_dynamo(&item).unwrap_err();
    assert!(matches!(
        error(DynamoItem { nbs_vers: "5".into(), ..item() }),
        FormatError::Refused(_)
    ));
    assert!(matches!(
        error(DynamoItem { vers: "__LD_1__".into(), ..item() }),
        FormatError::Refused(_)
    ));
    assert!(matches!(error(DynamoItem { root: vec![0; 19], ..item() }), FormatError::Malformed(_)));
    assert!(matches!(error(DynamoItem { lck: vec![0; 21], ..item() }), FormatError::Malformed(_)));
    assert!(matches!(
        error(DynamoItem { specs: Some("1".repeat(32)), ..item() }),
        FormatError::Malformed(_)
    ));
    assert!(matches!(
        error(DynamoItem { appendix: Some(":".into()), ..item() }),
        FormatError::Malformed(_)
    ));
}

#[test]
fn empty_store_has_a_root_of_zeros() {
    let manifest = Manifest::empty();
    assert_eq!((manifest.root, manifest.lookup_order().count()), (ChunkAddress::ZERO, 0));
}
