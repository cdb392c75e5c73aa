//! Failures that end the program: a line for the user and an exit code.

use std::{fmt, process::ExitCode};

/// Failure that ends the program, with its message for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A mistake in the command line or the configuration, or a configuration that the data
    /// contradicts: its author can correct it. Exit code 2.
    Usage(String),
    /// A failure at run time. Exit code 1.
    Run(String),
}

impl Failure {
    /// Makes a mistake in usage or configuration.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// Makes a failure at run time.
    pub fn run(message: impl Into<String>) -> Self {
        Self::Run(message.into())
    }

    /// Returns the exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Run(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(message) | Self::Run(message)) = self;
        // Joined into one line: errors of libraries may have several.
        f.write_str(&message.split('\n').map(str::trim).collect::<Vec<_>>().join(" "))
    }
}
