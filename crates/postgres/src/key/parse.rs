//! Parses a client's text into a key. It reads every byte once, and refuses what the table cannot
//! hold before the request joins a batch with others.

use super::{Key, KeyEncoder, KeyType, Position};
use crate::Error;

/// Character before a separator that makes it part of the key's text.
const ESCAPE: u8 = b'\\';

/// Columns, types and separator of one table's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyShape {
    names: Box<[String]>,
    types: Box<[KeyType]>,
    /// The n of `varchar(n)`. Postgres would cut blanks beyond it and write the row of another key.
    characters_max: Box<[Option<usize>]>,
    separator: char,
}

impl KeyShape {
    /// Creates a shape from the columns with their types and the separator of a composite key's
    /// parts.
    pub fn new(columns: &[(String, KeyType)], separator: char) -> Self {
        Self {
            names: columns.iter().map(|(name, _)| name.clone()).collect(),
            types: columns.iter().map(|&(_, key_type)| key_type).collect(),
            characters_max: columns.iter().map(|_| None).collect(),
            separator,
        }
    }

    /// Sets the maximum number of characters of the columns that have such a limit.
    pub(crate) fn with_characters_max(mut self, characters_max: Box<[Option<usize>]>) -> Self {
        self.characters_max = characters_max;
        self
    }

    pub(crate) fn types(&self) -> &[KeyType] {
        &self.types
    }

    /// Returns whether columns of these types can hold a key: the table may change between parsing
    /// and sending.
    pub(crate) fn fits(&self, key: &Key) -> bool {
        let mut parts = key.parts();
        self.types.iter().all(|one| parts.next().is_some_and(|part| one.holds(&part)))
            && parts.next().is_none()
    }

    pub(crate) fn position(&self, index: usize) -> Position {
        if index + 1 == self.types.len() { Position::Last } else { Position::BeforeOthers }
    }

    /// Parses a key as a client writes it.
    ///
    /// # Errors
    /// Returns [`Error::BadKey`], which says what was expected.
    pub fn parse(&self, raw: &[u8]) -> Result<Key, Error> {
        let mut encoder = KeyEncoder::for_bytes(raw.len());
        if let [_] = *self.types {
            self.part(&mut encoder, 0, raw)?;
            return Ok(encoder.key());
        }
        let parts = split(raw, self.separator)?;
        if parts.len() != self.types.len() {
            return Err(self.wrong_count(parts.len()));
        }
        for (index, part) in parts.iter().enumerate() {
            self.part(&mut encoder, index, part)?;
        }
        Ok(encoder.key())
    }

    fn part(&self, encoder: &mut KeyEncoder, index: usize, raw: &[u8]) -> Result<(), Error> {
        let (key_type, position) = (self.types[index], self.position(index));
        match key_type {
            KeyType::Text => encoder.content(key_type, self.text(index, raw)?, position),
            KeyType::Bytes => encoder.content(key_type, raw, position),
            KeyType::Uuid => encoder.content(key_type, self.uuid(index, raw)?.as_bytes(), position),
            KeyType::Int2 => {
                encoder.integer(key_type, self.integer::<i16>(index, raw)?.into(), position)
            }
            KeyType::Int4 => {
                encoder.integer(key_type, self.integer::<i32>(index, raw)?.into(), position)
            }
            KeyType::Int8 => encoder.integer(key_type, self.integer::<i64>(index, raw)?, position),
        }
        Ok(())
    }

    fn text<'a>(&self, index: usize, raw: &'a [u8]) -> Result<&'a [u8], Error> {
        let Ok(text) = std::str::from_utf8(raw) else {
            return Err(self.bad(index, "is not UTF-8"));
        };
        if let Some(Some(max)) = self.characters_max.get(index)
            && *max < text.chars().count()
        {
            return Err(self.bad(index, &format!("has more than {max} characters")));
        }
        if raw.contains(&0) {
            return Err(self.bad(index, "holds a NUL byte, which text in Postgres cannot"));
        }
        Ok(raw)
    }

    fn uuid(&self, index: usize, raw: &[u8]) -> Result<uuid::Uuid, Error> {
        uuid::Uuid::try_parse_ascii(raw).map_err(|_| self.bad(index, "is not a UUID"))
    }

    fn integer<T: std::str::FromStr>(&self, index: usize, raw: &[u8]) -> Result<T, Error> {
        let text = std::str::from_utf8(raw).unwrap_or_default();
        text.parse().map_err(|_| {
            let range = match self.types[index] {
                KeyType::Int2 => "from -32768 to 32767",
                KeyType::Int4 => "from -2147483648 to 2147483647",
                _ => "of 64 bits",
            };
            self.bad(index, &format!("is not a whole number {range}"))
        })
    }

    fn bad(&self, index: usize, what: &str) -> Error {
        let key_type = self.types[index].sql();
        let text = match self.types.len() {
            1 => format!("the key {what} (column {} is {key_type})", self.names[index]),
            _ => format!(
                "the key's part {} {what} (column {} is {key_type})",
                index + 1,
                self.names[index]
            ),
        };
        Error::BadKey(text.into())
    }

    fn wrong_count(&self, count: usize) -> Error {
        let separator = self.separator;
        let expected = self.names.join(&separator.to_string());
        let wanted = self.types.len();
        Error::BadKey(
            format!(
                "the key has {count} {}, expected {wanted}: {expected} \
                 (a backslash before {separator} or \\ makes it part of a value)",
                if count == 1 { "part" } else { "parts" },
            )
            .into(),
        )
    }
}

/// Splits at the separators and removes the escapes.
fn split(raw: &[u8], separator: char) -> Result<Vec<Vec<u8>>, Error> {
    let mut buffer = [0; 4];
    let separator = separator.encode_utf8(&mut buffer).as_bytes();
    let mut parts = vec![Vec::new()];
    let mut rest = raw;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(separator) {
            parts.push(Vec::new());
            rest = after;
            continue;
        }
        let (taken, after) =
            if byte == ESCAPE { escaped(after, separator)? } else { (&rest[..1], after) };
        if let Some(part) = parts.last_mut() {
            part.extend_from_slice(taken);
        }
        rest = after;
    }
    Ok(parts)
}

/// Returns the text that a backslash makes literal, and the rest after it.
fn escaped<'a>(after: &'a [u8], separator: &[u8]) -> Result<(&'a [u8], &'a [u8]), Error> {
    let taken = if after.starts_with(separator) {
        separator.len()
    } else {
        usize::from(after.starts_with(&[ESCAPE]))
    };
    if taken == 0 {
        let separator = String::from_utf8_lossy(separator);
        let text = format!(
            "in a key of several parts a backslash stands before {separator} or another backslash"
        );
        return Err(Error::BadKey(text.into()));
    }
    Ok(after.split_at(taken))
}
