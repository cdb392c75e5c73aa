//! Decides which changes of a table's connections are logged: one line when trouble begins, one
//! when it is over.

use std::sync::Arc;

use tokio::time::Instant;

use super::LogLine;
use crate::{Error, limits::LOG_PAUSE_MIN};

/// State of one table as last logged.
#[derive(Debug)]
pub(super) struct Health {
    table: Arc<str>,
    wanted: usize,
    last_logged: LastLogged,
    /// True if the last attempt to open a further connection failed.
    growth_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastLogged {
    Nothing,
    /// All connections are open.
    Fine,
    /// Some connections are missing: since when, and whether the last one was lost.
    Trouble {
        since: Instant,
        none_left: bool,
    },
}

impl Health {
    pub(super) fn new(table: String, wanted: usize) -> Self {
        Self { table: table.into(), wanted, last_logged: LastLogged::Nothing, growth_failed: false }
    }

    /// Accounts for an opened connection; `up` are open now.
    pub(super) fn opened(&mut self, up: usize) -> Option<LogLine> {
        let again = match self.last_logged {
            _ if up < self.wanted => return None,
            LastLogged::Fine => return None,
            LastLogged::Nothing => "",
            LastLogged::Trouble { .. } => " again",
        };
        self.last_logged = LastLogged::Fine;
        let (table, wanted) = (&self.table, self.wanted);
        let what = if wanted == 1 {
            "the connection".to_owned()
        } else {
            format!("all {wanted} connections")
        };
        Some(LogLine::Recovery(format!("table {table}: {what} to postgres open{again}")))
    }

    /// Accounts for a further connection that was opened.
    pub(super) fn grown(&mut self) {
        self.growth_failed = false;
    }

    /// Accounts for a further connection that could not be opened; `up` are open. Only the first of
    /// several such failures is logged.
    pub(super) fn not_grown(&mut self, up: usize, error: &Error) -> Option<LogLine> {
        if std::mem::replace(&mut self.growth_failed, true) {
            return None;
        }
        let table = &self.table;
        Some(LogLine::Trouble(format!("table {table}: {error}; going on with {up} connections")))
    }

    /// Accounts for a connection that was lost or could not be opened; `up` are left. A second line
    /// is logged only when the last connection is lost some time after others were.
    pub(super) fn down(&mut self, up: usize, error: &Error, now: Instant) -> Option<LogLine> {
        let worse = match self.last_logged {
            LastLogged::Nothing | LastLogged::Fine => true,
            LastLogged::Trouble { since, none_left } => {
                !none_left && up == 0 && LOG_PAUSE_MIN <= now - since
            }
        };
        if !worse {
            return None;
        }
        self.last_logged = LastLogged::Trouble { since: now, none_left: up == 0 };
        let (table, wanted) = (&self.table, self.wanted);
        Some(LogLine::Trouble(format!(
            "table {table}: {error}; trying again ({up} of {wanted} connections open)"
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refused() -> Error {
        Error::CannotConnect("cannot connect to postgres at db:5432: Connection refused".into())
    }

    fn text(line: Option<LogLine>) -> String {
        match line {
            Some(LogLine::Trouble(text)) => format!("warn {text}"),
            Some(LogLine::Recovery(text)) => format!("info {text}"),
            None => String::new(),
        }
    }

    #[test]
    fn a_restart_of_the_server_is_two_lines() {
        let now = Instant::now();
        let mut health = Health::new("objects".into(), 2);
        assert_eq!(text(health.opened(1)), "");
        assert_eq!(
            text(health.opened(2)),
            "info table objects: all 2 connections to postgres open"
        );
        assert_eq!(
            text(health.down(1, &refused(), now)),
            "warn table objects: cannot connect to postgres at db:5432: Connection refused; \
             trying again (1 of 2 connections open)"
        );
        for _ in 0..5 {
            assert_eq!(text(health.down(0, &refused(), now)), "");
        }
        assert_eq!(text(health.opened(1)), "");
        assert_eq!(
            text(health.opened(2)),
            "info table objects: all 2 connections to postgres open again"
        );
        assert_eq!(text(health.opened(2)), "");
    }

    #[test]
    fn a_server_that_refuses_further_connections_is_one_line() {
        let mut health = Health::new("objects".into(), 4);
        let first = text(health.not_grown(7, &refused()));
        assert!(first.starts_with("warn table objects: cannot connect"), "{first}");
        assert!(first.ends_with("; going on with 7 connections"), "{first}");
        assert_eq!(text(health.not_grown(7, &refused())), "");
        health.grown();
        assert_ne!(text(health.not_grown(8, &refused())), "");
    }

    #[test]
    fn the_last_connection_lost_long_after_the_first_is_a_line_of_its_own() {
        let now = Instant::now();
        let mut health = Health::new("objects".into(), 1 + 1);
        assert!(text(health.down(1, &refused(), now)).contains("(1 of 2"));
        let later = now + LOG_PAUSE_MIN;
        assert!(text(health.down(1, &refused(), later)).is_empty());
        assert!(text(health.down(0, &refused(), later)).contains("(0 of 2"));
        assert!(text(health.down(0, &refused(), later + Duration::from_secs(3600))).is_empty());
    }
}
