//! The builder of clusters.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    cluster::{Cluster, Parts},
    error::ClusterError,
    files::Files,
    limits::START_TIMEOUT,
    programs::{Programs, find_programs},
};

/// Settings of a server that starts fast and is thrown away. Commits survive a kill of its
/// processes anyway, since the log is written, only not synced.
const FOR_TESTS: [(&str, &str); 8] = [
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("shared_buffers", "16MB"),
    ("max_connections", "400"),
    ("max_wal_senders", "0"),
    ("min_wal_size", "2MB"),
    ("max_wal_size", "64MB"),
    // Keeps files in the directory instead of objects that a kill would leave in /dev/shm.
    ("dynamic_shared_memory_type", "mmap"),
];

/// Settings of the server that come before those of the builder.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Profile {
    /// Fast to start, small, without fsync, 400 connections.
    #[default]
    Tests,
    /// The server's own defaults, durable.
    Stock,
}

impl Profile {
    fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Tests => &FOR_TESTS,
            Self::Stock => &[],
        }
    }

    fn initdb(self) -> &'static [&'static str] {
        match self {
            Self::Tests => &["--no-sync", "--wal-segsize=1"],
            Self::Stock => &[],
        }
    }
}

/// Certificate chain and key of the server, as PEM texts.
#[derive(Clone)]
pub struct Tls {
    /// Certificate chain, with the server's certificate first.
    pub certificate: String,
    /// Private key of the server.
    pub key: String,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Description of a [`Cluster`] to be made.
///
/// ```no_run
/// # use busload_cluster::{Cluster, ClusterError};
/// let cluster = Cluster::builder().setting("shared_buffers", "1GB").start()?;
/// cluster.execute("CREATE TABLE t (k text PRIMARY KEY, v text)")?;
/// println!("{}", cluster.url());
/// # Ok::<(), ClusterError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    profile: Profile,
    settings: Vec<(String, String)>,
    initdb: Vec<String>,
    directory: Option<PathBuf>,
    keep: Keep,
    tls: Option<Tls>,
    password: Option<String>,
    hba: String,
    start_timeout: Duration,
    programs: Option<Programs>,
}

/// Says what happens to the directory in the end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Keep {
    Remove,
    Keep,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            settings: Vec::new(),
            initdb: Vec::new(),
            directory: None,
            keep: Keep::Remove,
            tls: None,
            password: None,
            hba: String::new(),
            start_timeout: START_TIMEOUT,
            programs: None,
        }
    }
}

impl Builder {
    /// Selects the settings that come first.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Sets a setting of the server; the last value for a name counts.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Adds an argument of initdb, such as `--locale-provider=icu`.
    pub fn initdb(mut self, argument: impl Into<String>) -> Self {
        self.initdb.push(argument.into());
        self
    }

    /// Uses this directory instead of a new temporary one, and keeps it in the end. If it holds a
    /// cluster already, that is started with its data, its password and the settings of this
    /// builder. As root the directory is given to the user `postgres`, who must be able to reach
    /// it.
    pub fn directory(mut self, path: impl AsRef<Path>) -> Self {
        self.directory = Some(path.as_ref().to_owned());
        self
    }

    /// Keeps the temporary directory in the end.
    pub fn keep(mut self) -> Self {
        self.keep = Keep::Keep;
        self
    }

    /// Allows encrypted connections. To refuse others: `.hba("hostnossl all all all reject")`.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Requires a password from everybody, by SCRAM; this is the password of the role `busload`.
    /// Without it, everybody is trusted.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Adds a line of `pg_hba.conf` before the usual ones, such as `host all alice all md5`; the
    /// first matching line decides.
    pub fn hba(mut self, line: impl AsRef<str>) -> Self {
        self.hba.push_str(line.as_ref());
        self.hba.push('\n');
        self
    }

    /// Limits the time of a start, recovery included.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout;
        self
    }

    /// Uses these programs instead of those that [`find_programs`] finds.
    pub fn programs(mut self, programs: Programs) -> Self {
        self.programs = Some(programs);
        self
    }

    /// Makes the cluster and waits until it answers.
    ///
    /// # Errors
    ///
    /// Fails if there is no server program or the server does not start.
    pub fn start(self) -> Result<Cluster, ClusterError> {
        let programs = self.programs.clone().map_or_else(find_programs, Ok)?;
        let files = match &self.directory {
            Some(path) => Files::at(path, programs.user())?,
            None => Files::temporary(programs.user())?,
        };
        let keep = if self.directory.is_some() { Keep::Keep } else { self.keep };
        let is_new = !files.is_initialized();
        let mut settings = self.profile.settings().iter().map(owned).collect::<Vec<_>>();
        // From here on the directory is removed, whatever fails.
        let parts = Parts {
            programs,
            files,
            keep,
            password: self.password.clone(),
            start_timeout: self.start_timeout,
        };
        let made = Cluster::new(parts)?;
        if is_new {
            self.initialize(&made)?;
        }
        if let Some(tls) = &self.tls {
            settings.extend(made.files().write_tls(tls)?);
        }
        settings.extend(self.settings.iter().cloned());
        made.files().write_hba(&self.hba_lines())?;
        made.start_on_any_port(&settings)?;
        if is_new {
            made.execute_in("postgres", "CREATE DATABASE busload")?;
        }
        Ok(made)
    }

    fn initialize(&self, cluster: &Cluster) -> Result<(), ClusterError> {
        let mut arguments =
            vec!["--username=busload", "--auth=trust", "--encoding=UTF8", "--locale=C"];
        arguments.extend(self.profile.initdb());
        arguments.extend(self.initdb.iter().map(String::as_str));
        cluster.initdb(&arguments)?;
        cluster.files().include_settings()
    }

    fn hba_lines(&self) -> String {
        let method = if self.password.is_some() { "scram-sha-256" } else { "trust" };
        format!("{}local all all {method}\nhost all all all {method}\n", self.hba)
    }
}

fn owned((name, value): &(&str, &str)) -> (String, String) {
    ((*name).to_owned(), (*value).to_owned())
}
