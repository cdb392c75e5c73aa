//! Clusters with the real server.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use busload_cluster::{Cluster, ClusterError, Profile, StopMode};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

fn start() -> Cluster {
    Cluster::builder().start().unwrap()
}

fn answers(cluster: &Cluster) -> bool {
    cluster.execute("SELECT 1").is_ok_and(|rows| rows == "1\n")
}

fn exists(pid: u32) -> bool {
    Pid::from_raw(i32::try_from(pid).unwrap()).is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// Runs SQL in a thread and returns its result.
fn in_background(
    cluster: &'static Cluster,
    sql: &'static str,
) -> mpsc::Receiver<Result<String, ClusterError>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(cluster.execute(sql)));
    receiver
}

/// Polls for a minute: the watchdog alone may take ten seconds.
fn until(is_so: impl Fn() -> bool) -> bool {
    let (_sender, never) = mpsc::channel::<()>();
    (0..6000).any(|_| {
        let _ = never.recv_timeout(Duration::from_millis(10));
        is_so()
    })
}

/// Waits until the server shows such a session.
fn until_session(cluster: &Cluster, condition: &str) {
    let asked = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND {condition}"
    );
    let found = (0..1000).any(|_| cluster.execute(&asked).unwrap() == "1\n");
    assert!(found, "never seen: {condition}");
}

#[test]
fn it_has_the_role_the_database_and_the_settings_asked_for() {
    let cluster =
        Cluster::builder().setting("work_mem", "3MB").setting("fsync", "on").start().unwrap();
    let asked = "SELECT current_user, current_database(), usesuper \
                 FROM pg_user WHERE usename = current_user";
    assert_eq!(cluster.execute(asked).unwrap(), "busload|busload|t\n");
    assert_eq!(
        cluster.execute("SHOW work_mem; SHOW fsync; SHOW max_connections").unwrap(),
        "3MB\non\n400\n"
    );
    assert_eq!(cluster.url(), format!("postgres://busload@127.0.0.1:{}/busload", cluster.port()));
    assert!(
        cluster.directory().file_name().unwrap().to_string_lossy().starts_with("busload-cluster-")
    );
    let socket = cluster.socket_directory().join(format!(".s.PGSQL.{}", cluster.port()));
    assert!(socket.exists());
}

#[test]
fn an_error_of_sql_is_shown_and_ends_the_script() {
    let cluster = Cluster::shared().unwrap();
    let error =
        cluster.execute("SELECT 1; SELECT 1/0; CREATE TABLE never()").unwrap_err().to_string();
    assert!(error.contains("division by zero"), "{error}");
    assert_eq!(cluster.execute("SELECT to_regclass('never') IS NULL").unwrap(), "t\n");
}

#[test]
fn much_sql_and_many_rows_pass() {
    let value = "x".repeat(1_000_000);
    let sql =
        format!("SELECT length('{value}'); SELECT repeat('y', 1000) FROM generate_series(1, 3000)");
    let rows = Cluster::shared().unwrap().execute(&sql).unwrap();
    assert!(rows.starts_with("1000000\n"));
    assert_eq!(rows.len(), "1000000\n".len() + 3000 * 1001);
}

#[test]
fn what_was_committed_survives_every_way_to_end_and_the_port_stays() {
    let cluster = start();
    let port = cluster.port();
    cluster.execute("CREATE TABLE t (k int PRIMARY KEY)").unwrap();
    type End = fn(&Cluster) -> Result<(), ClusterError>;
    let ends: [End; 4] = [
        |cluster| cluster.stop(StopMode::Fast),
        |cluster| cluster.stop(StopMode::Immediate),
        Cluster::kill,
        |cluster| cluster.pause().and_then(|()| cluster.kill()),
    ];
    for (number, end) in ends.iter().enumerate() {
        cluster.execute(&format!("INSERT INTO t VALUES ({number})")).unwrap();
        end(&cluster).unwrap();
        assert_eq!(cluster.pid(), None);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        assert!(matches!(cluster.kill(), Err(ClusterError::NotRunning)));
        cluster.start().unwrap();
        assert!(matches!(cluster.start(), Err(ClusterError::Running)));
        assert_eq!(cluster.port(), port);
        assert_eq!(cluster.execute("SELECT count(*) FROM t").unwrap(), format!("{}\n", number + 1));
    }
}

