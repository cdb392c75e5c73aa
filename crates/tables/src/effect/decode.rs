//! Reader of effects. Its input is hostile: every length is checked before it is used.

use crate::limits::STRING_BYTES_MAX;
use crate::{TableId, UnixMs};

use super::code;

/// One change, borrowed from its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// A string replaces whatever the key held.
    Put {
        /// Id of the changed table.
        table: TableId,
        /// Key whose value changes.
        key: &'a [u8],
        /// New value of the key.
        value: &'a [u8],
        /// Time when the key expires.
        expiry: Option<UnixMs>,
    },
    /// Part of a string is overwritten or appended.
    Patch {
        /// Id of the changed table.
        table: TableId,
        /// Key whose value changes.
        key: &'a [u8],
        /// Offset of the first byte to be overwritten.
        offset: usize,
        /// Bytes to write there.
        bytes: &'a [u8],
    },
    /// The key is removed.
    Delete {
        /// Id of the changed table.
        table: TableId,
        /// Key that is removed.
        key: &'a [u8],
    },
    /// The key's expiry changes.
    Expire {
        /// Id of the changed table.
        table: TableId,
        /// Key whose expiry changes.
        key: &'a [u8],
        /// New expiry; `None` removes it.
        expiry: Option<UnixMs>,
    },
    /// Fields of a hash are set.
    HashPut {
        /// Id of the changed table.
        table: TableId,
        /// Key whose value changes.
        key: &'a [u8],
        /// Fields and their values.
        pairs: Pairs<'a>,
    },
    /// Fields of a hash are removed.
    HashDelete {
        /// Id of the changed table.
        table: TableId,
        /// Key whose value changes.
        key: &'a [u8],
        /// Fields to be removed.
        fields: Fields<'a>,
    },
    /// The table is emptied.
    Flush {
        /// Table that is emptied.
        table: TableId,
    },
    /// Bytes of the effects of a transaction that is spread over several records.
    Part {
        /// Place among the transaction's parts.
        position: PartPosition,
        /// Any part of the encoded effects.
        bytes: &'a [u8],
    },
    /// The set of tables changes.
    Catalogue(Catalogue<'a>),
}

/// Position of a part among those of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PartPosition {
    /// The first part. It discards any transaction whose parts are incomplete.
    First = 0,
    /// A part in the middle.
    Next = 1,
    /// The last part, with which the transaction takes effect.
    Last = 2,
}

/// Change of the set of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Catalogue<'a> {
    /// A table is created.
    Created {
        /// Id of the new table.
        table: TableId,
        /// Name of the table, which is also its prefix.
        name: &'a [u8],
        /// Settings of the table as text.
        settings: &'a [u8],
    },
    /// A table's settings change.
    Settings {
        /// Id of the table.
        table: TableId,
        /// New settings of the table as text.
        settings: &'a [u8],
    },
    /// A table and its contents are removed.
    Dropped {
        /// Id of the removed table.
        table: TableId,
    },
}

impl<'a> Effect<'a> {
    /// Returns the table that the effect changes; `None` if it concerns no single table's contents.
    pub fn table(&self) -> Option<TableId> {
        let table = match self {
            Effect::Part { .. } => return None,
            Effect::Put { table, .. }
            | Effect::Patch { table, .. }
            | Effect::Delete { table, .. }
            | Effect::Expire { table, .. }
            | Effect::HashPut { table, .. }
            | Effect::HashDelete { table, .. }
            | Effect::Flush { table } => *table,
            Effect::Catalogue(
                Catalogue::Created { table, .. }
                | Catalogue::Settings { table, .. }
                | Catalogue::Dropped { table },
            ) => *table,
        };
        Some(table)
    }

    /// Returns the key that the effect changes; `None` if it concerns no single key.
    pub fn key(&self) -> Option<&'a [u8]> {
        match self {
            Effect::Put { key, .. }
            | Effect::Patch { key, .. }
            | Effect::Delete { key, .. }
            | Effect::Expire { key, .. }
            | Effect::HashPut { key, .. }
            | Effect::HashDelete { key, .. } => Some(key),
            Effect::Flush { .. } | Effect::Part { .. } | Effect::Catalogue(_) => None,
        }
    }
}

/// Reason why bytes are not effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectError {
    /// The record ends inside an effect.
    Truncated {
        /// Offset of the effect in the record.
        offset: usize,
    },
    /// No effect begins with this byte.
    UnknownCode {
        /// Offset of the effect in the record.
        offset: usize,
        /// First byte of the effect.
        code: u8,
    },
    /// A length, offset or table id is above its limit, or a hash effect is empty.
    OutOfRange {
        /// Offset of the effect in the record.
        offset: usize,
    },
}

impl std::fmt::Display for EffectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EffectError::Truncated { offset } => {
                write!(f, "the record ends inside its effect at byte {offset}")
            }
            EffectError::UnknownCode { offset, code } => {
                write!(f, "unknown effect {code} at byte {offset} of the record")
            }
            EffectError::OutOfRange { offset } => {
                write!(
                    f,
                    "a length or number is out of range in the effect at byte {offset} \
                     of the record"
                )
            }
        }
    }
}

impl std::error::Error for EffectError {}

/// Decodes a record. After an error the iterator ends.
pub fn decode(record: &[u8]) -> Decoder<'_> {
    Decoder { reader: Reader { rest: record }, record_len: record.len() }
}

/// Iterator over the effects of a record.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    reader: Reader<'a>,
    record_len: usize,
}

impl Decoder<'_> {
    /// Returns the offset in the record of the next effect.
    pub fn offset(&self) -> usize {
        self.record_len - self.reader.rest.len()
    }
}

