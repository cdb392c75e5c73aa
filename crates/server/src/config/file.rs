//! Parser of the configuration file: TOML with a closed set of keys. An error names the line.

use std::{fs, path::Path};

use toml::de::{DeTable, DeValue};

use super::{
    options::{OPTION_KEYS, Options},
    stores::StoresSpec,
    table::{TableSpec, unknown},
};
use crate::failure::Failure;

/// Longest configuration file; a longer one is certainly some other file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Top-level key that holds the sections of the tables.
const TABLES_KEY: &str = "tables";
/// Top-level key that holds the sections of stores by pattern.
const STORES_KEY: &str = "stores";
/// Key of a table's section that decides which other keys it may have.
const KIND_KEY: &str = "kind";

/// Reads a configuration file.
pub fn read(path: &Path) -> Result<Options, Failure> {
    let refuse = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot read the configuration file {}: {error}", path.display()))
    };
    let metadata = fs::metadata(path).map_err(|error| refuse(&error))?;
    if FILE_BYTES_MAX < metadata.len() {
        return Err(refuse(&format!(
            "it has {} bytes, at most {FILE_BYTES_MAX} are read",
            metadata.len()
        )));
    }
    let text = fs::read_to_string(path).map_err(|error| refuse(&error))?;
    parse(&text).map_err(|mistake| {
        let line = 1 + text.bytes().take(mistake.offset).filter(|&byte| byte == b'\n').count();
        Failure::usage(format!("{}:{line}: {}", path.display(), mistake.message))
    })
}

/// Mistake in the file, and the offset at which it begins.
#[derive(Debug, PartialEq, Eq)]
struct Mistake {
    offset: usize,
    message: String,
}

/// Returns a function for `map_err` that makes a mistake at this offset.
fn at(offset: usize) -> impl Fn(String) -> Mistake {
    move |message| Mistake { offset, message }
}

fn parse(text: &str) -> Result<Options, Mistake> {
    let document = DeTable::parse(text).map_err(|error| Mistake {
        offset: error.span().map_or(0, |span| span.start),
        message: error.message().trim().replace('\n', " "),
    })?;
    let mut options = Options::default();
    for (key, value) in document.get_ref() {
        let (name, offset) = (key.get_ref().as_ref(), key.span().start);
        if name == TABLES_KEY {
            let tables = value.get_ref().as_table().ok_or_else(|| {
                at(offset)("`tables` has one section for each table, like [tables.sessions]".into())
            })?;
            options.tables = parse_tables(tables)?;
        } else if name == STORES_KEY {
            let stores = value.get_ref().as_table().ok_or_else(|| {
                at(offset)(
                    "`stores` has one section for each pattern, like [stores.\"*/*\"]".into(),
                )
            })?;
            options.stores = parse_stores(stores)?;
        } else if OPTION_KEYS.contains(&name) {
            let values = texts(name, value.get_ref()).map_err(at(offset))?;
            options.set(name, &values).map_err(at(value.span().start))?;
        } else {
            let known: Vec<&str> =
                OPTION_KEYS.into_iter().chain([TABLES_KEY, STORES_KEY]).collect();
            return Err(at(offset)(unknown(name, "key of the configuration", &known)));
        }
    }
    Ok(options)
}

fn parse_tables(tables: &DeTable<'_>) -> Result<Vec<TableSpec>, Mistake> {
    let mut specs = Vec::with_capacity(tables.len());
    for (name, settings) in tables {
        let (text, offset) = (name.get_ref().as_ref(), name.span().start);
        let settings = settings.get_ref().as_table().ok_or_else(|| {
            at(offset)(format!("table `{text}` needs a section of its own: [tables.{text}]"))
        })?;
        specs.push(parse_table(text, offset, settings)?);
    }
    Ok(specs)
}

fn parse_stores(stores: &DeTable<'_>) -> Result<Vec<StoresSpec>, Mistake> {
    let mut specs = Vec::with_capacity(stores.len());
    for (pattern, settings) in stores {
        let (text, offset) = (pattern.get_ref().as_ref(), pattern.span().start);
        let mut spec = StoresSpec::new(text).map_err(at(offset))?;
        let settings = settings.get_ref().as_table().ok_or_else(|| {
            at(offset)(format!("stores `{text}` need a section of their own: [stores.\"{text}\"]"))
        })?;
        for (key, value) in settings {
            let (key, key_offset) = (key.get_ref().as_ref(), key.span().start);
            let values = texts_or_bool(key, value.get_ref()).map_err(at(key_offset))?;
            spec.set(key, &values).map_err(at(key_offset))?;
        }
        specs.push(spec);
    }
    Ok(specs)
}

