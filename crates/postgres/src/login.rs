//! libpq's options for the server, the login and TLS, with libpq's names and meanings.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::PathBuf, time::Duration};

use tokio_postgres::config::{ChannelBinding, TargetSessionAttrs};

use crate::{
    Environment, Host, SettingsError,
    limits::{
        CONNECT_TIMEOUT_DEFAULT, CONNECT_TIMEOUT_MAX, HOSTS_MAX, KEEPALIVE_COUNT_DEFAULT,
        KEEPALIVE_COUNT_MAX, KEEPALIVE_IDLE_DEFAULT, KEEPALIVE_INTERVAL_DEFAULT, KEEPALIVE_MAX,
        PORT_DEFAULT, TCP_USER_TIMEOUT_DEFAULT,
    },
    password::{Password, PasswordSource},
    settings::{Keepalive, Server},
    tls::{ClientCertificate, RootCertificates, SslMode, TlsSettings},
    values::{
        check_count, check_duration, parse_count, parse_duration_or, parse_switch, put, unfit,
    },
};

/// Names of the libpq options that this crate understands.
pub(crate) const LOGIN_NAMES: [&str; 20] = [
    "user",
    "password",
    "dbname",
    "host",
    "port",
    "passfile",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "connect_timeout",
    "application_name",
    "target_session_attrs",
    "channel_binding",
    "options",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
];

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const HOST_DEFAULT: &str = "localhost";

/// Values of these options as they were given.
#[derive(Debug, Default)]
pub(crate) struct LoginOptions {
    pub(crate) password_file: Option<PathBuf>,
    user: Option<String>,
    password: Option<Password>,
    dbname: Option<String>,
    hosts: Option<Vec<String>>,
    ports: Option<Vec<Option<u16>>>,
    passfile: Option<PathBuf>,
    sslmode: Option<SslMode>,
    sslrootcert: Option<OsString>,
    sslcert: Option<PathBuf>,
    sslkey: Option<PathBuf>,
    connect_timeout: Option<Duration>,
    application_name: Option<String>,
    target_session_attrs: Option<TargetSessionAttrs>,
    channel_binding: Option<ChannelBinding>,
    options: Option<String>,
    keepalives: Option<bool>,
    keepalives_idle: Option<Duration>,
    keepalives_interval: Option<Duration>,
    keepalives_count: Option<usize>,
    tcp_user_timeout: Option<Duration>,
}

impl LoginOptions {
    /// Creates the options from the parts of the URL before its query.
    pub(crate) fn new(
        user: Option<String>,
        password: Option<Password>,
        hosts: Vec<(String, Option<u16>)>,
        dbname: Option<String>,
    ) -> Result<Self, SettingsError> {
        let (names, ports): (Vec<_>, Vec<_>) = hosts.into_iter().unzip();
        let any_name = names.iter().any(|name: &String| !name.is_empty());
        let any_port = ports.iter().any(Option::is_some);
        Ok(Self {
            user,
            password,
            dbname,
            // `postgres://:5433/db?host=/tmp` has the port here and the host in the query.
            hosts: (any_name || 1 < names.len()).then_some(names),
            ports: any_port.then_some(ports),
            ..Self::default()
        })
    }

    /// Takes an option of the query; returns whether it is one of libpq's.
    pub(crate) fn take(&mut self, name: &str, value: &str) -> Result<bool, SettingsError> {
        match name {
            "user" => put(&mut self.user, name, value.to_owned()),
            "password" => put(&mut self.password, name, Password::new(value)),
            "dbname" => put(&mut self.dbname, name, value.to_owned()),
            "host" => put(&mut self.hosts, name, value.split(',').map(str::to_owned).collect()),
            "port" => put(&mut self.ports, name, parse_ports(value)?),
            "passfile" => put(&mut self.passfile, name, value.into()),
            "sslmode" => put(&mut self.sslmode, name, SslMode::parse(value)?),
            "sslrootcert" => put(&mut self.sslrootcert, name, value.into()),
            "sslcert" => put(&mut self.sslcert, name, value.into()),
            "sslkey" => put(&mut self.sslkey, name, value.into()),
            "application_name" => put(&mut self.application_name, name, value.to_owned()),
            "target_session_attrs" => {
                put(&mut self.target_session_attrs, name, parse_target(value)?)
            }
            "channel_binding" => put(&mut self.channel_binding, name, parse_binding(value)?),
            "options" => put(&mut self.options, name, value.to_owned()),
            _ => return self.take_time(name, value),
        }?;
        Ok(true)
    }

