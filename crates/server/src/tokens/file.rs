//! The file of tokens: TOML with the hashes of bearer tokens, and public keys of Dolt's clients.
//!
//! ```toml
//! [[token]]
//! name = "ci"                        # for messages
//! sha256 = "9f86d0..."               # printf %s "$TOKEN" | sha256sum
//! read = ["org/*"]
//! expires = 2027-01-01T00:00:00Z     # optional
//!
//! [[key]]
//! name = "ada"
//! public_key = "ctu7..."             # dolt creds ls -v
//! read = ["org/db"]
//! ```

use std::{
    collections::HashMap, fs::File, io::Read, os::unix::fs::PermissionsExt, path::Path, sync::Arc,
    time::Duration,
};

use toml::{Table, Value, value::Datetime};

use super::{
    jwt::DoltKey,
    limits::{ENTRY_COUNT_MAX, FILE_BYTES_MAX},
    pattern::Patterns,
};

/// Permission bits of everybody.
const EVERYBODY: u32 = 0o007;

/// Rights of a token or a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Stores that may be read.
    pub read: Patterns,
    /// Time since 1970 from which on there are no rights.
    pub expires: Option<Duration>,
}

/// Entries of a file.
#[derive(Default)]
pub struct Entries {
    /// Rights of tokens, by their SHA-256.
    pub tokens: HashMap<[u8; 32], Arc<Rights>>,
    /// Keys of Dolt's clients with their rights, by the keys' ids.
    pub keys: HashMap<String, (DoltKey, Arc<Rights>)>,
}

impl Entries {
    /// Reads a file, which must not be open to everybody.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = read_text(path)?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Parses the text of a file.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The whole message would show lines of the file.
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let before = error.span().map_or(0, |span| span.start).min(text.len());
            let line = text.as_bytes()[..before].iter().filter(|byte| **byte == b'\n').count() + 1;
            format!("line {line}: {}", error.message())
        })?;
        let mut entries = Self::default();
        for (kind, list) in &table {
            let list = list.as_array().filter(|_| matches!(&**kind, "token" | "key"));
            let list = list.ok_or_else(|| format!("`{kind}`; expected [[token]] or [[key]]"))?;
            if ENTRY_COUNT_MAX < list.len() {
                return Err(format!("{} entries; expected at most {ENTRY_COUNT_MAX}", list.len()));
            }
            for (index, entry) in list.iter().enumerate() {
                let located = |error| format!("[[{kind}]] number {}: {error}", index + 1);
                let entry = entry.as_table().ok_or_else(|| located("expected a table".into()))?;
                entries.add(kind, entry).map_err(located)?;
            }
        }
        Ok(entries)
    }

    fn add(&mut self, kind: &str, entry: &Table) -> Result<(), String> {
        let identity = if kind == "token" { "sha256" } else { "public_key" };
        let unknown =
            |key: &&String| !["name", "read", "expires", identity].contains(&key.as_str());
        if let Some(key) = entry.keys().find(unknown) {
            return Err(format!("`{key}`; expected name, {identity}, read or expires"));
        }
        if entry.get("name").is_some_and(|name| !name.is_str()) {
            return Err("name; expected a text".to_owned());
        }
        let read = entry.get("read").and_then(Value::as_array);
        let read = read.and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        let read = Patterns::new(read.ok_or("read; expected a list of patterns like org/*")?)?;
        let expires = match entry.get("expires") {
            None => None,
            Some(Value::Datetime(time)) => Some(since_1970(time)),
            Some(_) => Some(None),
        };
        let expected = "expires; expected a time with its offset, like 2027-01-01T00:00:00Z";
        let expires = expires.map(|time| time.ok_or(expected)).transpose()?;
        let rights = Arc::new(Rights { read, expires });
        let text = entry.get(identity).and_then(Value::as_str).unwrap_or_default();
        let is_new = if kind == "token" {
            let hash = hash_of_hex(text).ok_or("sha256; expected 64 hexadecimal digits")?;
            self.tokens.insert(hash, rights).is_none()
        } else {
            let expected = "public_key; expected a public key as dolt creds ls -v prints it";
            let key = DoltKey::parse(text).ok_or(expected)?;
            self.keys.insert(key.id(), (key, rights)).is_none()
        };
        if is_new { Ok(()) } else { Err(format!("this {identity} is there twice")) }
    }
}

