//! Tables: `NAME=URL` of the command line, and what both ways of configuring them share.

use std::{str::FromStr, time::Duration};

use busload_pipeline::settings::{SyncMode, TableSettings};

use super::{
    nearest::nearest,
    units::{MemoryMax, Size, parse_duration},
};

/// Longest name of a table.
pub const TABLE_NAME_BYTES_MAX: usize = 64;
/// Longest time between syncs.
const SYNC_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// The keys of a table's settings.
pub const TABLE_KEYS: [&str; 4] = ["evict", "kind", "memory_max", "sync"];

/// One table as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// Its settings.
    pub settings: TableSettings,
}

/// Collects a table's settings, whoever gives them.
#[derive(Debug)]
pub struct TableBuilder {
    settings: TableSettings,
}

impl TableBuilder {
    /// A table of this name with default settings.
    pub fn new(name: &str) -> Result<Self, String> {
        check_name(name)?;
        Ok(Self { settings: TableSettings { name: name.to_owned(), ..TableSettings::default_table() } })
    }

    /// Takes one setting.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "kind" => check_kind(value),
            "sync" => parse_sync(value).map(|sync| self.settings.sync = sync),
            "memory_max" => table_memory_max(value).map(|max| self.settings.memory_max = max),
            "evict" => check_evict(value),
            _ => Err(unknown(key, "setting of a memory table", &TABLE_KEYS)),
        }
    }

    /// The table.
    pub fn finish(self) -> TableSettings {
        self.settings
    }
}

impl FromStr for TableSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected NAME=URL like default='memory:?sync=os&memory_max=2GiB'";
        let (name, url) = text.split_once('=').ok_or(expected)?;
        let mut builder = TableBuilder::new(name)?;
        let (kind, rest) = url.split_once(':').unwrap_or((url, ""));
        builder.set("kind", kind)?;
        let query = match rest.strip_prefix('?') {
            Some(query) => query,
            None if rest.is_empty() => "",
            None => return Err(format!("`{rest}` after `memory:` means nothing; {expected}")),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| format!("`{pair}` has no value; {expected}"))?;
            if key == "kind" {
                return Err(format!("the kind stands before the `:`; {expected}"));
            }
            builder.set(key, &percent_decoded(value)?)?;
        }
        Ok(Self { settings: builder.finish() })
    }
}

/// An unknown name, with what was probably meant.
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
            "`{name}` is no name of a table; expected 1 to {TABLE_NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`"
        ));
    }
    Ok(())
}

fn check_kind(kind: &str) -> Result<(), String> {
    match kind.split(['+', ':']).next().unwrap_or(kind) {
        "memory" if kind == "memory" => Ok(()),
        "postgres" | "postgresql" | "chunks" => {
            Err(format!("this version serves memory tables only, not `{kind}`; expected kind `memory`"))
        }
        _ => Err(format!("`{kind}` is no kind of table; expected `memory`")),
    }
}

fn parse_sync(text: &str) -> Result<SyncMode, String> {
    let interval = || match text.strip_prefix("interval:") {
        Some(every) => match parse_duration(every)? {
            every if Duration::ZERO < every && every <= SYNC_INTERVAL_MAX => Ok(SyncMode::Interval(every)),
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

/// A table's share is not a share of the machine: only sizes.
fn table_memory_max(text: &str) -> Result<Option<u64>, String> {
    match text.parse() {
        Ok(MemoryMax::Unlimited) => Ok(None),
        Ok(MemoryMax::Bytes(Size(bytes))) => Ok(Some(bytes)),
        _ => Err(format!("memory_max `{text}` of a table; expected a size like 2GiB, or none")),
    }
}

fn check_evict(text: &str) -> Result<(), String> {
    match text {
        "none" => Ok(()),
        _ => Err(format!(
            "evict = `{text}`: this version refuses writes at memory_max and evicts nothing; expected none"
        )),
    }
}

/// `%25` for what means something in a URL.
fn percent_decoded(text: &str) -> Result<String, String> {
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
        text.parse::<TableSpec>().map(|spec| spec.settings)
    }

    #[test]
    fn urls_of_memory_tables_are_read() {
        let expected =
            |name: &str, sync, memory_max| Ok(TableSettings { name: name.into(), sync, memory_max });
        assert_eq!(table("default=memory:"), expected("default", SyncMode::Always, None));
        assert_eq!(table("a-b_c.D=memory"), expected("a-b_c.D", SyncMode::Always, None));
        assert_eq!(
            table("default=memory:?sync=os&memory_max=2GiB"),
            expected("default", SyncMode::Os, Some(2 << 30))
        );
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
            ("t=postgres://app@db/x", "memory tables only"),
            ("t=chunks+s3://b/p", "memory tables only"),
            ("t=memory://x", "means nothing"),
            ("t=memory:?sync=allways", "expected always, interval:MS, os or off"),
            ("t=memory:?sync=interval:0", "out of range"),
            ("t=memory:?sync=interval:2h", "no duration"),
            ("t=memory:?snyc", "has no value"),
            ("t=memory:?memorymax=1", "did you mean `memory_max`?"),
            ("t=memory:?memory_max=50%", "expected a size like 2GiB"),
            ("t=memory:?evict=s3-fifo", "evicts nothing"),
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
