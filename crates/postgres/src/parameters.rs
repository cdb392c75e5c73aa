//! Array parameters, written in Postgres' binary form straight from keys and values.

use std::{error::Error, fmt};

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type};

use crate::key::{Key, KeyType};

type SqlResult = Result<IsNull, Box<dyn Error + Sync + Send>>;

/// One column of all keys of a batch.
pub(crate) struct KeyArray<'a> {
    pub(crate) keys: &'a [&'a Key],
    /// Index of the key's part.
    pub(crate) part: usize,
    pub(crate) element: KeyType,
}

/// One value of all entries of a batch, as text or as bytes: both have the same form.
pub(crate) struct ValueArray<'a> {
    pub(crate) values: Vec<&'a [u8]>,
    pub(crate) element: Type,
}

fn element_type(key_type: KeyType) -> Type {
    match key_type {
        KeyType::Text => Type::TEXT,
        KeyType::Bytes => Type::BYTEA,
        KeyType::Uuid => Type::UUID,
        KeyType::Int2 => Type::INT2,
        KeyType::Int4 => Type::INT4,
        KeyType::Int8 => Type::INT8,
    }
}

/// Writes the header of a one-dimensional array without NULLs.
fn header(
    out: &mut BytesMut,
    element: &Type,
    count: usize,
) -> Result<(), Box<dyn Error + Sync + Send>> {
    const DIMENSIONS: i32 = 1;
    const HAS_NULLS: i32 = 0;
    const LOWER_BOUND: i32 = 1;
    out.put_i32(DIMENSIONS);
    out.put_i32(HAS_NULLS);
    out.put_u32(element.oid());
    out.put_i32(count.try_into()?);
    out.put_i32(LOWER_BOUND);
    Ok(())
}

impl ToSql for KeyArray<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> SqlResult {
        header(out, &element_type(self.element), self.keys.len())?;
        for key in self.keys {
            let part = key.parts().nth(self.part).ok_or("the key is of another table")?;
            let length_at = out.len();
            out.put_i32(0);
            part.write_binary(self.element, &mut |bytes| out.put_slice(bytes));
            let length = i32::try_from(out.len() - length_at - size_of::<i32>())?;
            out[length_at..][..size_of::<i32>()].copy_from_slice(&length.to_be_bytes());
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(&self, declared: &Type, out: &mut BytesMut) -> SqlResult {
        self.to_sql(declared, out)
    }
}

impl ToSql for ValueArray<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> SqlResult {
        header(out, &self.element, self.values.len())?;
        for value in &self.values {
            out.put_i32(value.len().try_into()?);
            out.put_slice(value);
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(&self, declared: &Type, out: &mut BytesMut) -> SqlResult {
        self.to_sql(declared, out)
    }
}

// The driver logs parameters at level debug: contents do not belong in a log.
impl fmt::Debug for KeyArray<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.keys.len())
    }
}

impl fmt::Debug for ValueArray<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values", self.values.len())
    }
}
