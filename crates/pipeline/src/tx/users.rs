//! Users of connections: what becomes of those whose user has changed, and the check of rights.

use std::sync::Arc;

use busload_acl::User;
use busload_io::ConnId;

use super::Tx;
use crate::{
    args::Args,
    command::{Command, CommandId, Flags, denial, lookup},
    error::CommandError,
    session::Session,
};

impl Tx {
    /// Lets all connections follow a change of users. A connection whose user is gone or off, or
    /// which monitors and may not any more, is closed: `own`, whose command runs, behind its reply;
    /// others at once.
    pub(crate) fn users_changed(&mut self, own: Option<&mut Session>) {
        let users = Arc::clone(&self.users);
        let mut gone: Vec<ConnId> = Vec::new();
        for session in self.sessions.iter_mut().flatten() {
            let follows = session.follow(users.get(session.user.name().as_bytes()));
            if !session.closing && (!follows || session.monitors && !may_monitor(session)) {
                gone.push(session.conn);
            }
        }
        gone.into_iter().for_each(|conn| self.kill(conn));
        if let Some(own) = own
            && !own.follow(users.get(own.user.name().as_bytes()))
        {
            own.closing = true;
        }
    }

    /// Makes a connection that of this user, after its password was verified.
    pub(crate) fn log_in(&mut self, conn: ConnId, user: Arc<User>) -> Option<&mut Session> {
        let session = self.sessions.get_mut(conn.index as usize)?.as_deref_mut()?;
        if session.conn != conn {
            return None;
        }
        session.log_in(user);
        Some(session)
    }
}

/// Returns whether the client may be shown the commands of others, as it asked for.
fn may_monitor(session: &Session) -> bool {
    let monitor = lookup(b"monitor");
    let no_args = Args::new(&[], &[], None);
    let command = monitor.command().expect("there is one");
    denial(&session.user, monitor, command, &no_args).is_none()
}

/// Checks whether the client may run the command. Nearly all clients are not restricted and do not
/// get here.
#[cold]
pub(super) fn check_rights(
    session: &Session,
    id: CommandId,
    command: &Command,
    args: &Args<'_>,
) -> Result<(), CommandError> {
    if !session.authenticated && !command.flags.has(Flags::NO_AUTH) {
        return Err(CommandError::text("NOAUTH Authentication required."));
    }
    match denial(&session.user, id, command, args) {
        Some(denied) => Err(denied.error(&session.user, command)),
        None => Ok(()),
    }
}
