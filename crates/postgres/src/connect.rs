//! Opens one connection: tries the hosts in order, their addresses in order, with and without TLS
//! as `sslmode` says.
//!
//! An attempt is one address with one kind of encryption; `connect_timeout` covers its TCP, TLS,
//! login and session settings together. When every attempt has failed, the error names each host
//! with its causes: `cannot connect to postgres at db1:5432: Connection refused; at db2:5432: no
//! answer within 5s`.
//!
//! A task of its own moves the bytes of a connection. It ends with the connection, or soon after
//! every handle that could use it is gone. Notices of the server go to the log at level debug.

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use tokio::{sync::watch, time::timeout};
use tokio_postgres::{
    Client, Config, NoTls, Socket,
    config::SslMode as DriverSslMode,
    tls::{MakeTlsConnect, TlsConnect},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    Error, Host, Settings,
    cause::{describe, describe_io, is_of_login, is_of_shutdown, is_of_tls},
    connect::{driver::Driver, session::set_up},
    limits::ADDRESSES_PER_HOST_MAX,
    password::{Login, Password},
    tls::SslMode,
};

mod driver;
mod session;

/// An open connection: statements go through the client, and a task of its own moves the bytes.
#[derive(Debug)]
pub struct Connected {
    /// Client for statements on the connection.
    pub client: Client,
    /// Signal for the end of the connection. Dropping all clones of it ends the connection, so keep
    /// one beside the client.
    pub ended: Ended,
}

/// Tells when a connection ended, and why. All clones give the same answer.
#[derive(Clone, Debug)]
pub struct Ended {
    reason: watch::Receiver<Option<Arc<str>>>,
}

impl Ended {
    /// Resolves when the connection has ended, with a text such as `connection to postgres at
    /// 127.0.0.1:5432 lost: ...`.
    pub async fn wait(&self) -> Arc<str> {
        let mut reason = self.reason.clone();
        match reason.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_else(|| "connection to postgres lost".into()),
            // The task was ended with its runtime.
            Err(_) => "connection to postgres lost".into(),
        }
    }

    /// Returns whether the connection has ended already.
    pub fn is_over(&self) -> bool {
        self.reason.borrow().is_some() || self.reason.has_changed().is_err()
    }
}

/// Opens a connection on the current tokio runtime and sets up its session.
pub async fn connect(settings: &Settings) -> Result<Connected, Error> {
    let hosts = &settings.server.hosts;
    let tls = match load_tls(settings).await {
        Ok(tls) => tls,
        Err(cause) => return Err(cannot_connect([(hosts.first(), cause)])),
    };
    let mut failures = Vec::new();
    for host in hosts {
        match connect_host(settings, host, tls.as_ref()).await {
            Ok(connected) => return Ok(connected),
            Err(cause) => failures.push((Some(host), cause)),
        }
    }
    Err(cannot_connect(failures))
}

fn cannot_connect<'a>(failures: impl IntoIterator<Item = (Option<&'a Host>, String)>) -> Error {
    let at = |(host, cause): (Option<&Host>, String)| match host {
        Some(host) => format!("at {host}: {cause}"),
        None => cause,
    };
    let failures: Vec<String> = failures.into_iter().map(at).collect();
    Error::CannotConnect(format!("cannot connect to postgres {}", failures.join("; ")).into())
}

/// Reads the files that TLS needs, if any attempt can need them.
async fn load_tls(settings: &Settings) -> Result<Option<MakeRustlsConnect>, String> {
    let server = &settings.server;
    let any_tcp = server.hosts.iter().any(|host| matches!(host, Host::Tcp { .. }));
    if server.tls.mode == SslMode::Disable || !any_tcp {
        return Ok(None);
    }
    let tls = server.tls.clone();
    let config = tokio::task::spawn_blocking(move || tls.client_config()).await;
    config.map_err(|error| error.to_string())?.map(MakeRustlsConnect::new).map(Some)
}

/// Tries one host: all its addresses, each with every encryption that `sslmode` allows.
async fn connect_host(
    settings: &Settings,
    host: &Host,
    tls: Option<&MakeRustlsConnect>,
) -> Result<Connected, String> {
    let password = find_password(settings, host).await?;
    let mut causes = Vec::new();
    for address in host_addresses(settings, host).await? {
        for encryption in encryptions(settings.server.tls.mode, &address) {
            let attempt =
                Attempt { settings, host, address: &address, password: password.as_ref(), tls };
            match attempt.run(*encryption).await {
                Ok(connected) => return Ok(connected),
                Err(failure) => {
                    if !causes.contains(&failure.cause) {
                        causes.push(failure.cause);
                    }
                    if !failure.other_encryption_may_help {
                        break;
                    }
                }
            }
        }
    }
    Err(causes.join(", then: "))
}

/// Looks the password up for each connection anew, because files change.
async fn find_password(settings: &Settings, host: &Host) -> Result<Option<Password>, String> {
    let (server, host) = (settings.server.clone(), host.clone());
    let look_up = move || {
        let login = Login { host: &host, dbname: &server.dbname, user: &server.user };
        server.password.look_up(login)
    };
    let found = tokio::task::spawn_blocking(look_up).await.map_err(|error| error.to_string())??;
    if let Some(warning) = found.warning.filter(|warning| settings.logged_warnings.is_new(warning))
    {
        log::warn!("table {}: {warning}", settings.name);
    }
    Ok(found.password)
}

/// Target of a socket: an address or a path.
#[derive(Clone, Debug)]
enum HostAddress {
    Tcp(IpAddr),
    Unix(PathBuf),
}

