//! Files in a cluster's directory.
//!
//! ```text
//!  DIRECTORY/data         what initdb made, and cluster.conf with our settings
//!  DIRECTORY/server.log   what the server writes to its standard output and error
//!  DIRECTORY/.s.PGSQL.N   the Unix socket (elsewhere when its path would be too long)
//! ```

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt, chown},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    builder::Tls,
    error::ClusterError,
    limits::{LOG_TAIL_BYTES, SOCKET_PATH_BYTES_MAX},
    programs::User,
};

/// Prefix of the names of temporary directories.
pub const PREFIX: &str = "busload-cluster-";

/// File with the builder's settings. `ALTER SYSTEM` comes after them.
const CONFIGURATION: &str = "cluster.conf";
const CERTIFICATE: &str = "server.crt";
const KEY: &str = "server.key";

/// Directory of a cluster, with its files.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    /// Directory of the socket, if that is not in `root`.
    sockets: Option<TempDir>,
    owner: Option<User>,
}

impl Files {
    /// Creates a new temporary directory.
    pub fn temporary(owner: Option<User>) -> Result<Self, ClusterError> {
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir();
        Self::at(&made.map_err(ClusterError::io("make a temporary directory"))?.keep(), owner)
    }

    /// Uses a directory of the caller, and creates it if it does not exist.
    pub fn at(root: &Path, owner: Option<User>) -> Result<Self, ClusterError> {
        let failed = || ClusterError::io(format!("make {}", root.display()));
        fs::create_dir_all(root).map_err(failed())?;
        let root = fs::canonicalize(root).map_err(failed())?;
        give(&root, owner).map_err(failed())?;
        let sockets =
            sockets(&root, owner).map_err(ClusterError::io("make a directory for sockets"))?;
        Ok(Self { root, sockets, owner })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    pub fn sockets(&self) -> &Path {
        self.sockets.as_ref().map_or(&self.root, TempDir::path)
    }

    pub fn log(&self) -> PathBuf {
        self.root.join("server.log")
    }

    /// Returns whether initdb has been run here.
    pub fn is_initialized(&self) -> bool {
        self.data().join("PG_VERSION").is_file()
    }

    /// Writes a file that only the server may read.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), ClusterError> {
        let written = || -> io::Result<()> {
            let mut options = fs::OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
            file.write_all(text.as_bytes())?;
            give(path, self.owner)
        };
        written().map_err(ClusterError::io(format!("write {}", path.display())))
    }

    /// Writes the server's settings, which it reads before those of `ALTER SYSTEM`.
    pub fn write_settings(&self, settings: &[(String, String)]) -> Result<(), ClusterError> {
        let mut text = String::new();
        for (name, value) in settings {
            writeln!(text, "{name} = '{}'", value.replace('\\', "\\\\").replace('\'', "''"))
                .expect("a String takes everything");
        }
        self.write(&self.data().join(CONFIGURATION), &text)
    }

    /// Makes the server read our settings; called once after initdb.
    pub fn include_settings(&self) -> Result<(), ClusterError> {
        let main = self.data().join("postgresql.conf");
        let text = fs::read_to_string(&main).map_err(ClusterError::io("read postgresql.conf"))?;
        self.write(&main, &format!("{text}\ninclude = '{CONFIGURATION}'\n"))
    }

    /// Writes the rules of who may connect and how.
    pub fn write_hba(&self, lines: &str) -> Result<(), ClusterError> {
        self.write(&self.data().join("pg_hba.conf"), lines)
    }

    /// Writes the server's certificate, and returns the settings that name it.
    pub fn write_tls(&self, tls: &Tls) -> Result<[(String, String); 3], ClusterError> {
        self.write(&self.data().join(CERTIFICATE), &tls.certificate)?;
        self.write(&self.data().join(KEY), &tls.key)?;
        let settings = [("ssl", "on"), ("ssl_cert_file", CERTIFICATE), ("ssl_key_file", KEY)];
        Ok(settings.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    /// Returns the end of the server's log.
    pub fn log_tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned()
    }

    /// Removes the directory and its files.
    pub fn remove(&self) {
        // Part of it may be gone already; leftovers stay in the temporary directory.
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Gives a file to the other user that the server runs as.
fn give(path: &Path, owner: Option<User>) -> io::Result<()> {
    match owner {
        Some(User { uid, gid }) => chown(path, Some(uid), Some(gid)),
        None => Ok(()),
    }
}

fn sockets(root: &Path, owner: Option<User>) -> io::Result<Option<TempDir>> {
    if root.as_os_str().len() + "/.s.PGSQL.65535".len() <= SOCKET_PATH_BYTES_MAX {
        return Ok(None);
    }
    let short = tempfile::Builder::new().prefix(PREFIX).tempdir_in("/tmp")?;
    give(short.path(), owner)?;
    Ok(Some(short))
}

/// Content of the file that a running postmaster keeps in its data directory, see `miscadmin.h`.
pub struct PostmasterFile(String);

impl PostmasterFile {
    pub fn read(data: &Path) -> Option<Self> {
        fs::read_to_string(data.join("postmaster.pid")).ok().map(Self)
    }

    /// Returns whether this postmaster accepts connections.
    pub fn is_ready(&self, pid: u32) -> bool {
        self.line(1) == Some(&pid.to_string())
            && self.line(8).is_some_and(|state| state.trim_end() == "ready")
    }

    /// Returns the id of the System V shared memory that it holds as a lock.
    pub fn shared_memory(&self) -> Option<&str> {
        self.line(7)?.split_ascii_whitespace().nth(1)
    }

    fn line(&self, number: usize) -> Option<&str> {
        self.0.lines().nth(number - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_gets_its_socket_elsewhere() {
        let place = tempfile::tempdir().unwrap();
        let long = Files::at(&place.path().join("x".repeat(90)), None).unwrap();
        assert!(long.sockets().as_os_str().len() < 60 && long.sockets().is_dir());
        assert_ne!(long.sockets(), long.root());
        let short = Files::at(&place.path().join("x"), None).unwrap();
        assert_eq!(short.sockets(), short.root());
    }

    #[test]
    fn values_of_settings_are_quoted() {
        let place = tempfile::tempdir().unwrap();
        let files = Files::at(place.path(), None).unwrap();
        fs::create_dir(files.data()).unwrap();
        files.write_settings(&[("a.b".to_owned(), r"it's a \".to_owned())]).unwrap();
        let text = fs::read_to_string(files.data().join(CONFIGURATION)).unwrap();
        assert_eq!(text, "a.b = 'it''s a \\\\'\n");
    }

    #[test]
    fn ready_is_said_by_this_postmaster_not_by_one_before_it() {
        let file = PostmasterFile(
            "42\n/data\n1700\n5432\n/tmp\n127.0.0.1\n   43   98\nready   \n".to_owned(),
        );
        assert!(file.is_ready(42) && !file.is_ready(43));
        assert_eq!(file.shared_memory(), Some("98"));
        assert!(!PostmasterFile("42\n/data\n1700\n".to_owned()).is_ready(42));
    }
}
