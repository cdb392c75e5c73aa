//! Configuration of the server: a flag overrides the environment, the environment the file, and the
//! file the defaults.
//!
//! ```text
//!  flags --+
//!  file ---+--> Options --> resolve (defaults, password, machine) --> Config --> Settings of the
//!                                                                                pipeline
//! ```
//!
//! This module opens no socket and writes no file.

mod address;
mod changes;
mod chunks;
mod file;
mod http_url;
mod nearest;
mod options;
mod otel;
mod password;
mod peers;
mod postgres;
mod prices;
mod secret_argument;
mod settings;
mod stores;
mod table;
mod tls;
mod units;

use std::{
    collections::HashMap,
    ffi::OsString,
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use busload_acl::{UserFile, Users};
use busload_io::Address;
use busload_pipeline::{
    command::command_list,
    limits,
    settings::{About, Settings, SourceTable, TableSettings},
};
use busload_postgres::Environment;
use busload_snapshot::limits::CPU_PERCENT_SINGLE;
use busload_tls::Identity;

pub use changes::{
    Changes, OnReload, TableChange, TableDifference, TableSettingsRef, changes, on_reload, table_of,
};
pub use chunks::{ChunksSettings, Contents};
#[cfg(test)]
pub use options::OPTION_KEYS;
pub use options::Options;
pub use otel::TraceSettings;
pub use password::{USER_VARIABLE, VARIABLE as PASSWORD_VARIABLE, user_of_environment};
pub use peers::{PeerList, PeerSettings};
pub use prices::Prices;
pub use settings::{
    CHUNKS_SETTINGS, MEMORY_SETTINGS, POSTGRES_SETTINGS, STORES_SETTINGS, Setting, SettingDefault,
};
pub use stores::StoresSettings;
pub use table::{percent_decoded, unknown};
pub use units::{MemoryMax, Size, SnapshotLog, UrlLifetime, parse_duration};

use crate::{
    access::Access,
    failure::Failure,
    http::{Front, FrontMetrics, HostName, Names, SlowArguments},
    logger::{LogFormat, LogLevels},
    machine::Machine,
    tokens::Tokens,
    users_file::AclFile,
};
use address::Listen;
use http_url::HttpUrl;
use password::Password;
use table::TableSpec;

/// Default address for Redis clients.
const RESP_DEFAULT: &str = "127.0.0.1:6380";
/// Default address of the HTTP front.
const HTTP_DEFAULT: &str = "127.0.0.1:6381";
/// Default directory of the data.
const DATA_DEFAULT: &str = "busload-data";
/// Name of the log's directory in the directory of the data.
const LOG_DIRECTORY: &str = "log";
/// Default limit of Redis connections at once.
const MAXCLIENTS_DEFAULT: u32 = 10_000;
/// Least limit of a request: it holds the largest inline command.
const REQUEST_BYTES_MIN: u64 = 64 * 1024;
/// Greatest limit of a request: offsets within one have 32 bits.
const REQUEST_BYTES_MAX: u64 = 1 << 31;
/// Least limit of pending replies: it holds the replies to one receive buffer of requests.
const REPLY_BYTES_MIN: u64 = 64 * 1024;

/// Name of the table kind for tables in Postgres.
pub const POSTGRES: &str = "postgres";
/// Name of the table kind for chunks of Dolt stores.
pub const CHUNKS: &str = "chunks";

/// Changes that a start makes to tables on which log and configuration do not agree.
#[derive(Clone, Debug, Default)]
pub struct TableChanges {
    /// True if new tables take over the keys that already have their prefix.
    pub adopt: bool,
    /// Tables of the log to drop with their keys.
    pub drop: Vec<String>,
}

/// File and flags that a configuration came from, by which it is read again.
#[derive(Clone, Debug, Default)]
struct Origin {
    file: Option<PathBuf>,
    flags: Options,
}

/// The whole configuration, checked, with defaults filled in.
#[derive(Clone)]
pub struct Config {
    /// Directory of the data.
    pub data: PathBuf,
    /// TCP addresses for Redis clients.
    pub resp: Vec<SocketAddr>,
    /// Path of the Unix socket for Redis clients.
    pub unix: Option<PathBuf>,
    /// Address of the HTTP front.
    pub http: Option<SocketAddr>,
    /// Threads that serve gRPC and HTTP.
    pub http_threads: NonZeroUsize,
    /// Certificate and key of all fronts; without them nothing is encrypted.
    pub tls: Option<Arc<Identity>>,
    /// URL, host names and password of the HTTP front.
    pub front: Front,
    /// Peers that cache the same stores; none: this server is alone.
    pub peers: Option<PeerSettings>,
    /// Threads that serve only Redis clients' sockets: 0 or 1.
    pub net_threads: u8,
    /// Levels of the log on stderr.
    pub log_levels: LogLevels,
    /// Format of the log on stderr.
    pub log_format: LogFormat,
    /// Settings of the pipeline.
    pub settings: Settings,
    /// Settings of the snapshots.
    pub snapshots: busload_snapshot::Settings,
    /// Settings of the Postgres tables.
    pub postgres: Vec<busload_postgres::Settings>,
    /// Settings of the chunk stores.
    pub chunks: Vec<ChunksSettings>,
    /// Settings of chunk stores by pattern.
    pub stores: Vec<StoresSettings>,
    /// Prices of what object stores bill.
    pub prices: Prices,
    /// Settings of traces; none are made without them.
    pub traces: Option<TraceSettings>,
    /// Warnings to log at the start.
    pub warnings: Vec<String>,
    /// Options as flags, environment and file give them, without defaults.
    pub given: Options,
    origin: Origin,
}

impl Config {
    /// Reads the file, if there is one, and resolves all settings.
    pub fn load(
        file: Option<&Path>,
        flags: Options,
        changes: TableChanges,
        machine: &Machine,
    ) -> Result<Self, Failure> {
        let environment = Environment::of_process();
        check_tables_once(&flags)?;
        check_no_passwords(&flags)?;
        let in_file = file.map(file::read).transpose()?.unwrap_or_default();
        let password = find_password(&flags, &in_file)?;
        let origin = Origin { file: file.map(Path::to_owned), flags: flags.clone() };
        let flags = flags.or(log_levels_of_environment(std::env::var_os(LOG_VARIABLE))?);
        let mut config = resolve(flags.or(in_file), password, changes, machine, &environment)?;
        config.settings.about.config_file = file.map(Path::to_owned);
        config.origin = origin;
        Ok(config)
    }

    /// Reads the same file and environment again, under the same flags.
    pub fn load_again(&self) -> Result<Self, Failure> {
        let Origin { file, flags } = &self.origin;
        Self::load(file.as_deref(), flags.clone(), TableChanges::default(), &Machine::this())
    }

    /// Returns the log's directory.
    pub fn log_directory(&self) -> PathBuf {
        log_directory(Some(&self.data))
    }

    /// Returns all addresses for Redis clients.
    pub fn resp_addresses(&self) -> Vec<Address> {
        let tcp = self.resp.iter().map(|address| Address::Tcp(*address));
        tcp.chain(self.unix.clone().map(Address::Unix)).collect()
    }
}

/// Returns the file of users that a flag or a configuration file names.
pub fn acl_file(flag: Option<PathBuf>, file: Option<&Path>) -> Result<PathBuf, Failure> {
    let in_file = file.map(file::read).transpose()?.and_then(|options| options.acl_file);
    flag.or(in_file).ok_or_else(|| {
        Failure::usage(
            "no file of users; expected its path by --acl-file FILE, or as acl_file in --config \
             FILE",
        )
    })
}

/// Returns the file of tokens that a flag or a configuration file names.
pub fn token_file(flag: Option<PathBuf>, file: Option<&Path>) -> Result<PathBuf, Failure> {
    let in_file = file.map(file::read).transpose()?.and_then(|options| options.token_file);
    flag.or(in_file).ok_or_else(|| {
        Failure::usage(
            "no file of tokens; expected its path by --token-file FILE, or as token_file in \
             --config FILE",
        )
    })
}

/// Returns the log's directory in the directory of the data, or in the default one.
pub fn log_directory(data: Option<&Path>) -> PathBuf {
    data.unwrap_or(Path::new(DATA_DEFAULT)).join(LOG_DIRECTORY)
}

/// Finds the password: a flag wins over the environment, and that over the file.
fn find_password(flags: &Options, file: &Options) -> Result<Option<Password>, Failure> {
    if let Some(path) = &flags.password_file {
        return password::from_file(path).map(Some);
    }
    if let Some(password) = password::from_environment(std::env::var_os(password::VARIABLE))? {
        return Ok(Some(password));
    }
    file.password_file.as_deref().map(password::from_file).transpose()
}

/// Environment variable with the levels of the log.
const LOG_VARIABLE: &str = "BUSLOAD_LOG";

/// Reads the levels of the log from the environment: a flag wins over them, and they over the file.
fn log_levels_of_environment(value: Option<OsString>) -> Result<Options, Failure> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(Options::default());
    };
    let levels = value.to_string_lossy().parse();
    let refuse = |error| Failure::usage(format!("{LOG_VARIABLE}: {error}"));
    Ok(Options { log_level: Some(levels.map_err(refuse)?), ..Options::default() })
}