impl<'a> Iterator for Decoder<'a> {
    type Item = Result<Effect<'a>, EffectError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.rest.is_empty() {
            return None;
        }
        let offset = self.offset();
        let result = self.reader.effect();
        if result.is_err() {
            self.reader.rest = &[];
        }
        Some(result.map_err(|fault| match fault {
            Fault::Truncated => EffectError::Truncated { offset },
            Fault::UnknownCode(code) => EffectError::UnknownCode { offset, code },
            Fault::OutOfRange => EffectError::OutOfRange { offset },
        }))
    }
}

enum Fault {
    Truncated,
    UnknownCode(u8),
    OutOfRange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn effect(&mut self) -> Result<Effect<'a>, Fault> {
        let code = self.byte()?;
        if code == code::PART {
            return self.part();
        }
        if !matches!(code, code::PUT..=code::FLUSH | code::CREATED..=code::DROPPED) {
            return Err(Fault::UnknownCode(code));
        }
        let table = TableId(u16::try_from(self.varint()?).map_err(|_| Fault::OutOfRange)?);
        Ok(match code {
            code::PUT => {
                Effect::Put { table, key: self.string()?, expiry: None, value: self.string()? }
            }
            code::PUT_EXPIRING => Effect::Put {
                table,
                key: self.string()?,
                expiry: Some(self.expiry()?),
                value: self.string()?,
            },
            code::PATCH => self.patch(table)?,
            code::DELETE => Effect::Delete { table, key: self.string()? },
            code::EXPIRE => {
                Effect::Expire { table, key: self.string()?, expiry: Some(self.expiry()?) }
            }
            code::PERSIST => Effect::Expire { table, key: self.string()?, expiry: None },
            code::HASH_PUT => Effect::HashPut { table, key: self.string()?, pairs: self.pairs()? },
            code::HASH_DELETE => {
                Effect::HashDelete { table, key: self.string()?, fields: self.fields()? }
            }
            code::FLUSH => Effect::Flush { table },
            code::CREATED => Effect::Catalogue(Catalogue::Created {
                table,
                name: self.string()?,
                settings: self.string()?,
            }),
            code::SETTINGS => {
                Effect::Catalogue(Catalogue::Settings { table, settings: self.string()? })
            }
            _ => Effect::Catalogue(Catalogue::Dropped { table }),
        })
    }

    fn part(&mut self) -> Result<Effect<'a>, Fault> {
        let positions = [PartPosition::First, PartPosition::Next, PartPosition::Last];
        let position = *positions.get(usize::from(self.byte()?)).ok_or(Fault::OutOfRange)?;
        if self.rest.is_empty() {
            return Err(Fault::Truncated);
        }
        Ok(Effect::Part { position, bytes: std::mem::take(&mut self.rest) })
    }

    fn patch(&mut self, table: TableId) -> Result<Effect<'a>, Fault> {
        let key = self.string()?;
        let offset = usize::try_from(self.varint()?).map_err(|_| Fault::OutOfRange)?;
        let bytes = self.string()?;
        if STRING_BYTES_MAX < offset || STRING_BYTES_MAX - offset < bytes.len() {
            return Err(Fault::OutOfRange);
        }
        Ok(Effect::Patch { table, key, offset, bytes })
    }

    fn pairs(&mut self) -> Result<Pairs<'a>, Fault> {
        let count = self.count(2)?;
        let bytes = self.rest;
        for _ in 0..count {
            self.string()?;
            self.string()?;
        }
        Ok(Pairs { count, bytes: Reader { rest: &bytes[..bytes.len() - self.rest.len()] } })
    }

    fn fields(&mut self) -> Result<Fields<'a>, Fault> {
        let count = self.count(1)?;
        let bytes = self.rest;
        for _ in 0..count {
            self.string()?;
        }
        Ok(Fields { count, bytes: Reader { rest: &bytes[..bytes.len() - self.rest.len()] } })
    }

    /// Reads a count of elements that take at least `bytes_min` each.
    fn count(&mut self, bytes_min: usize) -> Result<usize, Fault> {
        let count = usize::try_from(self.varint()?).map_err(|_| Fault::OutOfRange)?;
        if count == 0 {
            return Err(Fault::OutOfRange);
        }
        if self.rest.len() / bytes_min < count {
            return Err(Fault::Truncated);
        }
        Ok(count)
    }

    #[inline]
    fn string(&mut self) -> Result<&'a [u8], Fault> {
        let len = usize::try_from(self.varint()?).map_err(|_| Fault::OutOfRange)?;
        if STRING_BYTES_MAX < len {
            return Err(Fault::OutOfRange);
        }
        self.take(len)
    }

    fn expiry(&mut self) -> Result<UnixMs, Fault> {
        let bytes = self.take(8)?;
        Ok(i64::from_le_bytes(bytes.try_into().expect("eight bytes were taken")))
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Fault> {
        let mut number = 0_u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Fault::OutOfRange)
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Fault> {
        let (&byte, rest) = self.rest.split_first().ok_or(Fault::Truncated)?;
        self.rest = rest;
        Ok(byte)
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Fault::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// Iterator over the pairs of a hash put, which were checked when they were decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs<'a> {
    count: usize,
    bytes: Reader<'a>,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.bytes.string().ok()?;
        let value = self.bytes.string().ok()?;
        self.count -= 1;
        Some((field, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Pairs<'_> {}

/// Iterator over the fields of a hash delete, which were checked when they were decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields<'a> {
    count: usize,
    bytes: Reader<'a>,
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.bytes.string().ok()?;
        self.count -= 1;
        Some(field)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Fields<'_> {}
