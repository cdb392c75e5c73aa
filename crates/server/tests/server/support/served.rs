//! A server with tables and a client, for tests written as transcripts.

use std::net::TcpStream;

use tempfile::TempDir;

use super::{Client, Server};

/// A server with its data directory and a client.
pub struct Served {
    pub server: Server,
    pub client: Client<TcpStream>,
    pub data: TempDir,
}

impl Served {
    /// Starts a server with these tables and an empty data directory.
    #[track_caller]
    pub fn start(tables: &[&str], arguments: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), tables, arguments)
    }

    /// Starts a server with these tables in an existing data directory.
    #[track_caller]
    pub fn start_in(data: TempDir, tables: &[&str], arguments: &[&str]) -> Self {
        let mut all = arguments.to_vec();
        tables.iter().for_each(|table| all.extend(["--table", table]));
        let server = Server::start(data.path(), &all);
        let client = server.client();
        Self { server, client, data }
    }

    /// Sends a command, words separated by spaces; returns the reply as text.
    #[track_caller]
    pub fn run(&mut self, line: &str) -> String {
        self.client.text(&line.split(' ').collect::<Vec<_>>())
    }

    /// Runs commands and compares their replies, one pair per line: `GET db:a -> 1`. Spaces around
    /// replies do not count.
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
