//! Options that flags and file share, in one list. All are optional; the caller fills in defaults.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Args;

use super::{
    address::Listen,
    http_url::HttpUrl,
    otel::{OtelEndpoint, OtelService, SampleShare},
    peers::PeerEntry,
    prices::Price,
    secret_argument::SecretArgument,
    stores::StoresSpec,
    table::TableSpec,
    units::{MemoryMax, Size, SnapshotLog, UrlLifetime},
};
use crate::{
    http::HostName,
    logger::{LogFormat, LogLevels},
};

/// Greatest value of `maxclients`.
pub const MAXCLIENTS_MAX: u32 = 1_000_000;
/// Greatest value of `http_threads`.
const HTTP_THREADS_MAX: usize = 64;

/// Keys of the file's top level, without `tables`.
pub const OPTION_KEYS: [&str; 36] = [
    "acl_file",
    "client_reply_bytes",
    "data",
    "http",
    "http_hosts",
    "http_threads",
    "http_url",
    "http_url_lifetime",
    "log_format",
    "log_level",
    "maxclients",
    "memory_max",
    "net_threads",
    "otel_endpoint",
    "otel_sample",
    "otel_service",
    "password_file",
    "peer_ca",
    "peer_self",
    "peers",
    "price_dynamodb",
    "price_egress",
    "price_get",
    "price_list",
    "reply_bytes_total",
    "request_bytes",
    "resp",
    "snapshot_cpu",
    "snapshot_log",
    "tls_cert",
    "tls_client_ca",
    "tls_key",
    "token_audience",
    "token_file",
    "token_url",
    "unix",
];

