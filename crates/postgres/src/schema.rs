//! Facts about a table's relation, which are checked for each new session and while the table is
//! in use.
//!
//! A table is served only if an index finds its keys: the relation exists and stores rows itself,
//! key columns have a supported type, a unique index covers exactly them, the role has the
//! privileges that it will need, and the plan of the read statement uses an index. Each error says
//! what would help.

mod catalogue;
mod index;
mod plan;

use std::sync::Arc;

use tokio_postgres::{Client, types::Type};

use crate::{
    Error, Settings,
    key::{KeyShape, KeyType},
    limits, statements,
    write::WriteKind,
};
use catalogue::{Column, Index, RelationRow};
pub use plan::Plan;

/// A checked relation, with its columns and its index.
#[derive(Clone, Debug)]
pub struct Schema {
    /// Name with its schema, quoted where needed.
    pub(crate) relation: String,
    pub(crate) kind: RelationKind,
    facts: Facts,
    pub(crate) key: Vec<KeyColumn>,
    pub(crate) values: Vec<ValueColumn>,
    pub(crate) shape: KeyShape,
    /// Unique index on the key.
    pub(crate) index: String,
    pub(crate) plan: Plan,
    pub(crate) warnings: Vec<String>,
    pub(crate) server_version: String,
}

/// Rows of the system catalogue from which a schema is made. A relation whose facts are the same
/// has not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    relation: RelationRow,
    columns: Vec<Column>,
    indexes: Vec<Index>,
}

/// Kind of a relation that stores rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelationKind {
    Table,
    Partitioned,
    MaterializedView,
}

impl RelationKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Partitioned => "partitioned table",
            Self::MaterializedView => "materialized view",
        }
    }
}

/// One column of the key.
#[derive(Clone, Debug)]
pub(crate) struct KeyColumn {
    /// Name, quoted where needed.
    pub(crate) sql: String,
    pub(crate) key_type: KeyType,
    /// Type as the table declares it.
    pub(crate) declared: String,
    /// Collation of a text column; all statements lock rows in its order.
    pub(crate) collation: Option<String>,
}

/// A value column, as Postgres describes it.
#[derive(Clone, Debug)]
pub(crate) struct ValueColumn {
    pub(crate) name: String,
    /// Name, quoted where needed.
    pub(crate) sql: String,
    pub(crate) declared: String,
    pub(crate) form: ValueForm,
    /// OID of the type behind all domains.
    pub(crate) base_oid: u32,
}

/// Form in which a value is sent and received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueForm {
    /// `bytea`: as it is.
    Bytes,
    /// `text` and `varchar`, which need no cast.
    Text,
    /// Any other type: as text, cast to and from this type, which has no length or precision: an
    /// explicit cast to `varchar(10)` would truncate a value that the column itself refuses.
    Cast(String),
}

/// Names of a table's value columns. The first session that opens fixes them: rows and writes name
/// columns by index.
pub(crate) type ColumnNames = Arc<[String]>;

