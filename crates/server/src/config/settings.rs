//! The settings of tables, by kind: name, values, default and meaning, in one list for each kind.
//! The file's keys, `--help` and `docs/configuration.md` are made from these lists.

/// A setting of a table.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name in the file and in the query of a URL.
    pub name: &'static str,
    /// Values that it takes, for people.
    pub values: &'static str,
    /// Default of the setting.
    pub default: SettingDefault,
    /// Meaning of the setting in a few words, without a full stop.
    pub meaning: &'static str,
}

/// Default of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingDefault {
    /// There is none: the setting must be given.
    Required,
    /// The setting has this value, as it would be given.
    Value(&'static str),
    /// Description of what happens without the setting.
    Text(&'static str),
}

use SettingDefault::{Required, Text, Value};

const fn setting(
    name: &'static str,
    values: &'static str,
    default: SettingDefault,
    meaning: &'static str,
) -> Setting {
    Setting { name, values, default, meaning }
}

/// Returns the names of settings, which are the keys of a table's section.
pub const fn names<const N: usize>(settings: &[Setting; N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut index = 0;
    while index < N {
        names[index] = settings[index].name;
        index += 1;
    }
    names
}

const WHOLE: &str = "whole number";
const SIZE: &str = "size";
const DURATION: &str = "duration";
const PATH: &str = "path";
const YES_OR_NO: &str = "true or false";

/// Settings of a table of kind `memory`.
#[rustfmt::skip]
pub const MEMORY_SETTINGS: [Setting; 4] = [
    setting("sync", "`always`, `interval:MS`, `os` or `off`", Value("always"),
        "when a write is answered, and so what it survives"),
    setting("memory_max", "size or `none`", Value("none"),
        "memory of the table at which `evict` decides; that of all tables holds as well"),
    setting("evict", "`none` or `s3-fifo`", Value("none"),
        "what happens at the limit: writes are refused, or keys that are not used are deleted"),
    setting("kind", "`memory`", Required, "kind of the table"),
];

/// Settings of a table of kind `postgres`.
#[rustfmt::skip]
pub const POSTGRES_SETTINGS: [Setting; 14] = [
    setting("url", "URL", Required,
        "database, as libpq takes it: postgres://USER@HOST:PORT/DATABASE"),
    setting("relation", "name", Required, "the table to serve"),
    setting("key", "names", Required,
        "its column or columns with a unique index; a key of several is written a:b"),
    setting("columns", "names", Text("all that are not in the key"), "value columns"),
    setting("separator", "character", Value(":"),
        "character between the parts of a key; \\ escapes it"),
    setting("writable", YES_OR_NO, Value("false"), "whether writes are allowed"),
    setting("connections", WHOLE, Value("32"), "most connections; they are opened as needed"),
    setting("timeout", DURATION, Value("1s"), "timeout of one request"),
    setting("batch", WHOLE, Value("256"), "most keys of one batch"),
    setting("queue_requests", WHOLE, Value("65536"),
        "requests in the queue; further ones are refused"),
    setting("queue_bytes", SIZE, Value("64MiB"), "bytes of keys and values in the queue"),
    setting("join_in_flight", YES_OR_NO, Value("false"),
        "whether a read may share the answer of one in flight, and so miss what others wrote \
         meanwhile"),
    setting("password_file", PATH, Text("none"), "file with the password"),
    setting("kind", "`postgres`", Required, "kind of the table"),
];

/// Settings of a table of kind `chunks`.
#[rustfmt::skip]
pub const CHUNKS_SETTINGS: [Setting; 18] = [
    setting("url", "URL", Required,
        "store: file:///DIR, s3://BUCKET/PREFIX, aws://[TABLE:BUCKET]/DATABASE, gs:// or az://, \
         with the store's own settings"),
    setting("disk", SIZE, Value("10GiB"), "disk space of the cache; 0: no cache on disk"),
    setting("disk_free", SIZE, Value("1GiB"), "space of the file system left to others"),
    setting("directory", PATH, Text("cache/NAME in the directory of the data"),
        "directory of the cache"),
    setting("fill", "`whole` or `touched`", Value("whole"),
        "whole: cache whole files; touched: only what is read"),
    setting("fill_whole_max", SIZE, Value("1GiB"),
        "size above which a file is cached only as it is read"),
    setting("fill_memory", SIZE, Value("64MiB"), "memory of fills in flight"),
    setting("poll", DURATION, Value("5s"), "interval between reads of the manifest"),
    setting("memory", SIZE, Value("0"), "memory for decoded chunks; 0: none"),
    setting("requests", WHOLE, Value("64"), "requests to the object store at once"),
    setting("hedge", YES_OR_NO, Value("true"),
        "whether the slowest percent of the reads that somebody waits for is sent twice"),
    setting("timeout", DURATION, Value("10s"), "timeout of a client's request"),
    setting("grace_period", DURATION, Value("10m"),
        "time that files dropped from the manifest stay readable"),
    setting("contents", "`decoded` or `stored`", Value("decoded"),
        "decoded, or stored: GET returns records as in table files"),
    setting("queue_requests", WHOLE, Value("10000"),
        "requests in the queue; further ones are refused"),
    setting("dolt_paths", "paths", Text("none"), "further paths for Dolt's clients: org/repo[,..]"),
    setting("dolt_layout", "`files` or `records`", Value("files"),
        "files: Dolt's clients get chunks from the table files; records: from bundles encoded for \
         each answer"),
    setting("kind", "`chunks`", Required, "kind of the table"),
];

/// Settings that stores by pattern have beside those of a chunk table.
#[rustfmt::skip]
pub const STORES_SETTINGS: [Setting; 6] = [
    setting("stores_max", WHOLE, Value("1000"), "stores that are open at once"),
    setting("index_memory", SIZE, Value("1GiB"), "memory of the indexes of open stores"),
    setting("idle", DURATION, Value("10m"), "time without requests after which a store is closed"),
    setting("store_disk_min", SIZE, Value("0"),
        "disk space of a store that others leave to it while it is open, at most half of `disk`"),
    setting("store_disk_max", SIZE, Text("`disk`"), "disk space of a store, at most"),
    setting("busiest_stores", WHOLE, Value("20"),
        "busiest stores that have metrics of their own, at most 200; 0: none"),
];

impl SettingDefault {
    /// Returns the default for people; nothing where the setting must be given.
    pub fn shown(self) -> Option<&'static str> {
        match self {
            Required => None,
            Value(text) | Text(text) => Some(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use busload_postgres::Environment;

    use super::*;
    use crate::config::{
        chunks::ChunksSpec, postgres::PostgresSpec, table::TableSpec, units::parse_duration,
    };

    /// Returns the defaults that can be given as they are.
    fn values(settings: &[Setting]) -> impl Iterator<Item = (&'static str, &'static str)> {
        settings.iter().filter_map(|setting| match setting.default {
            Value(value) => Some((setting.name, value)),
            Required | Text(_) => None,
        })
    }

    #[test]
    fn a_memory_table_with_its_defaults_is_one_without_settings() {
        let bare = TableSpec::new("a", "memory").unwrap();
        for (name, value) in values(&MEMORY_SETTINGS) {
            let mut given = bare.clone();
            given.set(name, &[value.into()]).unwrap();
            assert_eq!(given, bare, "{name} = {value}");
        }
    }

    #[test]
    fn a_postgres_table_with_its_defaults_is_one_without_settings() {
        let bare = PostgresSpec::of_url("a", "postgres://app@db/lake?relation=t&key=k");
        let resolved = |spec: &PostgresSpec| {
            let environment = Environment::empty();
            format!("{:?}", spec.resolve(&environment).unwrap())
        };
        for (name, value) in values(&POSTGRES_SETTINGS) {
            let mut given = bare.clone();
            given.set(name, &[value.into()]).unwrap();
            assert_eq!(resolved(&given), resolved(&bare), "{name} = {value}");
        }
    }

    #[test]
    fn a_chunk_table_with_its_defaults_is_one_without_settings() {
        let bare = ChunksSpec::of_url("a", "chunks+s3://bucket/prefix").unwrap();
        let resolved = |spec: ChunksSpec| spec.resolve(Path::new("data")).unwrap();
        for (name, value) in values(&CHUNKS_SETTINGS) {
            let mut given = bare.clone();
            given.set(name, &[value.into()]).unwrap();
            assert_eq!(resolved(given), resolved(bare.clone()), "{name} = {value}");
        }
    }

    #[test]
    fn defaults_read_like_values() {
        let all = MEMORY_SETTINGS.iter().chain(&POSTGRES_SETTINGS).chain(&CHUNKS_SETTINGS);
        let all = all.chain(&STORES_SETTINGS);
        for setting in all {
            if let Value(value) = setting.default {
                match setting.values {
                    WHOLE => assert!(value.parse::<u64>().is_ok(), "{setting:?}"),
                    DURATION => assert!(parse_duration(value).is_ok(), "{setting:?}"),
                    YES_OR_NO => assert!(["true", "false"].contains(&value), "{setting:?}"),
                    _ => {}
                }
            }
            assert!(!setting.meaning.ends_with('.'), "{setting:?}");
        }
    }
}