/// Options that flags and file share.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Directory of the data; created when missing [default: busload-data]
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub data: Option<PathBuf>,

    /// TCP address for Redis clients, or `none`; may be given several times [default:
    /// 127.0.0.1:6380]
    ///
    /// An address that is not loopback needs a password.
    #[arg(long, value_name = "ADDR", help_heading = "Fronts")]
    pub resp: Vec<Listen>,

    /// Path of a Unix socket for Redis clients; the permissions of its directory decide who may
    /// connect
    #[arg(long, value_name = "PATH", help_heading = "Fronts")]
    pub unix: Option<PathBuf>,

    /// TCP address of gRPC, Dolt's clients, /healthz, /readyz and /metrics, or `none` [default:
    /// 127.0.0.1:6381]
    ///
    /// An address that is not loopback needs a password, which clients then send as `authorization:
    /// Basic` with any user name.
    #[arg(long, value_name = "ADDR", help_heading = "Fronts")]
    pub http: Option<Listen>,

    /// URL under which clients reach HTTP, like `https://cache.example.com`, for URLs that Dolt's
    /// clients are given
    ///
    /// Without it those URLs begin with the host that a client asked for (and https, if
    /// `x-forwarded-proto` says so). A path is for a proxy that removes it again.
    #[arg(
        long,
        value_name = "URL",
        value_parser = SecretArgument::<HttpUrl>::default(),
        help_heading = "Fronts"
    )]
    pub http_url: Option<HttpUrl>,

    /// Time for which URLs that Dolt's clients are given are valid where clients must log in, like
    /// 12h or 7d: longer than any clone takes [default: 1d]
    #[arg(long, value_name = "SPAN", help_heading = "Fronts")]
    pub http_url_lifetime: Option<UrlLifetime>,

    /// Host, like `cache.internal`, under which clients ask HTTP where it asks for no password; may
    /// be given several times
    ///
    /// On a loopback address HTTP asks for no password, and so it answers only requests for
    /// localhost, for an IP address, for the host of --http-url and for these hosts: a web page
    /// that points its own name at this machine (DNS rebinding) asks for that name.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Fronts")]
    pub http_hosts: Vec<HostName>,

    /// URL, like `http://a:6381`, of a server that caches the same stores, this one included; may
    /// be given several times. Or `dns:NAME:PORT` for all addresses of a name
    ///
    /// Each table file belongs to one of them, from whose disk Dolt's clients download it. All
    /// must have the same tables and the same password. A name is resolved again every few seconds.
    #[arg(
        long,
        value_name = "URL",
        value_delimiter = ',',
        value_parser = SecretArgument::<PeerEntry>::default(),
        help_heading = "Fronts"
    )]
    pub peers: Vec<PeerEntry>,

    /// URL of this server as it stands in `peers`; with `dns:` its address, like
    /// `http://10.0.0.1:6381`
    #[arg(
        long,
        value_name = "URL",
        value_parser = SecretArgument::<HttpUrl>::default(),
        help_heading = "Fronts"
    )]
    pub peer_self: Option<HttpUrl>,

    /// File with the PEM certificates of the authorities that signed those of peers at `https://`
    /// [default: those of the operating system]
    #[arg(long, value_name = "FILE", help_heading = "Fronts")]
    pub peer_ca: Option<PathBuf>,

    /// Threads that serve gRPC and HTTP [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_http_threads, help_heading = "Fronts")]
    pub http_threads: Option<NonZeroUsize>,

    /// Threads that serve only Redis clients' sockets: 0 or 1 [default: 0 on one or two
    /// processors, else 1]
    #[arg(long, value_name = "0|1", value_parser = parse_net_threads, help_heading = "Fronts")]
    pub net_threads: Option<u8>,

    /// A table: NAME='memory:?sync=MODE&memory_max=SIZE&evict=POLICY', NAME='postgres://...' or
    /// NAME='chunks+s3://...'; may be given several times
    ///
    /// Keys `NAME:...` belong to it; all others belong to the memory table `default`. MODE is
    ///   always       reply after the sync: every acknowledged write survives power loss (default)
    ///   interval:MS  reply after the write, sync every MS: power loss costs at most that long
    ///   os           reply after the write: survives a crash of busload, not always power loss
    ///   off          no log at all: nothing survives a stop (a cache)
    /// POLICY is what happens at SIZE, or at the memory_max of all tables:
    ///   none         writes that need memory are refused with -OOM (default)
    ///   s3-fifo      keys that are not used are deleted: the table is a cache
    /// A Postgres table is a URL as libpq takes it, without a password, with settings in its query:
    ///   postgres://USER@HOST:PORT/DATABASE
    ///       ?relation=NAME&key=COLUMN[,..]&columns=COLUMN[,..]&writable=true
    /// (see "Postgres tables" at the end of busload --help). A chunk table is the URL of a Dolt
    /// store after `chunks+`:
    ///   chunks+s3://BUCKET/PREFIX?endpoint=URL&disk=SIZE or chunks+file:///DIRECTORY
    /// (see "Chunk tables" there).
    #[arg(
        long = "table",
        value_name = "NAME=URL",
        value_parser = SecretArgument::<TableSpec>::default(),
        help_heading = "Data",
        verbatim_doc_comment
    )]
    pub tables: Vec<TableSpec>,

    /// Dolt stores by pattern: PATTERN=URL, as '*/*=s3://BUCKET/PREFIX/{name}'; may be given
    /// several times
    ///
    /// Every name that matches is a store, opened when it is first asked for and closed when idle:
    /// keys `org/db:ADDRESS`, gRPC and Dolt's clients reach it. A `*` stands for one part of a
    /// name, {name} in the URL for the name, {1} and {2} for its parts. The query has the settings
    /// of a chunk table, for all stores together, and stores_max=N, index_memory=SIZE, idle=SPAN.
    #[arg(
        long = "stores",
        value_name = "PATTERN=URL",
        value_parser = SecretArgument::<StoresSpec>::default(),
        help_heading = "Data"
    )]
    pub stores: Vec<StoresSpec>,

    /// File whose first line is the password clients must give (AUTH, HELLO; HTTP where it does not
    /// listen on a loopback address)
    ///
    /// Without it the password comes from BUSLOAD_PASSWORD in the environment, or else from
    /// password_file in the configuration file.
    #[arg(long, value_name = "FILE", help_heading = "Fronts")]
    pub password_file: Option<PathBuf>,

    /// File of users, with their rights and argon2id hashes of their passwords; `busload user add
    /// NAME` makes it
    ///
    /// The password of --password-file or BUSLOAD_PASSWORD is that of the user `default`, who may
    /// do everything unless the file says otherwise. HTTP asks for these users, too.
    #[arg(long, value_name = "FILE", help_heading = "Fronts")]
    pub acl_file: Option<PathBuf>,

    /// File of tokens, TOML: SHA-256 of bearer tokens and public keys of Dolt's clients, each with
    /// patterns of the stores that it may read
    ///
    /// Everybody must not be able to read the file. It needs a password or a file of users.
    #[arg(long, value_name = "FILE", help_heading = "Fronts")]
    pub token_file: Option<PathBuf>,

    /// URL that is asked by POST whether a token, which is not in the file of tokens, may read a
    /// store
    ///
    /// Its answers are kept for some time. It needs a password or a file of users.
    #[arg(
        long,
        value_name = "URL",
        value_parser = SecretArgument::<HttpUrl>::default(),
        help_heading = "Fronts"
    )]
    pub token_url: Option<HttpUrl>,

    /// Audience that tokens signed by Dolt's clients must be for: the host of the remote's URL; may
    /// be given several times [default: the host that a client asks for]
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Fronts")]
    pub token_audience: Vec<HostName>,

    /// PEM file with the server's certificate and those behind it: Redis clients, gRPC and HTTP use
    /// TLS 1.2 or 1.3 on every TCP address
    ///
    /// A Unix socket is not encrypted. SIGHUP makes the server read the files again: connections
    /// go on, new ones get the new certificate.
    #[arg(long, value_name = "FILE", help_heading = "Fronts")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file with the private key of the certificate, without a passphrase
    #[arg(long, value_name = "FILE", help_heading = "Fronts")]
    pub tls_key: Option<PathBuf>,

    /// PEM file with certificates of authorities: every client needs a certificate that one of them
    /// signed
    #[arg(long, value_name = "FILE", help_heading = "Fronts")]
    pub tls_client_ca: Option<PathBuf>,

    /// Memory of all tables above which writes are refused: a size, a percentage or `none`
    /// [default: 70%]
    ///
    /// A percentage is of the machine's memory or the container's limit, whichever is less.
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub memory_max: Option<MemoryMax>,

    /// Least growth of the log after which a snapshot is made, or `none` to make them only when a
    /// client asks (BGSAVE) [default: 64MiB]
    ///
    /// If the last snapshot is larger, the log grows by its size. The two newest snapshots are
    /// kept, and the log behind the older one.
    #[arg(long, value_name = "SIZE", help_heading = "Data")]
    pub snapshot_log: Option<SnapshotLog>,

    /// Share of one processor that the thread which makes snapshots takes [default: 25%, or 10%
    /// where busload may use only one processor]
    ///
    /// It takes more when the log behind the last snapshot is longer than twice the contents.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, help_heading = "Data")]
    pub snapshot_cpu: Option<u32>,

    /// Most connections at once [default: 10000]
    #[arg(long, value_name = "N", value_parser = parse_maxclients, help_heading = "Limits")]
    pub maxclients: Option<u32>,

    /// Pending replies of one client above which busload stops reading from it [default: 64MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub client_reply_bytes: Option<Size>,

    /// Memory of all connections above which the one with the most is closed [default: 2GiB]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub reply_bytes_total: Option<Size>,

    /// Longest request with all its arguments [default: 1GiB]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub request_bytes: Option<Size>,

    /// Level of the log on stderr: error, warn, info, debug or trace; or levels by module, such as
    /// info,busload_postgres=debug [default: info]
    #[arg(long, value_name = "LEVELS")]
    pub log_level: Option<LogLevels>,

    /// Format of the log: text, or json with one object a line [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Price of a million GETs of an object store in USD, by which /metrics shows what was saved
    /// [default: 0.4]
    #[arg(long, value_name = "USD", help_heading = "Prices")]
    pub price_get: Option<Price>,

    /// Price of a million LISTs in USD [default: 5]
    #[arg(long, value_name = "USD", help_heading = "Prices")]
    pub price_list: Option<Price>,

    /// Price of a GiB that leaves the object store in USD: nothing within a region of S3, 0.09 to
    /// the internet [default: 0]
    #[arg(long, value_name = "USD", help_heading = "Prices")]
    pub price_egress: Option<Price>,

    /// Price of a million read units of DynamoDB in USD [default: 0.125]
    #[arg(long, value_name = "USD", help_heading = "Prices")]
    pub price_dynamodb: Option<Price>,

    /// URL of a collector of OpenTelemetry, OTLP over HTTP, that gets traces of requests to
    /// Postgres and chunk tables, like http://127.0.0.1:4318
    ///
    /// This needs a busload that was built with the feature otel.
    #[arg(
        long,
        value_name = "URL",
        value_parser = SecretArgument::<OtelEndpoint>::default(),
        help_heading = "Traces"
    )]
    pub otel_endpoint: Option<OtelEndpoint>,

    /// Share of requests that are traced, where the caller does not say it by a header
    /// `traceparent` [default: 1%]
    #[arg(long, value_name = "PERCENT", help_heading = "Traces")]
    pub otel_sample: Option<SampleShare>,

    /// Name of this service in traces [default: OTEL_SERVICE_NAME, or busload]
    #[arg(long, value_name = "NAME", help_heading = "Traces")]
    pub otel_service: Option<OtelService>,
}