fn resolve(
    options: Options,
    password: Option<Password>,
    changes: TableChanges,
    machine: &Machine,
    environment: &Environment,
) -> Result<Config, Failure> {
    let (given, prices) = (options.clone(), Prices::of(&options));
    let resp =
        if options.resp.is_empty() { vec![parse_default(RESP_DEFAULT)] } else { options.resp };
    let resp: Vec<SocketAddr> = resp.into_iter().filter_map(Listen::address).collect();
    let http = options.http.unwrap_or_else(|| parse_default(HTTP_DEFAULT)).address();
    let tls = tls::identity(options.tls_cert, options.tls_key, options.tls_client_ca)?;
    let mut warnings: Vec<String> =
        password.iter().filter_map(|password| password.warning.clone()).collect();
    warnings.extend(tls.iter().filter_map(|identity| tls::warning(identity)));
    let users = users(options.acl_file.as_deref(), password.as_ref(), &mut warnings)?;
    let asks_for_password = !users.default_user().is_open();
    let knows_clients =
        tls.as_ref().is_some_and(|identity| identity.files().client_authorities.is_some());
    check_open(&resp, http, asks_for_password || knows_clients)?;
    let tokens = tokens(
        options.token_file.as_deref(),
        options.token_url,
        &options.token_audience,
        asks_for_password,
        &mut warnings,
    )?;
    let access = access(&users, http, password.as_ref(), options.http_url_lifetime, tokens);
    // Clients of HTTP who need no password may not read the keys and values of a server with one.
    let slow_arguments = match asks_for_password && !access.asks() {
        true => SlowArguments::LeftOut,
        false => SlowArguments::Shown,
    };
    let peers = peers::settings(&options.peers, options.peer_self, options.peer_ca)?;
    check_peers(peers.as_ref(), http, password.is_none() && access.url_lifetime().is_some())?;
    let front = Front {
        slow_arguments,
        ..front(options.http_url, options.http_hosts, access, tls.clone())
    };

    let data = options.data.unwrap_or_else(|| DATA_DEFAULT.into());
    let net_threads = options.net_threads.unwrap_or(if 2 < machine.processors { 1 } else { 0 });
    let memory_max = options.memory_max.unwrap_or(MemoryMax::DEFAULT);
    let memory_max = memory_max.bytes(machine.memory_bytes).unwrap_or_else(|| {
        warnings.push(
            "how much memory there is cannot be found out; --memory-max SIZE sets a limit"
                .to_owned(),
        );
        0
    });
    let (client_reply_bytes, reply_bytes_total) =
        reply_limits(options.client_reply_bytes, options.reply_bytes_total)?;
    let request_bytes = within(
        "request_bytes",
        options.request_bytes,
        1 << 30,
        REQUEST_BYTES_MIN,
        REQUEST_BYTES_MAX,
    )?;

    let about = About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        port: resp.first().map_or(0, SocketAddr::port),
        bind: String::new(),
        data_directory: data.clone(),
        config_file: None,
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        process_id: std::process::id(),
        net_threads: usize::from(net_threads),
        memory_total: machine.memory_bytes.unwrap_or(0),
    };
    let Tables { memory, postgres, chunks } = split_tables(options.tables, environment, &data)?;
    let stores: Vec<StoresSettings> = options
        .stores
        .into_iter()
        .map(|spec| spec.resolve(&data))
        .collect::<Result<_, Failure>>()?;
    check_directories(chunks.iter().chain(stores.iter().map(|stores| &stores.chunks)))?;
    let has_chunks = !chunks.is_empty() || !stores.is_empty();
    if resp.is_empty() && options.unix.is_none() && (http.is_none() || !has_chunks) {
        return Err(Failure::usage(
            "no client could connect; expected an address by --resp, a path by --unix, or tables \
             of kind chunks and an address by --http",
        ));
    }
    let in_postgres =
        postgres.iter().map(|table| SourceTable { name: table.name.clone(), kind: POSTGRES });
    let in_stores =
        chunks.iter().map(|table| SourceTable { name: table.name.clone(), kind: CHUNKS });
    let by_pattern = stores.iter().map(|stores| stores.pattern.text().to_owned());
    let by_pattern = by_pattern.map(|name| SourceTable { name, kind: CHUNKS });
    let settings = Settings {
        tables: memory,
        sources: in_postgres.chain(in_stores).chain(by_pattern).collect(),
        memory_max,
        password: password.map(|password| password.bytes),
        users: Some(users),
        client_reply_bytes,
        reply_bytes_total,
        clients_max: options.maxclients.unwrap_or(MAXCLIENTS_DEFAULT),
        request_bytes,
        idle_timeout_s: 0,
        adopt_tables: changes.adopt,
        drop_tables: changes.drop,
        about,
    };
    let http_threads = options.http_threads.unwrap_or(NonZeroUsize::MIN);
    let (endpoint, service) = (options.otel_endpoint, options.otel_service);
    let traces = otel::settings(endpoint, options.otel_sample, service, cfg!(feature = "otel"))?;
    let snapshots = snapshot_settings(options.snapshot_log, options.snapshot_cpu, machine);
    Ok(Config {
        snapshots,
        data,
        resp,
        unix: options.unix,
        http,
        http_threads,
        tls,
        front,
        peers,
        net_threads,
        log_levels: options.log_level.unwrap_or_default(),
        log_format: options.log_format.unwrap_or_default(),
        settings,
        postgres,
        chunks,
        stores,
        prices,
        traces,
        warnings,
        given,
        origin: Origin::default(),
    })
}

