//! The process's environment as a value.

use std::{ffi::OsString, fmt, path::PathBuf, sync::Arc};

use crate::{SettingsError, values::unfit};

/// Function that returns the value of a variable.
type Lookup = dyn Fn(&str) -> Option<OsString> + Send + Sync;

/// Environment variables and the user's name, behind a function, so that nothing here depends on
/// the process.
#[derive(Clone)]
pub struct Environment {
    lookup: Arc<Lookup>,
    user: Option<String>,
}

impl Environment {
    /// Creates an environment from a function and the name of the operating system's user.
    pub fn new(
        lookup: impl Fn(&str) -> Option<OsString> + Send + Sync + 'static,
        user: Option<String>,
    ) -> Self {
        Self { lookup: Arc::new(lookup), user }
    }

    /// Creates an environment without variables and without a user.
    pub fn empty() -> Self {
        Self::new(|_| None, None)
    }

    /// Returns the environment of this process.
    pub fn of_process() -> Self {
        Self::new(|name| std::env::var_os(name), whoami::username().ok())
    }

    /// Returns a copy with one variable replaced, with which a program can give one table a
    /// password of its own.
    #[must_use]
    pub fn with(&self, name: &'static str, value: OsString) -> Self {
        let others = Arc::clone(&self.lookup);
        let lookup =
            move |asked: &str| if asked == name { Some(value.clone()) } else { others(asked) };
        Self { lookup: Arc::new(lookup), user: self.user.clone() }
    }

    /// Returns a variable that is set and not empty (libpq ignores empty ones).
    pub fn variable(&self, name: &str) -> Option<OsString> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    /// Returns a variable as text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, SettingsError> {
        let value = self.variable(name).map(OsString::into_string).transpose();
        value.map_err(|written| unfit(name, written.to_string_lossy(), "expected UTF-8"))
    }

    /// Returns the user's home directory.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.variable("HOME").map(PathBuf::from)
    }

    /// Returns the name of the operating system's user.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("user", &self.user).finish_non_exhaustive()
    }
}