impl Options {
    /// Sets the option that has this name in the file.
    pub fn set(&mut self, key: &str, values: &[String]) -> Result<(), String> {
        if key == "resp" {
            self.resp = values.iter().map(|value| value.parse()).collect::<Result<_, _>>()?;
            return Ok(());
        }
        if key == "http_hosts" {
            self.http_hosts = values.iter().map(|value| value.parse()).collect::<Result<_, _>>()?;
            return Ok(());
        }
        if key == "token_audience" {
            self.token_audience =
                values.iter().map(|value| value.parse()).collect::<Result<_, _>>()?;
            return Ok(());
        }
        if key == "peers" {
            self.peers = values.iter().map(|value| value.parse()).collect::<Result<_, _>>()?;
            return Ok(());
        }
        let [value] = values else { return Err(format!("`{key}` takes one value")) };
        match key {
            "data" => self.data = Some(path(value)?),
            "unix" => self.unix = Some(path(value)?),
            "http" => self.http = Some(value.parse()?),
            "acl_file" => self.acl_file = Some(path(value)?),
            "http_url_lifetime" => self.http_url_lifetime = Some(value.parse()?),
            "http_url" => self.http_url = Some(value.parse()?),
            "peer_ca" => self.peer_ca = Some(path(value)?),
            "peer_self" => self.peer_self = Some(value.parse()?),
            "http_threads" => self.http_threads = Some(parse_http_threads(value)?),
            "net_threads" => self.net_threads = Some(parse_net_threads(value)?),
            "otel_endpoint" => self.otel_endpoint = Some(value.parse()?),
            "otel_sample" => self.otel_sample = Some(value.parse()?),
            "otel_service" => self.otel_service = Some(value.parse()?),
            "price_dynamodb" => self.price_dynamodb = Some(value.parse()?),
            "price_egress" => self.price_egress = Some(value.parse()?),
            "price_get" => self.price_get = Some(value.parse()?),
            "price_list" => self.price_list = Some(value.parse()?),
            "password_file" => self.password_file = Some(path(value)?),
            "tls_cert" => self.tls_cert = Some(path(value)?),
            "tls_key" => self.tls_key = Some(path(value)?),
            "tls_client_ca" => self.tls_client_ca = Some(path(value)?),
            "token_file" => self.token_file = Some(path(value)?),
            "token_url" => self.token_url = Some(value.parse()?),
            "memory_max" => self.memory_max = Some(value.parse()?),
            "snapshot_cpu" => self.snapshot_cpu = Some(parse_percent(value)?),
            "snapshot_log" => self.snapshot_log = Some(value.parse()?),
            "maxclients" => self.maxclients = Some(parse_maxclients(value)?),
            "client_reply_bytes" => self.client_reply_bytes = Some(value.parse()?),
            "reply_bytes_total" => self.reply_bytes_total = Some(value.parse()?),
            "request_bytes" => self.request_bytes = Some(value.parse()?),
            "log_level" => self.log_level = Some(value.parse()?),
            "log_format" => self.log_format = Some(value.parse()?),
            _ => return Err(format!("`{key}` cannot be set in the file")),
        }
        Ok(())
    }