/// Users: `default` with the password, and those of the file.
fn users(
    file: Option<&Path>,
    password: Option<&Password>,
    warnings: &mut Vec<String>,
) -> Result<Arc<Users>, Failure> {
    let kept = file.map(AclFile::new);
    warnings.extend(kept.iter().filter_map(AclFile::warning));
    let kept = kept.map(|file| Arc::new(file) as Arc<dyn UserFile>);
    let password = password.map(|password| &*password.bytes);
    let users = Users::open(command_list().clone(), password, kept).map_err(Failure::usage)?;
    if file.is_some() && users.default_user().is_open() {
        warnings.push(
            "the user default needs no password: clients that do not log in have its rights; \
             `busload user passwd default`, or `user default off` in the file of users, changes \
             that"
                .to_owned(),
        );
    }
    Ok(Arc::new(users))
}

/// Check of access over HTTP. Without a file of users, HTTP asks for the password only where it
/// does not listen on loopback: clients that reach a loopback address may use this machine anyway.
fn access(
    users: &Arc<Users>,
    http: Option<SocketAddr>,
    password: Option<&Password>,
    lifetime: Option<UrlLifetime>,
    tokens: Option<Arc<Tokens>>,
) -> Access {
    let is_asked = users.has_file() || tokens.is_some();
    if !is_asked && (password.is_none() || !http.is_some_and(is_open)) {
        return Access::default();
    }
    let lifetime = lifetime.unwrap_or(UrlLifetime::DEFAULT).0;
    Access::of_users(Arc::clone(users), password.map(|password| &*password.bytes), lifetime, tokens)
}