fn parse_table(name: &str, offset: usize, settings: &DeTable<'_>) -> Result<TableSpec, Mistake> {
    let expected = || {
        format!(
            "table `{name}` has no kind; expected kind = \"memory\", \"postgres\" or \"chunks\""
        )
    };
    // The kind comes first: with a wrong kind, its settings are not further mistakes.
    let mut kinds = settings.iter().filter(|(key, _)| key.get_ref().as_ref() == KIND_KEY);
    let (key, kind) = kinds.next().ok_or_else(|| at(offset)(expected()))?;
    let kind = kind.get_ref().as_str().ok_or_else(|| at(key.span().start)(expected()))?;
    // A bad name is reported at the section's header, a bad kind at its key.
    TableSpec::new(name, "memory").map_err(at(offset))?;
    let mut spec = TableSpec::new(name, kind).map_err(at(key.span().start))?;
    for (key, value) in settings.iter().filter(|(key, _)| key.get_ref().as_ref() != KIND_KEY) {
        let (key, key_offset) = (key.get_ref().as_ref(), key.span().start);
        let values = texts_or_bool(key, value.get_ref()).map_err(at(key_offset))?;
        spec.set(key, &values).map_err(at(key_offset))?;
    }
    Ok(spec)
}

fn texts_or_bool(key: &str, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    match value {
        DeValue::Boolean(value) => Ok(vec![value.to_string()]),
        value => texts(key, value),
    }
}

/// Returns one text for a single value, several for an array.
fn texts(key: &str, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let refuse = || format!("`{key}` takes a string or a number");
    match value {
        DeValue::Array(values) => {
            values.iter().map(|value| text(value.get_ref()).ok_or_else(refuse)).collect()
        }
        value => Ok(vec![text(value).ok_or_else(refuse)?]),
    }
}

fn text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod mutated;

#[cfg(test)]
mod tests {
    use busload_pipeline::settings::{Eviction, SyncMode};

    use super::*;
    use crate::config::units::{MemoryMax, Size};

    fn mistake(text: &str) -> (usize, String) {
        let mistake = parse(text).expect_err(text);
        (1 + text[..mistake.offset].matches('\n').count(), mistake.message)
    }

    #[test]
    fn the_whole_vocabulary_is_read() {
        let options = parse(
            r#"
            data = "/var/lib/busload"
            resp = ["127.0.0.1:6380", "[::1]:6380"]
            unix = "/run/busload.sock"
            http = "none"
            http_hosts = ["cache.internal", "cache"]
            http_threads = 2
            http_url = "https://cache.example.com/busload/"
            net_threads = 1
            password_file = "/etc/busload/password"
            memory_max = "50%"
            maxclients = 500
            client_reply_bytes = 1048576
            reply_bytes_total = "1GiB"
            request_bytes = "64MiB"
            log_level = "warn"
            price_get = 0.4
            price_egress = "0.09"
            price_list = 5
            [tables.default]
            kind = "memory"
            sync = "os"
            [tables.objects]
            url = "postgres://app:secret@db/lake"
            relation = "objects"
            key = ["repo", "path"]
            columns = "meta,size"
            separator = "/"
            writable = true
            connections = 2
            timeout = "500ms"
            batch = 64
            queue_requests = 1000
            queue_bytes = "16MiB"
            join_in_flight = false
            password_file = "/etc/busload/objects.password"
            kind = "postgres"
            [tables.sessions]
            memory_max = "2GiB"
            kind = "memory"
            evict = "s3-fifo"
            [tables.translations]
            kind = "chunks"
            url = "s3://bucket/dolthub/tatoeba?region=eu-west-1"
            disk = "20GiB"
            requests = 16
            dolt_paths = ["dolthub/tatoeba", "tatoeba"]
            dolt_layout = "records"
            "#,
        )
        .unwrap();
        assert_eq!(options.resp.len(), 2);
        assert_eq!(options.net_threads, Some(1));
        assert_eq!(options.memory_max, Some(MemoryMax::Percent(50)));
        assert_eq!(options.client_reply_bytes, Some(Size(1 << 20)));
        assert_eq!(options.maxclients, Some(500));
        let prices = [options.price_get, options.price_egress, options.price_list];
        assert_eq!(prices.map(|price| price.unwrap().usd()), [0.4, 0.09, 5.0]);
        let [
            TableSpec::Memory(default),
            TableSpec::Postgres(objects),
            TableSpec::Memory(sessions),
            TableSpec::Chunks(translations),
        ] = &options.tables[..]
        else {
            panic!("{:?}", options.tables);
        };
        assert_eq!((default.name.as_str(), default.sync), ("default", SyncMode::Os));
        assert_eq!((sessions.name.as_str(), sessions.memory_max), ("sessions", Some(2 << 30)));
        assert_eq!((default.evict, sessions.evict), (Eviction::None, Eviction::S3Fifo));
        assert_eq!(
            (objects.name.as_str(), translations.name.as_str()),
            ("objects", "translations")
        );
    }

