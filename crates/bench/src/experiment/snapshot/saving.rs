//! Snapshots of servers, asked for and waited for.

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::{
    clock::{duration_ns, now_ns, pause},
    limits::{MEMORY_LOOK, SNAPSHOT},
    server::{Info, Server, ServerKind, ask_busy},
    stats::float,
};

/// Way in which a server writes its data anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    Bgsave,
    /// BGREWRITEAOF, which is the same as BGSAVE for busload.
    Rewrite,
}

/// A snapshot that was made.
#[derive(Clone, Copy, Debug)]
pub struct Saved {
    pub seconds: f64,
    /// Memory that a forked child had copied at its end, 0 where nothing is forked.
    pub copied_bytes: f64,
}

impl Way {
    /// Returns the ways of a server that differ.
    pub fn of(kind: ServerKind) -> &'static [Self] {
        if kind == ServerKind::Busload { &[Self::Bgsave] } else { &[Self::Bgsave, Self::Rewrite] }
    }

    /// Returns the command, and the fields of INFO that tell how it went and what it copied.
    fn words(self) -> [&'static str; 3] {
        match self {
            Self::Bgsave => ["BGSAVE", "rdb_last_bgsave_status", "rdb_last_cow_size"],
            Self::Rewrite => ["BGREWRITEAOF", "aof_last_bgrewrite_status", "aof_last_cow_size"],
        }
    }

    /// Makes a snapshot and waits until it is made, looking at other things all the time. Something
    /// must have been written since the one before.
    pub fn save(self, server: &Server, mut look: impl FnMut()) -> Result<Saved> {
        let [command, status, copied] = self.words();
        let address = server.resp();
        let made_before = made(&Info::persistence(address)?);
        let began_ns = now_ns();
        let reply = ask_busy(address, command)?;
        if !reply.starts_with('+') {
            bail!("to {command} the server answers `{reply}`");
        }
        loop {
            look();
            pause(MEMORY_LOOK);
            let (info, took_ns) = (Info::persistence(address)?, now_ns() - began_ns);
            if is_made(&info, made_before) {
                let last = info.get(status).unwrap_or("ok");
                if last != "ok" {
                    bail!("{command} failed: {status} is `{last}`");
                }
                let copied_bytes = float(info.number(copied));
                return Ok(Saved { seconds: float(took_ns) / 1e9, copied_bytes });
            }
            if duration_ns(SNAPSHOT) < took_ns {
                bail!("{command} has not made a snapshot within {SNAPSHOT:?}");
            }
        }
    }
}

/// Returns the number of snapshots that busload has made, or tried to. Redis has forked when it
/// answers and needs no such number.
fn made(info: &Info) -> Option<u64> {
    info.get("snapshots_made")
        .map(|_| info.number("snapshots_made") + info.number("snapshots_failed"))
}

fn is_made(info: &Info, made_before: Option<u64>) -> bool {
    let is_idle = ["rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled"]
        .iter()
        .all(|field| info.number(field) == 0);
    is_idle && (made_before.is_none() || made_before < made(info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_made_when_the_server_is_idle_again_and_counts_one_more() {
        let info = |text: &str| Info::from(text);
        let idle = "rdb_bgsave_in_progress:0\r\naof_rewrite_in_progress:0\r\n";
        assert!(is_made(&info(idle), None));
        assert!(!is_made(&info("rdb_bgsave_in_progress:0\r\naof_rewrite_in_progress:1\r\n"), None));
        let counted = |made, failed| {
            info(&format!("{idle}snapshots_made:{made}\r\nsnapshots_failed:{failed}\r\n"))
        };
        let before = made(&counted(2, 1));
        assert_eq!(before, Some(3));
        let after =
            [(2, 1), (3, 1), (2, 2)].map(|(made, failed)| is_made(&counted(made, failed), before));
        assert_eq!(after, [false, true, true]);
    }
}
