use std::collections::HashMap;

use tokio::runtime::Handle;

use super::*;
use crate::{Remote, remote::fake};

fn parse_with(url: &str, variables: &[(&str, &str)]) -> Result<Address, Error> {
    let variables: HashMap<_, _> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let options = RemoteOptions {
        environment: Arc::new(move |name| variables.get(name).cloned()),
        ..fake::options(Handle::current())
    };
    Address::parse(url, &options)
}

fn parse(url: &str) -> Result<Address, Error> {
    parse_with(url, &[])
}

fn error_of(url: &str) -> String {
    match parse(url) {
        Err(Error::Settings(text)) => text,
        other => panic!("{url}: {other:?}"),
    }
}

#[tokio::test]
async fn urls_are_shown_as_they_are_filed() {
    for (url, shown, prefix) in [
        ("file:///var/lib/x/", "file:///var/lib/x", "var/lib/x"),
        ("s3://bucket", "s3://bucket", ""),
        ("s3://bucket/a/b/?region=eu-west-1&anonymous=true", "s3://bucket/a/b", "a/b"),
        (
            "s3://b/a%20b?endpoint=http://h:9000/&path_style=true",
            "s3://b/a b?endpoint=http://h:9000",
            "a b",
        ),
        (
            "aws://[table:bucket]/org/a%20b/?region=eu-west-1&endpoint=http://h:9000",
            "aws://[table:bucket]/org/a b?endpoint=http://h:9000",
            "org/a b",
        ),
        (
            "aws://[t_1.x:b]/a?dynamodb-endpoint=http://d:1/&endpoint=http://h&path-style=true",
            "aws://[t_1.x:b]/a?endpoint=http://h&dynamodb-endpoint=http://d:1",
            "a",
        ),
        ("gs://bucket/x?anonymous=true", "gs://bucket/x", "x"),
        ("az://container/x?account=me&anonymous=true", "az://container/x?account=me", "x"),
    ] {
        let address = parse(url).unwrap();
        assert_eq!((address.url.as_str(), address.prefix.as_ref()), (shown, prefix), "{url}");
    }
}

#[tokio::test]
async fn secrets_do_not_belong_in_urls() {
    for url in [
        "s3://bucket?secret_access_key=hush",
        "s3://bucket?aws_access_key_id=hush",
        "s3://bucket?session-token=hush",
        "s3://user:hush@bucket/x",
        "aws://user:hush@[t:b]/x",
        "aws://[t:b]/x?dynamodb-endpoint=http://user:hush@host",
        "aws://[t:b]/x?secret-access-key=hush",
        "s3://bucket?endpoint=http://user:hush@host",
        "az://c?sas_token=hush&account=me",
        "gs://b?service-account-credentials=hush",
    ] {
        let text = error_of(url);
        assert!(text.contains("environment") && !text.contains("hush"), "{url}: {text}");
    }
}

#[tokio::test]
async fn what_is_not_known_is_refused_with_the_nearest_name() {
    for (url, final_error) in [
        ("s3://bucket?reigon=x", "did you mean region?"),
        ("s3://bucket?path-stile=x", "did you mean path-style?"),
        ("s3://bucket?qqqqqqqqqqqq=x", "known are endpoint, region"),
        ("s3s://bucket", "did you mean s3?"),
        ("http://bucket", "unknown kind of store http://"),
        ("file:///x?endpoint=y", "there are none"),
        ("s3://bucket?region=a&region=b", "given twice"),
        ("s3://bucket?anonymous=maybe", "expected true or false"),
        ("s3:///x", "expected s3://BUCKET/PREFIX"),
        ("bucket/x", "expected file:///DIRECTORY"),
        ("s3://bucket?endpoint=localhost:9000", "expected http://HOST"),
        ("s3://bucket?endpoint=http://h&allow-http=false", "allow-http=false"),
        ("file://host/x", "file:///DIRECTORY"),
    ] {
        let text = error_of(url);
        assert!(text.contains(final_error), "{url}: {text}");
    }
}

