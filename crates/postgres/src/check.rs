//! Checks a table's settings against its server, without serving the table.

use std::fmt;

use tokio::time::Instant;

use crate::{
    Error, Settings,
    schema::Schema,
    session::{self, Context},
    versions::{self, Verdict, Version},
};

/// Findings of a successful check.
#[derive(Clone, Debug)]
pub struct Report {
    /// Version of the server, such as `15.14`.
    pub server_version: String,
    /// Name of the relation, with its schema.
    pub relation: String,
    /// Kind of the relation: `table`, `partitioned table`, `materialized view`.
    pub kind: &'static str,
    /// Number of rows that the statistics estimate; `None` if they were never collected.
    pub estimated_rows: Option<f64>,
    /// Columns of the key with their types.
    pub key: Vec<(String, String)>,
    /// Value columns with their types.
    pub columns: Vec<(String, String)>,
    /// Name of the unique index on the key.
    pub index: String,
    /// Scans in the plan of the read statement.
    pub plan: Vec<String>,
    /// True if the table accepts writes; the role then has the privileges for them.
    pub writable: bool,
    /// Findings that do not prevent serving, but may surprise.
    pub warnings: Vec<String>,
}

/// Connects once and checks everything that serving the table needs.
///
/// # Errors
/// Returns what prevents serving the table, and what would help.
pub async fn check(settings: &Settings) -> Result<Report, Error> {
    let session = session::connect(settings).await?;
    let context = Context::new(settings);
    let schema = match versions::check(&session.client, settings, &context, Instant::now()).await {
        Ok(Version { verdict: Verdict::Fits(schema), .. }) => schema,
        Ok(Version { verdict: Verdict::Refused(error), .. }) | Err(error) => return Err(error),
        Ok(Version { verdict: Verdict::Unknown, .. }) => return Err(Error::TooLate),
    };
    let rows = schema.estimated_rows(&session.client).await?;
    Ok(Report { estimated_rows: rows, ..Report::new(&schema, settings) })
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
