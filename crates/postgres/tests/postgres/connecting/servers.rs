//! The servers of these tests, started on first use, and the two clients: ours and psql, whose
//! libpq defines what is right.

use std::{
    ffi::OsString,
    process::{Command, Stdio},
    sync::LazyLock,
};

use busload_cluster::Cluster;
use busload_postgres::{
    Environment, Error, Options, Settings,
    connect::{Connected, connect},
};

use crate::connecting::certificates::Certificates;

pub const PASSWORD: &str = "p4ss:w0rd\\";

pub static CERTIFICATES: LazyLock<Certificates> = LazyLock::new(Certificates::make);

/// Without TLS; everybody is trusted.
pub static PLAIN: LazyLock<Cluster> = LazyLock::new(|| Cluster::builder().start().unwrap());

/// With TLS. `only_tls` and `no_tls` may log in only that way, `certified` needs a certificate.
pub static SIGNED: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::builder()
        .tls(CERTIFICATES.server.clone())
        .setting("ssl_ca_file", CERTIFICATES.path("right.crt").display().to_string())
        .hba("hostnossl all only_tls all reject")
        .hba("hostssl all no_tls all reject")
        .hba("hostssl all certified all cert")
        .start()
        .unwrap();
    cluster
        .execute(
            "CREATE ROLE only_tls LOGIN; CREATE ROLE no_tls LOGIN; CREATE ROLE certified LOGIN",
        )
        .unwrap();
    cluster
});

/// Server with a certificate that signed itself.
pub static SELF_SIGNED: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::builder().tls(CERTIFICATES.self_signed.clone()).start().unwrap());

/// Server with an expired certificate.
pub static EXPIRED: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::builder().tls(CERTIFICATES.expired.clone()).start().unwrap());

/// Everybody needs the password, by SCRAM.
pub static LOCKED: LazyLock<Cluster> = LazyLock::new(|| {
    Cluster::builder().tls(CERTIFICATES.server.clone()).password(PASSWORD).start().unwrap()
});

/// Returns settings from a URL alone, with the two mandatory options added.
pub fn settings(url: &str) -> Settings {
    settings_under(url, &Environment::empty())
}

pub fn settings_under(url: &str, environment: &Environment) -> Settings {
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}relation=t&key=k");
    Options { url: Some(url), ..Options::default() }.resolve("objects", environment).unwrap()
}

pub fn environment(variables: Vec<(&'static str, String)>) -> Environment {
    let lookup = move |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| OsString::from(value))
    };
    Environment::new(lookup, None)
}

pub async fn open(url: &str) -> Result<Connected, Error> {
    connect(&settings(url)).await
}

pub async fn failure(url: &str) -> String {
    open(url).await.map(|_| "connected").unwrap_err().to_string()
}

/// Returns the first value of a query, or the server's error.
pub async fn ask(connected: &Connected, query: &str) -> String {
    let rows = connected.client.query(query, &[]).await.unwrap();
    rows[0].get(0)
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Encrypted,
    Plain,
    Refused,
}

const IS_ENCRYPTED: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

pub async fn ours(url: &str) -> (Outcome, String) {
    match open(url).await {
        Err(error) => (Outcome::Refused, error.to_string()),
        Ok(connected) => {
            let rows = connected.client.query(IS_ENCRYPTED, &[]).await.unwrap();
            (if rows[0].get(0) { Outcome::Encrypted } else { Outcome::Plain }, String::new())
        }
    }
}

pub fn libpqs(url: &str) -> (Outcome, String) {
    let psql = PLAIN.programs().directory().join("psql");
    let output = Command::new(psql)
        .args([
            "--no-psqlrc",
            "--no-password",
            "--tuples-only",
            "--no-align",
            "--command",
            IS_ENCRYPTED,
            url,
        ])
        .env_clear()
        // A directory without certificates and passwords.
        .env("HOME", CERTIFICATES.path("nobody"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let outcome = match output.stdout.trim_ascii() {
        b"t" => Outcome::Encrypted,
        b"f" => Outcome::Plain,
        _ => Outcome::Refused,
    };
    (outcome, String::from_utf8_lossy(&output.stderr).into_owned())
}
