use super::*;
use crate::config::table::TableSpec;

fn spec(text: &str) -> ChunksSpec {
    match text.parse() {
        Ok(TableSpec::Chunks(spec)) => *spec,
        other => panic!("{text}: {other:?}"),
    }
}

fn refused(text: &str) -> String {
    text.parse::<TableSpec>().expect_err(text)
}

fn resolved(text: &str) -> Result<ChunksSettings, Failure> {
    spec(text).resolve(Path::new("/data"))
}

fn in_file(pairs: &[(&str, &str)]) -> Result<ChunksSettings, String> {
    let mut spec = ChunksSpec::new("db");
    for (key, value) in pairs {
        spec.set(key, &[(*value).to_owned()])?;
    }
    spec.resolve(Path::new("/data")).map_err(|failure| failure.to_string())
}

const EVERYTHING: [(&str, &str); 16] = [
    ("disk", "20GiB"),
    ("disk_free", "2GiB"),
    ("directory", "/cache"),
    ("fill", "whole"),
    ("fill_whole_max", "3GiB"),
    ("fill_memory", "128MiB"),
    ("poll", "1s"),
    ("memory", "256MiB"),
    ("requests", "32"),
    ("hedge", "false"),
    ("timeout", "2s"),
    ("grace_period", "1m"),
    ("contents", "stored"),
    ("queue_requests", "500"),
    ("dolt_paths", "org/repo,other"),
    ("dolt_layout", "records"),
];

#[test]
fn nothing_said_is_ten_gibibytes_of_disk_below_the_data() {
    let settings = resolved("db=chunks+s3://bucket/prefix").unwrap();
    let expected = ChunksSettings {
        name: "db".into(),
        url: "s3://bucket/prefix".into(),
        directory: "/data/cache/db".into(),
        disk_bytes_max: 10 << 30,
        disk_free_bytes_min: 1 << 30,
        fill_whole_max: 1 << 30,
        fill_bytes_max: 64 << 20,
        poll: Duration::from_secs(5),
        memory_bytes_max: 0,
        requests_max: 64,
        hedge: true,
        timeout: Duration::from_secs(10),
        grace_period: Duration::from_secs(600),
        contents: Contents::Decoded,
        queue_requests: 10_000,
        dolt_paths: Vec::new(),
        dolt_layout: DoltLayout::Files,
    };
    assert_eq!(settings, expected);
}

#[test]
fn a_url_and_a_section_say_the_same() {
    let query: Vec<String> =
        EVERYTHING.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let store = "endpoint=http%3A%2F%2Fhost%3A9000&region=eu-west-1&path-style=true&anonymous=true";
    let by_flag =
        resolved(&format!("db=chunks+s3://bucket/p?{}&{store}", query.join("&"))).unwrap();
    assert_eq!(
        by_flag.url,
        format!("s3://bucket/p?{store}"),
        "what is the store's stays as it is written"
    );
    for url in [format!("s3://bucket/p?{store}"), format!("chunks+s3://bucket/p?{store}")] {
        let pairs: Vec<(&str, &str)> =
            EVERYTHING.into_iter().chain([("url", url.as_str())]).collect();
        assert_eq!(in_file(&pairs).as_ref(), Ok(&by_flag));
    }
    let defaults = resolved("db=chunks+s3://bucket/p").unwrap();
    assert_ne!(by_flag.describe(), defaults.describe());
    let dolt = ", for Dolt also org/repo, other, Dolt reads records";
    assert!(
        by_flag.describe().ends_with(dolt) && !defaults.describe().contains("Dolt"),
        "{}",
        by_flag.describe()
    );
    for (key, _) in EVERYTHING {
        assert!(CHUNKS_KEYS.contains(&key), "{key}");
    }
    assert_eq!(
        EVERYTHING.len() + ["url", "kind"].len(),
        CHUNKS_KEYS.len(),
        "every setting is in this test"
    );
}

#[test]
fn settings_mean_what_they_say() {
    let settings =
        in_file(&[("url", "file:///d"), ("fill", "touched"), ("disk", "0"), ("memory", "1MiB")])
            .unwrap();
    assert_eq!(
        (settings.fill_whole_max, settings.disk_bytes_max, settings.memory_bytes_max),
        (0, 0, 1 << 20)
    );
    assert_eq!(
        in_file(&[("url", "file:///d"), ("grace_period", "0")]).unwrap().grace_period,
        Duration::ZERO
    );
    assert_eq!(
        resolved("db=chunks+file:///d?directory=%2Fa%20b").unwrap().directory,
        Path::new("/a b")
    );
}

