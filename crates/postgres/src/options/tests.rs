//! Options from URLs, fields and environment variables.

use std::{ffi::OsString, path::Path};

use tokio_postgres::config::{ChannelBinding, TargetSessionAttrs};

use super::*;
use crate::{
    Host,
    password::PasswordSource,
    tls::{ClientCertificate, RootCertificates, SslMode},
};

fn environment(variables: &'static [(&'static str, &'static str)]) -> Environment {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| OsString::from(value))
    };
    Environment::new(lookup, Some("somebody".to_owned()))
}

fn of_url(url: &str) -> Options {
    Options { url: Some(url.to_owned()), ..Options::default() }
}

fn resolved(url: &str) -> Settings {
    of_url(url)
        .resolve("objects", &environment(&[]))
        .unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Returns settings from a query, with the two mandatory options added.
fn with(query: &str) -> Settings {
    resolved(&format!("postgres://u@h/d?relation=t&key=k&{query}"))
}

fn refusal(url: &str) -> String {
    let refused = of_url(url).resolve("objects", &environment(&[]));
    refused.map(|settings| settings.describe()).unwrap_err().to_string()
}

fn refusal_of(query: &str) -> String {
    refusal(&format!("postgres://u@h/d?relation=t&key=k&{query}"))
}

fn under(variables: &'static [(&'static str, &'static str)], url: &str) -> Settings {
    of_url(url).resolve("objects", &environment(variables)).unwrap()
}

fn tcp(name: &str, port: u16) -> Host {
    Host::Tcp { name: name.into(), port }
}

#[test]
fn what_is_not_said_has_a_default() {
    let settings = resolved("postgres://app@db/lake?relation=random_read_test&key=pk");
    assert_eq!(settings.server.hosts, [tcp("db", 5432)]);
    assert_eq!((settings.server.user.as_str(), settings.server.dbname.as_str()), ("app", "lake"));
    assert_eq!(settings.server.application_name, "busload/objects");
    assert_eq!(settings.server.password, PasswordSource::Nowhere);
    assert_eq!(settings.server.tls.mode, SslMode::Prefer);
    assert_eq!(settings.server.connect_timeout, Duration::from_secs(5));
    assert_eq!((settings.key, settings.columns), (vec!["pk".to_owned()], None));
    assert_eq!((settings.separator, settings.writable, settings.connections), (':', false, 32));
    assert_eq!(settings.timeout, Duration::from_secs(1));
    assert_eq!(settings.queue, QueueSettings::default());
    assert_eq!(settings.queue.dispatch, busload_batch::DispatchPolicy::Adaptive);
    assert_eq!(settings.queue.check(), Ok(()));
}

#[test]
fn every_option_of_a_table_stands_in_the_query() {
    let settings = with(
        "columns=a,b&separator=/&writable=true&connections=7&timeout=250ms&batch=64\
         &queue_requests=100&queue_bytes=1MiB&join_in_flight=true\
         &password_file=/run/secret",
    );
    assert_eq!(settings.columns, Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!((settings.separator, settings.writable, settings.connections), ('/', true, 7));
    assert_eq!(settings.timeout, Duration::from_millis(250));
    assert_eq!(settings.server.password, PasswordSource::File("/run/secret".into()));
    let expected = QueueSettings {
        requests_max: 100,
        bytes_max: 1 << 20,
        batch_entries_max: 64,
        batches_in_flight_max: 7,
        sharing: Sharing::InFlight,
        ..QueueSettings::default()
    };
    assert_eq!(settings.queue, expected);
}

#[test]
fn fields_do_the_same_as_the_query() {
    let by_field = Options {
        url: Some("postgres://u@h/d".into()),
        relation: Some("s.t".into()),
        key: Some(vec!["a".into(), "b,c".into()]),
        columns: Some(vec!["Odd, Name".into()]),
        separator: Some('|'),
        writable: Some(true),
        connections: Some(1),
        timeout: Some(Duration::from_secs(2)),
        batch: Some(1),
        queue_requests: Some(1),
        queue_bytes: Some(1 << 20),
        join_in_flight: Some(false),
        password_file: Some("p".into()),
    };
    let settings = by_field.resolve("objects", &environment(&[])).unwrap();
    assert_eq!(
        settings.describe(),
        "postgres://u@h:5432/d relation=s.t key=a,b,c columns=Odd, Name writable"
    );
    assert_eq!(settings.key.len(), 2);
    assert_eq!(settings.queue.check(), Ok(()));
}

#[test]
fn every_name_is_known_by_its_place_and_only_once() {
    for name in TABLE_NAMES.iter().chain(&LOGIN_NAMES) {
        let url = format!("postgres://h?{name}=1");
        let taken = of_url(&url).resolve("objects", &environment(&[]));
        assert!(!matches!(taken, Err(SettingsError::Unknown { .. })), "{name}: {taken:?}");
    }
    assert_eq!(refusal_of("key=k"), "key is given twice");
    assert_eq!(refusal_of("user=u"), "user is given twice");
    assert_eq!(refusal_of("host=h"), "host is given twice");
    assert_eq!(refusal_of("dbname=d"), "dbname is given twice");
    let field = Options { batch: Some(1), ..of_url("postgres://u@h/d?relation=t&key=k&batch=1") };
    let error = field.resolve("objects", &environment(&[])).unwrap_err();
    assert_eq!(error, SettingsError::Twice("batch".into()));
}

#[test]
fn an_unknown_option_is_told_with_the_nearest_name() {
    for (query, expected) in [
        ("colums=a", "`colums` is no option of a postgres table; did you mean `columns`?"),
        ("sslmod=disable", "`sslmod` is no option of a postgres table; did you mean `sslmode`?"),
        ("Timeout=1s", "`Timeout` is no option of a postgres table; did you mean `timeout`?"),
    ] {
        assert_eq!(refusal_of(query), expected);
    }
    assert!(refusal_of("load_balance=1").contains("there are relation, key, columns"));
}

#[test]
fn values_that_do_not_fit_are_told_with_what_was_expected() {
    for (query, expected) in [
        ("connections=0", "connections = `0`: expected 1 to 128"),
        ("connections=129", "connections = `129`: expected 1 to 128"),
        ("connections=four", "connections = `four`: expected a number such as 8"),
        ("connections=-1", "connections = `-1`: expected a number such as 8"),
        ("timeout=1", "timeout = `1`: expected a time with its unit such as 500ms, 2s or 1m"),
        ("timeout=0s", "timeout = `0ns`: expected 1ms to 3600s"),
        ("batch=16385", "batch = `16385`: expected 1 to 16384"),
        ("queue_requests=0", "queue_requests = `0`: expected 1 to 16777215"),
        ("queue_bytes=1", "queue_bytes = `1`: expected 65536 to 68719476736"),
        ("queue_bytes=lots", "queue_bytes = `lots`: expected a size such as 64MiB, 500MB or 65536"),
        ("writable=maybe", "writable = `maybe`: expected true or false"),
        ("join_in_flight=2", "join_in_flight = `2`: expected true or false"),
        ("separator=::", "separator = `::`: expected one letter such as :"),
        ("separator=", "separator = ``: expected one letter such as :"),
        ("separator=%5C", "separator = `\\\\`: expected a letter that is neither"),
        ("columns=a,,b", "columns = ``: expected the name of a column"),
        ("columns=a,a", "columns = `a`: expected each column once"),
        ("columns=a,k", "column `k` is in key and in columns"),
        ("port=0", "port = `0`: expected 1 to 65535"),
        (
            "sslmode=yes",
            "sslmode = `yes`: expected disable, allow, prefer, require, verify-ca or verify-full",
        ),
        ("target_session_attrs=primary", "expected any, read-write or read-only"),
        ("channel_binding=on", "expected disable, prefer or require"),
        ("connect_timeout=0", "connect_timeout = `0ns`: expected 1ms to 600s"),
        ("connect_timeout=soon", "connect_timeout = `soon`: expected a number (of 1s) or a time"),
        ("keepalives_count=200", "keepalives_count = `200`: expected 1 to 127"),
        (
            "sslrootcert=system&sslmode=require",
            "sslmode=require is too weak for sslrootcert=system",
        ),
    ] {
        let error = refusal_of(query);
        assert!(error.contains(expected), "{query}: {error}");
    }
    for (url, expected) in [
        ("postgres://u@h/d?key=k", "relation is missing: the Postgres table to serve"),
        (
            "postgres://u@h/d?relation=t",
            "key is missing: the column or columns with a unique index",
        ),
        ("postgres://u@h/d?relation=t.&key=k", "relation = `t.`: expected a name as in SQL"),
        ("postgres://u@h/d?relation=t&key=", "key = ``: expected the name of a column"),
        ("postgres://u@h/d?relation=t&key=k,k", "key = `k`: expected each column once"),
        ("postgres://u@a,b:1,c:2/d?relation=t&key=k&port=1,2", "port is given twice"),
        ("postgres://u@a,b/d?relation=t&key=k&port=1,2,3", "2 hosts and 3 ports"),
        ("postgres://u@a b/d?relation=t&key=k", "host: expected a name, an address or"),
        ("mysql://u@h/d?relation=t&key=k", "the URL of the table: expected postgres://"),
    ] {
        assert!(refusal(url).starts_with(expected), "{url}: {}", refusal(url));
    }
    let many = (0..17).map(|number| format!("h{number}")).collect::<Vec<_>>().join(",");
    assert!(
        refusal(&format!("postgres://u@{many}/d?relation=t&key=k")).contains("at most 16 hosts")
    );
}

#[test]
fn hosts_are_found_wherever_libpq_finds_them() {
    let unix = |directory: &str, port| Host::Unix { directory: directory.into(), port };
    for (url, expected) in [
        ("postgres://?", vec![tcp("localhost", 5432)]),
        ("postgres://a,b:2/d?", vec![tcp("a", 5432), tcp("b", 2)]),
        ("postgres://[::1]:7/d?", vec![tcp("::1", 7)]),
        ("postgres:///d?host=a,b&port=1,2", vec![tcp("a", 1), tcp("b", 2)]),
        ("postgres:///d?host=a,b&port=9", vec![tcp("a", 9), tcp("b", 9)]),
        ("postgres:///d?host=/var/run/postgresql", vec![unix("/var/run/postgresql", 5432)]),
        ("postgres://:5433/d?host=/tmp", vec![unix("/tmp", 5433)]),
        ("postgres://%2Ftmp:5433,h/d?", vec![unix("/tmp", 5433), tcp("h", 5432)]),
    ] {
        let settings = resolved(&format!("{url}&relation=t&key=k"));
        assert_eq!(settings.server.hosts, expected, "{url}");
    }
}

#[test]
fn variables_say_what_the_url_does_not() {
    const ALL: &[(&str, &str)] = &[
        ("PGHOST", "pghost"),
        ("PGPORT", "6000"),
        ("PGUSER", "pguser"),
        ("PGDATABASE", "pgdb"),
        ("PGPASSWORD", "SECRET"),
        ("PGSSLMODE", "verify-ca"),
        ("PGSSLROOTCERT", "/roots"),
        ("PGSSLCERT", "/cert"),
        ("PGSSLKEY", "/key"),
    ];
    let server = under(ALL, "postgres://?relation=t&key=k").server;
    assert_eq!(server.to_string(), "postgres://pguser@pghost:6000/pgdb");
    assert!(matches!(server.password, PasswordSource::Given(_)));
    assert_eq!(
        (server.tls.mode, server.tls.roots),
        (SslMode::VerifyCa, RootCertificates::File("/roots".into()))
    );
    let client = ClientCertificate::Files { certificate: "/cert".into(), key: Some("/key".into()) };
    assert_eq!(server.tls.client, client);
    let server = under(
        ALL,
        "postgres://u@h:1/d?relation=t&key=k&sslmode=disable&sslrootcert=/r&sslcert=/c&sslkey=/k",
    )
    .server;
    assert_eq!(server.to_string(), "postgres://u@h:1/d");
    assert_eq!(
        (server.tls.mode, server.tls.roots),
        (SslMode::Disable, RootCertificates::File("/r".into()))
    );
    // By default a table has the operating system's user, and a database of that name.
    let server = under(&[("PGHOST", "")], "postgres://?relation=t&key=k").server;
    assert_eq!(server.to_string(), "postgres://somebody@localhost:5432/somebody");
    let nobody =
        of_url("postgres://h/d?relation=t&key=k").resolve("objects", &Environment::empty());
    assert!(nobody.unwrap_err().to_string().starts_with("user is missing"));
    let broken = of_url("postgres://h/d?relation=t&key=k")
        .resolve("objects", &environment(&[("PGSSLMODE", "on")]));
    assert!(broken.unwrap_err().to_string().starts_with("sslmode = `on`"));
}

#[test]
fn the_password_comes_from_the_first_that_has_one() {
    const VARIABLES: &[(&str, &str)] =
        &[("PGPASSWORD", "PW"), ("PGPASSFILE", "/pgpass"), ("HOME", "/home/u")];
    const URL: &str = "postgres://u:URL@h/d?relation=t&key=k";
    const BARE: &str = "postgres://u@h/d?relation=t&key=k";
    let given = |password: &PasswordSource| match password {
        PasswordSource::Given(password) => String::from_utf8(password.reveal().to_vec()).unwrap(),
        other => format!("{other:?}"),
    };
    let from = |variables, url: &str| given(&under(variables, url).server.password);
    assert_eq!(from(VARIABLES, &format!("{URL}&password_file=/f")), "File(\"/f\")");
    assert_eq!(from(VARIABLES, URL), "URL");
    assert_eq!(from(VARIABLES, &format!("{BARE}&password=QUERY")), "QUERY");
    assert_eq!(from(VARIABLES, BARE), "PW");
    assert_eq!(from(&VARIABLES[1..], &format!("{BARE}&passfile=/own")), "PassFile(\"/own\")");
    assert_eq!(from(&VARIABLES[1..], BARE), "PassFile(\"/pgpass\")");
    assert_eq!(from(&VARIABLES[2..], BARE), "PassFile(\"/home/u/.pgpass\")");
    assert_eq!(from(&[], BARE), "Nowhere");
    assert!(
        refusal("postgres://u:a@h/d?relation=t&key=k&password=b")
            .contains("password is given twice")
    );
}

#[test]
fn a_password_in_the_url_is_noticed_and_never_shown() {
    for (url, has) in [
        ("postgres://u:SECRET@h/d?relation=t&key=k", true),
        ("postgres://u@h/d?relation=t&key=k&password=SECRET", true),
        ("postgres://u@h/d?relation=t&key=k&application_name=password", false),
        ("postgres://u:@h/d?relation=t&key=k", false),
    ] {
        let options = of_url(url);
        assert_eq!(options.url_has_password(), has, "{url}");
        assert!(!format!("{options:?} {options:#?}").contains("SECRET"));
        let settings = options.resolve("objects", &environment(&[])).unwrap();
        assert!(
            !format!("{settings:?} {settings:#?} {}", settings.describe()).contains("SECRET"),
            "{url}"
        );
    }
    // This holds whatever else is wrong.
    for rest in [
        "h/d",
        "h:x/d",
        "h/d?relation=",
        "h/d?relation=t&key=k&nonsense=1",
        "h/d?relation=t&key=k&port=a",
    ] {
        let error = refusal(&format!("postgres://u:SECRET@{rest}"));
        assert!(!error.contains("SECRET"), "{error}");
    }
}

#[test]
fn options_of_libpq_are_taken() {
    let server = with(
        "connect_timeout=3&application_name=app&target_session_attrs=read-write\
         &channel_binding=require&options=-c%20search_path%3Da&keepalives=0&keepalives_idle=7\
         &keepalives_interval=2s&keepalives_count=4&tcp_user_timeout=1500&sslmode=require",
    )
    .server;
    assert_eq!(server.connect_timeout, Duration::from_secs(3));
    assert_eq!(server.application_name, "app");
    assert_eq!(server.target_session_attrs, TargetSessionAttrs::ReadWrite);
    assert_eq!(server.channel_binding, ChannelBinding::Require);
    assert_eq!(server.options.as_deref(), Some("-c search_path=a"));
    let keepalive = &server.keepalive;
    assert_eq!((keepalive.enabled, keepalive.count), (false, 4));
    assert_eq!(
        (keepalive.idle, keepalive.interval),
        (Duration::from_secs(7), Duration::from_secs(2))
    );
    assert_eq!(keepalive.user_timeout, Duration::from_millis(1500));
    assert_eq!(server.tls.mode, SslMode::Require);
    assert_eq!(with("sslrootcert=system").server.tls.mode, SslMode::VerifyFull);
    assert_eq!(with("keepalives_idle=0").server.keepalive, with("").server.keepalive);
}

#[test]
fn certificates_are_looked_for_in_the_users_directory() {
    let tls = under(&[("HOME", "/home/u")], "postgres://u@h/d?relation=t&key=k").server.tls;
    let root = Path::new("/home/u/.postgresql/root.crt");
    assert_eq!(tls.roots, RootCertificates::FileIfThere(Some(root.into())));
    let client = ClientCertificate::FilesIfThere {
        certificate: "/home/u/.postgresql/postgresql.crt".into(),
        key: Some("/home/u/.postgresql/postgresql.key".into()),
    };
    assert_eq!(tls.client, client);
    assert_eq!(with("").server.tls.roots, RootCertificates::FileIfThere(None));
}

#[test]
fn a_table_is_described_in_one_line() {
    for (url, expected) in [
        (
            "postgres://app:SECRET@db/lake?relation=public.random_read_test&key=pk&columns=payload",
            "postgres://app@db:5432/lake relation=public.random_read_test key=pk columns=payload",
        ),
        (
            "postgres://a%40b@h1,[::1]:2/my%20db?relation=%22Odd%20Name%22&key=a,b&writable=on",
            "postgres://a%40b@h1:5432,[::1]:2/my%20db relation=\"Odd Name\" key=a,b \
             columns=(all others) writable",
        ),
        (
            "postgres://u@%2Ftmp/d?relation=t&key=k",
            "postgres://u@%2Ftmp:5432/d relation=t key=k columns=(all others)",
        ),
    ] {
        assert_eq!(resolved(url).describe(), expected);
    }
}