    /// Fills in options that are not set from `other`. A table in both is not merged: this one's
    /// settings hold.
    pub fn or(self, other: Self) -> Self {
        let mut tables = self.tables;
        for table in other.tables {
            if !tables.iter().any(|known| known.name() == table.name()) {
                tables.push(table);
            }
        }
        let mut stores = self.stores;
        for spec in other.stores {
            if !stores.iter().any(|known| known.pattern() == spec.pattern()) {
                stores.push(spec);
            }
        }
        Self {
            data: self.data.or(other.data),
            resp: if self.resp.is_empty() { other.resp } else { self.resp },
            unix: self.unix.or(other.unix),
            http: self.http.or(other.http),
            http_hosts: if self.http_hosts.is_empty() { other.http_hosts } else { self.http_hosts },
            peers: if self.peers.is_empty() { other.peers } else { self.peers },
            peer_ca: self.peer_ca.or(other.peer_ca),
            peer_self: self.peer_self.or(other.peer_self),
            http_url: self.http_url.or(other.http_url),
            http_url_lifetime: self.http_url_lifetime.or(other.http_url_lifetime),
            acl_file: self.acl_file.or(other.acl_file),
            http_threads: self.http_threads.or(other.http_threads),
            net_threads: self.net_threads.or(other.net_threads),
            tables,
            stores,
            password_file: self.password_file.or(other.password_file),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_client_ca: self.tls_client_ca.or(other.tls_client_ca),
            token_file: self.token_file.or(other.token_file),
            token_url: self.token_url.or(other.token_url),
            token_audience: if self.token_audience.is_empty() {
                other.token_audience
            } else {
                self.token_audience
            },
            memory_max: self.memory_max.or(other.memory_max),
            snapshot_cpu: self.snapshot_cpu.or(other.snapshot_cpu),
            snapshot_log: self.snapshot_log.or(other.snapshot_log),
            maxclients: self.maxclients.or(other.maxclients),
            client_reply_bytes: self.client_reply_bytes.or(other.client_reply_bytes),
            reply_bytes_total: self.reply_bytes_total.or(other.reply_bytes_total),
            request_bytes: self.request_bytes.or(other.request_bytes),
            log_level: self.log_level.or(other.log_level),
            log_format: self.log_format.or(other.log_format),
            price_get: self.price_get.or(other.price_get),
            price_list: self.price_list.or(other.price_list),
            price_egress: self.price_egress.or(other.price_egress),
            price_dynamodb: self.price_dynamodb.or(other.price_dynamodb),
            otel_endpoint: self.otel_endpoint.or(other.otel_endpoint),
            otel_sample: self.otel_sample.or(other.otel_sample),
            otel_service: self.otel_service.or(other.otel_service),
        }
    }
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("expected a path".to_owned()) } else { Ok(text.into()) }
}

