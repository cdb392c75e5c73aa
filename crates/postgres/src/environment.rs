//! What the process's surroundings say, as a value.

use std::{ffi::OsString, fmt, path::PathBuf, sync::Arc};

use crate::{SettingsError, values::unfit};

/// What a variable of this name holds.
type Lookup = dyn Fn(&str) -> Option<OsString> + Send + Sync;

/// The environment variables and the user's name, behind a function, so that nothing here depends
/// on the process.
#[derive(Clone)]
pub struct Environment {
    lookup: Arc<Lookup>,
    user: Option<String>,
}

impl Environment {
    /// Variables by a function, and the name of the operating system's user.
    pub fn new(
        lookup: impl Fn(&str) -> Option<OsString> + Send + Sync + 'static,
        user: Option<String>,
    ) -> Self {
        Self { lookup: Arc::new(lookup), user }
    }

    /// No variables, nobody.
    pub fn empty() -> Self {
        Self::new(|_| None, None)
    }

    /// This process's.
    pub fn of_process() -> Self {
        Self::new(|name| std::env::var_os(name), whoami::username().ok())
    }

    /// The same, but with this value for a variable: how a program gives one table a password of
    /// its own.
    #[must_use]
    pub fn with(&self, name: &'static str, value: OsString) -> Self {
        let others = Arc::clone(&self.lookup);
        let lookup =
            move |asked: &str| if asked == name { Some(value.clone()) } else { others(asked) };
        Self { lookup: Arc::new(lookup), user: self.user.clone() }
    }

    /// A variable that is set and not empty (libpq takes an empty one for none).
    pub fn variable(&self, name: &str) -> Option<OsString> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    /// A variable as text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, SettingsError> {
        let value = self.variable(name).map(OsString::into_string).transpose();
        value.map_err(|written| unfit(name, written.to_string_lossy(), "expected UTF-8"))
    }

    /// The user's directory.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.variable("HOME").map(PathBuf::from)
    }

    /// The operating system's user.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("user", &self.user).finish_non_exhaustive()
    }
}