/// Reads the text of a file, which must not be open to everybody.
pub fn read_text(path: &Path) -> Result<String, String> {
    let name = path.display();
    let failed = |error| format!("cannot read the file of tokens {name}: {error}");
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & EVERYBODY != 0 {
        return Err(format!(
            "the file of tokens {name} is open to everybody (mode {mode:03o}); expected at most \
             640 (chmod 600)"
        ));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if FILE_BYTES_MAX < text.len() as u64 {
        return Err(format!("the file of tokens {name} is longer than {FILE_BYTES_MAX} bytes"));
    }
    Ok(text)
}

fn hash_of_hex(text: &str) -> Option<[u8; 32]> {
    let bytes = text.as_bytes();
    if bytes.len() != 64 || !bytes.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pair = |at: usize| u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).ok();
    let bytes: Option<Vec<u8>> = (0..32).map(pair).collect();
    bytes?.try_into().ok()
}

/// Returns the time since 1970; none without an offset, or before.
fn since_1970(time: &Datetime) -> Option<Duration> {
    let (date, clock) = (time.date?, time.time?);
    let offset_minutes = match time.offset? {
        toml::value::Offset::Z => 0,
        toml::value::Offset::Custom { minutes } => i64::from(minutes),
    };
    // Years begin in March, so that the leap day is the last one.
    let (month, year) = (i64::from(date.month), i64::from(date.year) - i64::from(date.month <= 2));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + i64::from(date.day) - 1;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    let second = clock.second.map_or(0, i64::from);
    let minutes = (days * 24 + i64::from(clock.hour)) * 60 + i64::from(clock.minute);
    u64::try_from((minutes - offset_minutes) * 60 + second).ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn times_count_from_1970() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T12:00:01Z", Some(951_825_601)),
            ("2027-01-15T09:00:00+01:00", Some(1_800_000_000)),
            ("2027-01-01", None),
        ] {
            let found = since_1970(&text.parse().unwrap());
            assert_eq!(found, seconds.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn mistakes_are_told_without_secrets() {
        let hash = "ab".repeat(32);
        let entries = Entries::parse(&format!("[[token]]\nsha256 = '{hash}'\nread = ['a/*']"));
        assert!(entries.unwrap().tokens[&[0xab; 32]].read.fit("a/b"));
        for (text, part) in [
            (format!("[[token]]\nsha256='{hash}'"), "read; expected"),
            (format!("[[token]]\nsha256='{hash}'\nread=['a//b']"), "no pattern"),
            (format!("[[token]]\nsha256='{hash}'\nread=[]\nexpires=2027-01-01"), "expires"),
            (format!("[[token]]\nsha256='{hash}'\nread=[]\ntoken='hush'"), "`token`"),
            ("[[token]]\nsha256='hush'\nread=[]".into(), "64 hexadecimal"),
            ("[[key]]\npublic_key='hush'\nread=[]".into(), "dolt creds ls"),
            ("[[users]]".into(), "`users`"),
            ("\n[[token]\nx='hush'".into(), "line 2"),
            (format!("[[token]]\nsha256='{hash}'\nread=[]\n").repeat(2), "twice"),
        ] {
            let error = Entries::parse(&text).map(drop).unwrap_err();
            assert!(error.contains(part) && !error.contains("hush"), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_that_is_open_to_everybody_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(Entries::read(&path).map(drop).unwrap_err().contains("mode 644"));
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(Entries::read(&path).is_ok());
    }
}
