//! What can be said about a table without serving it.

use std::fmt;

use crate::{Error, Settings, schema::Schema, session};

/// What a table's settings lead to.
#[derive(Clone, Debug)]
pub struct Report {
    /// `15.14`.
    pub server_version: String,
    /// With its schema.
    pub relation: String,
    /// `table`, `partitioned table`, `materialized view`.
    pub kind: &'static str,
    /// As the statistics estimate; `None` when nobody has counted.
    pub estimated_rows: Option<f64>,
    /// The columns of the key with their types.
    pub key: Vec<(String, String)>,
    /// The value columns with their types.
    pub columns: Vec<(String, String)>,
    /// The unique index on the key.
    pub index: String,
    /// The scans of the read statement's plan.
    pub plan: Vec<String>,
    /// Whether it is to be written to, which the role then may.
    pub writable: bool,
    /// What works, yet may surprise.
    pub warnings: Vec<String>,
}

/// Connects once and looks at everything that serving the table needs.
///
/// # Errors
/// What is in the way, and what would help.
pub async fn check(settings: &Settings) -> Result<Report, Error> {
    let session = session::open(settings, &session::Context::new(settings)).await?;
    let rows = session.schema.estimated_rows(&session.client).await?;
    Ok(Report { estimated_rows: rows, ..Report::new(&session.schema, settings) })
}

impl Report {
    fn new(schema: &Schema, settings: &Settings) -> Self {
        Self {
            server_version: schema.server_version.clone(),
            relation: schema.relation.clone(),
            kind: schema.kind.name(),
            estimated_rows: None,
            key: schema.key.iter().map(|one| (one.sql.clone(), one.declared.clone())).collect(),
            columns: schema
                .values
                .iter()
                .map(|one| (one.sql.clone(), one.declared.clone()))
                .collect(),
            index: schema.index.clone(),
            plan: schema.plan.scans.clone(),
            writable: settings.writable,
            warnings: schema.warnings.clone(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = |columns: &[(String, String)]| {
            columns
                .iter()
                .map(|(name, declared)| format!("{name} {declared}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let rows = match self.estimated_rows {
            Some(rows) => format!("about {rows:.0} rows"),
            None => "rows not counted yet: ANALYZE would".to_owned(),
        };
        writeln!(f, "server    postgres {}", self.server_version)?;
        writeln!(f, "relation  {} ({}, {rows})", self.relation, self.kind)?;
        writeln!(f, "key       {}", columns(&self.key))?;
        writeln!(f, "columns   {}", columns(&self.columns))?;
        writeln!(f, "index     {}", self.index)?;
        writeln!(f, "plan      {}", self.plan.join("; "))?;
        write!(
            f,
            "writes    {}",
            if self.writable { "allowed" } else { "none (writable = false)" }
        )?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\nwarning   {warning}"))
    }
}
