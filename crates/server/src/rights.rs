//! Rights of the sender of an HTTP request to tables. The check of access puts the user into the
//! request's extensions.

use std::sync::Arc;

use axum::http::Extensions;
use busload_acl::{Need, User};
use busload_pipeline::command::command_list;

use crate::access::TokenSender;

/// Returns whether the sender of a request with these extensions may read all of a table.
pub fn may_read(extensions: &Extensions, table: &str) -> bool {
    // What a token may read, its sender says ([`token_sender`]).
    if token_sender(extensions).is_some() {
        return false;
    }
    // Where nobody is asked who they are, there is no user.
    let Some(user) = extensions.get::<Arc<User>>() else { return true };
    user.is_unrestricted() || may_run(user, "get") && may_read_table(user, table)
}

/// Returns the sender of a request with a token, who is no user.
pub fn token_sender(extensions: &Extensions) -> Option<&TokenSender> {
    extensions.get()
}

/// Returns whether the sender of a request has not logged in, and did not have to.
pub fn is_anonymous(extensions: &Extensions) -> bool {
    extensions.get::<Arc<User>>().is_none() && token_sender(extensions).is_none()
}

/// Returns whether a user may run a command (`get`, `slowlog|get`).
pub fn may_run(user: &User, command: &str) -> bool {
    command_list().find(command).is_some_and(|index| user.may_run(index))
}

fn may_read_table(user: &User, table: &str) -> bool {
    user.keys().allow_all_below(format!("{table}:").as_bytes(), Need::READ)
}
