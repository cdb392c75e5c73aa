//! Tables as configured: `NAME=URL` of the command line, and the code that it shares with the
//! configuration file.

use std::{str::FromStr, time::Duration};

use busload_pipeline::settings::{Eviction, SyncMode, TableSettings};

use super::{
    chunks::ChunksSpec,
    nearest::nearest,
    postgres::PostgresSpec,
    settings::{MEMORY_SETTINGS, names},
    units::{MemoryMax, Size, parse_duration},
};

/// Longest name of a table.
pub const TABLE_NAME_BYTES_MAX: usize = 64;
/// Longest time between syncs.
const SYNC_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Keys of a memory table's settings.
pub const TABLE_KEYS: [&str; 4] = names(&MEMORY_SETTINGS);

const EXPECTED: &str = "expected NAME=URL like default='memory:?sync=os&memory_max=2GiB', \
                        objects='postgres://app@db/lake?relation=objects&key=path' or \
                        db='chunks+s3://bucket/prefix'";

/// Settings of one table as given, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableSpec {
    /// A table in memory.
    Memory(TableSettings),
    /// A table in Postgres.
    Postgres(Box<PostgresSpec>),
    /// The chunks of a Dolt store.
    Chunks(Box<ChunksSpec>),
}

impl TableSpec {
    /// Table of this name and kind with default settings.
    pub fn new(name: &str, kind: &str) -> Result<Self, String> {
        check_name(name)?;
        match check_kind(kind)? {
            Kind::Memory => Ok(Self::Memory(TableSettings {
                name: name.to_owned(),
                ..TableSettings::default_table()
            })),
            Kind::Postgres | Kind::Chunks if name == TableSettings::default_table().name => {
                Err(format!(
                    "table {name} holds the keys that belong to no other table, which only a \
                     memory table can; expected another name"
                ))
            }
            Kind::Postgres => Ok(Self::Postgres(PostgresSpec::new(name).into())),
            Kind::Chunks => Ok(Self::Chunks(ChunksSpec::new(name).into())),
        }
    }

    /// Returns the table's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Memory(settings) => &settings.name,
            Self::Postgres(spec) => &spec.name,
            Self::Chunks(spec) => &spec.name,
        }
    }

    /// Sets one setting, from one value or those of an array.
    pub fn set(&mut self, key: &str, values: &[String]) -> Result<(), String> {
        let settings = match self {
            Self::Memory(settings) => settings,
            Self::Postgres(spec) => return spec.set(key, values),
            Self::Chunks(spec) => return spec.set(key, values),
        };
        let [value] = values else { return Err(format!("`{key}` takes a string or a number")) };
        match key {
            "sync" => parse_sync(value).map(|sync| settings.sync = sync),
            "memory_max" => table_memory_max(value).map(|max| settings.memory_max = max),
            "evict" => parse_evict(value).map(|evict| settings.evict = evict),
            _ => Err(unknown(key, "setting of a memory table", &TABLE_KEYS)),
        }
    }
}

impl FromStr for TableSpec {
    type Err = String;

    /// Parses `NAME=URL`. Error messages show only the kind and the settings of a memory table:
    /// the rest of the URL may hold a password.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, url) = text.split_once('=').ok_or(EXPECTED)?;
        if name.contains("//") || name.contains('@') {
            return Err(format!("there is no name of a table before the URL; {EXPECTED}"));
        }
        let (kind, rest) = url.split_once(':').unwrap_or((url, ""));
        let mut spec = Self::new(name, kind)?;
        match spec {
            Self::Memory(_) => {}
            Self::Postgres(_) => return Ok(Self::Postgres(PostgresSpec::of_url(name, url).into())),
            Self::Chunks(_) => return Ok(Self::Chunks(ChunksSpec::of_url(name, url)?.into())),
        }
        let query = match rest.strip_prefix('?') {
            Some(query) => query,
            None if rest.is_empty() => "",
            None => return Err(format!("`{rest}` after `memory:` means nothing; {EXPECTED}")),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| format!("`{pair}` has no value; {EXPECTED}"))?;
            if key == "kind" {
                return Err(format!("the kind stands before the `:`; {EXPECTED}"));
            }
            spec.set(key, &[percent_decoded(value)?])?;
        }
        Ok(spec)
    }
}