#[test]
fn an_aws_url_has_a_table_and_a_bucket_in_brackets() {
    let store = "aws://[table:bucket]/org/repo?region=eu-west-1&dynamodb-endpoint=http://h:1";
    let settings = resolved(&format!("db=chunks+{store}&disk=1GiB")).unwrap();
    assert_eq!((settings.url.as_str(), settings.disk_bytes_max), (store, 1 << 30));
    let text = refused("db=chunks+aws://[t:b]/p?dynamodb-endpoint=http://user:hush@h");
    assert!(text.contains("AWS_ACCESS_KEY_ID") && !text.contains("hush"), "{text}");
}

#[test]
fn mistakes_in_urls_say_what_was_expected() {
    for (url, part) in [
        ("chunks", "expected a URL like chunks+s3://bucket/prefix"),
        ("chunks:", "expected a URL like chunks+s3://bucket/prefix"),
        ("chunks+s3", "expected one like s3://bucket/prefix"),
        ("chunks+s3://", "the bucket is missing; expected s3://bucket/prefix"),
        ("chunks+gs:///p", "the bucket is missing; expected gs://bucket/prefix"),
        ("chunks+file://", "the directory is missing; expected file:///directory"),
        ("chunks+file://d", "a file store has no host; expected file:///directory"),
        ("chunks+aws:///p", "expected aws://[TABLE:BUCKET]/DATABASE"),
        ("chunks+http://host/p", "are not known; expected file, s3, aws, gs, az"),
        ("chunks+s3://b?dsk=1GiB", "did you mean `disk`?"),
        ("chunks+s3://b?endpiont=http://h", "did you mean `endpoint`?"),
        ("chunks+s3://b?path_style=true", "did you mean `path-style`?"),
        ("chunks+s3://b?kind=chunks", "`kind` is no setting of a chunks table"),
        ("chunks+s3://b?url=s3://c", "`url` is no setting of a chunks table"),
        ("chunks+s3://b?disk", "`disk` has no value"),
        ("chunks+s3://b?disk=lots", "disk = `lots`; expected a size like 64MiB"),
        ("chunks+s3://b?fill=half", "expected whole or touched"),
        ("chunks+s3://b?contents=raw", "expected decoded or stored"),
        ("chunks+s3://b?requests=few", "expected a whole number"),
        ("chunks+s3://b?poll=1h", "is no duration"),
        ("chunks+s3://b?disk=1GiB&disk=2GiB", "`disk` is given twice"),
        ("chunks+s3://b?dolt_layout=file", "expected files or records"),
        ("chunks+s3://b?dolt_paths=", "`dolt_paths` has no value"),
        (
            "chunks+s3://b?dolt_paths=a,",
            "`` is no path of a repository; expected one like org/repo",
        ),
    ] {
        let message = refused(&format!("db={url}"));
        assert!(message.contains(part), "{url}: {message}");
    }
}

#[test]
fn paths_for_dolt_are_those_that_nobody_escapes() {
    let paths = |paths: &[&str]| {
        let mut spec = ChunksSpec::new("db");
        let values: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        spec.set("dolt_paths", &values).map(|()| spec.dolt_paths.unwrap())
    };
    for good in [&[][..], &["a"], &["org/repo", "a/b/c", "A-b_c.d~1", "..."]] {
        assert_eq!(paths(good).unwrap(), good);
    }
    assert_eq!(paths(&["a,b/c", "d"]).unwrap(), ["a", "b/c", "d"]);
    assert_eq!(
        resolved("db=chunks+s3://b?dolt_paths=a%2Fb,c/d").unwrap().dolt_paths,
        ["a/b", "c/d"]
    );
    for bad in [
        "",
        "/a",
        "a/",
        "a//b",
        "/",
        ".",
        "a/..",
        "a b",
        "a%2Fb",
        "a?b",
        "a#b",
        "a:b",
        "a@b",
        "caf\u{e9}",
    ] {
        let message = paths(&[bad]).expect_err(bad);
        assert!(
            message.contains(&format!("`{bad}`")) && message.contains("like org/repo"),
            "{message}"
        );
    }
}

