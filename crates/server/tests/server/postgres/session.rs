//! A lasting session of Postgres, which holds locks until it commits or ends.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use busload_cluster::Cluster;

/// A `psql` process that waits for the next line.
pub struct Session {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    pub fn open(cluster: &Cluster) -> Self {
        let mut process = Command::new(cluster.programs().directory().join("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &cluster.url()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, input, output: BufReader::new(output) }
    }

    /// Runs SQL and waits until it is done.
    #[track_caller]
    pub fn run(&mut self, sql: &str) {
        writeln!(self.input, "{sql};\n\\echo done").unwrap();
        let mut line = String::new();
        while line.trim_end() != "done" {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "{sql} failed");
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Postgres rolls the open transaction back.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