/// Verifier of tokens, if a file or an endpoint is set.
fn tokens(
    file: Option<&Path>,
    url: Option<HttpUrl>,
    audiences: &[HostName],
    asks_for_password: bool,
    warnings: &mut Vec<String>,
) -> Result<Option<Arc<Tokens>>, Failure> {
    if file.is_none() && url.is_none() {
        let unused = "token_audience has no effect; expected token_file or token_url beside it";
        return if audiences.is_empty() { Ok(None) } else { Err(Failure::usage(unused)) };
    }
    if !asks_for_password {
        return Err(Failure::usage(
            "tokens would protect nothing: clients without one may read everything; expected a \
             password (--password-file) or a file of users (--acl-file) whose user default has one \
             or is off",
        ));
    }
    let url = url.map(HttpUrl::into_text);
    if url.as_ref().is_some_and(|url| url.starts_with("http://")) {
        warnings.push("token_url is not https: tokens are sent to it unencrypted".to_owned());
    }
    let audiences = audiences.iter().map(|name| name.text().to_owned()).collect();
    let tokens = Tokens::new(file, url, audiences).map_err(Failure::usage)?;
    Ok(Some(Arc::new(tokens)))
}

/// Checks that Dolt's clients can use the URLs of peers.
fn check_peers(
    peers: Option<&PeerSettings>,
    http: Option<SocketAddr>,
    has_random_keys: bool,
) -> Result<(), Failure> {
    if peers.is_none() {
        return Ok(());
    }
    if http.is_none() {
        return Err(Failure::usage("peers without HTTP; expected its address by --http"));
    }
    if has_random_keys {
        return Err(Failure::usage(
            "peers with users and without a password: keys of downloads would be valid at one peer \
             alone; expected the same password for all peers, by --password-file or \
             BUSLOAD_PASSWORD",
        ));
    }
    Ok(())
}

