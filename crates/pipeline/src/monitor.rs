//! MONITOR: a line for every command that is executed, to the clients that asked for them.
//!
//! tx collects the lines of a turn once, whatever the number of monitors, and appends them to the
//! batch as a push to each. While nobody monitors this costs one check per command. A monitor that
//! does not read is closed when its pending bytes reach `client_reply_bytes`; in a turn whose lines
//! pass [`MONITOR_BYTES_PER_TURN`] the rest of them are counted instead of shown.

use std::io::Write;

use busload_io::ConnId;

use crate::{
    args::Args,
    batch::{ReplyRun, RequestBatch},
    gate::Gate,
    limits::{MONITOR_ARG_BYTES_MAX, MONITOR_ARGS_MAX, MONITOR_BYTES_PER_TURN, MONITORS_MAX},
    redact,
};

/// Clients in MONITOR mode, and the lines of this turn.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    conns: Vec<ConnId>,
    lines: Vec<u8>,
    /// Number of commands of this turn that are not shown.
    omitted: u64,
}

/// Client and command of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Monitored<'a> {
    /// Unix time in milliseconds.
    pub now_ms: i64,
    /// Space that the client has selected.
    pub space: u16,
    /// Address of the client.
    pub client: &'a str,
    /// Name of the command in the table.
    pub command: &'a str,
    /// Arguments of the command.
    pub args: &'a Args<'a>,
}

impl Monitors {
    /// Returns whether anybody monitors.
    #[inline]
    pub fn any(&self) -> bool {
        !self.conns.is_empty()
    }

    /// Adds a client, or returns false if there are too many; one that monitors already stays one.
    pub fn add(&mut self, conn: ConnId) -> bool {
        if self.conns.contains(&conn) {
            return true;
        }
        let has_room = self.conns.len() < MONITORS_MAX;
        self.conns.extend(has_room.then_some(conn));
        has_room
    }

    /// Removes a client, if it monitors.
    pub fn remove(&mut self, conn: ConnId) {
        self.conns.retain(|other| *other != conn);
    }

    /// Adds a line in Redis's format: `+TIME [SPACE ADDRESS] "name" "argument" ...`.
    pub fn note(&mut self, of: Monitored<'_>) {
        if MONITOR_BYTES_PER_TURN <= self.lines.len() {
            self.omitted += 1;
            return;
        }
        let Monitored { now_ms, space, client, command, args } = of;
        self.start_line(now_ms, space, client);
        for index in 0..args.len().min(MONITOR_ARGS_MAX) {
            self.lines.extend_from_slice(b" \"");
            append_escaped(&mut self.lines, redact::shown(command, args, index));
        }
        if MONITOR_ARGS_MAX < args.len() {
            let left = args.len() - MONITOR_ARGS_MAX;
            self.text(format_args!(" \"... ({left} more arguments)\""));
        }
        self.lines.extend_from_slice(b"\r\n");
    }

    /// Moves the lines into the batch, for all monitors.
    pub fn flush(&mut self, batch: &mut RequestBatch, now_ms: i64) {
        if self.omitted != 0 {
            let omitted = std::mem::take(&mut self.omitted);
            self.start_line(now_ms, 0, "busload");
            self.text(format_args!(" \"... ({omitted} more commands)\"\r\n"));
        }
        if self.lines.is_empty() {
            return;
        }
        let start = batch.out.len();
        batch.out.append(&mut self.lines);
        batch.replies.extend(self.conns.iter().map(|&conn| ReplyRun {
            conn,
            first_seq: 0,
            seq_count: 0,
            start,
            end: batch.out.len(),
            first_shared: 0,
            shared_count: 0,
            gate: Gate::OPEN,
            close: false,
        }));
    }

    fn start_line(&mut self, now_ms: i64, space: u16, client: &str) {
        let (seconds, us) = (now_ms.div_euclid(1_000), now_ms.rem_euclid(1_000) * 1_000);
        self.text(format_args!("+{seconds}.{us:06} [{space} {client}]"));
    }

    fn text(&mut self, text: std::fmt::Arguments<'_>) {
        self.lines.write_fmt(text).expect("writing to memory cannot fail");
    }
}

/// Appends an argument and the closing quote, escaped as Redis does it.
fn append_escaped(line: &mut Vec<u8>, arg: &[u8]) {
    for &byte in &arg[..arg.len().min(MONITOR_ARG_BYTES_MAX)] {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'"' => line.extend_from_slice(b"\\\""),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            7 => line.extend_from_slice(b"\\a"),
            8 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(byte),
            _ => write!(line, "\\x{byte:02x}").expect("writing to memory cannot fail"),
        }
    }
    if MONITOR_ARG_BYTES_MAX < arg.len() {
        let left = arg.len() - MONITOR_ARG_BYTES_MAX;
        write!(line, "... ({left} more bytes)").expect("writing to memory cannot fail");
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_escaped_as_redis_escapes_them() {
        let escaped = |arg: &[u8]| {
            let mut line = Vec::new();
            append_escaped(&mut line, arg);
            String::from_utf8(line).unwrap()
        };
        assert_eq!(
            escaped(b"a\"\\\n\r\t\x07\x08\x01\xffb c~"),
            "a\\\"\\\\\\n\\r\\t\\a\\b\\x01\\xffb c~\""
        );
        let long = escaped(&[b'x'; MONITOR_ARG_BYTES_MAX + 9]);
        assert!(long.ends_with("x... (9 more bytes)\""), "{long}");
    }
}
