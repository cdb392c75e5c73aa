//! Errors that commands answer. The texts are Redis's, because clients compare them.

use std::borrow::Cow;

/// Error reply, without the leading `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The key holds a value of another kind.
    WrongType,
    /// The options or arguments do not follow the syntax.
    Syntax,
    /// The argument is not a 64-bit integer.
    NotInteger,
    /// The argument is not a decimal number.
    NotFloat,
    /// A string would become longer than 512 MiB.
    StringTooLong,
    /// The argument count is wrong for this command (a subcommand is named like `client|kill`).
    Arity(&'static str),
    /// Any other error, with its code word (`ERR ...`).
    Text(Cow<'static, str>),
}

impl CommandError {
    /// Creates an error with a constant text.
    pub const fn text(text: &'static str) -> Self {
        CommandError::Text(Cow::Borrowed(text))
    }

    /// Returns the text that goes to the client.
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            CommandError::WrongType => {
                "WRONGTYPE Operation against a key holding the wrong kind of value".into()
            }
            CommandError::Syntax => "ERR syntax error".into(),
            CommandError::NotInteger => "ERR value is not an integer or out of range".into(),
            CommandError::NotFloat => "ERR value is not a valid float".into(),
            CommandError::StringTooLong => {
                "ERR string exceeds maximum allowed size (proto-max-bulk-len)".into()
            }
            CommandError::Arity(name) => {
                format!("ERR wrong number of arguments for '{name}' command").into()
            }
            CommandError::Text(text) => text.clone(),
        }
    }
}

impl From<String> for CommandError {
    fn from(text: String) -> Self {
        CommandError::Text(text.into())
    }
}

/// Result of a handler. On an error the caller discards whatever the handler wrote of its reply.
pub type CommandResult = Result<(), CommandError>;
