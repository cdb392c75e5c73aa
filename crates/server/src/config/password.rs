//! The password that clients must give. It comes from a file or from the environment, never from
//! the command line, where everybody on the machine could read it.

use std::{fs::File, io::Read, os::unix::fs::PermissionsExt, path::Path};

use crate::failure::Failure;

/// Environment variable with the password.
pub const VARIABLE: &str = "BUSLOAD_PASSWORD";
/// Environment variable with the user as whom commands log in to a running server.
pub const USER_VARIABLE: &str = "BUSLOAD_USER";
/// Longest part of a file that is read to find its first line.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Permission bits of the group and of everybody.
const OTHERS: u32 = 0o077;

/// A password, with a warning about its file, if any.
#[derive(PartialEq, Eq)]
pub struct Password {
    pub bytes: Vec<u8>,
    /// Warning that others can read the file.
    pub warning: Option<String>,
}

/// Reads the password from the first line of a file.
pub fn from_file(path: &Path) -> Result<Password, Failure> {
    let refuse = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot read the password file {}: {error}", path.display()))
    };
    let file = File::open(path).map_err(|error| refuse(&error))?;
    let mode = file.metadata().map_err(|error| refuse(&error))?.permissions().mode();
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| refuse(&error))?;
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Err(refuse(&"its first line is empty; expected the password there"));
    }
    let warning = (mode & OTHERS != 0).then(|| {
        format!(
            "the password file {} can be read by others (mode {:03o}); chmod 600 keeps it private",
            path.display(),
            mode & 0o777
        )
    });
    Ok(Password { bytes: line.to_vec(), warning })
}

/// Takes the password from the value of the environment variable, if it is set.
pub fn from_environment(value: Option<std::ffi::OsString>) -> Result<Option<Password>, Failure> {
    match value.map(std::os::unix::ffi::OsStringExt::into_vec) {
        None => Ok(None),
        Some(bytes) if bytes.is_empty() => Err(Failure::usage(format!(
            "{VARIABLE} is set but empty; unset it or put the password there"
        ))),
        Some(bytes) => Ok(Some(Password { bytes, warning: None })),
    }
}

/// Returns the user as whom commands log in to a running server: `default` unless the environment
/// names one.
pub fn user_of_environment() -> String {
    let named = std::env::var_os(USER_VARIABLE).filter(|name| !name.is_empty());
    named.map_or_else(|| "default".to_owned(), |name| name.to_string_lossy().into_owned())
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Password").field("warning", &self.warning).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn written(contents: &[u8], mode: u32) -> Result<Password, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        from_file(&path)
    }

    #[test]
    fn the_first_line_is_the_password() {
        for contents in ["secret", "secret\n", "secret\r\n", "secret\nmore\n"] {
            let password = written(contents.as_bytes(), 0o600).unwrap();
            assert_eq!(
                password,
                Password { bytes: b"secret".into(), warning: None },
                "{contents:?}"
            );
        }
    }

    #[test]
    fn a_file_others_can_read_is_warned_about_without_naming_the_password() {
        let warning = written(b"secret", 0o640).unwrap().warning.unwrap();
        assert!(warning.contains("mode 640") && !warning.contains("secret"), "{warning}");
    }

    #[test]
    fn no_password_is_a_mistake() {
        for contents in ["", "\n", "\r\nsecret"] {
            assert!(written(contents.as_bytes(), 0o600).is_err(), "{contents:?}");
        }
        assert!(from_file(Path::new("/nowhere/password")).is_err());
        assert!(from_environment(Some("".into())).is_err());
        assert_eq!(from_environment(None), Ok(None));
    }
}
