//! Arguments of `busload user` and `busload token`, which work on files of users and tokens.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Subcommands of `busload user`.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Add a user
    ///
    /// The password comes from BUSLOAD_USER_PASSWORD in the environment, from a prompt, or from
    /// the first line of standard input.
    Add(AddUserArgs),
    /// Print the users with their rules
    List(UserFileArgs),
    /// Remove a user
    Remove(UserArgs),
    /// Replace the passwords of a user by a new one, which comes as for `add`
    Passwd(UserArgs),
}

/// File of users that a subcommand of `busload user` works on.
#[derive(Args, Debug)]
pub struct UserFileArgs {
    /// File of users
    #[arg(long, value_name = "FILE")]
    pub acl_file: Option<PathBuf>,
    /// Configuration file (TOML) that names the file of users
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// User that a subcommand of `busload user` works on.
#[derive(Args, Debug)]
pub struct UserArgs {
    /// Name of the user
    pub name: String,
    #[command(flatten)]
    pub file: UserFileArgs,
}

/// Arguments of `busload user add`.
#[derive(Args, Debug)]
pub struct AddUserArgs {
    #[command(flatten)]
    pub user: UserArgs,
    /// Rules as in Redis' ACL SETUSER, like '~sessions:* +@read'; by default `allkeys +@all -@admin
    /// -@dangerous`
    #[arg(long, value_name = "RULES", allow_hyphen_values = true)]
    pub rules: Option<String>,
}

/// Subcommands of `busload token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a bearer token and print it, once: the file keeps its SHA-256
    Add(AddTokenArgs),
}

/// Arguments of `busload token add`.
#[derive(Args, Debug)]
pub struct AddTokenArgs {
    /// Name of the token, for people
    pub name: String,
    /// Patterns of the stores that the token may read, like 'org/*' or 'org/**'; may be given
    /// several times
    #[arg(long, value_name = "PATTERN", required = true)]
    pub stores: Vec<String>,
    /// Time from which on the token is refused, like 2027-01-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
    /// File of tokens; it is made if there is none
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Configuration file (TOML) that names the file of tokens
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}
