//! A password type that cannot be printed, and the sources of passwords.
//!
//! Each new connection reads the files again, so that a changed password needs no restart.
//! `PGPASSFILE` and `~/.pgpass` follow libpq's rules: `host:port:database:user:password`, `*` for
//! anything, `\` before a literal `:` or `\`, the first matching line wins, and a file that others
//! may read is ignored.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{limits::PASSWORD_FILE_BYTES_MAX, settings::Host};

/// A password: any bytes. Neither `Debug` nor anything else prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Arc<[u8]>);

impl Password {
    /// Creates a password from its bytes.
    pub fn new(password: impl AsRef<[u8]>) -> Self {
        Self(password.as_ref().into())
    }

    /// Returns the password itself, to send to the server.
    pub(crate) fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(hidden)")
    }
}

/// Source of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordSource {
    /// Given in the URL or by `PGPASSWORD`.
    Given(Password),
    /// File that holds nothing else.
    File(PathBuf),
    /// File in the format of `.pgpass`, if it exists.
    PassFile(PathBuf),
    /// No source: for servers that ask for no password.
    Nowhere,
}

/// Login that needs a password.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Login<'a> {
    pub(crate) host: &'a Host,
    pub(crate) dbname: &'a str,
    pub(crate) user: &'a str,
}

/// Result of looking up a password.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) password: Option<Password>,
    /// Warning for the operator.
    pub(crate) warning: Option<String>,
}

impl PasswordSource {
    /// Looks the password up. Blocks while it reads a file.
    pub(crate) fn look_up(&self, login: Login<'_>) -> Result<Found, String> {
        match self {
            Self::Given(password) => Ok(Found { password: Some(password.clone()), warning: None }),
            Self::File(path) => {
                read_password_file(path).map(|password| Found { password, warning: None })
            }
            Self::PassFile(path) => Ok(read_pass_file(path, login)),
            Self::Nowhere => Ok(Found::default()),
        }
    }
}

fn read_password_file(path: &Path) -> Result<Option<Password>, String> {
    let shown = path.display();
    let text =
        read_text(path).map_err(|error| format!("cannot read password_file {shown}: {error}"))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.contains(['\n', '\0']) {
        return Err(format!("password_file {shown} holds more than one line"));
    }
    if line.is_empty() {
        return Err(format!("password_file {shown} is empty"));
    }
    Ok(Some(Password::new(line)))
}

fn read_pass_file(path: &Path, login: Login<'_>) -> Found {
    let ignored = |why: String| Found {
        password: None,
        warning: Some(format!("password file {} is ignored: {why}", path.display())),
    };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::default(),
        Err(error) => return ignored(error.to_string()),
        Ok(metadata) if !metadata.is_file() => return ignored("it is not a plain file".into()),
        Ok(metadata) if metadata.mode() & 0o077 != 0 => {
            return ignored("it has group or world access; its mode should be 0600 or less".into());
        }
        Ok(_) => {}
    }
    match read_text(path) {
        Ok(text) => Found { password: find_password(&text, login), warning: None },
        Err(error) => ignored(error.to_string()),
    }
}

/// Reads at most [`PASSWORD_FILE_BYTES_MAX`] of UTF-8.
fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(PASSWORD_FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    match u64::try_from(text.len()) {
        Ok(bytes) if bytes <= PASSWORD_FILE_BYTES_MAX => Ok(text),
        _ => Err(io::Error::other(format!("longer than {PASSWORD_FILE_BYTES_MAX} bytes"))),
    }
}

fn find_password(text: &str, login: Login<'_>) -> Option<Password> {
    let (host, port) = match login.host {
        Host::Tcp { name, port } => (name.clone(), port.to_string()),
        Host::Unix { directory, port } => (socket_host(directory), port.to_string()),
    };
    let wanted = [host.as_str(), port.as_str(), login.dbname, login.user];
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| password_of_line(line, wanted))
        .filter(|password| !password.is_empty())
        .map(Password::new)
}

/// Returns the host name of a socket. libpq replaces the directory it was built with by
/// `localhost`; distributions use one of these.
fn socket_host(directory: &Path) -> String {
    const USUAL: [&str; 3] = ["/var/run/postgresql", "/run/postgresql", "/tmp"];
    match directory.to_string_lossy() {
        text if USUAL.contains(&text.as_ref()) => "localhost".to_owned(),
        text => text.into_owned(),
    }
}

/// Returns the password of a line whose four fields match. A line with fewer fields never matches.
fn password_of_line(line: &str, wanted: [&str; 4]) -> Option<String> {
    let mut rest = line;
    for wanted in wanted {
        let (field, behind) = split_field(rest);
        if field != "*" && unescaped(field) != wanted {
            return None;
        }
        rest = behind?;
    }
    Some(unescaped(split_field(rest).0))
}

/// Splits at the next `:` without a `\` before it; returns the rest after it, if there is one.
fn split_field(text: &str) -> (&str, Option<&str>) {
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ':' => return (&text[..at], Some(&text[at + 1..])),
            _ => {}
        }
    }
    (text, None)
}