async fn host_addresses(settings: &Settings, host: &Host) -> Result<Vec<HostAddress>, String> {
    let (name, port) = match host {
        Host::Unix { directory, .. } => return Ok(vec![HostAddress::Unix(directory.clone())]),
        Host::Tcp { name, port } => (name.as_str(), *port),
    };
    let limit = settings.server.connect_timeout;
    match timeout(limit, tokio::net::lookup_host((name, port))).await {
        Err(_) => Err(format!("the host's address was not found within {limit:?}")),
        Ok(Err(error)) => Err(describe_io(&error)),
        Ok(Ok(addresses)) => {
            let addresses: Vec<HostAddress> = addresses
                .take(ADDRESSES_PER_HOST_MAX)
                .map(|address| HostAddress::Tcp(address.ip()))
                .collect();
            if addresses.is_empty() {
                Err("the host has no address".to_owned())
            } else {
                Ok(addresses)
            }
        }
    }
}

/// Encryption of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encryption {
    Plain,
    IfOffered,
    Required,
}

/// Returns the encryptions to try, in order; see the table of [`crate::tls`].
fn encryptions(mode: SslMode, address: &HostAddress) -> &'static [Encryption] {
    match (mode, address) {
        (_, HostAddress::Unix(_)) | (SslMode::Disable, _) => &[Encryption::Plain],
        (SslMode::Allow, _) => &[Encryption::Plain, Encryption::Required],
        (SslMode::Prefer, _) => &[Encryption::IfOffered, Encryption::Plain],
        (SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull, _) => &[Encryption::Required],
    }
}

/// Reason why an attempt failed.
struct Failure {
    cause: String,
    other_encryption_may_help: bool,
}

/// Step of an attempt that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Connecting, TLS and authentication.
    LogIn,
    /// Settings of the session.
    SetUp,
}

impl Step {
    /// Returns the cause of a failure; it says if the connection was open already and is lost.
    fn cause(self, error: &tokio_postgres::Error) -> String {
        let cause = describe(error);
        match self {
            Self::SetUp => format!("connection lost while its session was set up: {cause}"),
            Self::LogIn if is_of_shutdown(error) => {
                format!("connection lost during the login: {cause}")
            }
            Self::LogIn => cause,
        }
    }
}

/// One address, with one kind of encryption.
struct Attempt<'a> {
    settings: &'a Settings,
    host: &'a Host,
    address: &'a HostAddress,
    password: Option<&'a Password>,
    tls: Option<&'a MakeRustlsConnect>,
}

impl Attempt<'_> {
    async fn run(&self, encryption: Encryption) -> Result<Connected, Failure> {
        let mut config = self.config();
        let limit = self.settings.server.connect_timeout;
        let attempt = async {
            match (encryption, self.tls) {
                (Encryption::Plain, _) | (_, None) => {
                    self.open(config.ssl_mode(DriverSslMode::Disable), NoTls).await
                }
                (Encryption::IfOffered, Some(tls)) => {
                    self.open(config.ssl_mode(DriverSslMode::Prefer), tls.clone()).await
                }
                (Encryption::Required, Some(tls)) => {
                    self.open(config.ssl_mode(DriverSslMode::Require), tls.clone()).await
                }
            }
        };
        match timeout(limit, attempt).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err((step, error))) => Err(Failure {
                cause: step.cause(&error),
                other_encryption_may_help: is_of_tls(&error) || is_of_login(&error),
            }),
            Err(_) => Err(Failure {
                cause: format!("no answer within {limit:?}"),
                other_encryption_may_help: false,
            }),
        }
    }

    async fn open<T>(
        &self,
        config: &Config,
        tls: T,
    ) -> Result<Connected, (Step, tokio_postgres::Error)>
    where
        T: MakeTlsConnect<Socket>,
        T::TlsConnect: Send,
        T::Stream: Send + 'static,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let (client, connection) =
            config.connect(tls).await.map_err(|error| (Step::LogIn, error))?;
        let (ended, reason) = watch::channel(None);
        let driver =
            Driver { table: self.settings.name.clone(), host: self.host.to_string(), ended };
        tokio::spawn(driver.run(connection));
        set_up(&client, self.settings).await.map_err(|error| (Step::SetUp, error))?;
        Ok(Connected { client, ended: Ended { reason } })
    }

    fn config(&self) -> Config {
        let server = &self.settings.server;
        let mut config = Config::new();
        match (self.host, self.address) {
            (Host::Tcp { name, port }, HostAddress::Tcp(address)) => {
                config.host(name).hostaddr(*address).port(*port);
            }
            (Host::Unix { port, .. } | Host::Tcp { port, .. }, HostAddress::Unix(directory)) => {
                config.host_path(directory).port(*port);
            }
            (Host::Unix { port, .. }, HostAddress::Tcp(address)) => {
                config.hostaddr(*address).port(*port);
            }
        }
        config
            .user(&server.user)
            .dbname(&server.dbname)
            .application_name(&server.application_name)
            .target_session_attrs(server.target_session_attrs)
            .channel_binding(server.channel_binding)
            .keepalives(server.keepalive.enabled)
            .keepalives_idle(server.keepalive.idle)
            .keepalives_interval(server.keepalive.interval)
            .keepalives_retries(server.keepalive.count)
            .tcp_user_timeout(server.keepalive.user_timeout);
        if let Some(options) = &server.options {
            config.options(options);
        }
        if let Some(password) = self.password {
            config.password(password.reveal());
        }
        config
    }
}