    #[test]
    fn an_unknown_key_is_told_with_its_line_and_the_nearest_name() {
        assert_eq!(
            mistake("data = 'x'\nmax_clients = 5\n"),
            (2, "`max_clients` is no key of the configuration; did you mean `maxclients`?".into())
        );
        let (line, message) = mistake("[tables.a]\nkind = 'memory'\nsnyc = 'os'\n");
        assert_eq!(line, 3);
        assert!(
            message.contains("`snyc` is no setting of a memory table; did you mean `sync`?"),
            "{message}"
        );
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, line, part) in [
            ("data = \n", 1, ""),
            ("\nnet_threads = 7", 2, "expected 0 or 1"),
            ("net_threads = true", 1, "takes a string or a number"),
            ("data = 'a'\ndata = 'b'", 2, "duplicate key"),
            ("resp = 'nonsense'", 1, "expected HOST:PORT"),
            ("resp = [1, [2]]", 1, "takes a string or a number"),
            ("http = ['127.0.0.1:1', '127.0.0.1:2']", 1, "takes one value"),
            ("tables = 5", 1, "one section for each table"),
            ("tables.a = 5", 1, "[tables.a]"),
            ("[tables.a]\nsync = 'os'", 1, "expected kind = \"memory\""),
            ("[tables.'a:b']\nkind = 'memory'", 1, "no name of a table"),
            ("[tables.a]\ncolumns = ['x']\nkind = 'memory'", 2, "no setting of a memory table"),
            ("[tables.a]\nkind = 'redis'", 2, "expected `memory`, `postgres` or `chunks`"),
            ("[tables.a]\nkind = 7", 2, "expected kind = \"memory\", \"postgres\" or \"chunks\""),
            ("[tables.default]\nkind = 'postgres'", 2, "which only a memory table can"),
            (
                "[tables.a]\nkind = 'postgres'\nsync = 'os'",
                3,
                "`sync` is no setting of a postgres table",
            ),
            ("[tables.a]\nkind = 'postgres'\ncolums = 'x'", 3, "did you mean `columns`?"),
            ("[tables.a]\nkind = 'postgres'\nwritable = 'maybe'", 3, "expected true or false"),
            ("[tables.a]\nkind = 'postgres'\nconnections = 'few'", 3, "expected a whole number"),
            ("[tables.a]\nkind = 'postgres'\nkey = []", 3, "takes the name of a column or several"),
            ("[tables.a]\nkind = 'postgres'\nurl = ['x', 'y']", 3, "takes one value"),
            ("[tables.a]\nkind = 'postgres'\ntimeout = '1h'", 3, "is no duration"),
            ("[tables.a]\nkind = 'postgres'\nseparator = '::'", 3, "expected one character"),
            ("[tables.a]\nkind = 'postgres'\nkey = [['a']]", 3, "takes a string or a number"),
            ("[stores.db]\nurl = 's3://b/{name}'", 1, "`db` is no pattern of names"),
            ("[stores.'*']\ndsk = '1GiB'", 2, "did you mean `disk`?"),
            ("[stores.'*']\nkind = 'chunks'", 2, "is a setting of one table"),
            ("[stores]\n'*' = 1", 2, "a section of their own"),
            ("stores = 1", 1, "one section for each pattern"),
            ("[tables.default]\nkind = 'chunks'", 2, "which only a memory table can"),
            ("[tables.a]\nkind = 'chunks'\ndsk = '1GiB'", 3, "did you mean `disk`?"),
            ("[tables.a]\nkind = 'chunks'\nurl = 's3://b?dsk=1GiB'", 3, "did you mean `disk`?"),
            (
                "[tables.a]\nkind = 'chunks'\nurl = 's3://k:x@b'",
                3,
                "expected credentials in the environment",
            ),
            ("[tables.a]\nkind = 'chunks'\ndolt_paths = [['a']]", 3, "takes a string or a number"),
            (
                "[tables.a]\nkind = 'chunks'\ndolt_paths = ['a', '/b']",
                3,
                "`/b` is no path of a repository",
            ),
            ("http_hosts = ['cache:6381']", 1, "expected a host without scheme and port"),
            ("http_url = 'cache.example.com'", 1, "expected one like https://cache.example.com"),
            ("memory_max = 0", 1, "or none"),
            ("[tables.a]\nkind = 'memory'\nevict = 'lru'", 3, "`lru` is no eviction policy"),
            ("maxclients = 0", 1, "expected 1 to"),
            ("maxclients = 1.5", 1, "expected 1 to"),
            ("price_get = -1", 1, "`-1` is no price; expected USD from 0"),
            ("price_list = -0.5", 1, "`-0.5` is no price; expected USD from 0"),
            ("price_egress = nan", 1, "`nan` is no price; expected USD from 0"),
            ("price_dynamodb = 'cheap'", 1, "`cheap` is no price; expected USD from 0"),
            ("price_get = true", 1, "takes a string or a number"),
            ("log_level = 'loud'", 1, "expected error, warn, info, debug or trace"),
        ] {
            let (found, message) = mistake(text);
            assert!(message.contains(part), "{text}: {message}");
            assert_eq!(found, line, "{text}: {message}");
        }
    }

    #[test]
    fn the_example_is_valid() {
        let text = include_str!("../../../../busload.example.toml");
        assert_ne!(parse(text), Ok(Options::default()), "it says nothing");
        // The settings that it only shows in comments are valid, too.
        let uncommented: String = text
            .lines()
            .map(|line| {
                line.strip_prefix("#").filter(|rest| !rest.starts_with([' ', '#'])).unwrap_or(line)
            })
            .map(|line| format!("{line}\n"))
            .collect();
        assert!(parse(&uncommented).unwrap().password_file.is_some());
    }
}
