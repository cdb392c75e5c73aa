//! Databases of one pattern over `aws://`, read by people whose keys are in the file of tokens.
//!
//! ```text
//!  org/a, org/b --push--> DynamoDB, S3 <--reads-- busload --stores '*/*=aws://.../{name}'
//!                                                    |
//!  ada  (org/*)  ------ JWT by `dolt creds` ---------+--> clones, fetches
//!  bob  (org/b)  -----------------------------------+--> org/b; org/a is not there for him
//!  nobody  ------------------------------------------+--> has to log in   
//! ```
//!
//! Dolt sends its token over `http://` as well. Its audience is the host of the URL without the
//! port, or what `DOLT_OVERRIDE_GRPC_JWT_AUDIENCE` says.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::{
    super::dolt::Run, Aws, BUCKET, KEY_ID, REMOTE_SETTINGS, Remote, SECRET, Server, TABLE,
};
use crate::steps::output;

/// Rows of a push; what is read is checked elsewhere.
const ROWS: u64 = 1_000;
/// Password of a user, without which there are no tokens. No client here knows it.
const PASSWORD: &str = "password-of-a-test";
/// Profile of AWS' files that busload has its credentials from.
const PROFILE: &str = "of-a-test";
/// Audience that a server has instead of its host.
const AUDIENCE: &str = "dolt.example.com";

/// Protocol of a server's HTTP front.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

impl Aws<'_> {
    /// Pushes two databases and reads them with tokens.
    pub(super) fn check_pattern(&self) -> Result<()> {
        let run = &self.run;
        let mut sources = Vec::new();
        for database in ["org/a", "org/b"] {
            let remote = Remote {
                url: &format!("aws://[{TABLE}:{BUCKET}]/{database}"),
                settings: &REMOTE_SETTINGS,
            };
            let name = database.replace('/', "-");
            sources.push(run.make_named_source(&name, &remote, ROWS)?);
        }
        let certificate = certificate(run)?;
        let trust = ("SSL_CERT_FILE", certificate.display().to_string());
        let [ada, bob, nobody] =
            ["ada", "bob", "nobody"].map(|name| run.of_person(name, std::slice::from_ref(&trust)));
        let (ada, bob, nobody) = (ada?, bob?, nobody?);
        let keys = [(new_key(&ada)?, "org/*"), (new_key(&bob)?, "org/b")];
        let tokens = token_file(run, &keys)?;

        let server = self.serve_pattern(&tokens, &[])?;
        let (a, b) = (url(&server, Scheme::Http, "org/a")?, url(&server, Scheme::Http, "org/b")?);
        for (url, source, name) in [(&a, &sources[0], "a"), (&b, &sources[1], "b")] {
            ada.dolt(ada.home(), &["clone", url, name])?;
            ada.expect_same(source, &ada.home().join(name), "clone by token")?;
        }
        let copy = ada.home().join("a");
        run.push(&mut sources[0], ROWS)?;
        ada.fetch_until_new(&sources[0], &copy)?;
        ada.dolt(&copy, &["merge", "origin/main"])?;
        ada.expect_same(&sources[0], &copy, "fetch by token")?;
        let absent = url(&server, Scheme::Http, "org/absent")?;
        ada.expect_said(ada.home(), &["clone", &absent, "none"], "org/absent")?;

        bob.dolt(bob.home(), &["clone", &b, "b"])?;
        bob.expect_same(&sources[1], &bob.home().join("b"), "clone by another token")?;
        let refused = "there is no chunk store `org/a` that this token may read";
        bob.expect_said(bob.home(), &["clone", &a, "none"], refused)?;
        let refused = "there is no chunk store `org/absent` that this token may read";
        bob.expect_said(bob.home(), &["clone", &absent, "none"], refused)?;
        nobody.expect_said(nobody.home(), &["clone", &a, "none"], "dolt creds use")?;
        server.stop()?;

        let tls = tls_arguments(run);
        let audience = ["--token-audience".to_owned(), AUDIENCE.to_owned()];
        let server = self.serve_pattern(&tokens, &[&tls[..], &audience].concat())?;
        let a = url(&server, Scheme::Https, "org/a")?;
        let other = "for another audience";
        ada.expect_said(ada.home(), &["clone", &a, "none"], other)?;
        let variables = [trust, ("DOLT_OVERRIDE_GRPC_JWT_AUDIENCE", AUDIENCE.to_owned())];
        let ada = run.of_person("ada", &variables)?;
        ada.dolt(ada.home(), &["clone", &a, "by_tls"])?;
        ada.expect_same(&sources[0], &ada.home().join("by_tls"), "clone by token and TLS")?;
        server.stop()
    }

    fn serve_pattern(&self, tokens: &Path, arguments: &[String]) -> Result<Server> {
        let mut command = Server::command(self.busload)?;
        command.args(["--http", "127.0.0.1:0", "--stores"]);
        command.arg(format!(
            "*/*=aws://[{TABLE}:{BUCKET}]/{{name}}?profile={PROFILE}&{}",
            self.query()
        ));
        command.arg("--token-file").arg(tokens).args(arguments);
        command.env("AWS_SHARED_CREDENTIALS_FILE", self.credentials_file()?);
        command.env("BUSLOAD_PASSWORD", PASSWORD);
        Server::start_by(command)
    }

    /// Writes the file with busload's keys, of which the S3 server checks the signatures.
    fn credentials_file(&self) -> Result<PathBuf> {
        let path = self.run.work().join("credentials");
        let text = format!(
            "[{PROFILE}]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n"
        );
        fs::write(&path, text)?;
        Ok(path)
    }
}

fn url(server: &Server, scheme: Scheme, path: &str) -> Result<String> {
    let port = server.http_port().context("no HTTP front")?;
    let scheme = if scheme == Scheme::Https { "https" } else { "http" };
    Ok(format!("{scheme}://127.0.0.1:{port}/{path}"))
}

/// Makes a key pair, which dolt then uses, and returns its public key.
fn new_key(run: &Run) -> Result<String> {
    let said = run.dolt(run.home(), &["creds", "new"])?;
    let key = said.lines().find_map(|line| line.strip_prefix("pub key: "));
    let key = key.with_context(|| format!("dolt creds new: no key in {said}"))?.trim().to_owned();
    run.dolt(run.home(), &["creds", "use", &key])?;
    let listed = run.dolt(run.home(), &["creds", "ls"])?;
    if !listed.contains(&key) {
        bail!("dolt creds ls: no {key} in {listed}");
    }
    Ok(key)
}

fn token_file(run: &Run, keys: &[(String, &str)]) -> Result<PathBuf> {
    let path = run.work().join("tokens.toml");
    let entry = |(key, pattern): &(String, &str)| {
        format!("[[key]]\npublic_key = \"{key}\"\nread = [\"{pattern}\"]\n")
    };
    fs::write(&path, keys.iter().map(entry).collect::<String>())?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(path)
}

/// Makes a certificate of 127.0.0.1, which is its own authority.
fn certificate(run: &Run) -> Result<PathBuf> {
    let [certificate, key] = tls_files(run);
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-nodes", "-days", "1", "-subj", "/CN=localhost"]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout"]).arg(&key);
    output(openssl.arg("-out").arg(&certificate))?;
    Ok(certificate)
}

fn tls_files(run: &Run) -> [PathBuf; 2] {
    ["certificate.pem", "key.pem"].map(|name| run.work().join(name))
}

fn tls_arguments(run: &Run) -> Vec<String> {
    let [certificate, key] = tls_files(run).map(|path| path.display().to_string());
    ["--tls-cert".to_owned(), certificate, "--tls-key".to_owned(), key].into()
}
