//! Locations of the server's programs, and the user they run as.

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::error::ClusterError;

/// Environment variable that names the directory of the server's programs.
const VARIABLE: &str = "BUSLOAD_POSTGRES_BIN";
/// Debian keeps each version's programs in `DEBIAN/VERSION/bin`, outside PATH.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Programs that a directory must hold. A client alone (psql) is no server.
const NAMES: [&str; 4] = ["initdb", "postgres", "pg_ctl", "psql"];

/// Directory with the programs of one Postgres server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Programs {
    directory: PathBuf,
    user: Option<User>,
}

/// User that the programs run as instead of root.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct User {
    pub uid: u32,
    pub gid: u32,
}

/// Finds a Postgres server: in `BUSLOAD_POSTGRES_BIN` if that is set, else in PATH, else the
/// highest version where Debian keeps them.
///
/// # Errors
///
/// Fails if there is none ([`ClusterError::NoPrograms`] says how to install it), or if this is root
/// and there is no user `postgres`.
pub fn find_programs() -> Result<Programs, ClusterError> {
    let directory = match env::var_os(VARIABLE) {
        Some(named) => complete(Path::new(&named)).ok_or_else(|| not_in(VARIABLE))?,
        None => {
            let path = env::var_os("PATH").unwrap_or_default();
            let found = in_path(&path).or_else(|| highest_version(Path::new(DEBIAN)));
            found.ok_or_else(|| not_in(&format!("PATH and {DEBIAN}/*/bin")))?
        }
    };
    Ok(Programs { directory, user: server_user()? })
}

fn not_in(searched: &str) -> ClusterError {
    ClusterError::NoPrograms { searched: searched.to_owned() }
}

impl Programs {
    /// Returns the directory of the programs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn user(&self) -> Option<User> {
        self.user
    }

    /// Returns a command for a program of the server, run as the server's user.
    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = self.client(name);
        if let Some(User { uid, gid }) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Returns a command for a program of the server, run as the current user. Settings of the
    /// caller's environment (PGHOST, ...) do not reach it.
    pub(crate) fn client(&self, name: &str) -> Command {
        let mut command = Command::new(self.directory.join(name));
        for (variable, _) in env::vars_os() {
            if variable.to_string_lossy().starts_with("PG") {
                command.env_remove(variable);
            }
        }
        command.env("LC_ALL", "C").stdin(Stdio::null());
        command
    }
}

/// Follows links: PATH may link to the programs of one version, which lie in one directory.
fn in_path(path: &OsStr) -> Option<PathBuf> {
    env::split_paths(path).find_map(|directory| {
        let initdb = fs::canonicalize(directory.join("initdb")).ok()?;
        complete(initdb.parent()?).or_else(|| complete(&directory))
    })
}

fn highest_version(versions: &Path) -> Option<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(versions)
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, complete(&entry.path().join("bin"))?))
        })
        .collect();
    found.sort();
    found.pop().map(|(_, directory)| directory)
}

/// Returns the directory, if it holds all programs.
fn complete(directory: &Path) -> Option<PathBuf> {
    NAMES.iter().all(|name| is_program(&directory.join(name))).then(|| directory.to_owned())
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn server_user() -> Result<Option<User>, ClusterError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let uid = id_of_postgres("-u")?;
    let gid = id_of_postgres("-g")?;
    Ok(Some(User { uid, gid }))
}

/// Asks the system's own program: users need not be in /etc/passwd.
fn id_of_postgres(which: &str) -> Result<u32, ClusterError> {
    let output = Command::new("id").args([which, "postgres"]).stderr(Stdio::null()).output();
    let output = output.map_err(ClusterError::io("run id"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| ClusterError::NoServerUser)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(directory: &Path, name: &str) {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join(name), "").unwrap();
        fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn server(directory: &Path) {
        NAMES.iter().for_each(|name| program(directory, name));
    }

    #[test]
    fn the_highest_version_that_is_a_server_is_taken() {
        let place = tempfile::tempdir().unwrap();
        for version in ["9", "15", "16"] {
            server(&place.path().join(version).join("bin"));
        }
        program(&place.path().join("17/bin"), "psql");
        server(&place.path().join("common/bin"));
        assert_eq!(highest_version(place.path()), Some(place.path().join("16/bin")));
    }

    #[test]
    fn links_in_path_lead_to_the_directory_with_all_programs() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        server(&root.join("real"));
        let links = root.join("links");
        fs::create_dir(&links).unwrap();
        std::os::unix::fs::symlink(root.join("real/initdb"), links.join("initdb")).unwrap();
        program(&root.join("client"), "psql");
        let path = env::join_paths([root.join("client"), links]).unwrap();
        assert_eq!(in_path(&path), Some(root.join("real")));
    }

    #[test]
    fn a_client_alone_is_no_server() {
        let place = tempfile::tempdir().unwrap();
        program(place.path(), "psql");
        program(place.path(), "initdb");
        assert_eq!(in_path(place.path().as_os_str()), None);
        let text = not_in("PATH").to_string();
        assert!(text.contains("apt-get install postgresql") && text.contains(VARIABLE), "{text}");
    }
}