    fn take_time(&mut self, name: &str, value: &str) -> Result<bool, SettingsError> {
        let time = |unit| parse_duration_or(name, value, unit);
        match name {
            "connect_timeout" => put(&mut self.connect_timeout, name, time(SECOND)?),
            "keepalives" => put(&mut self.keepalives, name, parse_switch(name, value)?),
            "keepalives_idle" => put(&mut self.keepalives_idle, name, time(SECOND)?),
            "keepalives_interval" => put(&mut self.keepalives_interval, name, time(SECOND)?),
            "keepalives_count" => put(&mut self.keepalives_count, name, parse_count(name, value)?),
            "tcp_user_timeout" => put(&mut self.tcp_user_timeout, name, time(MILLISECOND)?),
            _ => return Ok(false),
        }?;
        Ok(true)
    }

    /// Checks the options and fills in values from the environment and libpq's defaults.
    pub(crate) fn resolve(
        mut self,
        table: &str,
        environment: &Environment,
    ) -> Result<Server, SettingsError> {
        let user = self.user(environment)?;
        Ok(Server {
            hosts: self.hosts(environment)?,
            password: self.password(environment),
            tls: self.tls(environment)?,
            keepalive: self.keepalive()?,
            connect_timeout: check_duration(
                "connect_timeout",
                self.connect_timeout.unwrap_or(CONNECT_TIMEOUT_DEFAULT),
                MILLISECOND..=CONNECT_TIMEOUT_MAX,
            )?,
            dbname: match given(self.dbname) {
                Some(dbname) => dbname,
                None => environment.text("PGDATABASE")?.unwrap_or_else(|| user.clone()),
            },
            application_name: given(self.application_name)
                .unwrap_or_else(|| format!("busload/{table}")),
            options: given(self.options),
            target_session_attrs: self.target_session_attrs.unwrap_or(TargetSessionAttrs::Any),
            channel_binding: self.channel_binding.unwrap_or(ChannelBinding::Prefer),
            user,
        })
    }

    fn user(&mut self, environment: &Environment) -> Result<String, SettingsError> {
        const MISSING: SettingsError = SettingsError::Missing {
            option: "user",
            expected: "the role to log in as, such as postgres://app@host/db",
        };
        if let Some(user) = given(self.user.take()) {
            return Ok(user);
        }
        let user = environment.text("PGUSER")?;
        user.or_else(|| environment.user().map(str::to_owned)).ok_or(MISSING)
    }

    /// Combines hosts and ports: one port for all hosts, or one for each.
    fn hosts(&mut self, environment: &Environment) -> Result<Vec<Host>, SettingsError> {
        let names = match self.hosts.take() {
            Some(names) => names,
            None => split(environment.text("PGHOST")?.unwrap_or_default()),
        };
        let ports = match self.ports.take() {
            Some(ports) => ports,
            None => {
                environment.text("PGPORT")?.map_or(Ok(vec![None]), |text| parse_ports(&text))?
            }
        };
        if HOSTS_MAX < names.len() {
            return Err(unfit(
                "host",
                names.join(","),
                format!("expected at most {HOSTS_MAX} hosts"),
            ));
        }
        if ports.len() != 1 && ports.len() != names.len() {
            let text = format!(
                "{} hosts and {} ports; expected one port, or one for each host",
                names.len(),
                ports.len()
            );
            return Err(SettingsError::Conflict(text));
        }
        let port_of = |index: usize| ports.get(index).or(ports.first()).copied().flatten();
        let hosts = names.into_iter().enumerate();
        hosts.map(|(index, name)| host(name, port_of(index).unwrap_or(PORT_DEFAULT))).collect()
    }

    fn password(&mut self, environment: &Environment) -> PasswordSource {
        let in_environment = || {
            let password = environment.variable("PGPASSWORD")?;
            Some(PasswordSource::Given(Password::new(password.as_bytes())))
        };
        let pass_file = || environment.variable("PGPASSFILE").map(PathBuf::from);
        let own = || environment.home().map(|home| home.join(".pgpass"));
        if let Some(path) = self.password_file.take() {
            return PasswordSource::File(path);
        }
        let password = self.password.take().map(PasswordSource::Given);
        password
            .or_else(in_environment)
            .or_else(|| {
                self.passfile.take().or_else(pass_file).or_else(own).map(PasswordSource::PassFile)
            })
            .unwrap_or(PasswordSource::Nowhere)
    }

    fn tls(&mut self, environment: &Environment) -> Result<TlsSettings, SettingsError> {
        let mode = match self.sslmode {
            Some(mode) => Some(mode),
            None => environment.text("PGSSLMODE")?.map(|text| SslMode::parse(&text)).transpose()?,
        };
        let roots = self.roots(environment);
        let mode = match (&roots, mode) {
            (RootCertificates::System, None) => SslMode::VerifyFull,
            (RootCertificates::System, Some(mode)) => refuse_weak(mode)?,
            (_, mode) => mode.unwrap_or(SslMode::Prefer),
        };
        Ok(TlsSettings { mode, roots, client: self.client_certificate(environment) })
    }