impl Schema {
    /// Checks the relation. `columns` are the value columns; `None` takes all that are not in the
    /// key. `before` is what an earlier check has found: it is returned as it is if nothing has
    /// changed. Only a relation that has changed is locked, to explain its plan.
    pub(crate) async fn check(
        client: &Client,
        settings: &Settings,
        columns: Option<&[String]>,
        before: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, Error> {
        let known = before.map(|schema| &schema.facts);
        let relation = catalogue::relation(client, &settings.relation, known).await?;
        relation_kind(&relation)?;
        let (all, indexes) = tokio::try_join!(
            catalogue::columns(client, relation.oid),
            catalogue::unique_indexes(client, relation.oid)
        )?;
        let facts = Facts { relation, columns: all, indexes };
        match before.filter(|schema| schema.facts == facts) {
            Some(schema) => Ok(Arc::clone(schema)),
            None => Self::of_facts(client, settings, columns, facts, known).await.map(Arc::new),
        }
    }

    async fn of_facts(
        client: &Client,
        settings: &Settings,
        columns: Option<&[String]>,
        facts: Facts,
        known: Option<&Facts>,
    ) -> Result<Self, Error> {
        let Facts { relation, columns: all, indexes } = &facts;
        let kind = relation_kind(relation)?;
        let find_all = |names: &[String]| find_all(names, &facts, known);
        let key_columns = find_all(&settings.key)?;
        let value_columns = match columns {
            Some(names) => find_all(names)?,
            None => all
                .iter()
                .filter(|one| key_columns.iter().all(|key| key.number != one.number))
                .collect(),
        };
        if value_columns.is_empty() {
            return Err(schema_error(format!("{} has no column besides the key", relation.sql)));
        }
        let key = key_columns
            .iter()
            .map(|column| key_column(column, relation))
            .collect::<Result<Vec<_>, _>>()?;
        let mut warnings = privileges(settings, relation, kind, &key_columns, &value_columns)?;
        let index = index::choose(indexes, &key_columns, relation, kind, settings.writable)?;
        warnings.extend(key_columns.iter().filter(|column| !column.not_null).map(|column| {
            format!("key column {} allows NULL; rows without a key cannot be asked for", column.sql)
        }));
        let names: Vec<_> = key_columns.iter().map(|column| column.name.clone()).collect();
        let types = key.iter().map(|column| column.key_type);
        let shape =
            KeyShape::new(&names.into_iter().zip(types).collect::<Vec<_>>(), settings.separator)
                .with_characters_max(
                    key_columns.iter().map(|column| column.characters_max).collect(),
                );
        let mut schema = Self {
            relation: relation.sql.clone(),
            kind,
            key,
            values: value_columns.into_iter().map(value_column).collect(),
            shape,
            index,
            plan: Plan::default(),
            warnings,
            server_version: relation.server_version.clone(),
            facts,
        };
        schema.plan = plan::explain(client, &schema, &statements::read(&schema)).await?;
        schema.warnings.extend(schema.plan.warnings.iter().cloned());
        Ok(schema)
    }

    /// Returns the estimate of the statistics; `None` if they were never collected.
    pub(crate) async fn estimated_rows(&self, client: &Client) -> Result<Option<f64>, Error> {
        catalogue::estimated_rows(client, self.facts.relation.oid).await
    }

    /// Returns whether transactions older than the index on the key may keep Postgres from using it
    /// (`pg_index.indcheckxmin`).
    fn index_may_be_too_new(&self) -> bool {
        self.facts.indexes.iter().any(|index| index.name == self.index && index.checks_xmin)
    }

    /// Returns whether the rows of a read, with these columns, have the types of this schema.
    pub(crate) fn rows_have_types(&self, columns: &[tokio_postgres::Column]) -> bool {
        let values = columns.get(self.key.len()..).unwrap_or_default();
        self.keys_have_types(columns)
            && values.len() == self.values.len()
            && self.values.iter().zip(values).all(|(value, column)| match value.form {
                ValueForm::Bytes => *column.type_() == Type::BYTEA,
                ValueForm::Text | ValueForm::Cast(_) => is_text(column.type_()),
            })
    }

    /// Returns whether rows that begin with the key have the types of this schema.
    pub(crate) fn keys_have_types(&self, columns: &[tokio_postgres::Column]) -> bool {
        let mut columns = columns.iter();
        self.key.iter().all(|key| {
            columns.next().is_some_and(|column| match key.key_type {
                KeyType::Text => is_text(column.type_()),
                KeyType::Bytes => *column.type_() == Type::BYTEA,
                KeyType::Uuid => *column.type_() == Type::UUID,
                KeyType::Int2 => *column.type_() == Type::INT2,
                KeyType::Int4 => *column.type_() == Type::INT4,
                KeyType::Int8 => *column.type_() == Type::INT8,
            })
        })
    }

    /// Returns whether the result of a write of this kind, with these columns, has the types of
    /// this schema ([`statements::write`]).
    pub(crate) fn results_have_types(
        &self,
        kind: &WriteKind,
        columns: &[tokio_postgres::Column],
    ) -> bool {
        let values: Vec<usize> = match kind {
            WriteKind::Set => vec![0],
            WriteKind::SetFields(columns) => columns.iter().collect(),
            WriteKind::ClearFields(_) | WriteKind::Delete => Vec::new(),
        };
        let results = columns.get(self.key.len()..).unwrap_or_default();
        let values = values.into_iter().filter_map(|index| self.values.get(index));
        self.keys_have_types(columns)
            && results.len() >= values.clone().count()
            && values.zip(results).all(|(value, column)| value.base_oid == column.type_().oid())
    }

    /// Returns the names of the value columns.
    pub(crate) fn column_names(&self) -> ColumnNames {
        self.values.iter().map(|column| column.name.clone()).collect()
    }
}

fn is_text(column_type: &Type) -> bool {
    matches!(*column_type, Type::TEXT | Type::VARCHAR)
}

fn relation_kind(relation: &RelationRow) -> Result<RelationKind, Error> {
    let refuse = |what: &str| Err(schema_error(format!("{} is {what}", relation.sql)));
    match relation.kind.as_str() {
        "r" => Ok(RelationKind::Table),
        "p" => Ok(RelationKind::Partitioned),
        "m" => Ok(RelationKind::MaterializedView),
        "v" => refuse(
            "a view, which has no index of its own; \
             name the table behind it, or a materialized view",
        ),
        "f" => {
            refuse("a foreign table, which has no index here; connect to the server that holds it")
        }
        _ => refuse("no table"),
    }
}

/// Finds the columns of these names.
fn find_all<'a>(
    names: &[String],
    facts: &'a Facts,
    known: Option<&Facts>,
) -> Result<Vec<&'a Column>, Error> {
    names.iter().map(|name| find(name, facts, known)).collect()
}

