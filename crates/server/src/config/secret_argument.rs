//! Parser of arguments that no message shows, because they may hold a password. clap's own message
//! would repeat the whole argument.

use std::{ffi::OsStr, fmt::Display, marker::PhantomData, str::FromStr};

use clap::{Arg, Command, builder::TypedValueParser, error::ErrorKind};

/// Parses such an argument. The message for a mistake is that of its type, without the argument.
#[derive(Clone, Copy, Debug)]
pub struct SecretArgument<T>(PhantomData<fn() -> T>);

impl<T> Default for SecretArgument<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: FromStr<Err: Display> + Clone + Send + Sync + 'static> TypedValueParser
    for SecretArgument<T>
{
    type Value = T;

    fn parse_ref(
        &self,
        _: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let name = argument.and_then(Arg::get_long).unwrap_or("argument");
        let refuse = |message: &dyn Display| {
            clap::Error::raw(
                ErrorKind::ValueValidation,
                format!("invalid value for '--{name}': {message}\n"),
            )
        };
        let text = value.to_str().ok_or_else(|| refuse(&"it is not UTF-8"))?;
        text.parse().map_err(|error: T::Err| refuse(&error))
    }
}