#[tokio::test]
async fn the_environment_is_asked_as_amazons_tools_do() {
    let endpoint = [("AWS_ENDPOINT_URL", "http://127.0.0.1:9000"), ("AWS_REGION", "eu-west-3")];
    let address = parse_with("s3://bucket/x", &endpoint).unwrap();
    assert_eq!(address.url, "s3://bucket/x?endpoint=http://127.0.0.1:9000");
    let address = parse_with("s3://bucket/x?endpoint=http://other", &endpoint).unwrap();
    assert_eq!(address.url, "s3://bucket/x?endpoint=http://other", "the URL counts more");
    let half = parse_with("s3://bucket/x", &[("AWS_ACCESS_KEY_ID", "key")]);
    assert!(matches!(half, Err(Error::Settings(_))), "a key without its secret");
    let text = format!(
        "{:?}",
        parse_with("s3://b", &[("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "hush")])
    );
    assert!(!text.contains("hush"), "{text}");
}

#[test]
fn virtual_hosting_puts_the_bucket_into_the_host() {
    let endpoint = Url::parse("https://s3.example.com/").unwrap();
    assert_eq!(endpoint_of_bucket(&endpoint, "b", true).unwrap(), "https://b.s3.example.com");
    assert_eq!(endpoint_of_bucket(&endpoint, "b", false).unwrap(), "https://s3.example.com");
    let done = Url::parse("https://b.s3.example.com/").unwrap();
    assert_eq!(endpoint_of_bucket(&done, "b", true).unwrap(), "https://b.s3.example.com");
}

/// Item that a URL names, as its table, key, region and endpoint.
fn item_of(url: &str, variables: &[(&str, &str)]) -> (String, String, String) {
    let item = parse_with(url, variables).unwrap().item.unwrap();
    (item.table, item.key, item.api.identity())
}

#[tokio::test]
async fn an_aws_url_names_a_table_and_an_item_beside_the_bucket() {
    let key = [("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s")];
    let with = |more: &[(&'static str, &'static str)]| [&key, more].concat();
    for (url, variables, expected) in [
        ("", with(&[]), "us-east-1 https://dynamodb.us-east-1.amazonaws.com/"),
        ("", with(&[("AWS_REGION", "eu-west-1")]), "https://dynamodb.eu-west-1.amazonaws.com/"),
        (
            "?region=cn-north-1",
            with(&[("AWS_REGION", "eu-west-1")]),
            "cn-north-1 https://dynamodb.cn-north-1.amazonaws.com.cn/",
        ),
        ("", with(&[("AWS_ENDPOINT_URL", "http://all:1")]), "us-east-1 http://all:1/"),
        (
            "",
            with(&[
                ("AWS_ENDPOINT_URL", "http://all:1"),
                ("AWS_ENDPOINT_URL_S3", "http://s3:2"),
                ("AWS_ENDPOINT_URL_DYNAMODB", "http://ddb:3"),
            ]),
            "us-east-1 http://ddb:3/",
        ),
        (
            "?dynamodb_endpoint=http://url:4",
            with(&[("AWS_ENDPOINT_URL_DYNAMODB", "http://ddb:3")]),
            "us-east-1 http://url:4/",
        ),
    ] {
        let found = item_of(&format!("aws://[table:bucket]//org/repo/{url}"), &variables);
        assert_eq!((found.0.as_str(), found.1.as_str()), ("table", "org/repo"));
        assert!(found.2.contains(expected), "{url} {variables:?}: {}", found.2);
    }
    assert!(parse("s3://bucket/x").unwrap().item.is_none());
}

/// A pattern `aws://[t:b]/{name}` opens a store at a sample name, and all others at their paths.
#[tokio::test]
async fn a_store_at_another_path_names_the_item_of_that_path() {
    let remote = |name: &str| {
        let url = format!("aws://[t:b]/{name}?dynamodb-endpoint=http://d:1&region=r");
        Remote::new(&url, fake::options(Handle::current())).unwrap()
    };
    let sample = remote("x/x");
    for path in ["org/a", "org/b", "deep/org/a.b-c_d~e"] {
        let (at_path, opened) =
            (sample.at_path(("", path), Default::default()).unwrap(), remote(path));
        let (item, expected) = (at_path.item().unwrap(), opened.item().unwrap());
        assert_eq!((item.table.as_str(), item.key.as_str()), ("t", path));
        assert_eq!(item.key, expected.key);
        assert_eq!(item.api.identity(), expected.api.identity());
        assert_eq!(at_path.url(), opened.url());
    }
    assert_eq!(sample.item().unwrap().key, "x/x");
}

#[tokio::test]
async fn what_is_no_aws_url_says_how_one_is_written() {
    for url in [
        "aws://",
        "aws:///a",
        "aws://bucket/a",
        "aws://table:bucket/a",
        "aws://[table]/a",
        "aws://[table:bucket/a",
        "aws://[:bucket]/a",
        "aws://[table:]/a",
        "aws://[ta ble:bucket]/a",
        "aws://[table:buck%65t]/a",
        "aws://[table:a:b]/a",
        "aws://[table:bucket]",
        "aws://[table:bucket]/",
        "aws://[table:bucket]?region=eu-west-1",
    ] {
        let text = error_of(url);
        assert!(text.contains("expected aws://[TABLE:BUCKET]/DATABASE"), "{url}: {text}");
    }
    let text = error_of("aws://[t:b]/a?anonymous=true");
    assert!(text.contains("unknown key anonymous for aws://"), "{text}");
    let text = error_of("aws://[t:b]/a?dynamodb-endpont=http://h");
    assert!(text.contains("did you mean dynamodb-endpoint?"), "{text}");
    let text = error_of("aws://[t:b]/a?region=a/b");
    assert!(text.contains("expected one like eu-west-1"), "{text}");
    let text = error_of("aws://[t:b]/a?allow-http=false&dynamodb-endpoint=http://h");
    assert!(text.contains("allow-http=false"), "{text}");
}