/// Finds a column. `known` are the facts of an earlier check, to tell one that is gone from one
/// that never was.
fn find<'a>(name: &str, facts: &'a Facts, known: Option<&Facts>) -> Result<&'a Column, Error> {
    let Facts { relation, columns: all, .. } = facts;
    let named = |columns: &'a [Column]| columns.iter().find(|column| column.name == name);
    if let Some(column) = named(all) {
        return Ok(column);
    }
    let names: Vec<_> = all.iter().map(|column| column.name.as_str()).collect();
    let was = known.and_then(|known| known.columns.iter().find(|column| column.name == name));
    let (Some(was), Some(known)) = (was, known) else {
        let hint = suggest(name, &names);
        return Err(schema_error(format!("{} has no column {name}; {hint}", relation.sql)));
    };
    // A renamed column keeps its number.
    let same = |column: &&Column| column.number == was.number;
    let renamed = all.iter().find(same).filter(|_| known.relation.oid == relation.oid);
    let hint = match renamed {
        Some(column) => format!("it is \"{}\" now", column.name),
        None => suggest(name, &names),
    };
    Err(schema_error(format!("column \"{name}\" of {} is gone; {hint}", relation.sql)))
}

/// Suggests the nearest of the existing names, and lists the first of them.
pub(crate) fn suggest(name: &str, names: &[&str]) -> String {
    let distance =
        |one: &&&str| strsim::damerau_levenshtein(&one.to_lowercase(), &name.to_lowercase());
    let near = names
        .iter()
        .min_by_key(distance)
        .filter(|one| distance(one) <= limits::NEAR_NAME_EDITS_MAX);
    let shown = names.iter().take(limits::NAMES_SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = if names.len() > limits::NAMES_SHOWN_MAX { ", ..." } else { "" };
    match (near, names) {
        (_, []) => "there is none at all".to_owned(),
        (Some(near), _) => format!("did you mean {near}? There are: {shown}{more}"),
        (None, _) => format!("there are: {shown}{more}"),
    }
}

fn key_column(column: &Column, relation: &RelationRow) -> Result<KeyColumn, Error> {
    let refuse = |why: &str| {
        let (name, declared) = (&column.sql, &column.declared);
        Err(schema_error(format!("key column {name} of {} is {declared}: {why}", relation.sql)))
    };
    let key_type = match (column.base_schema.as_str(), column.base_type.as_str()) {
        ("pg_catalog", "text" | "varchar") => KeyType::Text,
        ("pg_catalog", "bytea") => KeyType::Bytes,
        ("pg_catalog", "uuid") => KeyType::Uuid,
        ("pg_catalog", "int2") => KeyType::Int2,
        ("pg_catalog", "int4") => KeyType::Int4,
        ("pg_catalog", "int8") => KeyType::Int8,
        ("pg_catalog", "bpchar") => {
            return refuse(
                "char(n) ignores trailing blanks, so that different keys would be one; \
                 use varchar or text",
            );
        }
        (_, "citext") => {
            return refuse("citext ignores case, so that different keys would be one; use text");
        }
        _ => {
            return refuse(
                "keys can be text, varchar, bytea, uuid, smallint, integer, bigint \
                 and domains over them",
            );
        }
    };
    if !column.deterministic {
        return refuse("its collation is not deterministic, so that different keys would be one");
    }
    Ok(KeyColumn {
        sql: column.sql.clone(),
        key_type,
        declared: column.declared.clone(),
        collation: column.collation.clone(),
    })
}

fn value_column(column: &Column) -> ValueColumn {
    let form = match (column.base_schema.as_str(), column.base_type.as_str()) {
        ("pg_catalog", "bytea") => ValueForm::Bytes,
        ("pg_catalog", "text" | "varchar") => ValueForm::Text,
        _ => ValueForm::Cast(column.base_sql.clone()),
    };
    ValueColumn {
        name: column.name.clone(),
        sql: column.sql.clone(),
        declared: column.declared.clone(),
        form,
        base_oid: column.base_oid,
    }
}

/// Refuses missing privileges, and warns of those that only some commands need.
fn privileges(
    settings: &Settings,
    relation: &RelationRow,
    kind: RelationKind,
    key: &[&Column],
    values: &[&Column],
) -> Result<Vec<String>, Error> {
    let missing = |what: &str, columns: Vec<&str>| {
        let (user, on) = (&relation.user, &relation.sql);
        let columns = columns.join(", ");
        schema_error(format!(
            "{user} may not {what} {columns} of {on}; GRANT {what} ON {on} TO {user} would allow it"
        ))
    };
    let lacking = |columns: &[&Column], may: fn(&Column) -> bool| {
        columns
            .iter()
            .filter(|column| !may(column))
            .map(|column| column.sql.clone())
            .collect::<Vec<_>>()
    };
    let both = [key, values].concat();
    let mut needed: Vec<(&str, Vec<String>)> =
        vec![("SELECT", lacking(&both, |column| column.may_select))];
    if settings.writable {
        if kind == RelationKind::MaterializedView {
            return Err(schema_error(format!(
                "{} is a materialized view and cannot be writable",
                relation.sql
            )));
        }
        needed.push(("INSERT", lacking(&both, |column| column.may_insert)));
        needed.push(("UPDATE", lacking(values, |column| column.may_update)));
    }
    if let Some((what, columns)) = needed.into_iter().find(|(_, columns)| !columns.is_empty()) {
        return Err(missing(what, columns.iter().map(String::as_str).collect()));
    }
    let delete = settings.writable && !relation.may_delete;
    let generated = values.iter().filter(|column| settings.writable && column.generated);
    Ok(generated
        .map(|column| format!("column {} is generated: it can be read, not written", column.sql))
        .chain(delete.then(|| format!("{} may not DELETE from {}", relation.user, relation.sql)))
        .collect())
}

pub(crate) fn schema_error(text: String) -> Error {
    Error::Schema(text.into())
}
