//! A shell that ends the cluster when this process has ended without doing so.
//!
//! The shell reads a pipe whose other end only this process has: the pipe closes when this process
//! ends, killed or not. A message in the pipe makes the shell exit without doing anything.

use std::{
    ffi::OsStr,
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::error::ClusterError;

/// Script of the shell. `$1` is the data directory, `$2` the directory to remove or empty. The
/// postmaster's working directory is its data directory, which tells it from a process that has
/// reused its id.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
read -r word && exit 0
pid=$(head -n 1 "$1/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ] && { [ ! -d /proc/self ] || [ "$(readlink "/proc/$pid/cwd")" = "$1" ]; }; then
    kill -CONT "$pid"
    kill -QUIT "$pid"
    for attempt in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.5
    done
fi
[ -z "$2" ] || rm -rf -- "$2"
"#;

/// The shell that watches.
#[derive(Debug)]
pub struct Watchdog(Child);

impl Watchdog {
    /// Watches over the cluster in `data`, and removes the directory `remove` in the end, if there
    /// is one.
    pub fn start(data: &Path, remove: Option<&Path>) -> Result<Self, ClusterError> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "busload-cluster-watchdog"]).arg(data);
        shell.arg(remove.map_or(OsStr::new(""), Path::as_os_str));
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C is for the process it watches.
        shell.process_group(0).current_dir("/");
        shell.spawn().map(Self).map_err(ClusterError::io("run sh"))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}