/// Settings of the HTTP front.
fn front(
    url: Option<HttpUrl>,
    hosts: Vec<HostName>,
    access: Access,
    tls: Option<Arc<Identity>>,
) -> Front {
    let url = url.map(HttpUrl::into_text);
    let names = Names::new(hosts, url.as_deref(), tls.is_some());
    let tokens = access.tokens().map(|tokens| Arc::clone(tokens.metrics())).unwrap_or_default();
    let metrics = Arc::new(FrontMetrics { tokens, ..FrontMetrics::default() });
    Front { names, url, access, tls, metrics, ..Front::default() }
}

fn parse_default(text: &str) -> Listen {
    text.parse().expect("the default addresses are addresses")
}

/// Checked tables, by kind. `default` is always among them and comes first.
#[derive(Default)]
struct Tables {
    memory: Vec<TableSettings>,
    postgres: Vec<busload_postgres::Settings>,
    chunks: Vec<ChunksSettings>,
}

impl Tables {
    fn names(&self) -> impl Iterator<Item = &String> {
        let memory = self.memory.iter().map(|table| &table.name);
        let postgres = self.postgres.iter().map(|table| &table.name);
        memory.chain(postgres).chain(self.chunks.iter().map(|table| &table.name))
    }
}

fn split_tables(
    tables: Vec<TableSpec>,
    environment: &Environment,
    data: &Path,
) -> Result<Tables, Failure> {
    let mut by_kind = Tables::default();
    for table in tables {
        match table {
            TableSpec::Memory(settings) => by_kind.memory.push(settings),
            TableSpec::Postgres(spec) => by_kind.postgres.push(spec.resolve(environment)?),
            TableSpec::Chunks(spec) => by_kind.chunks.push(spec.resolve(data)?),
        }
    }
    by_kind.memory = with_default(by_kind.memory);
    check_dolt_paths(&by_kind)?;
    Ok(by_kind)
}

fn snapshot_settings(
    log: Option<SnapshotLog>,
    cpu: Option<u32>,
    machine: &Machine,
) -> busload_snapshot::Settings {
    let default = busload_snapshot::Settings::default();
    busload_snapshot::Settings {
        automatic: log != Some(SnapshotLog::Never),
        log_bytes_min: match log {
            Some(SnapshotLog::Bytes(Size(bytes))) => bytes,
            _ => default.log_bytes_min,
        },
        cpu_percent: cpu.unwrap_or(match machine.processors {
            1 => CPU_PERCENT_SINGLE,
            _ => default.cpu_percent,
        }),
        ..default
    }
}

/// Refuses two caches in one directory.
fn check_directories<'a>(tables: impl Iterator<Item = &'a ChunksSettings>) -> Result<(), Failure> {
    let tables: Vec<&ChunksSettings> = tables.collect();
    for (index, table) in tables.iter().enumerate() {
        if let Some(other) = tables[..index].iter().find(|other| other.directory == table.directory)
        {
            return Err(Failure::usage(format!(
                "tables {} and {} have one directory, {}; expected one for each",
                other.name,
                table.name,
                table.directory.display()
            )));
        }
    }
    Ok(())
}

