//! TLS with libpq's modes, done by rustls.
//!
//! | `sslmode` | first attempt | second attempt | the server's certificate |
//! |---|---|---|---|
//! | `disable` | plain | | |
//! | `allow` | plain | TLS, if the server refused the login | as with `require` |
//! | `prefer` | TLS if the server has it | plain, if TLS or the login failed | as with `require` |
//! | `require` | TLS | | its chain is checked if there is a root certificate file, else no check |
//! | `verify-ca` | TLS | | its chain is checked |
//! | `verify-full` | TLS | | its chain and its name are checked |
//!
//! Root certificates: `sslrootcert`, by default `~/.postgresql/root.crt` if it exists;
//! `sslrootcert=system` uses those of the operating system and means `verify-full`. Stricter than
//! libpq, which then goes on without a check or without TLS: a file that was named and does not
//! exist, or that holds no certificates, is an error in every mode but `disable`. A Unix socket is
//! never encrypted. Certificate revocation lists and keys with a passphrase are not supported.
//!
//! Each new connection reads the files again, so that renewed certificates need no restart.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::{
    SettingsError,
    limits::CERTIFICATE_FILE_BYTES_MAX,
    tls::verifier::{NameCheck, Roots, Verifier},
    values::unfit,
};

mod certificate;
mod verifier;

/// Mode of TLS; see the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SslMode {
    /// TLS is never used.
    Disable,
    /// TLS is used if the server insists.
    Allow,
    /// TLS is used if the server offers it.
    Prefer,
    /// TLS is always used.
    Require,
    /// TLS is always used, with a certificate that a root certificate signed.
    VerifyCa,
    /// TLS is always used, with a certificate for this host that a root certificate signed.
    VerifyFull,
}

/// Settings of TLS, as libpq takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Strictness of the checks, from `sslmode`.
    pub mode: SslMode,
    /// Trusted roots, from `sslrootcert`.
    pub roots: RootCertificates,
    /// Client certificate, from `sslcert` and `sslkey`.
    pub client: ClientCertificate,
}

/// Certificates whose signatures are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootCertificates {
    /// The certificates in this file.
    File(PathBuf),
    /// The certificates in this file if it exists; else the server's certificate is not checked, or
    /// modes that need a check fail.
    FileIfThere(Option<PathBuf>),
    /// The certificates of the operating system.
    System,
}

/// Certificate that the client shows to the server, besides a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// The client shows no certificate.
    None,
    /// A certificate that was named.
    Files {
        /// The certificate and those between it and the root.
        certificate: PathBuf,
        /// File with its key.
        key: Option<PathBuf>,
    },
    /// A certificate at its default path, if it exists.
    FilesIfThere {
        /// The certificate and those between it and the root.
        certificate: PathBuf,
        /// File with its key.
        key: Option<PathBuf>,
    },
}

const MODES: [(SslMode, &str); 6] = [
    (SslMode::Disable, "disable"),
    (SslMode::Allow, "allow"),
    (SslMode::Prefer, "prefer"),
    (SslMode::Require, "require"),
    (SslMode::VerifyCa, "verify-ca"),
    (SslMode::VerifyFull, "verify-full"),
];

impl SslMode {
    pub(crate) fn parse(text: &str) -> Result<Self, SettingsError> {
        let found = MODES.iter().find(|(_, name)| *name == text);
        found.map(|(mode, _)| *mode).ok_or_else(|| {
            unfit(
                "sslmode",
                text,
                "expected disable, allow, prefer, require, verify-ca or verify-full",
            )
        })
    }

    fn verifies(self) -> bool {
        matches!(self, Self::VerifyCa | Self::VerifyFull)
    }
}

impl fmt::Display for SslMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = MODES.iter().find(|(mode, _)| mode == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl TlsSettings {
    /// Returns the configuration of a handshake. Reads files, so it blocks. The error is a text for
    /// people.
    pub(crate) fn client_config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let name = if self.mode == SslMode::VerifyFull { NameCheck::Full } else { NameCheck::None };
        let verifier = Verifier::new(&provider, self.roots()?, name);
        let builder = ClientConfig::builder_with_provider(Arc::<CryptoProvider>::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS: {error}"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        match self.client_certificate()? {
            None => Ok(builder.with_no_client_auth()),
            Some((chain, key)) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| format!("client certificate and key: {error}")),
        }
    }

    fn roots(&self) -> Result<Option<Roots>, String> {
        match &self.roots {
            RootCertificates::File(path) => read_roots(path).map(Some),
            RootCertificates::FileIfThere(Some(path)) if path.exists() => {
                read_roots(path).map(Some)
            }
            RootCertificates::FileIfThere(path) if self.mode.verifies() => {
                let path = path.as_deref().unwrap_or(Path::new("~/.postgresql/root.crt"));
                Err(format!(
                    "sslmode={} needs root certificates: {} does not exist; set sslrootcert",
                    self.mode,
                    path.display()
                ))
            }
            RootCertificates::FileIfThere(_) => Ok(None),
            RootCertificates::System => system_roots().map(Some),
        }
    }

    fn client_certificate(&self) -> Result<Option<(Chain, PrivateKeyDer<'static>)>, String> {
        let (certificate, key) = match &self.client {
            ClientCertificate::Files { certificate, key } => (certificate, key),
            ClientCertificate::FilesIfThere { certificate, key } if certificate.exists() => {
                (certificate, key)
            }
            ClientCertificate::None | ClientCertificate::FilesIfThere { .. } => return Ok(None),
        };
        let key = key.as_ref().ok_or("sslcert without sslkey")?;
        check_key_mode(key)?;
        let chain = read_certificates("sslcert", certificate)?;
        let pem = read_file("sslkey", key)?;
        let key_der = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
            format!("sslkey {}: expected a private key in PEM without a passphrase", key.display())
        })?;
        Ok(Some((chain, key_der)))
    }
}

type Chain = Vec<CertificateDer<'static>>;

fn read_roots(path: &Path) -> Result<Roots, String> {
    let roots = Roots::new(read_certificates("sslrootcert", path)?);
    match roots.store_len() {
        0 => Err(format!("sslrootcert {} holds no certificate that can be used", path.display())),
        _ => Ok(roots),
    }
}

fn system_roots() -> Result<Roots, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    match (store.is_empty(), found.errors.first()) {
        (false, _) => Ok(Roots::of_system(store)),
        (true, Some(error)) => Err(format!("sslrootcert=system: {error}")),
        (true, None) => {
            Err("sslrootcert=system: the operating system has no root certificates".into())
        }
    }
}

fn read_certificates(option: &str, path: &Path) -> Result<Chain, String> {
    let pem = read_file(option, path)?;
    let chain: Result<Chain, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(format!("{option} {}: expected certificates in PEM", path.display())),
    }
}

fn read_file(option: &str, path: &Path) -> Result<Vec<u8>, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(CERTIFICATE_FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error| format!("cannot read {option} {}: {error}", path.display()))
}

/// Checks a key file's mode as libpq does: ours and closed to all others, or root's and readable by
/// a group.
fn check_key_mode(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let metadata =
        path.metadata().map_err(|error| format!("cannot read sslkey {shown}: {error}"))?;
    let open_bits = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    match metadata.mode() & open_bits {
        0 => Ok(()),
        _ => Err(format!(
            "sslkey {shown} can be read by others; its mode must be 0600, or 0640 if root owns it"
        )),
    }
}
