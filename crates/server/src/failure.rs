//! Why the program ends, in one line, and with which code.

use std::{fmt, process::ExitCode};

/// What to tell the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line, the configuration, or its disagreement with the data: to be put right by
    /// whoever wrote it. Code 2.
    Usage(String),
    /// Something failed at run time. Code 1.
    Run(String),
}

impl Failure {
    /// A mistake in usage or configuration.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// A failure at run time.
    pub fn run(message: impl Into<String>) -> Self {
        Self::Run(message.into())
    }

    /// The code the process ends with.
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
        // One line, whatever the message was made of.
        f.write_str(&message.split('\n').map(str::trim).collect::<Vec<_>>().join(" "))
    }
}