/// Error text for an unknown name, with the name that was probably meant.
pub fn unknown(written: &str, what: &str, known: &[&str]) -> String {
    match nearest(written, known.iter().copied()) {
        Some(near) => format!("`{written}` is no {what}; did you mean `{near}`?"),
        None => format!("`{written}` is no {what}; there are {}", known.join(", ")),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || TABLE_NAME_BYTES_MAX < name.len() || !name.bytes().all(fits) {
        return Err(format!(
            "`{name}` is no name of a table; expected 1 to {TABLE_NAME_BYTES_MAX} letters, digits, \
             `-`, `_` or `.`"
        ));
    }
    Ok(())
}

enum Kind {
    Memory,
    Postgres,
    Chunks,
}

fn check_kind(kind: &str) -> Result<Kind, String> {
    match kind.split(['+', ':']).next().unwrap_or(kind) {
        "memory" if kind == "memory" => Ok(Kind::Memory),
        "postgres" | "postgresql" if !kind.contains(['+', ':']) => Ok(Kind::Postgres),
        "chunks" if !kind.contains(':') => Ok(Kind::Chunks),
        _ => {
            Err(format!("`{kind}` is no kind of table; expected `memory`, `postgres` or `chunks`"))
        }
    }
}

fn parse_sync(text: &str) -> Result<SyncMode, String> {
    let interval = || match text.strip_prefix("interval:") {
        Some(every) => match parse_duration(every)? {
            every if Duration::ZERO < every && every <= SYNC_INTERVAL_MAX => {
                Ok(SyncMode::Interval(every))
            }
            _ => Err(format!("sync interval `{every}` is out of range; expected 1 ms to 1 hour")),
        },
        None => Err(format!("`{text}` is no sync mode; expected always, interval:MS, os or off")),
    };
    match text {
        "always" => Ok(SyncMode::Always),
        "os" => Ok(SyncMode::Os),
        "off" => Ok(SyncMode::Off),
        _ => interval(),
    }
}

/// Parses a table's limit of memory. A percentage is refused: it would not be clear of what.
fn table_memory_max(text: &str) -> Result<Option<u64>, String> {
    match text.parse() {
        Ok(MemoryMax::Unlimited) => Ok(None),
        Ok(MemoryMax::Bytes(Size(bytes))) => Ok(Some(bytes)),
        _ => Err(format!("memory_max `{text}` of a table; expected a size like 2GiB, or none")),
    }
}

fn parse_evict(text: &str) -> Result<Eviction, String> {
    let all = [Eviction::None, Eviction::S3Fifo];
    let found = all.into_iter().find(|eviction| eviction.to_string() == text);
    found.ok_or_else(|| {
        format!(
            "`{text}` is no eviction policy; expected none (refuse writes at memory_max) or \
             s3-fifo (delete keys that are not used)"
        )
    })
}

/// Decodes escapes like `%25` in the value of a URL's query.
pub fn percent_decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.filter(|_| byte == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| format!("`{text}` is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<TableSettings, String> {
        text.parse::<TableSpec>().map(|spec| match spec {
            TableSpec::Memory(settings) => settings,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn urls_of_memory_tables_are_read() {
        let expected = |name: &str, sync, memory_max| {
            Ok(TableSettings { name: name.into(), sync, memory_max, evict: Eviction::None })
        };
        assert_eq!(table("default=memory:"), expected("default", SyncMode::Always, None));
        assert_eq!(table("a-b_c.D=memory"), expected("a-b_c.D", SyncMode::Always, None));
        assert_eq!(
            table("default=memory:?sync=os&memory_max=2GiB"),
            expected("default", SyncMode::Os, Some(2 << 30))
        );
        assert_eq!(
            table("t=memory:?evict=s3-fifo&memory_max=64MiB").map(|table| table.evict),
            Ok(Eviction::S3Fifo)
        );
        assert_eq!(table("t=memory:?evict=none").map(|table| table.evict), Ok(Eviction::None));
        assert_eq!(
            table("t=memory:?sync=interval%3A50"),
            expected("t", SyncMode::Interval(Duration::from_millis(50)), None)
        );
        assert_eq!(
            table("t=memory:?sync=interval:1s&"),
            expected("t", SyncMode::Interval(Duration::from_secs(1)), None)
        );
    }

    #[test]
    fn mistakes_in_urls_say_what_was_expected() {
        for (text, message) in [
            ("default", "expected NAME=URL"),
            ("=memory:", "no name of a table"),
            ("a:b=memory:", "no name of a table"),
            ("caf\u{e9}=memory:", "no name of a table"),
            ("t=redis:", "`redis` is no kind of table; expected `memory`"),
            ("t=postgres+x://app@db/x", "is no kind of table"),
            ("default=postgres://app@db/x", "which only a memory table can"),
            ("t=chunks:s3://b/p", "expected a URL like chunks+s3://bucket/prefix"),
            (
                "t=chunks+ftp://b/p",
                "stores of kind `ftp` are not known; expected file, s3, aws, gs, az",
            ),
            ("default=chunks+s3://b/p", "which only a memory table can"),
            ("t=memory://x", "means nothing"),
            ("t=memory:?sync=allways", "expected always, interval:MS, os or off"),
            ("t=memory:?sync=interval:0", "out of range"),
            ("t=memory:?sync=interval:2h", "no duration"),
            ("t=memory:?snyc", "has no value"),
            ("t=memory:?memorymax=1", "did you mean `memory_max`?"),
            ("t=memory:?memory_max=50%", "expected a size like 2GiB"),
            ("t=memory:?evict=lru", "`lru` is no eviction policy; expected none"),
            ("t=memory:?kind=memory", "before the `:`"),
        ] {
            let error = table(text).expect_err(text);
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn names_have_at_most_64_bytes() {
        assert!(table(&format!("{}=memory:", "n".repeat(64))).is_ok());
        assert!(table(&format!("{}=memory:", "n".repeat(65))).is_err());
    }
}