fn unescaped(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    let mut letters = field.chars();
    while let Some(letter) = letters.next() {
        // A `\` at the very end stands for itself.
        text.push(if letter == '\\' { letters.next().unwrap_or('\\') } else { letter });
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn tcp(name: &str) -> Host {
        Host::Tcp { name: name.into(), port: 5432 }
    }

    fn found(text: &str, host: &Host) -> Option<String> {
        let login = Login { host, dbname: "lake", user: "app" };
        find_password(text, login)
            .map(|password| String::from_utf8(password.reveal().to_vec()).unwrap())
    }

    #[test]
    fn pass_files_match_as_libpq_matches() {
        let v6 = tcp("::1");
        let socket = Host::Unix { directory: "/var/run/postgresql".into(), port: 5432 };
        let own_socket = Host::Unix { directory: "/srv/pg".into(), port: 5432 };
        for (text, host, expected) in [
            ("db:5432:lake:app:secret", &tcp("db"), Some("secret")),
            ("db:5432:lake:app:secret\r\n", &tcp("db"), Some("secret")),
            ("*:*:*:*:any", &tcp("db"), Some("any")),
            ("db:5432:lake:app:first\n*:*:*:*:second", &tcp("db"), Some("first")),
            ("*:*:*:other:no\n*:*:*:app:yes", &tcp("db"), Some("yes")),
            ("#db:5432:lake:app:comment\ndb:5432:lake:app:real", &tcp("db"), Some("real")),
            (r"db:5432:lake:app:a\:b\\c", &tcp("db"), Some(r"a:b\c")),
            ("db:5432:lake:app:a:b", &tcp("db"), Some("a")),
            (r"\:\:1:5432:lake:app:six", &v6, Some("six")),
            ("::1:5432:lake:app:six", &v6, None),
            (r"\d\b:5432:lake:app:escaped", &tcp("db"), Some("escaped")),
            ("db:5433:lake:app:secret", &tcp("db"), None),
            ("DB:5432:lake:app:secret", &tcp("db"), None),
            ("db*:5432:lake:app:secret", &tcp("db"), None),
            ("db:5432:lake:app", &tcp("db"), None),
            ("db:5432:lake:app:", &tcp("db"), None),
            ("", &tcp("db"), None),
            ("localhost:5432:lake:app:socket", &socket, Some("socket")),
            ("/srv/pg:5432:lake:app:socket", &own_socket, Some("socket")),
            ("localhost:5432:lake:app:socket", &own_socket, None),
        ] {
            assert_eq!(found(text, host).as_deref(), expected, "{text} for {host:?}");
        }
    }

    fn file_with(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_pass_file_that_others_may_read_is_ignored_with_a_warning() {
        let host = tcp("db");
        let login = Login { host: &host, dbname: "lake", user: "app" };
        for (mode, used) in
            [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o660, false)]
        {
            let file = file_with("*:*:*:*:secret", mode);
            let found = PasswordSource::PassFile(file.path().into()).look_up(login).unwrap();
            assert_eq!(found.password.is_some(), used, "{mode:o}");
            assert_eq!(found.warning.is_none(), used, "{mode:o}");
            assert!(!format!("{found:?}").contains("secret"));
        }
        let found = PasswordSource::PassFile("/nonexistent/pgpass".into()).look_up(login).unwrap();
        assert!(found.password.is_none() && found.warning.is_none());
        let found = PasswordSource::PassFile("/".into()).look_up(login).unwrap();
        assert!(found.warning.unwrap().contains("not a plain file"));
    }

    #[test]
    fn a_password_file_holds_one_line() {
        let host = tcp("db");
        let login = Login { host: &host, dbname: "lake", user: "app" };
        let read = |text: &str| {
            let file = file_with(text, 0o600);
            let found = PasswordSource::File(file.path().into()).look_up(login);
            found.map(|found| String::from_utf8(found.password.unwrap().reveal().to_vec()).unwrap())
        };
        assert_eq!(read("secret\n").unwrap(), "secret");
        assert_eq!(read("secret\r\n").unwrap(), "secret");
        assert_eq!(read(" with spaces ").unwrap(), " with spaces ");
        assert!(read("secret\nmore").unwrap_err().contains("more than one line"));
        assert!(!read("secret\nmore").unwrap_err().contains("secret"));
        assert!(read("\n").unwrap_err().contains("is empty"));
        let missing = PasswordSource::File("/nonexistent/pw".into()).look_up(login).unwrap_err();
        assert!(
            missing.starts_with("cannot read password_file /nonexistent/pw: No such file"),
            "{missing}"
        );
    }

    #[test]
    fn a_password_is_never_printed() {
        let password = Password::new("secret");
        let source = PasswordSource::Given(password.clone());
        assert!(!format!("{password:?} {source:?} {source:#?}").contains("secret"));
    }
}
