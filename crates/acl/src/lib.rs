//! Users: who they are, what they may do, and how they prove it.
//!
//! ```text
//!  users.acl --file--> rules --> User: commands, keys, passwords --+
//!  ACL SETUSER ------> rules -^                                    v
//!                                        Users: all of them, shared by every front
//!  name, password --> Users::begin --+-- verified before: a keyed hash, at once
//!                                    `-- else Users::verify: argon2id on a worker --> Promise
//! ```
//!
//! * `commands`: the names and categories of commands, as their owner lists them, and sets of them.
//! * `keys`: key patterns, each a literal beginning of keys, for reading, writing or both.
//! * `rule`: the rules of Redis' `ACL SETUSER`, parsed.
//! * `user`: what rules make of a user; its line in the file.
//! * `password`: argon2id hashes as PHC strings.
//! * `users`: the table of users, the cache of verified passwords.
//! * `file`: the lines of the file of users.
//! * `worker`: the threads for what takes long.
//!
//! **Limits** are in [`limits`]. **Threads.** One thread changes users; any thread reads them.
//! **IO.** None but random numbers from the system; the file is behind the trait [`UserFile`].

#![forbid(unsafe_code)]

pub mod limits;

mod commands;
mod file;
mod keys;
mod password;
mod rule;
mod user;
mod users;
mod worker;

pub use commands::{CATEGORIES, CommandList, CommandRow, CommandSet};
pub use file::{FileError, Lines, parse};
pub use keys::{KeyPattern, KeyRights, Need};
pub use password::{PasswordHash, Secret, random};
pub use rule::{Rule, RuleError, Target};
pub use user::{DEFAULT, User, check_name};
pub use users::{Attempt, HashedRules, Loaded, Unverified, UserFile, Users, Verification};
pub use worker::{Busy, Promise};