fn parse_net_threads(text: &str) -> Result<u8, String> {
    match text {
        "0" => Ok(0),
        "1" => Ok(1),
        _ => Err(format!("{text} threads for sockets; expected 0 or 1")),
    }
}

fn parse_http_threads(text: &str) -> Result<NonZeroUsize, String> {
    let parsed = text.parse().ok().filter(|count: &NonZeroUsize| count.get() <= HTTP_THREADS_MAX);
    parsed.ok_or_else(|| format!("{text} threads for HTTP; expected 1 to {HTTP_THREADS_MAX}"))
}

fn parse_percent(text: &str) -> Result<u32, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
    percent
        .filter(|percent| (1..=100).contains(percent))
        .ok_or_else(|| format!("{text} as a share of one processor; expected 1% to 100%"))
}

fn parse_maxclients(text: &str) -> Result<u32, String> {
    let parsed = text.parse().ok().filter(|count| (1..=MAXCLIENTS_MAX).contains(count));
    parsed.ok_or_else(|| format!("{text} connections; expected 1 to {MAXCLIENTS_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_file_can_be_set_and_is_refused_when_it_is_nonsense() {
        for key in OPTION_KEYS {
            let mut options = Options::default();
            let value = match key {
                "data" | "unix" | "password_file" | "acl_file" | "token_file" | "peer_ca" => "x",
                "http_url_lifetime" => "12h",
                "resp" | "http" => "127.0.0.1:1",
                "http_hosts" | "token_audience" => "cache.internal",
                "net_threads" | "http_threads" => "1",
                "http_url" | "token_url" | "peers" | "peer_self" | "otel_endpoint" => {
                    "https://cache.example.com"
                }
                "otel_sample" => "5%",
                "log_level" => "info",
                "log_format" => "json",
                "snapshot_cpu" => "10%",
                _ => "4096",
            };
            assert_eq!(options.set(key, &[value.into()]), Ok(()), "{key}");
            assert_ne!(options, Options::default(), "{key}");
            assert!(options.set(key, &["".into()]).is_err(), "{key}");
        }
    }

    #[test]
    fn flags_win_over_the_file_and_a_table_is_taken_whole() {
        let flags = Options {
            maxclients: Some(1),
            tables: vec!["a=memory:?sync=off".parse().unwrap()],
            ..Options::default()
        };
        let file = Options {
            maxclients: Some(2),
            data: Some("d".into()),
            tables: vec![
                "a=memory:?memory_max=1GiB".parse().unwrap(),
                "b=memory:".parse().unwrap(),
            ],
            ..Options::default()
        };
        let merged = flags.or(file);
        assert_eq!((merged.maxclients, merged.data), (Some(1), Some("d".into())));
        let expected: Vec<TableSpec> =
            ["a=memory:?sync=off", "b=memory:"].map(|text| text.parse().unwrap()).into();
        assert_eq!(merged.tables, expected);
    }
}
