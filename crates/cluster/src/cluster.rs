//! A cluster with its directory, whether it runs or not.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    builder::{Builder, Keep},
    error::ClusterError,
    files::{Files, PostmasterFile},
    limits::{PORT_ATTEMPT_COUNT_MAX, STOP_TIMEOUT},
    port::Port,
    processes,
    programs::Programs,
    psql, wait,
    watchdog::Watchdog,
};

/// Way to stop a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StopMode {
    /// Ends sessions and writes a checkpoint.
    Fast,
    /// Ends at once; the next start recovers from the log.
    Immediate,
}

/// A private Postgres cluster. All methods take `&self` and may be used from several threads.
#[derive(Debug)]
pub struct Cluster {
    parts: Parts,
    port: Mutex<Option<Port>>,
    server: Mutex<Server>,
    /// Dropped first in [`Drop`]: after that, removing the directory is up to this process.
    watchdog: Option<Watchdog>,
}

/// Parts that do not change during the cluster's life.
pub(crate) struct Parts {
    pub programs: Programs,
    pub files: Files,
    pub keep: Keep,
    pub password: Option<String>,
    pub start_timeout: Duration,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Parts")
            .field("directory", &self.files.root())
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Server {
    postmaster: Option<Child>,
    /// CPU time of postmasters that have ended.
    cpu_seconds: f64,
    state: PostmasterState,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum PostmasterState {
    #[default]
    Going,
    Paused,
}

/// Result of one attempt to start.
enum Attempt {
    Ready,
    PortTaken,
}

impl Server {
    /// Returns the postmaster's id, if it lives. It is our child, so its id is not reused until we
    /// have waited for it.
    fn pid(&mut self) -> Option<i32> {
        let child = self.postmaster.as_mut()?;
        if let Ok(None) = child.try_wait() {
            return i32::try_from(child.id()).ok();
        }
        self.postmaster = None;
        None
    }

    fn running(&mut self) -> Result<i32, ClusterError> {
        self.pid().ok_or(ClusterError::NotRunning)
    }

    fn thaw(&mut self, pid: i32) {
        if self.state == PostmasterState::Paused {
            processes::thaw(pid);
            self.state = PostmasterState::Going;
        }
    }
}

impl Cluster {
    /// Returns a builder for a new cluster.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns one cluster for all tests of a program. The first caller starts it, and it ends with
    /// the program.
    ///
    /// # Errors
    ///
    /// Fails if the cluster cannot be started.
    pub fn shared() -> Result<&'static Self, ClusterError> {
        static SHARED: Mutex<Option<&'static Cluster>> = Mutex::new(None);
        let mut shared = lock(&SHARED);
        if let Some(cluster) = *shared {
            return Ok(cluster);
        }
        let cluster: &'static Self = Box::leak(Box::new(Self::builder().start()?));
        *shared = Some(cluster);
        Ok(cluster)
    }

    pub(crate) fn new(parts: Parts) -> Result<Self, ClusterError> {
        let mut made =
            Self { parts, port: Mutex::default(), server: Mutex::default(), watchdog: None };
        let remove = (made.parts.keep == Keep::Remove).then(|| made.files().root());
        made.watchdog = Some(Watchdog::start(&made.files().data(), remove)?);
        Ok(made)
    }

    pub(crate) fn files(&self) -> &Files {
        &self.parts.files
    }

    pub(crate) fn initdb(&self, arguments: &[&str]) -> Result<(), ClusterError> {
        let mut initdb = self.program("initdb");
        initdb.args(arguments).arg("--pgdata").arg(self.files().data());
        if let Some(password) = &self.parts.password {
            let file = self.files().root().join("password");
            self.files().write(&file, password)?;
            initdb.arg("--pwfile").arg(&file);
        }
        let output = initdb.output().map_err(ClusterError::io("run initdb"));
        let _ = fs::remove_file(self.files().root().join("password"));
        let output = output?;
        if output.status.success() {
            return Ok(());
        }
        let text = [output.stdout, output.stderr].concat();
        let output_text = String::from_utf8_lossy(&text).trim().to_owned();
        Err(ClusterError::Program {
            program: "initdb",
            status: output.status.to_string(),
            output: output_text,
        })
    }

    pub(crate) fn start_on_any_port(
        &self,
        settings: &[(String, String)],
    ) -> Result<(), ClusterError> {
        for _ in 0..PORT_ATTEMPT_COUNT_MAX {
            let Some(port) = Port::try_any() else { continue };
            self.files().write_settings(&self.settings_with(settings, port.number()))?;
            *lock(&self.port) = Some(port);
            if let Attempt::Ready = self.attempt(&mut lock(&self.server))? {
                return Ok(());
            }
        }
        Err(ClusterError::NoPort)
    }

    fn settings_with(&self, settings: &[(String, String)], port: u16) -> Vec<(String, String)> {
        let place = [
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("port", port.to_string()),
            ("unix_socket_directories", self.files().sockets().display().to_string()),
            // Shown by `ps`, for people.
            ("cluster_name", "busload-cluster".to_owned()),
        ];
        let place = place.into_iter().map(|(name, value)| (name.to_owned(), value));
        place.chain(settings.iter().cloned()).collect()
    }

    /// Starts the server again, on the same port.
    ///
    /// # Errors
    ///
    /// Fails if it is running already or does not start.
    pub fn start(&self) -> Result<(), ClusterError> {
        let mut server = lock(&self.server);
        if server.pid().is_some() {
            return Err(ClusterError::Running);
        }
        match self.attempt(&mut server)? {
            Attempt::Ready => Ok(()),
            Attempt::PortTaken => Err(self.not_started("its port is taken")),
        }
    }

    /// Makes one attempt to start. The postmaster is our own child, not pg_ctl's, so that its id is
    /// certain and its end is seen.
    fn attempt(&self, server: &mut Server) -> Result<Attempt, ClusterError> {
        let log_before = fs::metadata(self.files().log()).map_or(0, |log| log.len());
        let mut postmaster = self.spawn()?;
        let id = postmaster.id();
        let data = self.files().data();
        let outcome = wait::until(self.parts.start_timeout, || {
            if PostmasterFile::read(&data).is_some_and(|file| file.is_ready(id)) {
                return Some(true);
            }
            postmaster.try_wait().is_ok_and(|ended| ended.is_some()).then_some(false)
        });
        if outcome == Some(false) {
            return self.why_it_ended(log_before);
        }
        server.postmaster = Some(postmaster);
        server.state = PostmasterState::Going;
        match outcome {
            Some(_) => Ok(Attempt::Ready),
            None => {
                self.kill_server(server)?;
                Err(self.not_started("it took too long"))
            }
        }
    }

    fn spawn(&self) -> Result<Child, ClusterError> {
        let path = self.files().log();
        let log = || {
            File::options()
                .create(true)
                .append(true)
                .open(&path)
                .map_err(ClusterError::io("open the log"))
        };
        let mut postgres = self.program("postgres");
        postgres.arg("-D").arg(self.files().data()).stdout(log()?).stderr(log()?);
        // Ctrl-C is for the process that started it.
        postgres.process_group(0);
        postgres.spawn().map_err(ClusterError::io("run postgres"))
    }

    fn why_it_ended(&self, log_before: u64) -> Result<Attempt, ClusterError> {
        let log = fs::read(self.files().log()).unwrap_or_default();
        let new = &log[usize::try_from(log_before).map_or(0, |before| before.min(log.len()))..];
        if String::from_utf8_lossy(new).contains("Address already in use") {
            return Ok(Attempt::PortTaken);
        }
        Err(self.not_started("it ended"))
    }

    fn not_started(&self, why: &'static str) -> ClusterError {
        ClusterError::NotStarted {
            directory: self.directory().to_owned(),
            why,
            log: self.files().log_tail(),
        }
    }

    fn program(&self, name: &str) -> Command {
        let mut command = self.parts.programs.command(name);
        command.current_dir(self.files().root()).stdin(Stdio::null());
        command
    }

    /// Stops the server cleanly and waits for that; kills it if it does not end in time. A paused
    /// server is resumed for this.
    ///
    /// # Errors
    ///
    /// Fails if the server is not running.
    pub fn stop(&self, mode: StopMode) -> Result<(), ClusterError> {
        let mut server = lock(&self.server);
        let pid = server.running()?;
        server.cpu_seconds += processes::cpu_seconds(pid);
        server.thaw(pid);
        processes::signal(
            pid,
            match mode {
                StopMode::Fast => Signal::INT,
                StopMode::Immediate => Signal::QUIT,
            },
        );
        match wait::until(STOP_TIMEOUT, || server.pid().is_none().then_some(())) {
            Some(()) => Ok(()),
            None => self.kill_server(&mut server),
        }
    }

    /// Kills all processes of the server at once (SIGKILL).
    ///
    /// # Errors
    ///
    /// Fails if the server is not running, or its processes do not end in time.
    pub fn kill(&self) -> Result<(), ClusterError> {
        let mut server = lock(&self.server);
        let pid = server.running()?;
        server.cpu_seconds += processes::cpu_seconds(pid);
        self.kill_server(&mut server)
    }

    fn kill_server(&self, server: &mut Server) -> Result<(), ClusterError> {
        let pid = server.running()?;
        let descendants = processes::kill(pid)?;
        if let Some(mut postmaster) = server.postmaster.take() {
            postmaster.wait().map_err(ClusterError::io("wait for postgres"))?;
        }
        server.state = PostmasterState::Going;
        descendants.wait()
    }

    /// Stops all processes of the server (SIGSTOP): connections stay, nothing answers.
    ///
    /// # Errors
    ///
    /// Fails if the server is not running, or its processes do not stop in time.
    pub fn pause(&self) -> Result<(), ClusterError> {
        let mut server = lock(&self.server);
        let pid = server.running()?;
        server.state = PostmasterState::Paused;
        processes::freeze(pid).map(drop)
    }

    /// Resumes a paused server.
    ///
    /// # Errors
    ///
    /// Fails if the server is not running.
    pub fn resume(&self) -> Result<(), ClusterError> {
        let mut server = lock(&self.server);
        let pid = server.running()?;
        server.thaw(pid);
        Ok(())
    }

    /// Ends the sessions of an application (its `application_name`) and returns how many there
    /// were.
    ///
    /// # Errors
    ///
    /// Fails if the server does not answer.
    pub fn terminate_backends(&self, application: &str) -> Result<usize, ClusterError> {
        let name = application.replace('\'', "''");
        let ended = self.execute(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = '{name}'"
        ))?;
        Ok(ended.lines().filter(|line| *line == "t").count())
    }

