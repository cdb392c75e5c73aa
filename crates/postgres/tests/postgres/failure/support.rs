//! Helpers of these tests.

use std::{
    sync::{LazyLock, Mutex, mpsc},
    thread,
    time::Duration,
};

use busload_cluster::{Cluster, proxy::Proxy};
use busload_postgres::{Environment, Error, Options, Settings, Table};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{Client, NoTls};

/// Longer than anything here may take.
pub const LONG: Duration = Duration::from_secs(60);

/// Delay that a loaded machine may add to a deadline, besides the time for which it stands still
/// ([`timed`]).
pub const SLACK: Duration = Duration::from_millis(1500);

const RELATION: &str = "CREATE TABLE t (k text PRIMARY KEY, v text)";

/// Starts a cluster of a test's own, to be stopped and killed, with the table `t`.
pub fn cluster() -> Cluster {
    let cluster = Cluster::builder().start().expect("a cluster starts");
    cluster.execute(RELATION).expect("a table is made");
    cluster
}

/// A database of a test's own in the cluster that all share, with the table `t`.
pub struct Database {
    cluster: &'static Cluster,
    name: String,
}

impl Database {
    pub fn new(name: &str) -> Self {
        let cluster = Cluster::shared().expect("a cluster starts");
        cluster.execute(&format!("CREATE DATABASE {name}")).expect("a database is made");
        let database = Self { cluster, name: name.to_owned() };
        database.sql(RELATION);
        database
    }

    pub fn url(&self) -> String {
        self.url_at(self.cluster.port())
    }

    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://busload@127.0.0.1:{port}/{}", self.name)
    }

    pub fn proxy(&self) -> Proxy {
        Proxy::start(self.cluster.port()).expect("a proxy starts")
    }

    /// Runs SQL. Rows come as lines, values separated by `|`.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        blocking(|| self.cluster.execute_in(&self.name, sql)).expect(sql)
    }

    /// Opens a connection that is not busload's.
    pub async fn plain(&self) -> Client {
        let (client, connection) =
            tokio_postgres::connect(&self.url(), NoTls).await.expect("connects");
        tokio::spawn(connection);
        client
    }
}

/// Returns settings of the table `t` at a URL; `query` adds to them.
pub fn settings(url: &str, query: &str) -> Settings {
    settings_of(url, &format!("relation=t&key=k&columns=v&{query}"))
}

fn settings_of(url: &str, query: &str) -> Settings {
    let options =
        Options { url: Some(format!("{url}?writable=true&{query}")), ..Options::default() };
    options.resolve("test", &Environment::empty()).expect(query)
}

/// Starts the table `t`, with all its connections open.
pub async fn table(url: &str, query: &str) -> Table {
    connected(settings(url, query)).await
}

/// Starts the table `t` like [`table`], but checks the relation only at the start: nothing but the
/// test's own requests goes over its connections.
pub async fn quiet_table(url: &str, query: &str) -> Table {
    let mut settings = settings(url, query);
    settings.relation_check_interval = 100 * LONG;
    connected(settings).await
}

/// Starts any table, with all its connections open.
pub async fn table_of(url: &str, query: &str) -> Table {
    connected(settings_of(url, query)).await
}

async fn connected(settings: Settings) -> Table {
    let table = Table::start(settings);
    // An attempt may be too slow for the short timeouts of some tests; others follow.
    all_up(&table).await;
    table
}

/// Waits until all connections are open.
pub async fn all_up(table: &Table) {
    until("all connections are open", async || {
        let pool = table.stats().pool;
        pool.up == pool.wanted
    })
    .await;
}

/// Polls until a condition holds.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let looked = timeout(LONG, async {
        while !is_so().await {
            sleep(Duration::from_millis(5)).await;
        }
    });
    looked.await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Runs code that blocks on processes. The other threads of the runtime go on.
pub fn blocking<T>(body: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(body)
}

/// Returns the value of a row, which must exist.
pub async fn value(table: &Table, key: &str) -> Result<Option<String>, Error> {
    let row = table.get(key.as_bytes()).await?;
    Ok(row.map(|row| String::from_utf8(row.value(0).expect("not NULL").to_vec()).expect("text")))
}

/// Condition for busload's reads and writes that wait for a lock, in the observer's database. A
/// connection that is opened meanwhile waits, too, when it checks the plan.
pub const BLOCKED: &str = "wait_event_type = 'Lock' AND query NOT LIKE 'PREPARE %' \
                           AND application_name LIKE 'busload/%' AND datname = current_database()";

/// Waits until this many of busload's statements wait for a lock.
pub async fn until_blocked(observer: &Client, count: i64) {
    let asked = format!("SELECT count(*) FROM pg_stat_activity WHERE {BLOCKED}");
    until("statements are blocked", async || {
        observer.query_one(&asked, &[]).await.expect("answers").get::<_, i64>(0) == count
    })
    .await;
}

/// Runs a future, and returns how long it took, without the time for which the machine stood still.
pub async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let (start, before) = (Instant::now(), stood_still());
    let done = future.await;
    (done, start.elapsed().saturating_sub(stood_still().saturating_sub(before)))
}

/// Interval at which a separate thread reads the clock.
const BEAT: Duration = Duration::from_millis(20);

/// The time that this thread has missed is the time for which the machine stood still.
struct Pulse {
    last: Instant,
    missed: Duration,
}

static PULSE: LazyLock<Mutex<Pulse>> = LazyLock::new(|| {
    thread::spawn(beat);
    Mutex::new(Pulse { last: Instant::now(), missed: Duration::ZERO })
});

impl Pulse {
    /// Returns the missed time, including a pause that has not ended yet.
    fn missed(&self) -> Duration {
        self.missed + self.last.elapsed().saturating_sub(2 * BEAT)
    }
}

fn beat() {
    let (_sender, never) = mpsc::channel::<()>();
    loop {
        let _ = never.recv_timeout(BEAT);
        let mut pulse = PULSE.lock().unwrap();
        pulse.missed = pulse.missed();
        pulse.last = Instant::now();
    }
}

fn stood_still() -> Duration {
    PULSE.lock().unwrap().missed()
}

/// Writes many keys at once and several times, so that all connections have prepared the statement:
/// a cut or a stall that should hit a write would otherwise hit its preparation.
pub async fn prepared_everywhere(table: &Table) {
    for _ in 0..20 {
        let mut calls = JoinSet::new();
        for number in 0..64 {
            let table = table.clone();
            calls.spawn(
                async move { table.set(format!("prepared {number}").as_bytes(), "x").await },
            );
        }
        calls.join_all().await.into_iter().for_each(|answer| answer.expect("it is written"));
    }
}
