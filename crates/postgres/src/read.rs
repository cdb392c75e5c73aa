//! Reads the rows of many keys with one statement.

use std::pin::pin;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio_postgres::types::{FromSql, ToSql, Type};

use crate::{
    Error,
    failure::{Class, Fault},
    key::{Key, KeyEncoder, KeyShape},
    limits,
    parameters::KeyArray,
    row::{Matcher, Row, RowPacker},
    session::Prepared,
    stats::Counters,
};

/// Rows found for the keys, in their order.
pub(crate) type Rows = Vec<Result<Option<Row>, Error>>;

/// Reads the rows of `keys`, which are sorted and unique. If the server refuses the statement
/// because of one row, each key is read alone.
pub(crate) async fn read(
    session: &Prepared,
    keys: &[Key],
    counters: &Counters,
) -> Result<Rows, Fault> {
    if let Some(strangers) = without_strangers(session, keys) {
        // Boxed, because it calls this function again; rare.
        return Box::pin(read_without(session, keys, &strangers, counters)).await;
    }
    match read_once(session, keys, counters).await {
        Ok(rows) => Ok(rows.into_iter().map(Ok).collect()),
        Err(error) if error.class() == Class::Data => read_alone(session, keys, counters).await,
        Err(error) => Err(error),
    }
}

/// Returns the keys that fit, if any do not: keys that were parsed before the type of the key
/// column changed.
fn without_strangers(session: &Prepared, keys: &[Key]) -> Option<Vec<Key>> {
    let shape = &session.schema.shape;
    if keys.iter().all(|key| shape.fits(key)) {
        return None;
    }
    Some(keys.iter().filter(|key| shape.fits(key)).cloned().collect())
}

/// Returns the error for a key that was parsed for columns of other types.
pub(crate) fn stranger() -> Error {
    Error::BadKey("the type of the key has changed since this key was parsed; ask again".into())
}

async fn read_without(
    session: &Prepared,
    keys: &[Key],
    fitting: &[Key],
    counters: &Counters,
) -> Result<Rows, Fault> {
    let mut rows = read(session, fitting, counters).await?.into_iter();
    let shape = &session.schema.shape;
    let answer =
        |key| if shape.fits(key) { rows.next().unwrap_or(Ok(None)) } else { Err(stranger()) };
    Ok(keys.iter().map(answer).collect())
}

async fn read_alone(session: &Prepared, keys: &[Key], counters: &Counters) -> Result<Rows, Fault> {
    counters.sent_alone.add(keys.len());
    let one = |index| async move {
        match read_once(session, &keys[index..=index], counters).await {
            Ok(mut rows) => Ok(Ok(rows.pop().flatten())),
            Err(error) if error.class() == Class::Data => Ok(Err(error.data())),
            Err(error) => Err(error),
        }
    };
    stream::iter(0..keys.len()).map(one).buffered(limits::ALONE_IN_FLIGHT_MAX).try_collect().await
}

async fn read_once(
    session: &Prepared,
    keys: &[Key],
    counters: &Counters,
) -> Result<Vec<Option<Row>>, Fault> {
    let mut found = vec![None; keys.len()];
    if keys.is_empty() {
        return Ok(found);
    }
    counters.statements.add(1);
    let asked: Vec<_> = keys.iter().collect();
    let parameters = key_arrays(&session.schema.shape, &asked);
    let parameters = parameters.iter().map(|array| array as &(dyn ToSql + Sync));
    let mut rows = pin!(session.client.query_raw(&session.read, parameters).await?);
    let mut matcher = RowMatcher::new(&session.schema.shape, Matcher::new(keys));
    let values = session.schema.values.len();
    let mut count = 0;
    while let Some(row) = rows.try_next().await? {
        count += 1;
        if let Some(index) = matcher.find(&row)? {
            found[index] = Some(pack(&row, matcher.key_columns(), values)?);
        }
    }
    counters.rows_read.add(count);
    Ok(found)
}

/// Returns the parameters that hold the keys.
pub(crate) fn key_arrays<'a>(shape: &KeyShape, keys: &'a [&'a Key]) -> Vec<KeyArray<'a>> {
    let types = shape.types().iter().enumerate();
    types.map(|(part, &element)| KeyArray { keys, part, element }).collect()
}

/// Finds the key of a returned row, whose first columns are the key's.
pub(crate) struct RowMatcher<'a> {
    shape: &'a KeyShape,
    encoder: KeyEncoder,
    matcher: Matcher<'a>,
}

impl<'a> RowMatcher<'a> {
    pub(crate) fn new(shape: &'a KeyShape, matcher: Matcher<'a>) -> Self {
        Self { shape, encoder: KeyEncoder::default(), matcher }
    }

    pub(crate) fn key_columns(&self) -> usize {
        self.shape.types().len()
    }

    /// Returns `None` for a row that was not requested: a trigger may have changed its key.
    pub(crate) fn find(
        &mut self,
        row: &tokio_postgres::Row,
    ) -> Result<Option<usize>, tokio_postgres::Error> {
        self.encoder.clear();
        for (index, &key_type) in self.shape.types().iter().enumerate() {
            let Raw(bytes) = row.try_get(index)?;
            if self.encoder.binary(key_type, bytes, self.shape.position(index)).is_none() {
                return Ok(None);
            }
        }
        Ok(self.matcher.find(self.encoder.encoded()))
    }
}

fn pack(
    row: &tokio_postgres::Row,
    first: usize,
    count: usize,
) -> Result<Row, tokio_postgres::Error> {
    let mut bytes = 0;
    for column in first..first + count {
        bytes += row.try_get::<_, Option<Raw<'_>>>(column)?.map_or(0, |Raw(value)| value.len());
    }
    let mut packer = RowPacker::new(count, bytes);
    for column in 0..count {
        let value: Option<Raw<'_>> = row.try_get(first + column)?;
        packer.value(column, value.map(|Raw(value)| value));
    }
    Ok(packer.row())
}

/// Borrowed bytes of a column of any type.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}
