//! A table's options as given, and their conversion to [`Settings`].
//!
//! ```text
//!  URL -> user, hosts, dbname, query --+--> table's own options -+-> checks, defaults -> Settings
//!  fields of Options ------------------+--> libpq's options -----+
//!  Environment (PGUSER, ...) ----------------------^
//! ```
//!
//! Only the given values are read here: each new connection reads the files (passwords,
//! certificates) again.

use std::{collections::HashSet, fmt, ops::RangeInclusive, path::PathBuf, time::Duration};

use busload_batch::{QueueSettings, Sharing, limits::REQUESTS_MAX};

use crate::{
    Environment, Settings, SettingsError,
    limits::{
        BATCH_MAX, CONNECTIONS_DEFAULT, CONNECTIONS_MAX, KEY_COLUMNS_MAX, QUEUE_BYTES_MAX,
        QUEUE_BYTES_MIN, RELATION_CHECK_INTERVAL, SEPARATOR_DEFAULT, TIMEOUT_DEFAULT, TIMEOUT_MAX,
        TIMEOUT_MIN, VALUE_COLUMNS_MAX,
    },
    login::{LOGIN_NAMES, LoginOptions},
    relation::{Relation, is_identifier},
    settings::LoggedWarnings,
    url::Url,
    values::{
        check_count, check_duration, hint, parse_bytes, parse_count, parse_duration, parse_letter,
        parse_list, parse_switch, put, unfit,
    },
};

/// Names of busload's own options, not libpq's. All of them can be given in the URL's query.
pub const TABLE_NAMES: [&str; 12] = [
    "relation",
    "key",
    "columns",
    "separator",
    "writable",
    "connections",
    "timeout",
    "batch",
    "queue_requests",
    "queue_bytes",
    "join_in_flight",
    "password_file",
];

/// Options of one table as given, unchecked. Each can be given in the URL's query instead, under
/// the same name; giving one twice is an error.
///
/// The query also takes libpq's options: `user`, `password`, `dbname`, `host`, `port`, `passfile`,
/// `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `connect_timeout`, `application_name`,
/// `target_session_attrs`, `channel_binding`, `options`, `keepalives`, `keepalives_idle`,
/// `keepalives_interval`, `keepalives_count` and `tcp_user_timeout`.
///
/// `Debug` does not show the URL, which may hold a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// `postgres://user@host:port/db?relation=objects&key=path`. Several hosts: `h1:5432,h2:5433`.
    /// A Unix socket: `postgres:///db?host=/var/run/postgresql` or
    /// `postgres://%2Fvar%2Frun%2Fpostgresql/db`.
    pub url: Option<String>,
    /// The relation, as SQL writes it: `objects`, `public.objects`, `"Odd Name"`.
    pub relation: Option<String>,
    /// Columns of the key, in order, each spelled exactly (no folding, no quotes). A query
    /// separates them by commas.
    pub key: Option<Vec<String>>,
    /// Value columns, in order; by default all that are not in the key.
    pub columns: Option<Vec<String>>,
    /// Separator of the parts of a composite key; `:` by default.
    pub separator: Option<char>,
    /// True to allow writes; by default they are refused.
    pub writable: Option<bool>,
    /// Maximum number of connections, which are opened as needed; 32 by default.
    pub connections: Option<usize>,
    /// Timeout of a request; `1s` by default.
    pub timeout: Option<Duration>,
    /// Maximum number of entries in one batch; 256 by default.
    pub batch: Option<usize>,
    /// Maximum number of pending requests; 65,536 by default.
    pub queue_requests: Option<usize>,
    /// Maximum bytes of pending keys and values; 64 MiB by default.
    pub queue_bytes: Option<u64>,
    /// True if a read may join one that is in flight, and so miss a write acknowledged meanwhile;
    /// by default it may not.
    pub join_in_flight: Option<bool>,
    /// File that holds the password and nothing else.
    pub password_file: Option<PathBuf>,
}