#[test]
fn a_kill_takes_all_its_processes_and_no_other() {
    let (cluster, neighbour) = (start(), start());
    let neighbour_pid = neighbour.pid();
    let busy = Box::leak(Box::new(cluster));
    // A backend with a child of its own.
    let answer = in_background(busy, "COPY (SELECT 1) TO PROGRAM 'sleep 1000; true'");
    until_session(busy, "query LIKE 'COPY%' AND state = 'active'");
    // The backend and the shell wait for each program they start until it runs; if they were
    // stopped before, the program would keep them from stopping.
    let runs = |name: &str| descendants(busy.pid().unwrap()).iter().any(|pid| is_named(*pid, name));
    assert!(until(|| runs("sleep")), "the program never ran");
    let processes = descendants(busy.pid().unwrap());
    assert!(processes.len() >= 6, "{processes:?}");
    busy.kill().unwrap();
    assert!(answer.recv().unwrap().is_err());
    assert!(processes.iter().all(|pid| !exists(*pid) || state(*pid) == 'Z'));
    assert_eq!(neighbour.pid(), neighbour_pid);
    assert!(answers(&neighbour));
}

/// Returns the postmaster's children and theirs, from the kernel's lists. A process that has just
/// ended has none, and a backend may end at any time.
fn descendants(pid: u32) -> Vec<u32> {
    let list =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = list.split_ascii_whitespace().map(|child| child.parse::<u32>().unwrap());
    children.flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

fn is_named(pid: u32, name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
}

fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('Z')
}

#[test]
fn a_paused_one_keeps_connections_and_answers_when_it_goes_on() {
    let cluster: &'static Cluster = Box::leak(Box::new(start()));
    let holding =
        "SET application_name = 'holder'; SELECT pg_advisory_lock(1); SELECT pg_sleep(1000)";
    let held = in_background(cluster, holding);
    until_session(cluster, "application_name = 'holder' AND wait_event = 'PgSleep'");
    let waiting = in_background(cluster, "SELECT pg_advisory_lock(1), 'waited'");
    until_session(cluster, "wait_event = 'advisory'");
    cluster.pause().unwrap();
    let pid = cluster.pid().unwrap();
    assert!(descendants(pid).iter().chain([&pid]).all(|pid| matches!(state(*pid), 'T' | 'Z')));
    let asked = in_background(cluster, "SELECT 'asked'");
    assert!(asked.recv_timeout(Duration::from_millis(500)).is_err());
    cluster.resume().unwrap();
    assert_eq!(asked.recv().unwrap().unwrap(), "asked\n");
    // Both connections have stayed: one can be ended, and the other gets the reply that it waited
    // for.
    assert_eq!(cluster.terminate_backends("holder").unwrap(), 1);
    assert!(held.recv().unwrap().is_err());
    assert_eq!(waiting.recv().unwrap().unwrap(), "|waited\n");
    assert!(answers(cluster));
    cluster.pause().unwrap();
    cluster.stop(StopMode::Fast).unwrap();
}

