//! A server with tables and a client of it, for tests that are transcripts.

use std::net::TcpStream;

use tempfile::TempDir;

use super::{Client, Server};

/// A server, its data, and a client of it.
pub struct Served {
    pub server: Server,
    pub client: Client<TcpStream>,
    pub data: TempDir,
}

impl Served {
    /// With these tables.
    #[track_caller]
    pub fn start(tables: &[&str], arguments: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), tables, arguments)
    }

    /// With data that are there.
    #[track_caller]
    pub fn start_in(data: TempDir, tables: &[&str], arguments: &[&str]) -> Self {
        let mut all = arguments.to_vec();
        tables.iter().for_each(|table| all.extend(["--table", table]));
        let server = Server::start(data.path(), &all);
        let client = server.client();
        Self { server, client, data }
    }

    /// One command as words between spaces; its reply as text.
    #[track_caller]
    pub fn run(&mut self, line: &str) -> String {
        self.client.text(&line.split(' ').collect::<Vec<_>>())
    }

    /// Commands and their replies, one pair per line: `GET db:a -> 1`. Spaces around replies do not
    /// count.
    #[track_caller]
    pub fn check(&mut self, transcript: &str) {
        let mut wrong = Vec::new();
        for line in transcript.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (command, expected) = line.rsplit_once(" ->").unwrap();
            let reply = self.run(command.trim_end());
            if reply.trim() != expected.trim() {
                wrong.push(format!("{line}\n     got {reply}"));
            }
        }
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    }
}