/// Refuses a path of Dolt's clients that names two tables.
fn check_dolt_paths(tables: &Tables) -> Result<(), Failure> {
    let refuse = |path: &str, is: &str, table: &str| {
        Err(Failure::usage(format!(
            "table {table}: the path `{path}` of dolt_paths is {is}; expected paths that differ \
             from each other and from the names of other tables"
        )))
    };
    let mut taken: HashMap<&str, &str> = HashMap::new();
    for table in &tables.chunks {
        for path in &table.dolt_paths {
            if let Some(other) = tables.names().find(|name| *name == path && **name != table.name) {
                return refuse(path, &format!("the name of table {other}"), &table.name);
            }
            if let Some(other) = taken.insert(path, &table.name) {
                return refuse(path, &format!("also one of table {other}"), &table.name);
            }
        }
    }
    Ok(())
}

/// Puts `default` first, adding it if it is missing.
fn with_default(mut tables: Vec<TableSettings>) -> Vec<TableSettings> {
    let default = TableSettings::default_table();
    match tables.iter().position(|table| table.name == default.name) {
        Some(position) => tables[..=position].rotate_right(1),
        None => tables.insert(0, default),
    }
    tables
}

fn check_tables_once(flags: &Options) -> Result<(), Failure> {
    for (index, table) in flags.tables.iter().enumerate() {
        let name = table.name();
        if flags.tables[..index].iter().any(|other| other.name() == name) {
            return Err(Failure::usage(format!(
                "--table {name} is given twice; expected each table once"
            )));
        }
    }
    Ok(())
}

/// Refuses passwords in flags, which everybody on the machine can read.
fn check_no_passwords(flags: &Options) -> Result<(), Failure> {
    flags.tables.iter().try_for_each(|table| match table {
        // URLs of stores are refused with credentials everywhere, not only in flags.
        TableSpec::Memory(_) | TableSpec::Chunks(_) => Ok(()),
        TableSpec::Postgres(spec) => spec.check_no_password(),
    })
}

fn check_open(
    resp: &[SocketAddr],
    http: Option<SocketAddr>,
    knows_clients: bool,
) -> Result<(), Failure> {
    if knows_clients {
        return Ok(());
    }
    let refuse = |what: &str, open: SocketAddr, could: &str| {
        Err(Failure::usage(format!(
            "refusing to {what} {open} without a password: other machines could {could}; give a \
             password by --password-file FILE or {}, or the user default one in --acl-file FILE, \
             ask for certificates by --tls-client-ca FILE, or listen on 127.0.0.1",
            password::VARIABLE
        )))
    };
    if let Some(open) = resp.iter().copied().find(|address| is_open(*address)) {
        return refuse("listen on", open, "read and write everything");
    }
    match http.filter(|address| is_open(*address)) {
        Some(open) => refuse("serve HTTP on", open, "read chunks and metrics"),
        None => Ok(()),
    }
}

/// Returns whether other machines may reach the address.
fn is_open(address: SocketAddr) -> bool {
    !address.ip().is_loopback()
}

fn reply_limits(client: Option<Size>, total: Option<Size>) -> Result<(usize, usize), Failure> {
    let client_bytes = within(
        "client_reply_bytes",
        client,
        limits::CLIENT_REPLY_BYTES,
        REPLY_BYTES_MIN,
        u64::MAX,
    )?;
    let total_default = limits::REPLY_BYTES_TOTAL.max(client_bytes);
    let total_bytes = within("reply_bytes_total", total, total_default, REPLY_BYTES_MIN, u64::MAX)?;
    if total_bytes < client_bytes {
        return Err(Failure::usage(format!(
            "reply_bytes_total ({}) is less than client_reply_bytes ({}); expected at least as \
             much",
            Size(total_bytes as u64),
            Size(client_bytes as u64)
        )));
    }
    Ok((client_bytes, total_bytes))
}

fn within(
    name: &str,
    size: Option<Size>,
    default: usize,
    min: u64,
    max: u64,
) -> Result<usize, Failure> {
    let Some(size) = size else { return Ok(default) };
    let fits = (min..=max).contains(&size.0);
    usize::try_from(size.0).ok().filter(|_| fits).ok_or_else(|| {
        Failure::usage(format!(
            "{name} = {size} is out of range; expected {} to {}",
            Size(min),
            Size(max)
        ))
    })
}

#[cfg(test)]
mod tests;