    /// Runs SQL in the database `busload`, statement by statement up to the first error. Returns
    /// the rows of all: values separated by `|`, one line each, NULL as an empty value.
    ///
    /// # Errors
    ///
    /// Returns what psql prints about the error.
    pub fn execute(&self, sql: &str) -> Result<String, ClusterError> {
        self.execute_in("busload", sql)
    }

    /// Runs SQL like [`Cluster::execute`], in another database.
    ///
    /// # Errors
    ///
    /// Returns what psql prints about the error.
    pub fn execute_in(&self, database: &str, sql: &str) -> Result<String, ClusterError> {
        let target = psql::Target {
            sockets: self.files().sockets(),
            port: self.port(),
            database,
            password: self.parts.password.as_deref(),
        };
        psql::run(&self.parts.programs, &target, sql)
    }

    /// Returns `postgres://busload@127.0.0.1:PORT/busload`, without a password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://busload@127.0.0.1:{}/busload", self.port())
    }

    /// Returns the URL for the Unix socket: its directory, percent-encoded, takes the place of the
    /// host.
    #[must_use]
    pub fn unix_url(&self) -> String {
        let directory =
            self.files().sockets().to_string_lossy().replace('%', "%25").replace('/', "%2F");
        format!("postgres://busload@{directory}:{}/busload", self.port())
    }

    /// Returns the port of the server, also while it is stopped.
    #[must_use]
    pub fn port(&self) -> u16 {
        lock(&self.port).as_ref().map_or(0, Port::number)
    }

    /// Returns the directory of the cluster.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.files().root()
    }

    /// Returns the directory of its Unix socket.
    #[must_use]
    pub fn socket_directory(&self) -> &Path {
        self.files().sockets()
    }

    /// Returns everything that the server has logged.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.files().log()).unwrap_or_default()).into_owned()
    }

    /// Returns the programs that it runs.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.parts.programs
    }

    /// Returns the postmaster's process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        lock(&self.server).pid().and_then(|pid| u32::try_from(pid).ok())
    }

    /// Returns the CPU time of all its processes since the cluster was made, including ended ones:
    /// exact while it runs, without the last moments of servers that were stopped. 0 where there is
    /// no /proc.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        let mut server = lock(&self.server);
        let running = server.pid().map_or(0.0, processes::cpu_seconds);
        server.cpu_seconds + running
    }

    /// Removes the few bytes of System V shared memory that a killed server leaves behind and that
    /// its next start would remove.
    fn remove_shared_memory(&self) {
        let Some(file) = PostmasterFile::read(&self.files().data()) else { return };
        if let Some(id) = file.shared_memory() {
            let mut remove = Command::new("ipcrm");
            remove
                .args(["-m", id])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let _ = remove.status();
        }
    }
}

impl Drop for Cluster {
    /// Stops only what this process started. Nothing can be done here about an error.
    fn drop(&mut self) {
        let _ = self.stop(StopMode::Immediate);
        drop(self.watchdog.take());
        self.remove_shared_memory();
        if self.parts.keep == Keep::Remove {
            self.files().remove();
        }
    }
}

/// Ignores poisoning: a test that panicked with the lock does not keep others from cleaning up.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
