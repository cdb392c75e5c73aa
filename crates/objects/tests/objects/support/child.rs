//! A test that runs itself again as a process of its own: to be killed, or to run in a namespace
//! where it cannot harm others.

use std::{
    env,
    ffi::OsStr,
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    thread,
};

/// Environment variable with the role of a process.
const ROLE: &str = "BUSLOAD_TEST_ROLE";

/// Prefix of lines for the parent; the test harness writes others.
const SAYS: &str = "says: ";

/// Role of this process; none is the test itself.
pub fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Value that the parent handed over.
pub fn given(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("the parent gives {name}"))
}

/// Sends a line to the parent.
pub fn say(what: &str) {
    // Writes directly: the harness captures `println!` of tests in threads of their own.
    use std::io::Write;
    let mut output = std::io::stdout().lock();
    output.write_all(format!("\n{SAYS}{what}\n").as_bytes()).and_then(|()| output.flush()).unwrap();
}

/// Child process with a role in a test; killed when it is dropped.
pub struct Player {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Player {
    /// Starts this test executable again, to run only `test`, in which [`role`] returns `role`.
    pub fn start(test: &str, role: &str, given: &[(&str, &OsStr)]) -> Self {
        Self::start_in(Command::new(env::current_exe().unwrap()), test, role, given)
    }

    /// Does the same with a command that ends in starting the executable.
    pub fn start_in(
        mut command: Command,
        test: &str,
        role: &str,
        given: &[(&str, &OsStr)],
    ) -> Self {
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).envs(given.iter().copied());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = child.stdout.take().map(BufReader::new);
        Self { child, lines }
    }

    /// Waits for its next line; none when it has ended.
    pub fn listen(&mut self) -> Option<String> {
        let lines = self.lines.as_mut()?;
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(said) = line.strip_prefix(SAYS) {
                return Some(said.trim_end().to_owned());
            }
        }
    }

    /// Kills it as `kill -9` does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub fn end(mut self) -> ExitStatus {
        // Its pipe must not fill up.
        let lines = self.lines.take();
        let reader =
            thread::spawn(move || lines.into_iter().flat_map(BufRead::lines).for_each(drop));
        let status = self.child.wait().unwrap();
        reader.join().unwrap();
        status
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // This fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