    fn roots(&mut self, environment: &Environment) -> RootCertificates {
        match self.sslrootcert.take().or_else(|| environment.variable("PGSSLROOTCERT")) {
            Some(text) if text == "system" => RootCertificates::System,
            Some(path) => RootCertificates::File(path.into()),
            None => RootCertificates::FileIfThere(in_home(environment, "root.crt")),
        }
    }

    fn client_certificate(&mut self, environment: &Environment) -> ClientCertificate {
        let path = |given: Option<PathBuf>, variable| {
            given.or_else(|| environment.variable(variable).map(PathBuf::from))
        };
        let key =
            path(self.sslkey.take(), "PGSSLKEY").or_else(|| in_home(environment, "postgresql.key"));
        match (path(self.sslcert.take(), "PGSSLCERT"), in_home(environment, "postgresql.crt")) {
            (Some(certificate), _) => ClientCertificate::Files { certificate, key },
            (None, Some(certificate)) => ClientCertificate::FilesIfThere { certificate, key },
            (None, None) => ClientCertificate::None,
        }
    }

    fn keepalive(&self) -> Result<Keepalive, SettingsError> {
        let time = |name: &str, given: Option<Duration>, default| match given {
            // libpq takes zero as the default.
            None | Some(Duration::ZERO) => Ok(default),
            Some(time) => check_duration(name, time, MILLISECOND..=KEEPALIVE_MAX),
        };
        let count = match self.keepalives_count {
            None | Some(0) => KEEPALIVE_COUNT_DEFAULT,
            Some(count) => {
                let count = check_count("keepalives_count", count, 1..=KEEPALIVE_COUNT_MAX)?;
                u32::try_from(count).unwrap_or(KEEPALIVE_COUNT_DEFAULT)
            }
        };
        Ok(Keepalive {
            enabled: self.keepalives.unwrap_or(true),
            idle: time("keepalives_idle", self.keepalives_idle, KEEPALIVE_IDLE_DEFAULT)?,
            interval: time(
                "keepalives_interval",
                self.keepalives_interval,
                KEEPALIVE_INTERVAL_DEFAULT,
            )?,
            user_timeout: time(
                "tcp_user_timeout",
                self.tcp_user_timeout,
                TCP_USER_TIMEOUT_DEFAULT,
            )?,
            count,
        })
    }
}

/// Returns `None` for an empty value, as libpq does.
fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// Returns the path where libpq looks for a certificate or key.
fn in_home(environment: &Environment, name: &str) -> Option<PathBuf> {
    environment.home().map(|home| home.join(".postgresql").join(name))
}

fn split(text: String) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

fn host(name: String, port: u16) -> Result<Host, SettingsError> {
    match name.as_str() {
        "" => Ok(Host::Tcp { name: HOST_DEFAULT.to_owned(), port }),
        path if path.starts_with('/') => Ok(Host::Unix { directory: path.into(), port }),
        plain if plain.contains(['/', '@', ' ']) => Err(SettingsError::Conflict(
            "host: expected a name, an address or the absolute path of a directory".into(),
        )),
        _ => Ok(Host::Tcp { name, port }),
    }
}

fn parse_ports(text: &str) -> Result<Vec<Option<u16>>, SettingsError> {
    let port = |text: &str| match text.parse() {
        _ if text.is_empty() => Ok(None),
        Ok(0) | Err(_) => Err(unfit("port", text, "expected 1 to 65535")),
        Ok(port) => Ok(Some(port)),
    };
    text.split(',').map(port).collect()
}

fn parse_target(text: &str) -> Result<TargetSessionAttrs, SettingsError> {
    match text {
        "any" => Ok(TargetSessionAttrs::Any),
        "read-write" => Ok(TargetSessionAttrs::ReadWrite),
        "read-only" => Ok(TargetSessionAttrs::ReadOnly),
        _ => Err(unfit("target_session_attrs", text, "expected any, read-write or read-only")),
    }
}

fn parse_binding(text: &str) -> Result<ChannelBinding, SettingsError> {
    match text {
        "disable" => Ok(ChannelBinding::Disable),
        "prefer" => Ok(ChannelBinding::Prefer),
        "require" => Ok(ChannelBinding::Require),
        _ => Err(unfit("channel_binding", text, "expected disable, prefer or require")),
    }
}

/// Refuses modes without a name check for the system's root certificates: these sign everybody's
/// servers, so that without the name nothing is checked.
fn refuse_weak(mode: SslMode) -> Result<SslMode, SettingsError> {
    match mode {
        SslMode::VerifyFull => Ok(mode),
        weak => Err(SettingsError::Conflict(format!(
            "sslmode={weak} is too weak for sslrootcert=system; expected sslmode=verify-full"
        ))),
    }
}