impl Options {
    /// Returns whether the URL holds a password. `ps` would show it on a command line.
    pub fn url_has_password(&self) -> bool {
        let Some(url) = &self.url else { return false };
        match Url::parse(url) {
            Ok(url) => {
                url.password.is_some() || url.query.iter().any(|(name, _)| name == "password")
            }
            // `resolve` refuses an invalid URL anyway.
            Err(_) => false,
        }
    }

    /// Checks everything and fills in the defaults. It reads no file, and of the process's
    /// environment only `environment`.
    ///
    /// Where neither the URL nor an option has a value, these variables apply, as in libpq:
    /// `PGHOST`, `PGPORT`, `PGUSER`, `PGDATABASE`, `PGPASSWORD`, `PGPASSFILE`, `PGSSLMODE`,
    /// `PGSSLROOTCERT`, `PGSSLCERT`, `PGSSLKEY`, and `HOME` for `~/.pgpass` and `~/.postgresql/`.
    /// Without any of them: host `localhost`, port 5432, the operating system's user, a database
    /// named like the user, `sslmode=prefer`.
    ///
    /// The password comes from the first of these that has one: `password_file`, the URL,
    /// `PGPASSWORD`, `passfile` or `PGPASSFILE` or `~/.pgpass`.
    pub fn resolve(
        mut self,
        name: &str,
        environment: &Environment,
    ) -> Result<Settings, SettingsError> {
        let url = Url::parse(self.url.take().as_deref().unwrap_or("postgres://"))?;
        let mut login = LoginOptions::new(url.user, url.password, url.hosts, url.dbname)?;
        for (option, value) in url.query {
            if !self.take(&option, &value)? && !login.take(&option, &value)? {
                return Err(unknown(option));
            }
        }
        login.password_file = self.password_file.take();
        let connections =
            checked(self.connections, "connections", CONNECTIONS_DEFAULT, 1..=CONNECTIONS_MAX)?;
        let queue = self.queue(connections)?;
        let (key, columns) = self.columns_checked()?;
        Ok(Settings {
            name: name.to_owned(),
            server: login.resolve(name, environment)?,
            relation: self.relation_checked()?,
            separator: check_separator(self.separator.unwrap_or(SEPARATOR_DEFAULT))?,
            writable: self.writable.unwrap_or(false),
            timeout: check_duration(
                "timeout",
                self.timeout.unwrap_or(TIMEOUT_DEFAULT),
                TIMEOUT_MIN..=TIMEOUT_MAX,
            )?,
            relation_check_interval: RELATION_CHECK_INTERVAL,
            connections,
            queue,
            key,
            columns,
            logged_warnings: LoggedWarnings::default(),
        })
    }

    /// Takes an option of the query; returns whether it is one of ours.
    fn take(&mut self, name: &str, value: &str) -> Result<bool, SettingsError> {
        match name {
            "relation" => put(&mut self.relation, name, value.to_owned()),
            "key" => put(&mut self.key, name, parse_list(value)),
            "columns" => put(&mut self.columns, name, parse_list(value)),
            "separator" => put(&mut self.separator, name, parse_letter(name, value)?),
            "writable" => put(&mut self.writable, name, parse_switch(name, value)?),
            "connections" => put(&mut self.connections, name, parse_count(name, value)?),
            "timeout" => put(&mut self.timeout, name, parse_duration(name, value)?),
            "batch" => put(&mut self.batch, name, parse_count(name, value)?),
            "queue_requests" => put(&mut self.queue_requests, name, parse_count(name, value)?),
            "queue_bytes" => put(&mut self.queue_bytes, name, parse_bytes(name, value)?),
            "join_in_flight" => put(&mut self.join_in_flight, name, parse_switch(name, value)?),
            "password_file" => put(&mut self.password_file, name, value.into()),
            _ => return Ok(false),
        }?;
        Ok(true)
    }

    fn relation_checked(&self) -> Result<Relation, SettingsError> {
        const MISSING: SettingsError = SettingsError::Missing {
            option: "relation",
            expected: "the Postgres table to serve, \
                       such as relation=objects or relation=public.objects",
        };
        Relation::parse(self.relation.as_ref().ok_or(MISSING)?)
    }