#[test]
fn backends_of_one_application_are_terminated() {
    let cluster: &'static Cluster = Box::leak(Box::new(start()));
    let named = in_background(cluster, "SET application_name = 'it''s'; SELECT pg_sleep(1000)");
    until_session(cluster, "application_name = 'it''s' AND wait_event = 'PgSleep'");
    assert_eq!(cluster.terminate_backends("it's").unwrap(), 1);
    let error = named.recv().unwrap().unwrap_err().to_string();
    assert!(error.contains("terminating connection"), "{error}");
    assert_eq!(cluster.terminate_backends("it's").unwrap(), 0);
    cluster.stop(StopMode::Immediate).unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn cpu_time_covers_backends_that_ended_and_servers_that_were_stopped() {
    let cluster = start();
    let before = cluster.cpu_seconds();
    cluster.execute("SELECT sum(length(md5(n::text))) FROM generate_series(1, 400000) n").unwrap();
    let after = cluster.cpu_seconds();
    assert!(after > before + 0.05, "{before} {after}");
    cluster.stop(StopMode::Fast).unwrap();
    assert!(cluster.cpu_seconds() >= after);
    cluster.start().unwrap();
    assert!(cluster.cpu_seconds() >= after);
}

#[test]
fn with_a_password_nobody_gets_in_without() {
    let cluster = Cluster::builder().password("it's secret").start().unwrap();
    assert!(answers(&cluster));
    let lines = cluster.execute(
        "SELECT rolpassword LIKE 'SCRAM-SHA-256%' FROM pg_authid WHERE rolname = 'busload'",
    );
    assert_eq!(lines.unwrap(), "t\n");
    let psql = |password: Option<&str>| {
        let mut psql = Command::new(cluster.programs().directory().join("psql"));
        psql.args([&cluster.url(), "-wXc", "SELECT 1"])
            .envs(password.map(|password| ("PGPASSWORD", password)));
        psql.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    assert!(psql(Some("it's secret")));
    assert!(!psql(Some("wrong")));
    assert!(!psql(None));
    assert!(!cluster.directory().join("password").exists());
}

#[test]
fn lines_of_hba_come_first() {
    let cluster = Cluster::builder().hba("host all nobody all reject").start().unwrap();
    cluster.execute("CREATE ROLE nobody LOGIN").unwrap();
    let rules =
        cluster.execute("SELECT type, user_name, auth_method FROM pg_hba_file_rules").unwrap();
    assert_eq!(rules, "host|{nobody}|reject\nlocal|{all}|trust\nhost|{all}|trust\n");
}

#[test]
fn a_directory_of_the_callers_is_kept_and_used_again() {
    let place = tempfile::Builder::new().prefix("busload-cluster-test-").tempdir().unwrap();
    let directory = place.path().join("kept");
    open(place.path());
    let first = Cluster::builder().directory(&directory).start().unwrap();
    first.execute("CREATE TABLE t AS SELECT 7 AS v").unwrap();
    drop(first);
    assert!(directory.join("data/PG_VERSION").exists());
    let again =
        Cluster::builder().directory(&directory).setting("work_mem", "5MB").start().unwrap();
    assert_eq!(again.execute("SELECT v FROM t; SHOW work_mem").unwrap(), "7\n5MB\n");
}

/// Opens the directory to the server's user, who has to reach it.
fn open(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_temporary_directory_goes_with_the_cluster_also_after_a_kill() {
    let cluster = Cluster::builder().profile(Profile::Stock).start().unwrap();
    assert_eq!(cluster.execute("SHOW fsync").unwrap(), "on\n");
    let directory = cluster.directory().to_owned();
    cluster.kill().unwrap();
    assert!(directory.exists());
    drop(cluster);
    assert!(!directory.exists());
}

#[test]
fn a_wrong_setting_is_shown_with_the_servers_words_and_leaves_nothing() {
    let error = Cluster::builder().setting("shared_buffers", "many").start().unwrap_err();
    let ClusterError::NotStarted { directory, log, .. } = error else { panic!("{error}") };
    assert!(log.contains("invalid value for parameter \"shared_buffers\": \"many\""), "{log}");
    assert!(!directory.exists());
}

#[test]
fn clusters_started_at_once_do_not_meet() {
    let starts: Vec<_> = (0..3).map(|_| thread::spawn(start)).collect();
    let clusters: Vec<Cluster> = starts.into_iter().map(|start| start.join().unwrap()).collect();
    let mut ports: Vec<u16> = clusters.iter().map(Cluster::port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 3);
    assert!(clusters.iter().all(answers));
}

/// Environment variable set for the child process of the test below.
const HOLD: &str = "BUSLOAD_CLUSTER_TEST_HOLD";

#[test]
fn a_killed_process_leaves_no_server_and_no_directory() {
    if env::var_os(HOLD).is_some() {
        hold();
    }
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_killed_process_leaves_no_server_and_no_directory", "--nocapture"])
        .env(HOLD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let started = lines
        .find_map(|line| line.split_once("started ").map(|(_, rest)| rest.to_owned()))
        .unwrap();
    let (pid, directory) = started.split_once(' ').unwrap();
    let (pid, directory) = (pid.parse().unwrap(), Path::new(directory));
    assert!(exists(pid) && directory.exists());
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert!(until(|| !directory.exists()));
    assert!(!exists(pid) || state(pid) == 'Z');
}

/// Starts a cluster, reports it, and waits to be killed.
fn hold() -> ! {
    let cluster = start();
    println!("started {} {}", cluster.pid().unwrap(), cluster.directory().display());
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
    panic!("it was to be killed");
}
