//! What a command can answer instead of a value. Texts are Redis's: clients test for them.

use std::borrow::Cow;

/// An error reply, without the leading `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The key holds another kind of value.
    WrongType,
    /// An option or argument in the wrong place.
    Syntax,
    /// Not a 64-bit integer.
    NotInteger,
    /// Not a decimal number.
    NotFloat,
    /// A string would pass 512 MiB.
    StringTooLong,
    /// The count of arguments is wrong, for this command (`client|kill` style for subcommands).
    Arity(&'static str),
    /// Anything else, with its code word (`ERR ...`).
    Text(Cow<'static, str>),
}

impl CommandError {
    /// An error with a constant text.
    pub const fn text(text: &'static str) -> Self {
        CommandError::Text(Cow::Borrowed(text))
    }

    /// As it goes to the client.
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

/// What a handler returns; on an error whatever it had written of its reply is taken back.
pub type CommandResult = Result<(), CommandError>;