    /// Returns the columns of the key and those of the value.
    fn columns_checked(&mut self) -> Result<(Vec<String>, Option<Vec<String>>), SettingsError> {
        const MISSING: SettingsError = SettingsError::Missing {
            option: "key",
            expected: "the column or columns with a unique index, such as key=pk or key=repo,path",
        };
        let key = self.key.take().ok_or(MISSING)?;
        let columns = self.columns.take();
        check_names("key", &key, KEY_COLUMNS_MAX)?;
        if let Some(columns) = &columns {
            check_names("columns", columns, VALUE_COLUMNS_MAX)?;
            if let Some(both) = columns.iter().find(|column| key.contains(column)) {
                let text = format!(
                    "column `{both}` is in key and in columns; the key comes with every row"
                );
                return Err(SettingsError::Conflict(text));
            }
        }
        Ok((key, columns))
    }

    fn queue(&self, connections: usize) -> Result<QueueSettings, SettingsError> {
        let default = QueueSettings::default();
        let batch = checked(self.batch, "batch", default.batch_entries_max, 1..=BATCH_MAX)?;
        Ok(QueueSettings {
            requests_max: checked(
                self.queue_requests,
                "queue_requests",
                default.requests_max,
                1..=REQUESTS_MAX,
            )?,
            bytes_max: self.queue_bytes.map_or(Ok(default.bytes_max), queue_bytes)?,
            batch_entries_max: batch,
            batches_in_flight_max: connections,
            sharing: if self.join_in_flight == Some(true) {
                Sharing::InFlight
            } else {
                Sharing::Waiting
            },
            ..default
        })
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.as_ref().map(|_| "(hidden)");
        let fields = (&self.relation, &self.key, &self.columns, self.writable, &self.password_file);
        f.debug_struct("Options")
            .field("url", &url)
            .field("fields", &fields)
            .finish_non_exhaustive()
    }
}

fn checked(
    given: Option<usize>,
    option: &str,
    default: usize,
    range: RangeInclusive<usize>,
) -> Result<usize, SettingsError> {
    check_count(option, given.unwrap_or(default), range)
}

fn queue_bytes(bytes: u64) -> Result<usize, SettingsError> {
    let fits = (QUEUE_BYTES_MIN..=QUEUE_BYTES_MAX).contains(&bytes);
    match usize::try_from(bytes) {
        Ok(bytes) if fits => Ok(bytes),
        _ => Err(unfit(
            "queue_bytes",
            bytes,
            format!("expected {QUEUE_BYTES_MIN} to {QUEUE_BYTES_MAX}"),
        )),
    }
}

/// Checks the separator. A `\` escapes it in keys, so it cannot be one itself.
fn check_separator(separator: char) -> Result<char, SettingsError> {
    match separator {
        '\\' | '\0' => Err(unfit(
            "separator",
            separator.escape_default(),
            "expected a letter that is neither `\\` nor NUL, such as :",
        )),
        _ => Ok(separator),
    }
}

fn check_names(option: &str, names: &[String], count_max: usize) -> Result<(), SettingsError> {
    if names.is_empty() || count_max < names.len() {
        return Err(unfit(
            option,
            names.join(","),
            format!("expected 1 to {count_max} names of columns"),
        ));
    }
    let mut seen = HashSet::new();
    for name in names {
        if !is_identifier(name) {
            return Err(unfit(option, name.escape_debug(), "expected the name of a column"));
        }
        if !seen.insert(name) {
            return Err(unfit(option, name, "expected each column once"));
        }
    }
    Ok(())
}

fn unknown(written: String) -> SettingsError {
    let known: Vec<&str> = TABLE_NAMES.iter().chain(&LOGIN_NAMES).copied().collect();
    let hint = hint(&written, &known);
    SettingsError::Unknown { written, hint }
}

#[cfg(test)]
#[path = "options/tests.rs"]
mod tests;