#[test]
fn what_makes_no_sense_together_is_refused_with_the_tables_name() {
    for (pairs, part) in [
        (&[][..], "url is missing"),
        (&[("url", "file:///d"), ("disk", "1MiB")], "expected 0 for none, or at least 16 MiB"),
        (&[("url", "file:///d"), ("fill_memory", "1MiB")], "expected at least 16 MiB"),
        (
            &[("url", "file:///d"), ("fill", "touched"), ("fill_whole_max", "1GiB")],
            "means nothing with fill = touched",
        ),
        (
            &[("url", "file:///d"), ("poll", "0")],
            "poll = 0ns is out of range; expected 10ms to 24 h",
        ),
        (&[("url", "file:///d"), ("timeout", "1")], "timeout = 1ms is out of range"),
        (&[("url", "file:///d"), ("requests", "0")], "expected 1 to 1024"),
        (&[("url", "file:///d"), ("queue_requests", "0")], "expected 1 to 1000000"),
    ] {
        let message = in_file(pairs).expect_err(part);
        assert!(
            message.starts_with("table db: ") && message.contains(part),
            "{pairs:?}: {message}"
        );
    }
    let dots = resolved("..=chunks+file:///d").unwrap_err().to_string();
    assert!(dots.contains("expected directory = PATH"), "{dots}");
    assert!(resolved("..=chunks+file:///d?directory=/c").is_ok());
}

#[test]
fn a_section_has_a_closed_set_of_keys() {
    for (key, part) in [
        ("dsk", "did you mean `disk`?"),
        ("endpoint", "expected it in the query of url: s3://bucket/prefix?endpoint=..."),
        ("sync", "`sync` is no setting of a chunks table"),
    ] {
        let message = in_file(&[("url", "s3://b"), (key, "1")]).expect_err(key);
        assert!(message.contains(part), "{message}");
    }
    let mut spec = ChunksSpec::new("db");
    assert!(
        spec.set("disk", &["1GiB".into(), "2GiB".into()]).unwrap_err().contains("takes one value")
    );
    let paths = in_file(&[("url", "s3://b?dolt_paths=a"), ("dolt_paths", "b")]).expect_err("twice");
    assert!(paths.contains("`dolt_paths` is given twice"), "{paths}");
    let twice = in_file(&[("url", "s3://b?disk=1GiB"), ("disk", "1GiB")]).expect_err("twice");
    assert!(twice.contains("`disk` is given twice"), "{twice}");
}

#[test]
fn secrets_are_refused_and_named_nowhere() {
    for url in [
        "s3://key:hush@bucket/p",
        "s3://key@bucket/p",
        "s3://bucket/p?access_key_id=hush",
        "s3://bucket/p?secret_access_key=hush",
        "s3://bucket/p?aws_secret_access_key=hush",
        "s3://bucket/p?AWS_SESSION_TOKEN=hush",
        "s3://bucket/p?endpoint=http://user:hush@host",
        "s3://bucket/p?endpoint=http%3A%2F%2Fuser%3Ahush%40host",
        "az://bucket/p?account-key=hush",
        "az://bucket/p?sas_token=hush",
        "gs://bucket/p?service_account_key=hush",
    ] {
        let by_flag = refused(&format!("db=chunks+{url}"));
        let by_file = in_file(&[("url", url)]).expect_err(url);
        for message in [by_flag, by_file] {
            assert!(
                message.contains("AWS_SECRET_ACCESS_KEY") && message.contains("environment"),
                "{message}"
            );
            assert!(!message.contains("hush"), "{message}");
        }
    }
    assert!(!format!("{:?}", spec("db=chunks+s3://bucket/p")).contains("bucket"));
}

#[test]
fn the_page_has_a_row_for_each_setting() {
    let page = include_str!("../../../../../docs/chunks.md");
    for key in CHUNKS_KEYS.into_iter().filter(|key| *key != "kind").chain(STORE_KEYS) {
        assert!(page.contains(&format!("\n| `{key}` |")), "{key}");
    }
}

#[test]
fn a_store_alone_has_no_cache_on_disk() {
    let settings = ChunksSettings::of_store_alone("file:///d").unwrap();
    assert_eq!((settings.url.as_str(), settings.disk_bytes_max), ("file:///d", 0));
    let message = ChunksSettings::of_store_alone("/d").unwrap_err().to_string();
    assert!(message.contains("file:///directory"), "{message}");
}
