//! Configuration files with random changes: every one is read, or refused with one clear error.

use busload_hostile::{Random, mutate_with};
use busload_postgres::Environment;

use super::*;
use crate::{
    config::{TableChanges, resolve},
    machine::Machine,
};

/// Number of changed files.
const SEEDS: u64 = 6_000;

/// A file with every kind of key. It has no address: to resolve a changed one would ask for a host.
const VOCABULARY: &str = r#"
# Data
data = "/var/lib/busload"
unix = '/run/busload.sock'
http_hosts = ["cache.internal", "cache"]
http_threads = 2
http_url = "https://cache.example.com/busload/"
net_threads = 1
memory_max = "50%"
snapshot_log = "64MiB"
snapshot_cpu = "25%"
maxclients = 500
client_reply_bytes = 1048576
reply_bytes_total = "1GiB"
request_bytes = "64MiB"
log_level = "warn"
[tables.default]
kind = "memory"
sync = "interval:5"
memory_max = "1GiB"
[tables.objects]
kind = "postgres"
url = "postgres://app@db/lake"
relation = "objects"
key = ["repo", "path"]
columns = "meta,size"
separator = "/"
writable = true
timeout = "500ms"
batch = 64
queue_bytes = "16MiB"
[tables.translations]
kind = "chunks"
url = "s3://bucket/dolthub/tatoeba?region=eu-west-1"
disk = "20GiB"
dolt_paths = ["dolthub/tatoeba", "tatoeba"]
"#;

/// Text that has a meaning to a reader of TOML, or of values.
const TOKENS: &[&[u8]] = &[
    b"[",
    b"]",
    b"[[",
    b"]]",
    b"{",
    b"}",
    b"=",
    b".",
    b",",
    b"\"",
    b"'",
    b"\"\"\"",
    b"'''",
    b"\\",
    b"\\u0000",
    b"\\UFFFFFFFF",
    b"#",
    b"\n",
    b"\r",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"-",
    b"+inf",
    b"1e999",
    b"0x7f",
    b"99999999999999999999",
    b"-1",
    b"0",
    b"1979-05-27",
    b"true",
    b"none",
    b"%",
    b"off",
    b"tables",
    b"tables.default",
    b"kind",
    b"memory",
    b"&",
    b"?",
    b"@",
    b":",
    b"18446744073709551615",
    b"EiB",
];

/// Values of every type, also of those that no key takes.
const VALUES: &[&str] = &[
    "7",
    "-1",
    "1.5",
    "nan",
    "0x10",
    "true",
    "1979-05-27",
    "[]",
    "[[1]]",
    "{}",
    "{ a = 1 }",
    "''",
];

/// Gives one key of the file another value: that of another key, or one of [`VALUES`].
fn with_another_value(random: &mut Random) -> String {
    let mut lines: Vec<String> = VOCABULARY.lines().map(str::to_owned).collect();
    let values: Vec<&str> =
        VOCABULARY.lines().filter_map(|line| line.split_once(" = ")).map(|(_, v)| v).collect();
    let value = match random.below(2) {
        0 => values[random.below(values.len())],
        _ => VALUES[random.below(VALUES.len())],
    };
    let index = random.below(lines.len());
    let key = lines[index].split_once(" = ").map(|(key, _)| key.to_owned());
    if let Some(key) = key {
        lines[index] = format!("{key} = {value}");
    }
    lines.join("\n")
}

fn read_and_resolve(text: &str) -> Result<(), Failure> {
    let options = parse(text).map_err(|mistake| {
        assert!(mistake.offset <= text.len(), "the mistake lies behind the end: {text}");
        Failure::usage(mistake.message)
    })?;
    let machine = Machine { processors: 2, memory_bytes: Some(1 << 30) };
    resolve(options, None, TableChanges::default(), &machine, &Environment::empty()).map(drop)
}

/// Asserts that a refusal is one sentence for the author of the file.
fn check_refusal(refused: &Failure, text: &str) {
    let Failure::Usage(message) = refused else { panic!("{refused:?}: {text}") };
    let shown = refused.to_string();
    assert!(!message.trim().is_empty() && !shown.contains('\n'), "{message:?}: {text}");
    assert!(shown.len() <= 1_000 + 2 * text.len(), "a long error: {shown}");
}

#[test]
fn a_changed_file_is_read_or_refused_with_one_error() {
    assert_eq!(read_and_resolve(VOCABULARY), Ok(()));
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let mut bytes = VOCABULARY.as_bytes().to_vec();
        if random.below(2) == 0 {
            bytes = with_another_value(&mut random).into_bytes();
        }
        if random.below(2) == 0 {
            mutate_with(&mut bytes, &mut random, TOKENS);
        }
        // A file that is not UTF-8 is refused before it is parsed.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        match read_and_resolve(&text) {
            Ok(()) => accepted += 1,
            Err(error) => {
                refused += 1;
                check_refusal(&error, &text);
            }
        }
    }
    assert!(SEEDS / 40 < accepted && SEEDS / 4 < refused, "{accepted} accepted, {refused} refused");
}

/// Deep and wide files, as long as a file may be.
#[test]
fn a_file_of_nothing_but_beginnings_is_refused() {
    let long = |part: &str| part.repeat(usize::try_from(FILE_BYTES_MAX).unwrap() / part.len() - 8);
    let texts = [
        format!("data = {}", long("[")),
        format!("data = {}", long("{a=")),
        format!("{}a = 1", long("a.")),
        format!("[{}a]", long("a.")),
        format!("[tables.{}a]", long("a.")),
        format!("data = \"{}", long("x")),
        format!("data = \"\"\"{}", long("\n")),
        format!("data = '{}'", long("x")),
        format!("data = {}", long("9")),
        long("#\n"),
        long("[[tables]]\n"),
        long("a"),
    ];
    for text in texts {
        let shown: String = text.chars().take(40).collect();
        if let Err(error) = read_and_resolve(&text) {
            check_refusal(&error, &shown.repeat(text.len() / 40 + 1));
        }
    }
}
